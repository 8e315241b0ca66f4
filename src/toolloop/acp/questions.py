"""Ask the person at the editor about calls that wait, and record each answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from acp import RequestError
from acp.core import Connection
from attrs import define, field

from toolloop import Approve, AsyncInbox, AsyncToolLoopHandle, Deny, Grant, Rerun, ToolCall
from toolloop.acp.loops import AcpLoops
from toolloop.acp.screen import Screen
from toolloop.errors import CallerError
from toolloop.inbox import Offer, retry_store_errors
from toolloop.types import JSON, Decision

_POLL = 1.0  # seconds, for deadlines
_PAST = {"approve": "approved", "deny": "denied", "answer": "answered", "rerun": "started again"}
_LATE = "Your answer came later, and changes nothing."
Option = tuple[str, str, str, Decision]  # its id, what the person reads, the kind of the protocol, and what it means
Card = asyncio.Task[Decision | None]  # the answer to a question that the editor shows; None: it decides nothing


@define(eq=False)
class Turn:
    """A prompt that is under way, or what continues after a load.

    Attributes:
        cancelled: done once the editor cancelled it.
        is_left: whether its questions are given up: it was cancelled, or another prompt came.
        news: set when something may have happened that its questions wait for.
        asked: the digests of the calls that the person was asked about in it. None is asked about twice.
        open: the calls whose cards still count, each with its card, by digest.

    """

    cancelled: asyncio.Future[Any] = field(factory=asyncio.Future)
    is_left: bool = False
    news: asyncio.Event = field(factory=asyncio.Event)
    asked: set[str] = field(factory=set)
    open: dict[str, tuple[ToolCall, Card]] = field(factory=dict)

    def leave(self) -> None:
        """Give up its questions."""
        self.is_left = True
        self.news.set()

    async def wait_until_given_up(self, is_stuck: asyncio.Event) -> None:
        """Wait until it is cancelled, and the store does not take that. `is_stuck`: set while the store fails."""
        await asyncio.wait({self.cancelled})
        await is_stuck.wait()


@define(eq=False)
class Questions:
    """Asks about the calls of one session.

    Attributes:
        loops: the parts of the loop.
        handle: the handle of the loop.
        inbox: the inbox of the person.
        screen: where the person reads what came of an answer.
        editor: who is asked.

    """

    loops: AcpLoops
    handle: AsyncToolLoopHandle
    inbox: AsyncInbox
    screen: Screen
    editor: Connection
    _cards: set[Card] = field(init=False, factory=set)  # the editor keeps one until it is answered

    async def ask(self, turn: Turn) -> None:
        """Ask about the calls that the person may decide, until all are decided or the questions are given up."""
        watching = asyncio.create_task(retry_store_errors(self.handle.loop_id, partial(self._watch, turn)))
        try:
            while await self._look(turn):
                with suppress(TimeoutError):
                    await asyncio.wait_for(turn.news.wait(), _POLL)
                turn.news.clear()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, turn: Turn) -> None:
        """Look again after each change of the loop, also if another process made it."""
        async for _ in self.inbox.watch(self.handle.loop_id):
            turn.news.set()

    async def _look(self, turn: Turn) -> bool:
        """Take each card that is answered or whose call is decided elsewhere, and ask about new calls.

        Return whether cards are left that count.
        """
        self.handle.tick(await asyncio.to_thread(getattr(self.loops.store, "now", time.time)))
        await self.handle.flush()
        waiting = {call.digest: call for call in self.handle.pending}
        for digest, (call, card) in [*turn.open.items()]:
            if card.done():
                if (decision := card.result()) is not None:
                    await self._decide(call, decision)
                del turn.open[digest]
            elif digest not in waiting:
                del turn.open[digest]
                await self._tell(call)
        if turn.is_left:
            return False
        if not waiting.keys() <= turn.asked:
            offers = await self.inbox.offers(self.handle.loop_id)
            for digest, call in waiting.items():
                if digest not in turn.asked and (options := [*self._options(call, offers)]):
                    await self._show(turn, call, options)
                turn.asked.add(digest)
        return bool(turn.open)

    async def show_rest(self) -> None:
        """Say what still waits, and where it can be decided."""
        offers = await self.inbox.offers(self.handle.loop_id)
        needs = {path: offer.needs or "one person" for path, offer in offers.items()}
        calls = [(call.name, call.why, needs.get("/".join(call.path))) for call in self.handle.pending]
        what = ", ".join(f"{name} ({'an answer' if why == 'external' else need})" for name, why, need in calls)
        await self.screen.note(
            f"Still waiting: {what}. Calls that you may decide are asked about again after your next message. The page "
            f"and the command `toolloop review` show all of them, in the loop {self.handle.loop_id}."
        )

    async def _show(self, turn: Turn, call: ToolCall, options: list[Option]) -> None:
        fields = await self.screen.show_call(call.path, call.name)
        if call.reason:
            await self.screen.note(f"{call.name}: {call.reason}")
        card = asyncio.create_task(self._request(turn, call, fields, options))
        turn.open[call.digest] = call, card
        self._cards.add(card)
        card.add_done_callback(self._cards.discard)

    async def _request(self, turn: Turn, call: ToolCall, fields: JSON, options: list[Option]) -> Decision | None:
        """Show a card, and return what its answer means. One that does not count any more is described: it came late.

        The SDK cannot take a card back.
        """
        shown = [{"optionId": name, "name": label, "kind": kind} for name, label, kind, _ in options]
        asked = {"sessionId": self.handle.loop_id, "toolCall": fields, "options": shown}
        decision: Decision | None = None
        with suppress(RequestError, ConnectionError):
            match await self.editor.send_request("session/request_permission", asked):
                case {"outcome": {"outcome": "selected", "optionId": chosen}}:
                    decision = next((each for name, _, _, each in options if name == chosen), None)
        if decision is not None and (turn.is_left or call.digest not in turn.open):
            await retry_store_errors(self.handle.loop_id, partial(self._tell, call, _LATE))
            return None
        turn.news.set()
        return decision

    def _options(self, call: ToolCall, offers: Mapping[str, Offer]) -> Iterator[Option]:
        """Yield the answers that the person may give; none if others must decide the call."""
        offer = offers.get("/".join(call.path))
        if call.why == "external" or offer is None or offer.digest != call.digest:
            return
        if offer.needs and offer.kinds.isdisjoint({"approve", "rerun"}):  # others must decide: no turn waits for them
            return
        if "approve" in offer.kinds:
            yield "once", "Allow once", "allow_once", Approve()
        if "rerun" in offer.kinds:
            yield "again", "Run it again: it may have run already", "allow_once", Rerun()
        if "grant" in offer.kinds:
            yield "exact", "Allow exactly this again, in this session", "allow_always", Approve(remember=Grant())
            wider = self.loops.always.get(call.name)
            if wider is not None and self.loops.may is None:  # with rights, only what was approved may be granted
                values = ", ".join(f"{key} = {value}" for key, value in (wider.match or {}).items())
                label = f"Allow {call.name} with {values or 'any input'}, in this session"
                yield "wider", label, "allow_always", Approve(remember=wider)
        if "deny" in offer.kinds:
            yield "reject", "Reject", "reject_once", Deny("It was rejected in the editor.")

    async def _decide(self, call: ToolCall, decision: Decision) -> None:
        try:
            [standing] = (await self.inbox.decide(self.handle.loop_id, {call: decision})).values()
        except CallerError as refused:
            return await self.screen.note(f"Your answer changes nothing: {refused}")
        finally:
            await self.handle.flush()
        if not standing.is_yours:
            await self._tell(call, "Your answer changes nothing.")
        elif standing.kind == "deny":
            await self.screen.finish("/".join(call.path), standing.reason or "", is_error=True)
        return None

    async def _tell(self, call: ToolCall, then: str = "") -> None:
        """Say what was decided elsewhere."""
        trail = await self.inbox.trail(self.handle.loop_id)
        last = next((each for each in reversed(trail) if each.path == call.path), None)
        what = f"{call.name} does not wait any more."
        if last is not None and last.kind in _PAST:
            edited = " with another input" if last.kind == "approve" and last.content is not None else ""
            what = f"{last.by or 'Somebody'} {_PAST[last.kind]} {call.name}{edited}."
        await self.screen.note(f"{what} {then}".strip())
        if last is None or last.kind not in ("approve", "rerun"):
            await self.screen.finish("/".join(call.path), what, is_error=last is None or last.kind != "answer")
