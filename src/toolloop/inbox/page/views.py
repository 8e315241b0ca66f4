"""The pages: read the store through the inbox, and render what one person sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote, urlencode

from attrs import asdict, evolve, field, frozen
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolloop._drivers.event_loops import run_in_thread
from toolloop._interface.grants import list_standing_grants
from toolloop._interface.loop_view import view_of
from toolloop.inbox.items import InboxCall
from toolloop.inbox.listing import CallFilter
from toolloop.inbox.page.changes import LOOPS, Changes, Snapshot
from toolloop.inbox.page.forms import BadForm
from toolloop.inbox.page.people import Me, People
from toolloop.inbox.page.rendering import rendered
from toolloop.inbox.page.security import FormTokens
from toolloop.inbox.rights.links import Link
from toolloop.inbox.shown.cards import Card, card_of, cards_of, list_newest, read_loop, read_newest_steps, waiting_cards
from toolloop.inbox.shown.keys import from_key, key_of
from toolloop.inbox.shown.queue import MOST, Filters, Queue, group_of, group_of_cards, is_for, queue_of
from toolloop.machine.values.names import Person
from toolloop.rules import Rules
from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import StoredLoop

FORMS = ("deny", "answer", "edit", "rerun", "grant")


@frozen
class Place:
    """Where a call is shown: the addresses of its forms, and the hidden fields that each has.

    Attributes:
        action: the address that takes the decision.
        path: the address of the page, without its query. `query`: the parameters that it keeps.
        number: what a person must type before a decision; empty if nothing.

    """

    action: str
    path: str
    query: str
    fields: Mapping[str, str]
    number: str = ""

    def at(self, **more: str) -> str:
        """Return the address of the page with more parameters."""
        query = "&".join(part for part in (self.query, urlencode(more)) if part)
        return f"{self.path}?{query}" if query else self.path


@frozen
class Look:
    """What the queue shows. `key`: the call in focus, else the first. `done`: the call that was just decided."""

    filters: Filters
    key: str | None
    done: str | None = None


@frozen
class Problem:
    """Why a form was refused. `field`: the id of the field to mend."""

    title: str
    text: str = ""
    field: str = ""


@frozen
class Refused:
    """A form that was refused, or that shows something before it is sent: how the page shows it again."""

    status: int = 200
    do: str = ""
    problem: Problem | None = None
    typed: Mapping[str, str] = field(factory=dict)
    wrongs: Mapping[int, str] = field(factory=dict)
    change: Any = None


NOT_REFUSED = Refused()


@frozen
class Views:
    """The pages of a store. `secret`: the key that signs links; `rules`: those of the workers, if they are known."""

    secret: str
    people: People
    tokens: FormTokens
    changes: Changes
    clock: Callable[[], float] = time.time
    rules: Rules | None = None

    # --- the queue ---------------------------------------------------------------------------------------------------

    async def home(self, request: Request) -> Response:
        """Show the queue, and one call."""
        me, query = await self.people.require(request), request.query_params
        do = query.get("do", "")
        again = Refused(do=do if do in FORMS else "")
        return await self.queue_page(request, me, Look(Filters.of(query), query.get("call"), query.get("done")), again)

    async def queue_page(self, request: Request, me: Me, look: Look, again: Refused = NOT_REFUSED) -> Response:
        """Return the queue with a call in focus."""
        filters, key, done = look.filters, look.key, look.done
        now, base, snapshot = self.clock(), request.scope.get("root_path", ""), await self.changes.queue(me)
        queue = _queue(snapshot, filters, me.person, now)
        shown = key or next(iter(queue.order), None)
        card = None if shown is None else await self.card(shown, me, now)
        # The line above says nothing where no such call exists: the address was made by hand.
        last = next(iter(await self._cards([done] if done else [], me, now)), None)
        if card is not None:
            again = _fitting(again, card)
        before, position, after = _around(queue.order, shown)
        at = partial(_reader_address, base, filters)
        place = None
        if card is not None:
            is_new = bool(done) or again.status == 409  # noqa: PLR2004 - the call has changed
            fields = {"csrf": self.token(me, is_new=is_new), "call": card.key, "back": filters.query()}
            fields |= {"next": after or "", "digest": card.call.digest if card.call is not None else ""}
            place = Place(f"{base}/decide", f"{base}/", filters.query(call=card.key), fields)
        return _again(
            request,
            "queue.html",
            again,
            page="queue",
            me=me,
            now=now,
            version=snapshot.version,
            queue=queue,
            filters=filters,
            focus=bool(key),
            card=card,
            alike=_number_alike(snapshot, shown),
            place=place,
            before=at(before),
            position=position,
            after=at(after),
            done=last,
        )

    async def order(self, filters: Filters, me: Me) -> tuple[str, ...]:
        """Return the keys of the calls that the queue would show."""
        return _queue(await self.changes.queue(me), filters, me.person, self.clock()).order

    async def card(self, key: str, me: Me, now: float) -> Card:
        """Return a call for the page, with what the person may do."""

        def find() -> Card:
            return _with_rights(card_of(me.store, key, me.person, now), me)

        return await run_in_thread(find)

    async def _cards(self, keys: Sequence[str], me: Me, now: float) -> list[Card]:
        return await run_in_thread(partial(cards_of, me.store, keys, me.person, now))

    async def group(self, request: Request) -> Response:
        """Show the calls that are like one, and what came of those that were just decided."""
        return await self.group_page(request, await self.people.require(request), request.query_params)

    async def group_page(self, request: Request, me: Me, query: Any, problem: Problem | None = None) -> Response:
        """Return the page of a group. `query`: `of`, a call of it; `one`: in its loop only; `done`: those decided."""
        now, base, filters = self.clock(), request.scope.get("root_path", ""), Filters.of(query)
        snapshot = await self.changes.queue(me)
        of, one = query.get("of", ""), query.get("one", "")
        done = [*dict.fromkeys(query.get("done", "").split())][:MOST]
        calls = group_of(snapshot.calls, of, in_one_loop=bool(one))[:MOST]
        cards = await self._cards([key_of(call.loop_id, call.path) for call in calls], me, now)
        await run_in_thread(lambda: [_with_rights(card, me) for card in cards])
        # Only calls that this person can decide like this are chosen together.
        do = "deny" if query.get("do") == "deny" or not any("approve" in card.takes for card in cards) else ""
        cards = [card for card in cards if (do or "approve") in card.takes]
        results = await self._cards(done, me, now)
        if not cards and not results:
            results = [await self.card(of, me, now)]
        mine = [card for card in results if card.by == "you"]
        deadlines = [card.expires_at for card in cards if card.expires_at is not None]
        here = {"of": of, "one": one}
        return rendered(
            request,
            "group.html",
            status=422 if problem else 200,
            me=me,
            now=now,
            version=snapshot.version,
            filters=filters,
            group=group_of_cards(cards),
            results=group_of_cards(results) if results else None,
            right=len(mine),
            verb="denied" if mine and mine[0].tag.kind == "no" else "approved",
            name=(cards or results)[0].name,
            one=one,
            deadline=min(deadlines, default=None),
            fields={"csrf": self.token(me), "back": filters.query(), **here},
            here=f"{base}/group?{filters.query(**here)}",
            do=do,
            problem=problem,
        )

    # --- loops -------------------------------------------------------------------------------------------------------

    async def loops(self, request: Request) -> Response:
        """List the loops, newest first."""
        me = await self.people.require(request)
        rows = await run_in_thread(partial(me.store.list, limit=LOOPS, before=request.query_params.get("before")))
        more = rows[-1].cursor if len(rows) == LOOPS else None
        return rendered(request, "loops.html", page="loops", me=me, now=self.clock(), rows=rows, more=more)

    async def loop(self, request: Request) -> Response:
        """Show a loop: what waits or failed, then its trail."""
        loop_id = request.query_params.get("id", "")
        if not loop_id:
            raise BadForm("the address has no id of a loop")
        return await self.loop_page(request, await self.people.require(request), loop_id)

    async def loop_page(self, request: Request, me: Me, loop_id: str, again: Refused = NOT_REFUSED) -> Response:
        """Return the page of a loop."""
        now, version = self.clock(), await self.changes.version(me, loop_id)
        row, story, is_long = await run_in_thread(partial(read_newest_steps, me.store, loop_id))
        if is_whole := is_long and "whole" in request.query_params:
            row, story = await run_in_thread(partial(read_loop, me.store, loop_id))
        may = await run_in_thread(partial(me.allowed, ("say", "stop", "retry", "grant"), row))
        return _again(
            request,
            "loop.html",
            again,
            me=me,
            now=now,
            version=version,
            loop_id=loop_id,
            row=row,
            may=may,
            view={**view_of(story.state), "status": row.status},
            story=story,
            steps=list_newest(story) if is_long and not is_whole else story.steps,
            is_short=is_long and not is_whole,
            waits=(cards := waiting_cards(row, story, me.person, now)),
            waiting_paths={card.path for card in cards},
            kept=(kept := [each for each in story.state.root.kept if each.id]),
            kept_ids={each.id for each in kept},
            grants=list_standing_grants(story.state, now),
            fields={"csrf": self.token(me), "loop": quote(loop_id, safe="")},
            key=token_urlsafe(12),
        )

    # --- links -------------------------------------------------------------------------------------------------------

    async def link(self, request: Request) -> Response:
        """Show the call of a link. Opening it decides nothing, because mail programs also open links."""
        do = request.query_params.get("do", "")
        return await self.link_page(request, Refused(do=do if do in FORMS else ""))

    async def link_page(self, request: Request, again: Refused) -> Response:
        """Return the page of a link."""
        token, base = request.path_params["token"], request.scope.get("root_path", "")
        me = await self.at_link(request)
        linked = await me.inbox.linked(token)
        card = await self.card(key_of(linked.loop_id, linked.path), me, self.clock())
        card.allow = frozenset(linked.takes)
        path = f"{base}/link/{token}"
        fields = {"csrf": self.tokens.of(f"link {token}"), "digest": linked.digest}
        place = Place(path, path, "", fields, "" if me.is_signed_in else number_of(token))
        person = "" if me.is_signed_in else me.name
        return _again(
            request,
            "link.html",
            _fitting(again, card),
            person=person,
            now=card.now,
            card=card,
            place=place,
            focus=False,
        )

    async def at_link(self, request: Request) -> Me:
        """Return the person at a link. It raises if the link is not valid."""
        return await self.people.at_link(request, Link.of(request.path_params["token"], self.secret, self.clock()))

    # --- changes -----------------------------------------------------------------------------------------------------

    async def changes_since(self, request: Request) -> Response:
        """Answer an open page that asks what changed. See `changes`."""
        me, query = await self.people.require(request), request.query_params
        filters = Filters.of(query)
        wanted = CallFilter(filters.tool or None, None, filters.q or None)

        def fits(loop: StoredLoop, call: PendingCall) -> bool:
            is_mine = not call.named.get("demands") or is_for(InboxCall.of(loop, call), me.person)
            return is_mine == (filters.view == "you")

        answer = await self.changes.since(me, query.get("since"), query, wanted, fits)
        return Response(status_code=204) if answer is None else JSONResponse(answer)

    # --- the person --------------------------------------------------------------------------------------------------

    def token(self, me: Me, *, is_new: bool = False) -> str:
        """Return the token of the forms of a person. `is_new`: the call in focus has just appeared."""
        return self.tokens.of(f"person {me.name}", is_new=is_new)


def _again(request: Request, template: str, again: Refused, /, **values: Any) -> Response:
    """Return a page with what a refused form says."""
    return rendered(request, template, **asdict(again, recurse=False), **values)


def _with_rights(card: Card, me: Me) -> Card:
    """Return a call with what a person may do."""
    if me.may is not None and card.call is not None:
        allowed = me.allowed(("approve", "deny", "answer", "rerun", "grant"), card.row, card.call)
        card.allow = allowed | {"edit"} if "approve" in allowed else allowed - {"grant"}
    return card


def _fitting(again: Refused, card: Card) -> Refused:
    """Return which form is open: one that the call takes."""
    if card.why == "external" and not again.do:
        again = evolve(again, do="answer")
    return again if again.do in card.takes or not card.waits else evolve(again, do="")


def _queue(snapshot: Snapshot, filters: Filters, me: Person, now: float) -> Queue:
    failed = [loop for loop in snapshot.loops if loop.status == "failed"]
    chosen = snapshot.calls
    if filters.tool or filters.q or filters.sort != "deadline":
        chosen = snapshot.select(
            filters.tool or None, filters.q or None, "age" if filters.sort == "wait" else "deadline"
        )
    return queue_of(snapshot.calls, chosen, failed, filters, (me, now))


def _around(order: tuple[str, ...], key: str | None) -> tuple[str | None, int, str | None]:
    """Return the key before a call, its position from 1 (0: it is not there), and the key after it."""
    if key is None or key not in order:
        return None, 0, next(iter(order), None)
    at = order.index(key)
    return (order[at - 1] if at else None), at + 1, (order[at + 1] if at + 1 < len(order) else None)


def _reader_address(base: str, filters: Filters, key: str | None) -> str | None:
    return None if key is None else f"{base}/?{filters.query(call=key)}"


def _number_alike(snapshot: Snapshot, key: str | None) -> int:
    """Return how many waiting calls are like this one, with itself."""
    like = None if key is None else snapshot.alike.get(from_key(key))
    return 0 if like is None else sum(each == like for each in snapshot.alike.values())


def number_of(token: str) -> str:
    """Return the number that the person at a link types. A program that opens the links of a mail does not."""
    return str(10 + int.from_bytes(sha256(token.encode()).digest()[:4], "big") % 90)
