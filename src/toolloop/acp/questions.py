"""Ask the person at the editor about calls that wait, and record each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from acp import RequestError
from acp.core import Connection
from attrs import define, field

from toolloop._drivers.event_loops import call_soon, in_thread
from toolloop._handles.asynchronous import AsyncToolLoopHandle
from toolloop.acp.loops import AcpLoops
from toolloop.acp.screen import Screen
from toolloop.errors import CallerError
from toolloop.inbox import AsyncInbox, Offer
from toolloop.inbox.shown.words import PAST, Need
from toolloop.inbox.watching import patiently
from toolloop.machine.values.calls import Approve, Decision, Deny, Grant, Rerun
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import JSON
from toolloop.stores.optional import now_at, watching
from toolloop.tools.calls import ToolCall

_POLL = 1.0  # seconds, for deadlines, and for stores that do not report changes
Option = tuple[str, str, Decision]  # what the person reads, the kind of the protocol, and what it means
Card = asyncio.Task[Option | None]  # the answer to a question that the editor shows; None: it went away without one


@define(eq=False)
class Turn:
    """A prompt that is under way, or what continues after a load.

    Attributes:
        cancelled: set once the editor cancelled it.
        is_left: whether its questions are given up: it was cancelled, or another prompt came.
        news: set when something may have happened that its questions wait for.
        asked: the digests of the calls that the person was asked about in it. None is asked about twice.

    """

    cancelled: asyncio.Event = field(factory=asyncio.Event)
    is_left: bool = False
    news: asyncio.Event = field(factory=asyncio.Event)
    asked: set[str] = field(factory=set)

    def leave(self) -> None:
        """Give up its questions."""
        self.is_left = True
        self.news.set()


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
    _late: set[asyncio.Task[None]] = field(init=False, factory=set)

    async def ask(self, turn: Turn) -> None:
        """Ask about the calls that the person may decide, until all are decided or the questions are given up."""
        cards = dict[Card, ToolCall]()
        try:
            await patiently(self.handle.loop_id, partial(self._follow, cards, turn))
        finally:
            for card, call in cards.items():
                self._leave(card, call)

    async def _follow(self, cards: dict[Card, ToolCall], turn: Turn) -> None:
        with watching(self.loops.store, partial(call_soon(), turn.news.set)):
            while not turn.is_left and await self._look(cards, turn):
                with suppress(TimeoutError):
                    await asyncio.wait_for(turn.news.wait(), _POLL)
                turn.news.clear()

    async def _look(self, cards: dict[Card, ToolCall], turn: Turn) -> bool:
        """Take each card that is answered or whose call is decided elsewhere, and ask about new calls.

        Return whether cards are left.
        """
        self.handle.tick(await in_thread(partial(now_at, self.loops.store)))
        await self.handle.flush()
        waiting = {call.digest for call in self.handle.pending}
        for card, call in [*cards.items()]:
            if card.done():
                if (option := card.result()) is not None:
                    await self._decide(call, option[2])
            elif call.digest not in waiting:
                await self._tell(call)
                self._leave(card, call)
            else:
                continue
            del cards[card]
        for call in self.handle.pending:
            if call.digest not in turn.asked:
                if (shown := await self._show(call)) is not None:
                    shown.add_done_callback(lambda _: turn.news.set())
                    cards[shown] = call
                turn.asked.add(call.digest)
        return bool(cards)

    def describe_rest(self) -> str:
        """Return what still waits, and where it can be decided."""
        parts = [(call, self._need(call).still_needed) for call in self.handle.pending]
        what = ", ".join(f"{call.name} ({'an answer' if call.why == 'external' else need})" for call, need in parts)
        return (
            f"Still waiting: {what}. Calls that you may decide are asked about again after your next message. The page "
            f"and the command `toolloop review` show all of them, in the loop {self.handle.loop_id}."
        )

    def _need(self, call: ToolCall) -> Need:
        return Need(call.demands or (Demand(),), call.counted_approvals, self.loops.person)

    async def _show(self, call: ToolCall) -> Card | None:
        if not (options := self._offer(call, await self.inbox.offers(self.handle.loop_id))):
            return None
        fields = await self.screen.show_call(call.path, call.name)
        if call.reason:
            await self.screen.note(f"{call.name}: {call.reason}")
        return asyncio.create_task(self._request(fields, options))

    async def _request(self, fields: dict[str, JSON], options: dict[str, Option]) -> Option | None:
        shown = [{"optionId": name, "name": label, "kind": kind} for name, (label, kind, _) in options.items()]
        asked = {"sessionId": self.handle.loop_id, "toolCall": fields, "options": shown}
        with suppress(RequestError, ConnectionError):
            match await self.editor.send_request("session/request_permission", asked):
                case {"outcome": {"outcome": "selected", "optionId": str(name)}}:
                    return options.get(name)
        return None

    def _offer(self, call: ToolCall, offers: Mapping[str, Offer]) -> dict[str, Option]:
        """Return the answers that the person may give; none if others must decide the call."""
        offer = offers.get("/".join(call.path))
        if call.why == "external" or offer is None or offer.digest != call.digest:
            return {}
        if offer.needs and offer.kinds.isdisjoint({"approve", "rerun"}):  # others must decide: no turn waits for them
            return {}
        options = dict[str, Option]()
        if "approve" in offer.kinds:
            options["once"] = ("Allow once", "allow_once", Approve())
        if "rerun" in offer.kinds:
            options["again"] = ("Run it again: it may have run already", "allow_once", Rerun())
        if "grant" in offer.kinds:
            exact = "Allow exactly this again, in this session"
            options["exact"] = (exact, "allow_always", Approve(remember=Grant()))
            wider = self.loops.always.get(call.name)
            if wider is not None and self.loops.may is None:  # with rights, only what was approved may be granted
                values = ", ".join(f"{key} = {value}" for key, value in (wider.match or {}).items())
                label = f"Allow {call.name} with {values or 'any input'}, in this session"
                options["wider"] = (label, "allow_always", Approve(remember=wider))
        if "deny" in offer.kinds:
            options["reject"] = ("Reject", "reject_once", Deny("It was rejected in the editor."))
        return options

    def _leave(self, card: Card, call: ToolCall) -> None:
        """Let a card be whose answer does not count any more. The SDK cannot take it back."""

        async def take_late() -> None:
            if await card is not None:
                await self._tell(call, "Your answer came later, and changes nothing.")

        task = asyncio.create_task(take_late())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

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
        if last is not None and last.kind in PAST:
            edited = " with another input" if last.kind == "approve" and last.content is not None else ""
            what = f"{last.by or 'Somebody'} {PAST[last.kind]} {call.name}{edited}."
        await self.screen.note(f"{what} {then}".strip())
        if last is None or last.kind not in ("approve", "rerun"):
            await self.screen.finish("/".join(call.path), what, is_error=last is None or last.kind != "answer")
