"""What both handles share: the parts of a loop, reads, commands, and what a turn gives the caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeVar

from attrs import evolve

from toolloop.face.calls import pending_calls
from toolloop.face.config import DEFAULT_CONFIG, LoopConfig
from toolloop.face.decisions import said_texts, to_seconds
from toolloop.face.grants import Grants, is_over, shown
from toolloop.face.loop_view import LoopView, view_of
from toolloop.face.results import ToolLoopResult, Turn, Yielded, bound
from toolloop.loop.assembly import Assembly, Driver, assemble
from toolloop.loop.commands import read_limits, read_params
from toolloop.loop.opening import Here, forked, loaded, new_loop, restored
from toolloop.loop.questions import Questions
from toolloop.loop.turns import Driving, Turns
from toolloop.machine.errors import Conflict
from toolloop.machine.jsontext import JSON, a_type
from toolloop.machine.queries import Standing, everywhere, next_deadline, status_of
from toolloop.machine.setup import Budget
from toolloop.machine.state import State
from toolloop.machine.usage import IterationUsage, Usage
from toolloop.machine.values import Command, Decision
from toolloop.stores.protocol import Store
from toolloop.tools import Context, ToolRegistry
from toolloop.tools.calls import ToolCall

# A mapping is invariant in its keys: so a `dict[str, Approve]` fits, and a `dict[ToolCall, Decision]`.
CallKey = TypeVar("CallKey", bound=str | ToolCall)


class HandleBase:
    """A loop as its caller holds it. Not public: see `ToolLoopHandle` and `AsyncToolLoopHandle`."""

    _driver_class: ClassVar[type[Driver]]
    _turning: Callable[..., Any]  # drives a turn

    def __init__(  # noqa: PLR0913 - the parts of a loop, all but two of them optional
        self,
        provider: Any,
        *,
        params: Mapping[str, Any],
        tools: Iterable[Any] | ToolRegistry = (),
        config: LoopConfig = DEFAULT_CONFIG,
        context: Context | None = None,
        store: Store | None = None,
        loop_id: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set the loop up; nothing is sent or stored, and no clock starts. See `ToolLoopHandle`."""
        here = Here.of(tools, config, context, clock, is_async=self._driver_class.is_async)
        parts = new_loop(here, params, store=store, loop_id=loop_id)
        self._assemble(assemble(provider, parts, self._driver_class))

    @classmethod
    def restore(  # noqa: PLR0913 - the parts of a loop that no snapshot can hold
        cls,
        snapshot: Mapping[str, JSON],
        provider: Any,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        params: Mapping[str, Any] | None = None,
        config: LoopConfig | None = None,
        context: Context | None = None,
        store: Store | None = None,
        on_drift: Literal["raise", "accept", "strict"] = "raise",
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """A loop from its snapshot, in this process or another. The next request has the very same bytes.

        Args:
            snapshot: what `snapshot()` returned.
            provider: as for a new handle.
            tools: as for a new handle.
            params: brings back what a snapshot leaves out (headers, timeouts, tokens); the rest is compared.
            config: None takes the stored limits. Callables are in no snapshot: give them again.
            context: as for a new handle; its depth is the stored one.
            store: where it is kept from now on, as a new loop there: two copies of one snapshot are two loops.
            on_drift: judged when the loop is driven. `raise` refuses what may let something run that a person had gated
                (an approval that is gone, another effect), and another tool behind an open call; all else is adopted,
                with an event. `accept` adopts everything, `strict` refuses any change.
            clock: as for a new handle.

        Raises:
            UnreadableSnapshot: it is damaged, foreign, or of a newer format.
            BadTool: two tools of one name.

        """
        here = Here.of(tools, config, context, clock, is_async=cls._driver_class.is_async)
        parts = restored(here, snapshot, params=params, store=store, on_drift=on_drift)
        return cls._of(assemble(provider, parts, cls._driver_class))

    @classmethod
    def _loaded(cls, here: Here, store: Store, loop_id: str, provider: Any, **given: Any) -> Self:
        """Load a stored loop, or create it; this blocks. `given`: see `opening.loaded`."""
        while True:
            parts = loaded(here, store, loop_id, **given)
            assembly = assemble(provider, parts, cls._driver_class)
            try:
                assembly.begin_stored()
            except Conflict:
                if parts.rev:
                    raise
                continue  # another process created it in this very moment
            return cls._of(assembly)

    @classmethod
    def _of(cls, assembly: Assembly) -> Self:
        """Return a handle for an assembled loop."""
        handle = cls.__new__(cls)
        handle._assemble(assembly)  # noqa: SLF001 - its own class
        return handle

    def _assemble(self, assembly: Assembly) -> None:
        """Talk to an assembled loop."""
        self._assembly = assembly
        self._lease = assembly.lease
        self._journal = assembly.journal
        self._engine = assembly.engine
        self._commands = assembly.commands
        self._driver = assembly.driver
        self._issuer = assembly.issuer
        self._driving = Driving(self._journal)
        self._turns = Turns(self._journal, self._issuer, self._driving, assembly.requests.errors)

    # --- reads: safe from any thread at any time ---

    @property
    def state(self) -> State:
        """Where the loop is: a frozen value of `toolloop.machine`."""
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
        """How many requests of this loop were answered; those of loops inside its calls are not counted."""
        return self.state.root.iterations

    @property
    def total_usage(self) -> Usage:
        """What all answered requests used together, those of loops inside its calls too."""
        return self.state.root.total_usage

    @property
    def usage_log(self) -> tuple[IterationUsage, ...]:
        """What each answered request used, those of loops inside its calls too: see `IterationUsage.path`."""
        return tuple(self.state.root.usage_log)

    @property
    def status(self) -> Standing:
        """What the loop waits for, as in `store.list()`: `needs_decision`, `needs_command`, `runnable` and so on."""
        return status_of(self.state)

    @property
    def is_finished(self) -> bool:
        """Whether this handle has returned a `Completed` or an `Error`, and no command made the loop go on since."""
        return self._turns.is_finished

    @property
    def messages(self) -> tuple[JSON, ...]:
        """The closed history with the caller's edits, as copies: what the API accepts once a user message follows."""
        return self._issuer.edits.shown(self.state.root)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a decision, also those of loops inside calls: see `ToolCall.path`."""
        return pending_calls(self.state)

    @property
    def pending_turn(self) -> Yielded | None:
        """The `Yielded` that waits for a command, or None."""
        return self._turns.pending

    @property
    def next_deadline(self) -> datetime | None:
        """When the first of the waiting calls expires, an aware UTC time: call `tick()` then. None: none does."""
        deadline = next_deadline(self.state)
        return None if deadline is None else datetime.fromtimestamp(deadline, UTC)

    @property
    def grants(self) -> Grants:
        """The standing grants: what runs unasked. `grants.revoke(...)` takes one back."""
        state, now = self.state, self._journal.now()
        given = ((path, grant) for path, loop in everywhere(state) for grant in loop.grants)
        standing = ((path, grant) for path, grant in given if grant.uses != 0 and not is_over(grant, now))
        return Grants([shown(path, grant) for path, grant in standing], self._issuer.revoke)

    def messages_mut(self) -> list[JSON]:
        """Return the closed history as a list to edit in place: the same list until the next command or `next_turn()`.

        An edit is in the history at once. What comes next takes it over, or raises `InvalidHistory` and leaves the list
        to be mended.

        Raises:
            IllegalCommand: a turn is in progress, or the loop may not run at all.

        """
        return self._issuer.edits.working(self.state.root, is_driven=self._driving.is_active)

    def into_result(self) -> ToolLoopResult:
        """Return what came of the loop so far, and how it ended; `Unfinished()` or `Failed(error)` if it did not."""
        return self._turns.result_so_far()

    def view(self) -> LoopView:
        """Return the loop as JSON, for a page: its state, pending calls, last text, usage, what is left of the limits.

        Under `children` are the loops inside its calls, each with its path and its own children.
        """
        error = self._turns.error()
        return view_of(self.state, error=None if error is None else str(error))

    def __repr__(self) -> str:
        loop = self.state.root
        phase = type(loop.phase).__name__
        return f"<{type(self).__name__} {phase}: {loop.iterations} iterations, id {loop.setup.loop_id}>"

    # --- commands ---

    def decide(self, decisions: Mapping[CallKey, Decision]) -> None:
        """Decide calls by id, by path, or by the `ToolCall` that was shown: all of them, or none.

        An id is enough if no other open call has it, in this loop or in the loops inside its calls. Else give the ids
        that lead to the call, joined with slashes: `"p1/c1"`, and `"/c1"` for a call of the outermost loop. A decision
        that is made while a turn is in progress joins the next one.

        Raises:
            UnknownCall: a call that is not there; or an id that several calls have.
            AlreadyDecided: a call that has its result, unless the decision says the same again.
            DecisionConflict: another call than the one shown, or decided otherwise already.
            IllegalCommand: a call that does not wait, or does not take such a decision.

        """
        if not isinstance(decisions, Mapping):
            raise TypeError(f"decide() got {a_type(decisions)}; give a mapping of calls to decisions")
        self._issuer.decide([bound(call, decision) for call, decision in decisions.items()])

    def resume(self, command: Command) -> None:
        """Give a command without the `Yielded` in hand: `Continue()`, `InjectMessages([...])` or `Stop(...)`.

        It is possible from any thread at any time. Where nothing waits, `Continue` changes nothing, the messages of
        `InjectMessages` are queued, and `Stop` ends the loop; while a request is in progress they count once it is
        answered. After a stop running tools continue: `ToolContext.cancelled` tells them, and their results no longer
        count. After the end `Continue` and `Stop` do nothing, and that is logged.

        Raises:
            IllegalCommand: messages after the end; `follow_up` takes them.
            UndecidedCalls: calls wait for a decision.
            InvalidHistory: the API would refuse the injected messages there.

        """
        self._issuer.resume(command)

    def stop(self, reason: str | None = None) -> None:
        """End the loop for good, wherever it stands: also after an `Error` that is not to be retried.

        The next `next_turn()` returns `Completed`, with the termination `StopCondition(reason)`. After the end this
        does nothing.
        """
        self._issuer.stop(reason)

    def tick(self, now: datetime | float) -> None:
        """Say what time it is: calls whose deadline has passed expire, each with a result that says so.

        A deadline binds without it, too; this settles the calls, so that the loop can continue.

        Args:
            now: an aware datetime, or seconds since the epoch.

        """
        self._issuer.tick(to_seconds(now, "tick()"))

    def follow_up(self, messages: str | Sequence[JSON], replace_last: bool = False) -> None:
        """Begin a user turn: the first of an empty conversation, or a further one after `Completed` or `Error`.

        After an `Error` the failed request is given up.

        Args:
            messages: what the user says; a string is one message.
            replace_last: replace the last user turn by them, for one that was refused.

        Raises:
            IllegalCommand: the loop has begun, and has not ended.
            InvalidHistory: the API would refuse the messages there.

        """
        texts = said_texts(messages, "the messages of follow_up()")
        self._issuer.say("follow_up()", partial(self._commands.follow_up, texts=texts, replace_last=replace_last))

    def extend(
        self,
        max_iterations: int | None = None,
        max_pauses: int | None = None,
        timeout: float | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Set other limits; None leaves one as it is. Where a limit ended the loop, it continues there.

        A limit can be raised as far as you like, but not taken away.

        Raises:
            IllegalCommand: the loop may not run at all.
            ValueError: a limit that makes no sense.

        """
        limits = read_limits(max_iterations=max_iterations, max_pauses=max_pauses, timeout=timeout, budget=budget)
        self._issuer.say("extend()", partial(self._commands.extend, limits=limits))

    def retry(self) -> None:
        """After an `Error`: go back to the point before the failed request. Nothing was consumed.

        Raises:
            IllegalCommand: no request failed, or the loop may not run at all.
            InvalidHistory: the API would refuse the edited history.

        """
        self._issuer.say("retry()", self._commands.retry)

    def update_params(self, **changes: Any) -> None:
        """Use other request parameters from the next request on; None takes one away.

        A `container` counts also while code waits in another one for its results.

        Raises:
            TypeError: a parameter is not JSON.
            ValueError: a parameter that is not given this way (`messages`, `stream`).
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
        """Return the loop as JSON, at any moment. It holds no callable, client or key, and no object of the caller.

        Keep it where only you can write: a digest in it catches damage, not attackers.
        """
        from toolloop.stores.codec import dump  # noqa: PLC0415 - cattrs is loaded when it is first needed

        self._issuer.take_edits("snapshot()")
        return dump(self.state)

    def fork(self, loop_id: str | None = None) -> Self:
        """Return an independent copy: every started call is uncertain in it, and every open call asks again."""
        self._issuer.take_edits("fork()")
        old, secrets = self._assembly.parts, self._assembly.runtimes.root.requests.secrets
        wake_up = old.wake_up if self._engine.is_asleep else None
        parts = evolve(old, state=self.state, secrets=secrets, wake_up=wake_up)
        copied = forked(parts, loop_id, at=self._journal.now())
        return self._of(assemble(self._assembly.requests.provider, copied, self._driver_class))

    # --- turns ---

    def _steps(self, *arguments: Any) -> Any:
        """Return the generator or coroutine of a turn, of the handle's own `_turning`. It keeps the lease."""
        steps = self._driving.steps(self._turning, *arguments)
        if self._lease is not None:
            self._lease.keep(steps)
        return steps

    def _questions(self, until: Callable[[], bool] | None, *ways: Callable[[], Any]) -> Questions[Turn]:
        """Return the questions of a `run()`: see `Turns.to_question`. They keep the lease until they are closed."""
        questions = self._turns.to_question(until, *ways)
        if self._lease is not None:
            self._lease.keep(questions)
        return questions
