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

from toolloop._drivers.event_loops import in_thread
from toolloop._interface.grants import standing_grants
from toolloop._interface.loop_view import view_of
from toolloop.inbox.asynchronous import AsyncInbox
from toolloop.inbox.items import InboxCall
from toolloop.inbox.listing import CallFilter
from toolloop.inbox.page.changes import LOOPS, Changes, Snapshot
from toolloop.inbox.page.forms import BadForm
from toolloop.inbox.page.people import People
from toolloop.inbox.page.rendering import rendered
from toolloop.inbox.page.security import FormTokens
from toolloop.inbox.page.shown.cards import Card, card_of, cards_of, read_loop, waiting_cards
from toolloop.inbox.page.shown.keys import key_of
from toolloop.inbox.page.shown.queue import MOST, Filters, Queue, alike, group_of, group_of_cards, is_for, queue_of
from toolloop.machine.values.names import Person
from toolloop.stores.protocol import Store

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
    """The pages of a store."""

    store: Store
    inbox: AsyncInbox
    people: People
    tokens: FormTokens
    changes: Changes
    clock: Callable[[], float] = time.time

    # --- the queue ---------------------------------------------------------------------------------------------------

    async def home(self, request: Request) -> Response:
        """Show the queue, and one call."""
        me, query = await self.people.require(request), request.query_params
        do = query.get("do", "")
        again = Refused(do=do if do in FORMS else "")
        return await self.queue_page(request, me, Look(Filters.of(query), query.get("call"), query.get("done")), again)

    async def queue_page(self, request: Request, me: Person, look: Look, again: Refused = NOT_REFUSED) -> Response:
        """Return the queue with a call in focus."""
        filters, key, done = look.filters, look.key, look.done
        now, base, snapshot = self.clock(), request.scope.get("root_path", ""), await self.changes.queue()
        queue = _queue(snapshot, filters, me, now)
        shown = key or next(iter(queue.order), None)
        card = None if shown is None else await self.card(shown, me, now)
        # The line above says nothing where no such call exists: the address was made by hand.
        told = next(iter(await self._cards([done] if done else [], me, now)), None)
        if card is not None and card.why == "external" and not again.do:
            again = evolve(again, do="answer")
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
            alike=_number_alike(snapshot.calls, shown),
            place=place,
            before=at(before),
            position=position,
            after=at(after),
            done=told,
        )

    async def order(self, filters: Filters, me: Person) -> tuple[str, ...]:
        """Return the keys of the calls that the queue would show."""
        return _queue(await self.changes.queue(), filters, me, self.clock()).order

    async def card(self, key: str, me: Person, now: float) -> Card:
        """Return a call for the page."""
        return await in_thread(partial(card_of, self.store, key, me, now))

    async def _cards(self, keys: Sequence[str], me: Person, now: float) -> list[Card]:
        return await in_thread(partial(cards_of, self.store, keys, me, now))

    async def group(self, request: Request) -> Response:
        """Show the calls that are like one, and what came of those that were just decided."""
        return await self.group_page(request, await self.people.require(request), request.query_params)

    async def group_page(self, request: Request, me: Person, query: Any, problem: Problem | None = None) -> Response:
        """Return the page of a group. `query`: `of`, a call of it; `one`: in its loop only; `done`: those decided."""
        now, base, filters = self.clock(), request.scope.get("root_path", ""), Filters.of(query)
        snapshot = await self.changes.queue()
        of, one = query.get("of", ""), query.get("one", "")
        done = [*dict.fromkeys(query.get("done", "").split())][:MOST]
        calls = group_of(snapshot.calls, of, in_one_loop=bool(one))[:MOST]
        cards = await self._cards([key_of(call.loop_id, call.path) for call in calls], me, now)
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
            do=query.get("do", ""),
            problem=problem,
        )

    # --- loops -------------------------------------------------------------------------------------------------------

    async def loops(self, request: Request) -> Response:
        """List the loops, newest first."""
        me = await self.people.require(request)
        rows = await in_thread(partial(self.store.list, limit=LOOPS, before=request.query_params.get("before")))
        more = rows[-1].cursor if len(rows) == LOOPS else None
        return rendered(request, "loops.html", page="loops", me=me, now=self.clock(), rows=rows, more=more)

    async def loop(self, request: Request) -> Response:
        """Show a loop: what waits or failed, then its trail."""
        loop_id = request.query_params.get("id", "")
        if not loop_id:
            raise BadForm("the address has no id of a loop")
        return await self.loop_page(request, await self.people.require(request), loop_id)

    async def loop_page(self, request: Request, me: Person, loop_id: str, again: Refused = NOT_REFUSED) -> Response:
        """Return the page of a loop."""
        now, version = self.clock(), await self.changes.version(loop_id)
        row, story = await in_thread(partial(read_loop, self.store, loop_id))
        return _again(
            request,
            "loop.html",
            again,
            me=me,
            now=now,
            version=version,
            loop_id=loop_id,
            row=row,
            view={**view_of(story.state), "status": row.status},
            story=story,
            steps=story.steps,
            waits=(cards := waiting_cards(row, story, me, now)),
            waiting_paths={card.path for card in cards},
            kept=(kept := [each for each in story.state.root.kept if each.id]),
            kept_ids={each.id for each in kept},
            grants=standing_grants(story.state, now),
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
        linked, person = await self.inbox.linked(token), await self.people.find(request)
        card = await self.card(key_of(linked.loop_id, linked.path), person or Person(""), self.clock())
        card.allow = frozenset(linked.takes)
        path = f"{base}/link/{token}"
        fields = {"csrf": self.tokens.of(f"link {token}"), "digest": linked.digest}
        place = Place(path, path, "", fields, "" if person else number_of(token))
        return _again(request, "link.html", again, now=card.now, card=card, place=place, focus=False)

    # --- changes -----------------------------------------------------------------------------------------------------

    async def changes_since(self, request: Request) -> Response:
        """Answer an open page that asks what changed. See `changes`."""
        me, query = await self.people.require(request), request.query_params
        filters = Filters.of(query)
        wanted = CallFilter(filters.tool or None, None, filters.q or None)

        def fits(call: InboxCall) -> bool:
            return is_for(call, me) == (filters.view == "you")

        answer = await self.changes.since(query.get("since"), query, wanted, fits)
        return Response(status_code=204) if answer is None else JSONResponse(answer)

    # --- the person --------------------------------------------------------------------------------------------------

    def token(self, me: Person, *, is_new: bool = False) -> str:
        """Return the token of the forms of a person. `is_new`: the call in focus has just appeared."""
        return self.tokens.of(f"person {me.name}", is_new=is_new)


def _again(request: Request, template: str, again: Refused, /, **values: Any) -> Response:
    """Return a page with what a refused form says."""
    return rendered(request, template, **asdict(again, recurse=False), **values)


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


def _number_alike(calls: Any, key: str | None) -> int:
    """Return how many waiting calls are like this one, with itself."""
    like = {key_of(call.loop_id, call.path): alike(call) for call in calls}
    return 0 if key is None or like.get(key) is None else sum(each == like[key] for each in like.values())


def number_of(token: str) -> str:
    """Return the number that the person at a link types. A program that opens the links of a mail does not."""
    return str(10 + int.from_bytes(sha256(token.encode()).digest()[:4], "big") % 90)
