"""One run of one client: take over what it brings, follow the loop to its next pause, end with what is true then.

Taken are messages of the user, answers to interrupts, and results of tools of the front end. Nothing else of an input
counts, and nothing of it is an error: a note tells what was not applied, and why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import anyio
from ag_ui.core import PROTOCOL_VERSION, Message, RunAgentInput, ToolMessage, UserMessage
from attrs import define, evolve, field, frozen

from toolloop._drivers.event_loops import only_error
from toolloop._interface.loop_view import PendingView
from toolloop.agui.conversation import Conversation, blocks_of, is_known, key_of, snapshots, with_ids_of
from toolloop.agui.doors import LOG
from toolloop.agui.interrupts import make_interrupt, note_of, read_answer
from toolloop.agui.live import Reader
from toolloop.agui.terms import Event, Terms
from toolloop.agui.threads import Threads
from toolloop.agui.translating import Translator
from toolloop.errors import BadTool, CallerError, LoopNotFound, StoreError, ToolLoopError
from toolloop.inbox import AsyncInbox, LoopChange, Offer, ShownLoop
from toolloop.inbox.watching import patiently
from toolloop.machine.values.calls import Answer, Decision
from toolloop.machine.values.names import Person

HEARTBEAT: Final = 15.0  # seconds
_AT_REST: Final = ("needs_decision", "needs_command", "failed", "ended")
_FETCH = "a part was left out: only texts, images and PDF files with their data are taken, no addresses"
_STORE = ("The store failed. Nothing is lost: try again.", "store")
_OURS = ("The server failed. Run again.", "internal")
_KEPT = "it is kept, and goes out with the results of the calls that wait"
_REGENERATE = "nothing new came with a history that ends before that of the thread: fork it to go on from there"


_NOTHING: Any = {"status": None, "messages": [], "pending": [], "kept": [], "brought": [], "said": [], "schemas": {}}


@frozen
class Picture:
    """A loop as it is stored now, for one client.

    Attributes:
        shown: the loop. One that does not exist has no status.
        messages: the conversation, with the client's ids.
        known: the ids of its messages, as the loop has them. `said`: of all that was ever said in it.
        terms: what this client may bring, and what it gets.
        offers: what the person may do with the calls that wait, by digest.

    """

    terms: Terms
    shown: ShownLoop = _NOTHING
    messages: Sequence[Event] = ()
    known: frozenset[str] = frozenset()
    said: frozenset[str] = frozenset()
    offers: Mapping[str, Offer] = field(factory=dict)

    @property
    def exists(self) -> bool:
        """Whether there is such a loop."""
        return self.shown["status"] is not None

    def is_of_front_end(self, call: PendingView) -> bool:
        """Return whether a call waits for the front end that brought its tool."""
        return call["why"] == "external" and len(call["path"]) == 1 and call["name"] in self.terms.brought


@define
class Visit:
    """One run of one client.

    Attributes:
        threads: those of the application.
        person: who runs it.
        asked: the input.
        tools: the tools of the front end that it may bring, by name.
        notes: what was not applied, and why.
        send: sends an event; None is a sign of life.
        give_up: called when the client is too slow.

    """

    threads: Threads
    person: Person
    asked: RunAgentInput
    tools: Mapping[str, Event]
    notes: list[Event]
    send: Callable[[Event | None], Awaitable[None]]
    give_up: Callable[[], None]
    inbox: AsyncInbox = field(init=False)
    loop_id: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Find the loop of the thread."""
        self.inbox = self.threads.inbox_of(self.person)
        self.loop_id = self.threads.loop_of(self.person, self.asked.thread_id)

    async def run(self) -> None:
        """Run to the end. One event ends it; after an error, that of `end_of`."""
        ids = {"threadId": self.asked.thread_id, "runId": self.asked.run_id}
        await self.send({"type": "RUN_STARTED", **ids, "protocolVersion": PROTOCOL_VERSION})
        reader = Reader(self.give_up)
        self.threads.live.join(self.loop_id, reader)
        try:
            before = await self._look()
            picture = await self._look() if await self._bring(before) else before
            end = {**ids, **await self._end(*await self._follow(picture, reader))}
        finally:
            self.threads.live.leave(self.loop_id, reader)
        await self.send(end)

    async def _look(self) -> Picture:
        """Return the loop as it is stored now.

        Raises:
            LoopNotFound: it does not exist, and clients cannot create it.

        """
        try:
            shown = await self.inbox.show(self.loop_id)
        except LoopNotFound:
            if self.threads.sees is not None:
                raise
            return Picture(self.threads.terms)
        offers = {each.digest: each for each in (await self.inbox.offers(self.loop_id)).values()}
        terms = evolve(self.threads.terms, brought=frozenset(tool["name"] for tool in shown["brought"]))
        trail = () if "results" in self.threads.terms.parts else await self.inbox.trail(self.loop_id)
        outcomes = {each.path[0]: each.outcome for each in trail if len(each.path) == 1 and each.outcome is not None}
        messages = Conversation(terms, outcomes, shown["results"]).messages(shown)
        known = frozenset(each["id"] for each in messages)
        mine = with_ids_of(self.asked.messages, messages, self.person.name)
        return Picture(terms, shown, mine, known, frozenset(shown["said"]), offers)

    def _is_known(self, message: Message, known: frozenset[str]) -> bool:
        return is_known(message, known, self.person.name)

    # --- what the client brings --------------------------------------------------------------------------------------

    async def _bring(self, before: Picture) -> bool:
        """Say and decide what the client brings. Return whether it brings anything."""
        says = list[UserMessage]()  # behind the last message that the loop has or had, too
        for each in self.asked.messages:
            is_old = self._is_known(each, before.known | before.said)
            says = [] if is_old else [*says, each] if each.role == "user" and each.id else says
        if says and not before.exists:
            await self.threads.create(self.person, self.asked.thread_id)
        known = {tool["name"]: tool for tool in before.shown["brought"]}
        for name in [name for name, one in self.tools.items() if says and known.get(name, one) != one]:
            self._note("tool", name, "the thread began with another definition, which stays")
        for each in says:
            await self._say(each)
        answers, results = self._answers(before.offers), self._results(before)
        if before.exists or says:
            for name, path, decision in answers:
                await self._decide(self.inbox, "resume", {path: decision}, name)
            if results:
                front_end = self.threads.inbox_of(self.person, is_front_end=True)
                await self._decide(front_end, "result", results)
        last = [each for each in self.asked.messages if self._is_known(each, before.known)][-1:]
        newest = frozenset(each["id"] for each in before.messages[-1:])
        if last and not (says or results or self.asked.resume or self._is_known(last[0], newest)):
            self._note("run", self.asked.run_id, _REGENERATE)
        return bool(says or answers or results)

    def _note(self, what: str, name: str, why: str) -> None:
        self.notes.append({"what": what, "id": name, "why": why})

    async def _say(self, message: UserMessage) -> None:
        """Say what the user says, with the tools. A message that was said before changes nothing."""
        content, is_whole = blocks_of(message.content)
        if not is_whole:
            self._note("message", message.id, _FETCH)
        said, key = [{"role": "user", "content": content}], key_of(self.person.name, message.id)
        say = partial(self.inbox.say, self.loop_id, said, key=key)
        try:
            try:
                await say(tools=[*self.tools.values()])
            except BadTool as error:  # they are too many; the message counts all the same
                self._note("tool", error.tool, str(error))
                await say()
        except CallerError as error:
            self._note("message", message.id, str(error))

    def _answers(self, offers: Mapping[str, Offer]) -> list[tuple[str, str, Decision]]:
        """Return the answers: the id of each interrupt, the path of its call, and the decision.

        A client that only wants to speak must answer each interrupt: then `cancelled` decides nothing, also when the
        same input comes again.
        """
        found = list[tuple[str, str, Decision]]()
        is_speaking = any(each.role == "user" for each in self.asked.messages[-1:])
        for entry in self.asked.resume or ():
            try:
                path, decision = read_answer(entry, offers)
            except ValueError as error:
                self._note("resume", entry.interrupt_id, str(error))
            else:
                if not (is_speaking and entry.status == "cancelled"):
                    found.append((entry.interrupt_id, path, decision))
        return found

    def _results(self, before: Picture) -> dict[str, Decision]:
        """Return the answers to calls of the front end's tools. No other call takes a result from a client."""
        said = {each.tool_call_id: each for each in self.asked.messages if each.role == "tool"}
        calls = [call for call in before.shown["pending"] if before.is_of_front_end(call) and call["id"] in said]
        return {call["id"]: _answer(said[call["id"]], call["digest"]) for call in calls}

    async def _decide(
        self, inbox: AsyncInbox, what: str, decisions: Mapping[str, Decision], name: str | None = None
    ) -> None:
        for path, outcome in (await inbox.decide(self.loop_id, decisions, each=True)).items():
            if (note := note_of(name or path, outcome)) is not None:
                self.notes.append({**note, "what": what})

    # --- the way to the next pause -----------------------------------------------------------------------------------

    async def _follow(self, picture: Picture, reader: Reader) -> tuple[list[str], list[Event]]:
        """Send what happens until the loop rests. Return the ids of the client's messages then, and what it used."""
        await self._send_snapshots(snapshots([each.id for each in self.asked.messages], picture.messages))
        tools = frozenset(self.threads.tools.names) | picture.terms.brought
        translator = Translator(picture.messages, picture.terms, tools)
        try:
            async with anyio.create_task_group() as group:
                if picture.exists:
                    group.start_soon(patiently, self.loop_id, partial(self._until_rest, reader))
                    await self._read(reader, translator)
        except BaseExceptionGroup as errors:
            raise only_error(errors, anyio.get_cancelled_exc_class()) from None
        return translator.has, translator.usage

    async def _read(self, reader: Reader, translator: Translator) -> None:
        while (event := await reader.read(HEARTBEAT)) is not None or not reader.is_over:
            if event is None:
                await self.send(None)
            else:
                for each in translator.translate(event):
                    await self.send(each)
        for each in translator.close():
            await self.send(each)

    async def _until_rest(self, reader: Reader) -> None:
        """Follow the loop to its next pause."""
        async with aclosing(self.inbox.watch(self.loop_id)) as changes:
            async for change in changes:
                if await self._is_at_rest(change):
                    reader.end()
                    break

    async def _is_at_rest(self, change: LoopChange) -> bool:
        """Return whether a loop rests. One that failed and is due again does not, if it is driven here."""
        if change.driven or change.status not in _AT_REST:
            return False
        if change.status != "failed" or self.threads.driver.worker is None:
            return True
        row = await self.inbox.wait(self.loop_id, _AT_REST)
        return row.status == "failed" and row.head.retry_at is None

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _send_snapshots(self, found: Sequence[Sequence[Event]]) -> None:
        for messages in found:
            await self.send({"type": "MESSAGES_SNAPSHOT", "messages": [*messages]})

    async def _end(self, has: Sequence[str], usage: Sequence[Event]) -> Event:
        """Send the conversation and what the person may decide, and return the event that ends the run."""
        picture = await self._look()
        shown, interrupts = picture.shown, self._interrupts(picture)
        kept = frozenset(each["id"] for each in shown["kept"])
        for each in self.asked.messages:
            if self._is_known(each, kept):
                self._note("message", each.id, _KEPT)
        await self._send_snapshots(snapshots(has, picture.messages) or [picture.messages])
        if isinstance(theirs := self.asked.state or {}, dict):  # the state is the client's: only one key of it is ours
            mine: Event = {"thread": self.asked.thread_id, "status": shown["status"]}
            mine |= {"interrupts": interrupts, "notApplied": self.notes}
            await self.send({"type": "STATE_SNAPSHOT", "snapshot": {**theirs, "toolloop": mine}})
        if self.notes:
            await self.send({"type": "CUSTOM", "name": "toolloop.not_applied", "value": self.notes})
        counts = {"usage": usage} if usage and "usage" in self.threads.terms.parts else {}
        if shown["status"] == "failed":
            return {"type": "RUN_ERROR", "message": str(shown["error"]), "code": "failed", **counts}
        return {"type": "RUN_FINISHED", **self._outcome(picture, interrupts), **counts}

    def _outcome(self, picture: Picture, interrupts: Sequence[Event]) -> Event:
        shown = picture.shown
        if interrupts:
            return {"outcome": {"type": "interrupt", "interrupts": interrupts}}
        if shown["pending"] or not picture.exists:
            mine = [call["id"] for call in shown["pending"] if picture.is_of_front_end(call)]
            return {"outcome": {"type": "success", **({"pendingToolCallIds": mine} if mine else {})}}
        kind = "cancelled" if shown["termination"] == "stop_condition" else "success"
        return {"outcome": {"type": kind}, "result": {"text": shown["text"], "termination": shown["termination"]}}

    def _interrupts(self, picture: Picture) -> list[Event]:
        """Return the questions for this person, and note those for others."""
        found = list[Event]()
        for call in picture.shown["pending"]:
            offer = picture.offers.get(call["digest"])
            if offer is None or picture.is_of_front_end(call):
                continue
            path = "/".join(call["path"])
            if offer.kinds:
                found.append(make_interrupt(call, offer, picture.shown["schemas"].get(path, {"type": "object"})))
            else:
                waits_for = offer.needs or "another person"
                self._note("call", path, f"{' > '.join(call['names'])} waits for {waits_for}")
        return found


def end_of(error: Exception, loop_id: str | None = None) -> Event:
    """Return the event that ends a run that failed. What a client cannot mend is logged, and not described to it."""
    match error:
        case LoopNotFound():
            text, code = "There is no such thread.", "not_found"
        case ToolLoopError() if not isinstance(error, StoreError):
            text, code = str(error), type(error).__name__
        case _:
            LOG.error("a run failed", exc_info=error, extra={"loop_id": loop_id})
            text, code = _STORE if isinstance(error, StoreError) else _OURS
    return {"type": "RUN_ERROR", "message": text, "code": code}


def _answer(message: ToolMessage, digest: str) -> Answer:
    content, _ = blocks_of(message.content)
    return Answer(message.error or content or "done", is_error=message.error is not None, digest=digest)
