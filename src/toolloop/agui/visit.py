"""One run of one client: take over what it brings, follow the loop to its next pause, end with what is true then.

Taken are messages of the user, answers to interrupts, and results of tools of the front end. Nothing else of an input
counts, and nothing of it is an error: a note tells what was not applied, and why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from ag_ui.core import PROTOCOL_VERSION, RunAgentInput, UserMessage
from attrs import define, evolve, field, frozen

from toolloop import Answer, AsyncInbox, Person
from toolloop.agui.conversation import Event, Terms, blocks_of, is_known, key_of, messages_of, snapshots, with_ids_of
from toolloop.agui.doors import LOG
from toolloop.agui.interrupts import make_interrupt, read_answer, why_not
from toolloop.agui.threads import Threads
from toolloop.agui.translating import Translator
from toolloop.errors import BadTool, CallerError, LoopNotFound, StoreError, ToolLoopError
from toolloop.inbox import EventReader, LoopChange, Offer, ShownLoop, retry_store_errors
from toolloop.types import Decision, PendingView, Standing

HEARTBEAT: Final = 15.0  # seconds
GOING = ("runnable", "running", "stopping")  # statuses of a loop that does not rest
_TOOL = "the server takes no such tool from a front end, or has one of this name"
_STAYS = "the thread began with another definition, which stays"
_FETCH = "a part was left out: only texts, images and PDF files with their data are taken, no addresses"
_KEPT = "it is kept, and goes out with the results of the calls that wait"
_REGENERATE = "nothing new came with a history that ends before that of the thread: fork it to go on from there"
_STORE = ("The store failed. Nothing is lost: try again.", "store")
_OURS = ("The server failed. Run again.", "internal")
_NOTHING: Any = {"status": None, "messages": [], "pending": [], "kept": [], "brought": [], "said": [], "schemas": {}}


@frozen
class Picture:
    """A loop as it is stored now, for one client.

    Attributes:
        terms: what this client may bring, and what it gets.
        shown: the loop. One that does not exist has no status.
        messages: the conversation, with the client's ids.
        offers: what the person may do with the calls that wait, by digest.

    """

    terms: Terms
    shown: ShownLoop = _NOTHING
    messages: Sequence[Event] = ()
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
        send: sends an event; None is a sign of life.
        give_up: called when the client is too slow.
        start: starts an async function in a task of the run.

    """

    threads: Threads
    person: Person
    asked: RunAgentInput
    send: Callable[[Event | None], Awaitable[None]]
    give_up: Callable[[], None]
    start: Callable[..., object]
    inbox: AsyncInbox = field(init=False)
    loop_id: str = field(init=False)
    _notes: list[Event] = field(init=False, factory=list)  # what was not applied, and why
    _failure: Exception | None = field(init=False, default=None)  # why the loop could not be followed

    def __attrs_post_init__(self) -> None:
        """Find the loop of the thread."""
        self.inbox = self.threads.inbox_of(self.person)
        self.loop_id = self.threads.loop_of(self.person, self.asked.thread_id)

    async def run(self) -> None:
        """Run to the end. One event ends it; after an error, that of `end_of`."""
        ids = {"threadId": self.asked.thread_id, "runId": self.asked.run_id}
        await self.send({"type": "RUN_STARTED", **ids, "protocolVersion": PROTOCOL_VERSION})
        with self.threads.live.reading(self.loop_id, self.give_up) as reader:
            before = await self._look()
            picture = await self._look() if await self._bring(before) else before
            translator = await self._follow(picture, reader)
        await self.send({**await self._end(translator), **ids})

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
        terms = evolve(self.threads.terms, brought=frozenset(tool["name"] for tool in shown["brought"]))
        offers = {each.digest: each for each in (await self.inbox.offers(self.loop_id)).values()}
        trail = () if "results" in terms.parts else await self.inbox.trail(self.loop_id)
        outcomes = {each.path[0]: each.outcome for each in trail if len(each.path) == 1 and each.outcome is not None}
        messages = with_ids_of(self.asked.messages, messages_of(shown, terms, outcomes), self.person.name)
        return Picture(terms, shown, messages, offers)

    def _note(self, what: str, name: str, why: str, **more: Any) -> None:
        self._notes.append({"what": what, "id": name, "why": why, **more})

    # --- what the client brings --------------------------------------------------------------------------------------

    async def _bring(self, before: Picture) -> bool:
        """Say and decide what the client brings. Return whether it brings anything."""
        has, says = [each["id"] for each in before.messages], list[tuple[int, UserMessage]]()
        known = frozenset((*has, *before.shown["said"]))
        for at, each in enumerate(self.asked.messages):  # what is new stands behind all that the loop has or had
            if is_known(each, known, self.person.name):
                says = []
            elif each.role == "user":
                says.append((at, each))
        await self._say(before, says)
        is_speaking = any(each.role == "user" for each in self.asked.messages[-1:])
        for entry in self.asked.resume or ():
            try:
                path, decision = read_answer(entry, before.offers)
            except ValueError as error:
                self._note("resume", entry.interrupt_id, str(error))
            else:  # a client that only wants to speak must dismiss: also when the same input comes again
                if not (is_speaking and entry.status == "cancelled"):
                    await self._decide(self.inbox, "resume", entry.interrupt_id, path, decision)
        is_new = await self._answer(before) or bool(says or self.asked.resume)
        last = [each.id for each in self.asked.messages if each.id in has][-1:]
        if last and not is_new and last != has[-1:]:
            self._note("run", self.asked.run_id, _REGENERATE)
        return is_new

    async def _say(self, before: Picture, says: Sequence[tuple[int, UserMessage]]) -> None:
        """Say what the user says, with the tools. A message that was said before changes nothing.

        `says`: each message with its place in the input, which stays if the run comes again.
        """
        tools, refused = self.threads.terms.definitions(self.asked.tools or ())
        if says and not before.exists:
            await self.threads.create(self.person, self.asked.thread_id)
        known = {tool["name"]: tool for tool in before.shown["brought"]}
        for name in refused:
            self._note("tool", name, _TOOL)
        for name in [name for name, one in tools.items() if says and known.get(name, one) != one]:
            self._note("tool", name, _STAYS)
        for at, each in says:
            content, is_whole = blocks_of(each.content)
            if not is_whole:
                self._note("message", each.id, _FETCH)
            said = [{"role": "user", "content": content}]
            key = key_of(self.person.name, each.id or f"{self.asked.run_id} {at}")  # once, if the run comes again
            say = partial(self.inbox.say, self.loop_id, said, key=key)
            try:
                try:
                    await say(tools=[*tools.values()])
                except BadTool as error:  # they are too many; the message counts all the same
                    self._note("tool", error.tool, str(error))
                    await say()
            except CallerError as error:
                self._note("message", each.id, str(error))

    async def _answer(self, before: Picture) -> bool:
        """Answer calls of the front end's tools, and return whether there are any. No other call takes a result."""
        made = {each.tool_call_id: each for each in self.asked.messages if each.role == "tool"}
        calls = [call for call in before.shown["pending"] if before.is_of_front_end(call) and call["id"] in made]
        front_end = self.threads.inbox_of(self.person, is_front_end=True)
        for call in calls:
            name, message = call["id"], made[call["id"]]
            content, is_error = message.error or blocks_of(message.content)[0] or "done", message.error is not None
            answer = Answer(content, is_error=is_error, digest=call["digest"])
            await self._decide(front_end, "result", name, name, answer)
        return bool(calls)

    async def _decide(self, inbox: AsyncInbox, what: str, name: str, path: str, decision: Decision) -> None:
        outcome: Standing | Exception
        try:
            outcome = (await inbox.decide(self.loop_id, {path: decision}, each=True))[path]
        except LoopNotFound as error:
            outcome = error
        if (note := why_not(outcome)) is not None:
            self._note(what, name, **note)

    # --- the way to the next pause -----------------------------------------------------------------------------------

    async def _follow(self, picture: Picture, reader: EventReader) -> Translator:
        """Send what happens until the loop rests."""
        await self._send_snapshots(snapshots([each.id for each in self.asked.messages], picture.messages))
        translator = Translator(picture.messages, picture.terms)
        if picture.exists:
            self.start(self._until_rest, reader)
            await self._read(reader, translator)
        return translator

    async def _read(self, reader: EventReader, translator: Translator) -> None:
        while (event := await reader.read(HEARTBEAT)) is not None or not reader.is_over:
            for each in [None] if event is None else translator.translate(event):
                await self.send(each)
        for each in translator.end():
            await self.send(each)
        if self._failure is not None:
            raise self._failure

    async def _until_rest(self, reader: EventReader) -> None:
        """Follow the loop to its next pause, and end the reader there."""
        try:
            await retry_store_errors(self.loop_id, self._pause)
        except Exception as error:  # noqa: BLE001 - the run raises it
            self._failure = error
        reader.end()

    async def _pause(self) -> None:
        async with aclosing(self.inbox.watch(self.loop_id)) as changes:
            async for change in changes:
                if self._is_at_rest(change):
                    break

    def _is_at_rest(self, change: LoopChange) -> bool:
        """Return whether a loop rests. One that failed and is due again does not, if it is driven here."""
        goes_on = change.retry_at is not None and self.threads.driver.worker is not None
        return change.status not in GOING and not change.driven and not goes_on

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _send_snapshots(self, found: Sequence[Sequence[Event]]) -> None:
        for messages in found:
            await self.send({"type": "MESSAGES_SNAPSHOT", "messages": [*messages]})

    async def _end(self, translator: Translator) -> Event:
        """Send the conversation and what the person may decide, and return the event that ends the run."""
        picture = await self._look()
        shown, interrupts = picture.shown, self._interrupts(picture)
        kept = frozenset(each["id"] for each in shown["kept"])
        for each in self.asked.messages:
            if is_known(each, kept, self.person.name):
                self._note("message", each.id, _KEPT)
        await self._send_snapshots(snapshots(translator.has, picture.messages) or [picture.messages])
        if isinstance(theirs := self.asked.state or {}, dict):  # the state is the client's: only one key of it is ours
            mine: Event = {"thread": self.asked.thread_id, "status": shown["status"]}
            mine |= {"interrupts": interrupts, "notApplied": self._notes}
            await self.send({"type": "STATE_SNAPSHOT", "snapshot": {**theirs, "toolloop": mine}})
        if self._notes:
            await self.send({"type": "CUSTOM", "name": "toolloop.not_applied", "value": self._notes})
        counts = {"usage": translator.usage} if translator.usage else {}
        if shown["status"] == "failed":
            return {"type": "RUN_ERROR", "message": str(shown["error"]), "code": "failed", **counts}
        return {"type": "RUN_FINISHED", **_outcome(picture, interrupts), **counts}

    def _interrupts(self, picture: Picture) -> list[Event]:
        """Return the questions for this person, and note those for others."""
        found = list[Event]()
        for call in picture.shown["pending"]:
            offer, path = picture.offers.get(call["digest"]), "/".join(call["path"])
            if offer is None or picture.is_of_front_end(call):
                continue
            if offer.kinds:
                found.append(make_interrupt(call, offer, picture.shown["schemas"].get(path, {"type": "object"})))
                if "nested" in picture.terms.parts and len(call["path"]) > 1:
                    found[-1]["subagentRunId"] = "/".join(call["path"][:-1])
            else:
                waits_for = offer.needs or "another person"
                self._note("call", path, f"{' > '.join(call['names'])} waits for {waits_for}")
        return found


def _outcome(picture: Picture, interrupts: Sequence[Event]) -> Event:
    shown = picture.shown
    if interrupts:
        return {"outcome": {"type": "interrupt", "interrupts": interrupts}}
    if shown["pending"] or not picture.exists:
        mine = [call["id"] for call in shown["pending"] if picture.is_of_front_end(call)]
        return {"outcome": {"type": "success", **({"pendingToolCallIds": mine} if mine else {})}}
    kind = "cancelled" if shown["termination"] == "stop_condition" else "success"
    return {"outcome": {"type": kind}, "result": {"text": shown["text"], "termination": shown["termination"]}}


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
