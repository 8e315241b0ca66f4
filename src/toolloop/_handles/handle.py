"""The base of both handles: the parts of a loop, reads, commands, and the results of turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, overload

from attrs import evolve

from toolloop._drivers.driver import D
from toolloop._engine.pace import DriveOptions
from toolloop._handles.assembly import ALONE, Assembly, assemble
from toolloop._handles.forking import Fork
from toolloop._handles.opening import Here, Opening, make_loop, restore_loop
from toolloop._handles.param_changes import read_limits, read_params
from toolloop._handles.reads import LoopReads
from toolloop._interface.config import DEFAULT_CONFIG, LoopConfig
from toolloop._interface.decisions import name_of, to_seconds, to_user_texts, to_user_turn
from toolloop._interface.loop_params import read_brought_tools
from toolloop._interface.shown import bind_to_digest
from toolloop._interface.standing import Standing
from toolloop._journal.event_bus import LOG
from toolloop._journal.records import make_said_id
from toolloop._journal.store_access import call_store
from toolloop.errors import CallerError, Conflict, IllegalCommand, ToolLoopError
from toolloop.machine.values.calls import Command, Decision
from toolloop.machine.values.jsontext import JSON, describe_type
from toolloop.machine.values.names import Person
from toolloop.machine.values.setup import Budget
from toolloop.providers.anthropic import ProviderOrClient
from toolloop.stores.protocol import Store
from toolloop.tools import Context
from toolloop.tools.calls import ToolCall
from toolloop.tools.registry import Tools

# A mapping is invariant in its keys. These types accept a `dict[str, Approve]` and a `dict[ToolCall, Decision]`.
CallKey = TypeVar("CallKey", bound=str | ToolCall)


class HandleBase(LoopReads[D], Generic[ProviderOrClient, D]):
    """The base class of `ToolLoopHandle` and `AsyncToolLoopHandle`. Not public."""

    def __init__(  # noqa: PLR0913 - the parts of a loop, all but two of them optional
        self,
        provider: ProviderOrClient,
        *,
        params: Mapping[str, Any],
        tools: Tools = (),
        config: LoopConfig = DEFAULT_CONFIG,
        context: Context | None = None,
        store: Store | None = None,
        loop_id: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set up the loop. It sends and stores nothing, and starts no clock. See `ToolLoopHandle`."""
        here = Here.of(provider, tools, config, context, clock, is_async=self._driver_class.is_async)
        parts = make_loop(here, params, store=store, loop_id=loop_id)
        self._parts = assemble(parts, self._driver_class)

    @classmethod
    def restore(  # noqa: PLR0913 - the parts of a loop that are not in a snapshot
        cls,
        snapshot: Mapping[str, JSON],
        provider: ProviderOrClient,
        *,
        tools: Tools = (),
        params: Mapping[str, Any] | None = None,
        config: LoopConfig | None = None,
        context: Context | None = None,
        store: Store | None = None,
        on_drift: Literal["raise", "accept", "strict"] = "raise",
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Restore a loop from a snapshot, in this process or another. Its next request has the same bytes.

        Args:
            snapshot: the return value of `snapshot()`.
            provider: as for a new handle.
            tools: as for a new handle.
            params: supplies the parameters that a snapshot leaves out (headers, timeouts, tokens). The others are
                compared with the snapshot.
            config: None keeps the stored limits. A snapshot has no callables, so pass them again.
            context: as for a new handle; its depth is the stored one.
            store: a store that keeps the loop from now on, as a new loop: two copies of one snapshot are two loops.
            on_drift: how to handle changes since the snapshot, checked when you drive the loop. `raise` refuses
                changes that may let a gated call run (a removed approval, another effect), and another tool for an
                open call; it adopts other changes, with an event. `accept` adopts all changes, `strict` refuses all.
                After `accept`, calls that have not started wait for approval again if `raise` refuses the change of
                their tool.
            clock: as for a new handle.

        Raises:
            UnreadableSnapshot: it is damaged, not a snapshot of toolloop, or in a newer format.
            BadTool: two tools have the same name.

        """
        here = Here.of(provider, tools, config, context, clock, is_async=cls._driver_class.is_async)
        parts = restore_loop(here, snapshot, params=params, store=store, on_drift=on_drift)
        return cls._of(assemble(parts, cls._driver_class))

    @classmethod
    def _load(cls, opening: Opening, options: DriveOptions = ALONE) -> Self:
        """Load a stored loop, or create it. This blocks."""
        while True:
            parts = opening.load()
            assembly = assemble(parts, cls._driver_class, options)
            try:
                assembly.begin_stored()
            except Conflict:
                if not parts.is_new:
                    raise
                continue  # another process has just created it
            return cls._of(assembly)

    @classmethod
    def _of(cls, parts: Assembly[D]) -> Self:
        """Return a handle for an assembled loop."""
        handle = cls.__new__(cls)
        handle._parts = parts  # noqa: SLF001 - its own class
        return handle

    # --- commands ---

    @overload
    def decide(
        self, decisions: Mapping[CallKey, Decision], *, each: Literal[False] = False
    ) -> dict[CallKey, Standing]: ...
    @overload
    def decide(self, decisions: Mapping[CallKey, Decision], *, each: bool) -> dict[CallKey, Standing | CallerError]: ...
    def decide(self, decisions: Mapping[CallKey, Decision], *, each: bool = False) -> dict[CallKey, Any]:
        """Decide calls by id, by path, or by the `ToolCall` that was shown. Return what stands in each of them.

        An id is enough if no other open call has it, in this loop or in the loops inside its calls. Otherwise join the
        ids that lead to the call with slashes: `"p1/c1"`, or `"/c1"` for a call of the outermost loop. If a turn is in
        progress, the decision takes effect in the next one.

        Args:
            decisions: the decisions by call.
            each: decide every call by itself, and return the error of a refused decision with its call. False: all
                decisions apply, or none does.

        Raises:
            UnknownCall: a call does not exist, or several calls have its id.
            AlreadyDecided: a call has its result, and the decision is not a repetition.
            DecisionConflict: a call has changed since it was shown, or another decision was made.
            IllegalCommand: a call does not wait, or does not take this kind of decision.

        """
        if not isinstance(decisions, Mapping):
            raise TypeError(f"decide() got {describe_type(decisions)}; give a mapping of calls to decisions")
        outcomes = self._parts.issuer.decide(
            [bind_to_digest(call, decision) for call, decision in decisions.items()], each=each
        )
        return dict(zip(decisions, outcomes, strict=True))

    def resume(self, command: Command) -> None:
        """Give a command without the `Yielded`: `Continue()`, `InjectMessages([...])` or `Stop(...)`.

        Call it from any thread at any time. If the loop does not wait, `Continue` changes nothing, `InjectMessages`
        queues its messages, and `Stop` ends the loop. While a request is in progress, they take effect after its reply.
        After a stop, running tools continue with `ToolContext.cancelled` set, and their results are ignored. After the
        end, `Continue` and `Stop` do nothing except log.

        Raises:
            IllegalCommand: messages after the end; use `follow_up`.
            UndecidedCalls: calls wait for a decision.
            InvalidHistory: the API would refuse the injected messages at this point.

        """
        self._parts.issuer.resume(command)

    def stop(self, reason: str | None = None, by: str | Person | None = None) -> None:
        """End the loop, in any state: also after an `Error` that you do not want to retry.

        The next `next_turn()` returns `Completed` with the termination `StopCondition(reason)`. A loop that has already
        ended is unchanged.
        """
        self._parts.issuer.stop(reason, by)

    def tick(self, now: datetime | float) -> None:
        """Settle the waiting calls whose deadline has passed, so that the loop can continue.

        A late decision is refused even without a tick.

        Args:
            now: an aware datetime, or seconds since the epoch.

        """
        self._parts.issuer.tick(to_seconds(now, "tick()"))

    def follow_up(
        self, messages: str | Sequence[JSON], *, replace_last: bool = False, by: str | Person | None = None
    ) -> None:
        """Begin a user turn: the first of an empty conversation, or another one after `Completed` or `Error`.

        After an `Error`, the failed request is given up.

        Args:
            messages: the user's messages; a string is one message.
            replace_last: replace the last user turn, for example one that the model refused.
            by: who says it, for the record.

        Raises:
            IllegalCommand: the loop has begun and has not ended.
            InvalidHistory: the API would refuse the messages at this point.

        """
        texts = to_user_texts(messages, "the messages of follow_up()")
        said = partial(self._parts.commands.follow_up, texts=texts, replace_last=replace_last, by=name_of(by))
        self._parts.issuer.issue("follow_up()", said)

    def say(
        self,
        messages: str | Sequence[JSON],
        by: str | Person | None = None,
        key: str | None = None,
        *,
        tools: Sequence[JSON] = (),
    ) -> str:
        """Say something to the model, in any state. Return the id of what was said.

        It begins the conversation, or a user turn after the end or after a failed request. In all other states it is
        kept until the API allows it: while calls wait or run, it goes out with their results. It decides no call, and
        a waiting `Yielded` stays valid: its command sends what is kept. `view()["kept"]` shows it.

        Args:
            messages: what is said; a string is one user message.
            by: who says it, for the record.
            key: makes a repetition harmless, such as a webhook that is sent twice. If something was said in this loop
                with the same key, nothing changes, and the id is the same.
            tools: definitions of tools that the front end of that person has: `name`, `input_schema`, and perhaps
                `description`. The model may call them from the next request on, and such a call waits for an answer
                (`ToolCall.brought`). A name that the loop has, or had, is left as it is. A loop takes at most 64 of
                them, with 64,000 characters in all.

        Raises:
            BadTool: `tools` has something else than such definitions, or the loop would have too many.
            IllegalCommand: the loop is nested too deep to run, or a paused reply needs the tools that it has.
            InvalidHistory: the API would refuse the messages at this point.

        """
        texts, name, brought = to_user_turn(messages, "say()"), make_said_id(key), read_brought_tools(tools)
        said = partial(self._parts.commands.say, texts=texts, said_id=name, by=name_of(by), tools=brought)
        self._parts.issuer.issue("say()", said, firm=False)
        return name

    def withdraw(self, said: str, by: str | Person | None = None) -> None:
        """Take back what was said and is still kept. `said`: its id, which `say` returned. `by`: who does it.

        Raises:
            IllegalCommand: it is in the conversation, was withdrawn before, or nothing with this id was said.

        """
        self._parts.issuer.issue(
            "withdraw()", partial(self._parts.commands.withdraw, said_id=said, by=name_of(by)), firm=False
        )

    def extend(
        self,
        max_iterations: int | None = None,
        max_pauses: int | None = None,
        timeout: float | None = None,
        budget: Budget | None = None,
        by: str | Person | None = None,
    ) -> None:
        """Set new limits; None keeps a limit. If a limit ended the loop, the loop continues from there.

        You can raise a limit, but not remove it.

        Raises:
            IllegalCommand: the loop is nested too deep to run.
            ValueError: a limit is out of range.

        """
        limits = read_limits(max_iterations=max_iterations, max_pauses=max_pauses, timeout=timeout, budget=budget)
        self._parts.issuer.issue("extend()", partial(self._parts.commands.extend, limits=limits, by=name_of(by)))

    def retry(self, by: str | Person | None = None) -> None:
        """Go back to the point before the failed request, after an `Error`. Nothing was consumed.

        Raises:
            IllegalCommand: no request has failed, or the loop is nested too deep to run.
            InvalidHistory: the API would refuse the edited history.

        """
        self._parts.issuer.issue("retry()", partial(self._parts.commands.retry, by=name_of(by)))

    def update_params(self, **changes: Any) -> None:
        """Change request parameters from the next request on; None removes a parameter.

        A `container` also replaces one in which code waits for its results.

        Raises:
            TypeError: a parameter is not JSON.
            ValueError: a parameter cannot be set this way (`messages`, `stream`).
            InvalidHistory: the API would refuse the history with these parameters.

        """
        read, asked = read_params(changes), "update_params()"
        said = partial(self._parts.commands.update_params, changes=read)
        self._parts.issuer.take_edits(asked, said)
        self._parts.journal.issue(said)
        self._parts.journal.bus.tell()
        self._parts.runtimes.root.requests.update(read.secrets, changed=read.names)

    def _read_metadata(self) -> Mapping[str, str]:
        """Return the metadata in the row of the loop, which is stored now if it is not yet. This blocks.

        Raises:
            IllegalCommand: the loop has no store.

        """
        place = self._parts.given.place
        if place is None:
            why = "the loop has no store, and so no metadata. Give the handle a store"
            raise IllegalCommand(f"set_metadata(): {why}", state="no store", asked="set_metadata()", allowed=())
        self._parts.journal.commit()
        return call_store(self.loop_id, partial(place.store.head, self.loop_id)).metadata

    def _change_metadata(self, changes: Mapping[str, str | None], known: Mapping[str, str], by: str | None) -> None:
        said = partial(self._parts.commands.set_metadata, changes=changes, known=known, by=by)
        self._parts.issuer.issue("set_metadata()", said, firm=False)

    def _report_unstored(self, unstored: ToolLoopError, error: object) -> None:
        """Raise the failure of a close, or log it after another exception. `error`: the class of that."""
        if error is None:
            raise unstored
        if error is not type(unstored):
            LOG.warning("could not store everything on close: %s", unstored, extra={"loop_id": self.loop_id})

    # --- sleep, wake, copy ---

    def snapshot(self) -> dict[str, JSON]:
        """Return the loop as JSON, at any time. It contains no callables, clients, keys or objects of yours.

        Keep it where only you can write: its digest detects damage, not tampering.
        """
        from toolloop.stores.codec import dump  # noqa: PLC0415 - cattrs is loaded when it is first needed

        self._parts.issuer.take_edits("snapshot()")
        return dump(self.state)

    def _fork(self, wanted: Fork) -> Self:
        """Return a copy of the loop, stored if the loop is. This blocks."""
        journal = self._parts.journal
        secrets = self._parts.runtimes.root.requests.secrets
        wake_up = self._parts.given.wake_up if self._parts.engine.is_asleep else None
        here = evolve(self._parts.given.here, tools=self._parts.runtimes.root.tools)
        parts = evolve(self._parts.given, state=self.state, here=here, secrets=secrets, wake_up=wake_up)
        assembly = assemble(wanted.apply(parts, journal.now()), self._driver_class)
        assembly.journal.is_handed_over = True  # no worker continues it before this caller
        assembly.begin_stored()
        return self._of(assembly)
