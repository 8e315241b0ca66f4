"""The base of both handles: the parts of a loop, reads, commands, and the results of turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, overload

from attrs import evolve

from toolloop._engine.questions import Questions
from toolloop._handles.assembly import Assembly, Driver, assemble
from toolloop._handles.commands import read_limits, read_params
from toolloop._handles.opening import Here, forked, loaded, new_loop, restored
from toolloop._handles.turns import Driving, Turns
from toolloop._interface.calls import pending_calls
from toolloop._interface.config import DEFAULT_CONFIG, LoopConfig
from toolloop._interface.decisions import name_of, said_texts, said_turn, to_seconds
from toolloop._interface.grants import Grants, standing_grants
from toolloop._interface.loop_view import LoopView, view_of
from toolloop._interface.progress import Progress
from toolloop._interface.results import ToolLoopResult, Turn, Yielded
from toolloop._interface.shown import bound
from toolloop._interface.standing import Standing
from toolloop._journal.journal import said_id
from toolloop._usage import IterationUsage, Usage
from toolloop.errors import CallerError, Conflict
from toolloop.machine.queries import LoopStatus, next_deadline, status_of
from toolloop.machine.record.state import State
from toolloop.machine.values.calls import Command, Decision
from toolloop.machine.values.jsontext import JSON, a_type
from toolloop.machine.values.names import Person
from toolloop.machine.values.setup import Budget
from toolloop.providers.anthropic import ProviderOrClient
from toolloop.stores.protocol import Store
from toolloop.tools import Context
from toolloop.tools.calls import ToolCall
from toolloop.tools.registry import Tools

# A mapping is invariant in its keys. These types accept a `dict[str, Approve]` and a `dict[ToolCall, Decision]`.
CallKey = TypeVar("CallKey", bound=str | ToolCall)


class HandleBase(Generic[ProviderOrClient]):
    """The base class of `ToolLoopHandle` and `AsyncToolLoopHandle`. Not public."""

    _driver_class: ClassVar[type[Driver]]
    _turning: Callable[..., Any]  # drives a turn

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
        parts = new_loop(here, params, store=store, loop_id=loop_id)
        self._assemble(assemble(parts, self._driver_class))

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
        parts = restored(here, snapshot, params=params, store=store, on_drift=on_drift)
        return cls._of(assemble(parts, cls._driver_class))

    @classmethod
    def _loaded(cls, here: Here, store: Store, loop_id: str, **given: Any) -> Self:
        """Load a stored loop, or create it. This blocks. `given`: see `opening.loaded`."""
        while True:
            parts = loaded(here, store, loop_id, **given)
            assembly = assemble(parts, cls._driver_class)
            try:
                assembly.begin_stored()
            except Conflict:
                if parts.rev:
                    raise
                continue  # another process has just created it
            return cls._of(assembly)

    @classmethod
    def _of(cls, assembly: Assembly) -> Self:
        """Return a handle for an assembled loop."""
        handle = cls.__new__(cls)
        handle._assemble(assembly)  # noqa: SLF001 - its own class
        return handle

    def _assemble(self, assembly: Assembly) -> None:
        """Keep the parts of an assembled loop."""
        self._assembly = assembly
        self._lease = assembly.lease
        self._journal = assembly.journal
        self._engine = assembly.engine
        self._commands = assembly.commands
        self._driver = assembly.driver
        self._issuer = assembly.issuer
        self._driving = Driving(self._journal)
        self._turns = Turns(self._journal, self._issuer, self._driving, assembly.requests.errors, self._engine.running)

    # --- reads: safe from any thread at any time ---

    @property
    def state(self) -> State:
        """The state of the loop: a frozen value of `toolloop.machine`."""
        return self._journal.state

    @property
    def loop_id(self) -> str:
        """The id of the loop."""
        return self.state.root.setup.loop_id

    @property
    def depth(self) -> int:
        """How deep the loop is nested; 0 for an outermost loop."""
        return self.state.root.setup.depth

    @property
    def iterations(self) -> int:
        """The number of answered requests of this loop, without those of loops inside its calls."""
        return self.state.root.iterations

    @property
    def total_usage(self) -> Usage:
        """The total usage of all answered requests, including those of loops inside its calls."""
        return self.state.root.total_usage

    @property
    def usage_log(self) -> tuple[IterationUsage, ...]:
        """The usage of each answered request, including those of loops inside its calls: see `IterationUsage.path`."""
        return tuple(self.state.root.usage_log)

    @property
    def status(self) -> LoopStatus:
        """The status, as in `store.list()`: `needs_decision`, `needs_command`, `runnable` and so on."""
        return status_of(self.state)

    @property
    def is_finished(self) -> bool:
        """Whether this handle has returned a `Completed` or an `Error`, and no command has continued the loop since."""
        return self._turns.is_finished

    @property
    def messages(self) -> tuple[JSON, ...]:
        """Copies of the closed history, with your edits. The API accepts it once a user message follows."""
        return self._issuer.edits.shown(self.state.root)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a decision, including those of loops inside calls: see `ToolCall.path`."""
        return pending_calls(self.state)

    @property
    def pending_turn(self) -> Yielded | None:
        """The `Yielded` that waits for a command, or None."""
        return self._turns.pending

    @property
    def next_deadline(self) -> datetime | None:
        """When the first waiting call expires, an aware UTC time; None if none expires. Call `tick()` then."""
        deadline = next_deadline(self.state)
        return None if deadline is None else datetime.fromtimestamp(deadline, UTC)

    @property
    def grants(self) -> Grants:
        """The standing grants: calls that they cover run without approval. `grants.revoke(...)` revokes one."""
        return Grants(standing_grants(self.state, self._journal.now()), self._issuer.revoke)

    def messages_mut(self) -> list[JSON]:
        """Return the closed history as a list to edit in place: the same list until the next command or `next_turn()`.

        An edit shows in `messages` at once. The next command or `next_turn()` applies it. If that raises
        `InvalidHistory`, correct the same list.

        Raises:
            IllegalCommand: a turn is in progress, or the loop is nested too deep to run.

        """
        return self._issuer.edits.working(self.state.root, is_driven=self._driving.is_active)

    def into_result(self) -> ToolLoopResult:
        """Return the outcome so far; before the end, its termination is `Unfinished()` or `Failed(error)`."""
        return self._turns.result_so_far()

    def view(self) -> LoopView:
        """Return the loop as JSON, for a page: its state, pending calls, last text, usage and remaining limits.

        `children` has the loops inside its calls, each with its path and its own children. `running` has the calls that
        run. If another process runs them, a sync handle reads their progress from the store.
        """
        error, (is_driven, progress) = self._turns.error(), self._doing()
        text = None if error is None else str(error)
        return view_of(self.state, error=text, running=progress.running, is_driven=is_driven)

    def _doing(self) -> tuple[bool | None, Progress]:
        """Return whether the loop has a driver, and what that does now."""
        if self._driving.is_active or self._engine.has_runs():
            return True, self._engine.shown()
        lease = self._lease
        if lease is None or status_of(self.state) not in ("running", "stopping"):
            return False, Progress()
        return (None, Progress()) if self._driver_class.is_async else lease.read_progress()

    def _keep_live(self, seconds: float | None) -> None:
        """Request streamed replies from now on, and show other processes their text. None: do not."""
        self._assembly.requests.is_live = seconds is not None
        if self._lease is not None:
            self._lease.progress.live = seconds

    def __repr__(self) -> str:
        loop = self.state.root
        phase = type(loop.phase).__name__
        return f"<{type(self).__name__} {phase}: {loop.iterations} iterations, id {loop.setup.loop_id}>"

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
            raise TypeError(f"decide() got {a_type(decisions)}; give a mapping of calls to decisions")
        outcomes = self._issuer.decide([bound(call, decision) for call, decision in decisions.items()], each=each)
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
        self._issuer.resume(command)

    def stop(self, reason: str | None = None, by: str | Person | None = None) -> None:
        """End the loop, in any state: also after an `Error` that you do not want to retry.

        The next `next_turn()` returns `Completed` with the termination `StopCondition(reason)`. A loop that has already
        ended is unchanged.
        """
        self._issuer.stop(reason, by)

    def tick(self, now: datetime | float) -> None:
        """Settle the waiting calls whose deadline has passed, so that the loop can continue.

        A late decision is refused even without a tick.

        Args:
            now: an aware datetime, or seconds since the epoch.

        """
        self._issuer.tick(to_seconds(now, "tick()"))

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
        texts = said_texts(messages, "the messages of follow_up()")
        said = partial(self._commands.follow_up, texts=texts, replace_last=replace_last, by=name_of(by))
        self._issuer.say("follow_up()", said)

    def say(self, messages: str | Sequence[JSON], by: str | Person | None = None, key: str | None = None) -> str:
        """Say something to the model, in any state. Return the id of what was said.

        It begins the conversation, or a user turn after the end or after a failed request. In all other states it is
        kept until the API allows it: while calls wait or run, it goes out with their results. It decides no call, and
        a waiting `Yielded` stays valid: its command sends what is kept. `view()["kept"]` shows it.

        Args:
            messages: what is said; a string is one user message.
            by: who says it, for the record.
            key: makes a repetition harmless, such as a webhook that is sent twice. If something was said in this loop
                with the same key, nothing changes, and the id is the same.

        Raises:
            IllegalCommand: the loop is nested too deep to run.
            InvalidHistory: the API would refuse the messages at this point.

        """
        texts, name = said_turn(messages, "say()"), said_id(key)
        said = partial(self._commands.say, texts=texts, said_id=name, by=name_of(by))
        self._issuer.say("say()", said, firm=False)
        return name

    def withdraw(self, said: str, by: str | Person | None = None) -> None:
        """Take back what was said and is still kept. `said`: its id, which `say` returned. `by`: who does it.

        Raises:
            IllegalCommand: it is in the conversation, was withdrawn before, or nothing with this id was said.

        """
        self._issuer.say("withdraw()", partial(self._commands.withdraw, said_id=said, by=name_of(by)), firm=False)

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
        self._issuer.say("extend()", partial(self._commands.extend, limits=limits, by=name_of(by)))

    def retry(self, by: str | Person | None = None) -> None:
        """Go back to the point before the failed request, after an `Error`. Nothing was consumed.

        Raises:
            IllegalCommand: no request has failed, or the loop is nested too deep to run.
            InvalidHistory: the API would refuse the edited history.

        """
        self._issuer.say("retry()", partial(self._commands.retry, by=name_of(by)))

    def update_params(self, **changes: Any) -> None:
        """Change request parameters from the next request on; None removes a parameter.

        A `container` also replaces one in which code waits for its results.

        Raises:
            TypeError: a parameter is not JSON.
            ValueError: a parameter cannot be set this way (`messages`, `stream`).
            InvalidHistory: the API would refuse the history with these parameters.

        """
        read, asked = read_params(changes), "update_params()"
        said = partial(self._commands.update_params, changes=read)
        self._issuer.take_edits(asked, said)
        self._journal.say(said)
        self._journal.bus.tell()
        self._assembly.runtimes.root.requests.update(read.secrets, changed=read.names)

    # --- sleep, wake, copy ---

    def snapshot(self) -> dict[str, JSON]:
        """Return the loop as JSON, at any time. It contains no callables, clients, keys or objects of yours.

        Keep it where only you can write: its digest detects damage, not tampering.
        """
        from toolloop.stores.codec import dump  # noqa: PLC0415 - cattrs is loaded when it is first needed

        self._issuer.take_edits("snapshot()")
        return dump(self.state)

    def fork(self, loop_id: str | None = None) -> Self:
        """Return an independent copy. Started calls are uncertain in it, and open calls wait for a decision again."""
        self._issuer.take_edits("fork()")
        old, secrets = self._assembly.parts, self._assembly.runtimes.root.requests.secrets
        wake_up = old.wake_up if self._engine.is_asleep else None
        parts = evolve(old, state=self.state, secrets=secrets, wake_up=wake_up)
        copied = forked(parts, loop_id, at=self._journal.now())
        return self._of(assemble(copied, self._driver_class))

    # --- turns ---

    def _steps(self, *arguments: Any) -> Any:
        """Return the generator or coroutine of a turn, made by `_turning` of the handle. It keeps the lease."""
        steps = self._driving.steps(self._turning, *arguments)
        if self._lease is not None:
            self._lease.keep(steps)
        return steps

    def _questions(self, until: Callable[[], bool] | None, *ways: Callable[[], Any]) -> Questions[Turn]:
        """Return the questions of a `run()`: see `Turns.to_question`. The lease is kept until they are closed."""
        questions = self._turns.to_question(until, *ways)
        if self._lease is not None:
            self._lease.keep(questions)
        return questions
