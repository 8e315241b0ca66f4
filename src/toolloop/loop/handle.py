"""What both handles share: the parts of a loop, reads, commands, and what a turn gives the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

from attrs import evolve

from toolloop.face.calls import ToolCall, pending_calls
from toolloop.face.decisions import to_seconds, to_texts
from toolloop.face.grants import Grants, is_over, shown
from toolloop.face.loop_view import view_of
from toolloop.face.results import Completed, Error, Moves, Named, ToolLoopResult, Yielded, bound, text_of
from toolloop.loop.assembly import Assembly, Driver, assemble
from toolloop.loop.commands import Said, read_limits, read_params
from toolloop.loop.driving import Driving
from toolloop.loop.failures import error_of
from toolloop.loop.journal import LOG
from toolloop.loop.message_edits import MessageEdits
from toolloop.loop.opening import LoopParts, forked
from toolloop.machine.errors import Conflict, IllegalCommand, MaxDepthExceeded
from toolloop.machine.events import Event
from toolloop.machine.jsontext import JSON, decode
from toolloop.machine.loop import Failed, Finished, TooDeep, Waiting
from toolloop.machine.queries import everywhere, next_deadline, under_way
from toolloop.machine.setup import Budget
from toolloop.machine.state import State
from toolloop.machine.terminations import Unfinished
from toolloop.machine.usage import IterationUsage, Usage
from toolloop.machine.values import Command, Decision, Stop

Turn = Yielded | Completed | Error
H = TypeVar("H", bound="HandleBase")
_ENDED = (Finished, Failed, TooDeep)


class HandleBase:
    """A loop as its caller holds it. Not public: see `ToolLoopHandle` and `AsyncToolLoopHandle`."""

    _driver_class: ClassVar[type[Driver]]

    def _assemble(self, assembly: Assembly) -> None:
        """Talk to an assembled loop."""
        self._parts = assembly.parts
        self._provider = assembly.provider
        self._lease = assembly.lease
        self._journal = assembly.journal
        self._requests = assembly.requests
        self._runtimes = assembly.runtimes
        self._engine = assembly.engine
        self._commands = assembly.commands
        self._driver = assembly.driver
        self._late = assembly.late
        self._read_by = assembly.read_by
        self._edits = MessageEdits()
        self._driving = Driving()
        self._shown: tuple[int, Turn | None] = (-1, None)  # what was given for which turn of the journal

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
        """How deep the loop is nested; 0 for one that nobody nested."""
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
    def is_finished(self) -> bool:
        """Whether `next_turn()` would return a `Completed` or an `Error` that is there already."""
        return isinstance(self.state.root.phase, _ENDED)

    @property
    def messages(self) -> tuple[JSON, ...]:
        """The closed history with the caller's edits, as copies: what the API accepts once a user message follows."""
        return self._edits.shown(self.state.root)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a decision, also those of loops inside calls: see `ToolCall.path`."""
        return pending_calls(self.state)

    @property
    def pending_turn(self) -> Yielded | None:
        """The `Yielded` that waits for a command, or None."""
        turn = self._turn() if isinstance(self.state.root.phase, Waiting) else None
        return turn if isinstance(turn, Yielded) else None

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
        return Grants([shown(path, grant) for path, grant in standing], self._revoke)

    def messages_mut(self) -> list[JSON]:
        """Return the closed history as a list to edit in place: the same list until the next command or `next_turn()`.

        An edit is in the history at once. What comes next takes it over, or raises `InvalidHistory` and leaves the list
        to be mended.

        Raises:
            IllegalCommand: a turn is in progress, or the loop may not run at all.

        """
        return self._edits.working(self.state.root, is_driven=self._driving.is_active)

    def into_result(self) -> ToolLoopResult:
        """Return what came of the loop so far; the termination of an unfinished one is `Unfinished()`."""
        loop = self.state.root
        return ToolLoopResult(
            response=None if loop.response is None else decode(loop.response),
            termination=loop.phase.termination if isinstance(loop.phase, Finished) else Unfinished(),
            iterations=loop.iterations,
            total_usage=loop.total_usage,
            usage_log=tuple(loop.usage_log),
            error=self._error(),
        )

    def view(self) -> dict[str, JSON]:
        """Return the loop as JSON, for a page: state, pending calls, last text, usage, what is left of the limits.

        Under `children` are the loops inside its calls, each with its path and its own children.
        """
        error = self._error()
        return view_of(self.state, error=None if error is None else str(error))

    def __repr__(self) -> str:
        loop = self.state.root
        phase = type(loop.phase).__name__
        return f"<{type(self).__name__} {phase}: {loop.iterations} iterations, id {loop.setup.loop_id}>"

    # --- commands ---

    def decide(self, decisions: Mapping[str | ToolCall, Decision]) -> None:
        """Decide calls by id, by path, or by the `ToolCall` that was shown: all of them, or none.

        An id is enough if no other open call has it, in this loop or in the loops inside its calls. Else give the ids
        that lead to the call, joined with slashes: `"p1/c1"`, and `"/c1"` for a call of the outermost loop. A decision
        that is made while a turn is in progress joins the next one.

        Raises:
            UnknownCall: a call that is not there, or that has its result; or an id that several calls have.
            DecisionConflict: another call than the one shown, or decided otherwise already.
            IllegalCommand: a call that does not wait, or does not take such a decision.

        """
        if not isinstance(decisions, Mapping):
            raise TypeError(f"decide() got a {type(decisions).__name__}; give a mapping of calls to decisions")
        self._decide([bound(call, decision) for call, decision in decisions.items()])

    def _decide(self, decisions: Sequence[tuple[Named, Decision]]) -> None:
        self._tick()
        self._journal.say(lambda state: self._commands.decide(state, decisions), firm=False)
        self._driver.notifier.notify()

    def resume(self, command: Command) -> None:
        """Give a command without the `Yielded` in hand: `Continue()`, `InjectMessages([...])` or `Stop(...)`.

        `Stop` and `InjectMessages` are possible also if none waits, and from any thread; while a request is in progress
        they count once it is answered. After a stop running tools continue: `ToolContext.cancelled` tells them, and
        their results no longer count. After a terminal result this does nothing, and logs that.

        Raises:
            IllegalCommand: nothing waits for `Continue`.
            UndecidedCalls: calls wait for a decision.
            InvalidHistory: the API would refuse the injected messages there.

        """
        asked, said = self._commands.read(command)

        def said_before_the_end(state: State) -> Event | None:
            if isinstance(state.root.phase, _ENDED):
                LOG.info("a command after the end does nothing", extra={"loop_id": self.loop_id})
                return None
            return said(state)

        self._say(asked, said_before_the_end, firm=self._is_firm(command))

    def _command(self, command: Command) -> None:
        asked, said = self._commands.read(command)
        self._say(asked, said, firm=self._is_firm(command))

    def _is_firm(self, command: Command) -> bool:
        """Return whether a command is meant for the wait in which it is said. A stop is meant wherever the loop is."""
        return isinstance(self.state.root.phase, Waiting) and not isinstance(command, Stop)

    def tick(self, now: datetime | float) -> None:
        """Say what time it is: calls whose deadline has passed expire, each with a result that says so.

        A deadline binds whether anybody ticks or not; this settles the calls, so that the loop can continue.

        Args:
            now: an aware datetime, or seconds since the epoch.

        """
        self._tick(to_seconds(now, "tick()"))

    def _tick(self, now: float | None = None) -> None:
        at = self._journal.now() if now is None else now
        if self._commands.tick(self.state, at) is not None:
            self._journal.say(lambda state: self._commands.tick(state, at), firm=False)
            self._driver.notifier.notify()

    def follow_up(self, messages: Sequence[JSON], replace_last: bool = False) -> None:
        """Begin a further user turn of the same conversation, after `Completed`.

        Args:
            messages: what the user says.
            replace_last: put them in the place of the last user turn, for one that was refused.

        Raises:
            IllegalCommand: the loop has not ended.
            InvalidHistory: the API would refuse the messages there.

        """
        texts = to_texts(messages, where="the messages of follow_up()")
        self._say("follow_up()", partial(self._commands.follow_up, texts=texts, replace_last=replace_last))

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
        self._say("extend()", partial(self._commands.extend, limits=limits))

    def retry(self) -> None:
        """After an `Error`: go back to the point before the failed request. Nothing was consumed.

        Raises:
            IllegalCommand: no request failed, or the loop may not run at all.
            InvalidHistory: the API would refuse the edited history.

        """
        self._say("retry()", self._commands.retry)

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
        self._take_edits(asked, said)
        self._journal.say(said)
        self._runtimes.root.requests.update(read.secrets, changed=read.names)

    def _revoke(self, grant_id: str, by: str | None) -> None:
        self._journal.say(partial(self._commands.revoke, grant_id=grant_id, by=by), firm=False)

    def _say(self, asked: str, said: Said, *, firm: bool = True) -> None:
        self._take_edits(asked, said)
        self._journal.say(said, firm=firm)
        self._edits.taken()
        self._driver.notifier.notify()

    def _take_edits(self, asked: str, said: Said | None = None) -> None:
        """Take over what the caller made of the history, if it is another; or leave it to be mended.

        `said`: the command before which this happens.
        """
        with self._edits.lock:  # of two threads, one takes the edit over
            edit = self._edits.edit(self.state.root)
            if edit is None:
                return
            try:
                self._journal.say(partial(self._commands.edit, edit=edit, asked=asked, then=said), firm=False)
            finally:
                self._edits.settle(self.state.root, edit)

    # --- sleep, wake, copy ---

    def snapshot(self) -> dict[str, JSON]:
        """Return the loop as JSON, at any moment. It holds no callable, client or key, and no object of the caller.

        Keep it where only you can write: a digest in it catches damage, not attackers.
        """
        from toolloop.stores.codec import dump  # noqa: PLC0415 - cattrs is loaded when it is first needed

        self._take_edits("snapshot()")
        return dump(self.state)

    def fork(self, loop_id: str | None = None) -> Self:
        """Return an independent copy: every started call is uncertain in it, and every open call asks again."""
        self._take_edits("fork()")
        wake_up = self._parts.wake_up if self._engine.is_asleep else None
        secrets = self._runtimes.root.requests.secrets
        parts = evolve(self._parts, state=self.state, secrets=secrets, wake_up=wake_up)
        return self._made(self._provider, forked(parts, loop_id, at=self._journal.now()))

    @classmethod
    def _made(cls, provider: Any, parts: LoopParts) -> Self:
        return handle_of(cls, assemble(provider, parts, cls._driver_class))

    def _begin_stored(self) -> None:
        """Create a stored loop; or take one over that nobody drives, if it was interrupted. This blocks.

        Raises:
            Conflict: the loop is there, and was to be created.
            StoreError: the store failed.

        """
        self._journal.commit()
        if self._lease is None or not self._parts.rev:
            return
        self._tick()
        if not (under_way(self.state) or self._parts.take_over):
            return
        try:
            with self._lease.held():
                if self._parts.take_over or under_way(self.state):  # else its driver has ended the turn meanwhile
                    self._engine.wake()
                    self._engine.leave()
                self._journal.commit()
        except Conflict:
            return  # its driver lives: this handle reads and decides

    # --- what a turn gives ---

    def _turn(self) -> Turn | None:
        """Return what the loop's wait or end gives the caller; None: there is something to drive.

        It is made once, and compared with the journal's count of turns, so that nothing old is ever shown.
        """
        with self._journal.lock:
            turn_number, phase = self._journal.turn, self.state.root.phase
            if not isinstance(phase, (Waiting, *_ENDED)):
                return None
            known, turn = self._shown
            if known == turn_number and turn is not None:
                return turn
            if isinstance(phase, Waiting):
                look = partial(self._look, turn_number)
                moves = Moves(decide=self._decide, command=self._command, tick=self._tick, look=look)
                turn = Yielded(self.state, moves, self._journal.bus.drain())
            else:
                turn = self._terminal()
            self._shown = (turn_number, turn)
            return turn

    def _look(self, turn_number: int) -> State | None:
        """Return the loop as it is now; None if the wait is over in which this turn was given."""
        with self._journal.lock:
            is_same = self._journal.turn == turn_number and isinstance(self.state.root.phase, Waiting)
            return self.state if is_same else None

    def _terminal(self) -> Completed | Error:
        loop, seen = self.state.root, self._journal.bus.drain()
        if isinstance(loop.phase, Finished):
            response = None if loop.response is None else decode(loop.response)
            return Completed(
                termination=loop.phase.termination,
                response=response,
                text=None if response is None else text_of(response["content"]),
                iterations=loop.iterations,
                total_usage=loop.total_usage,
                usage_log=tuple(loop.usage_log),
                events=seen,
            )
        error = self._error() or MaxDepthExceeded(0, 0)
        return Error(
            error=error,
            retryable=bool(getattr(error, "retryable", False)),
            retry_after=getattr(error, "retry_after", None),
            iterations=loop.iterations,
            total_usage=loop.total_usage,
            events=seen,
            path=loop.phase.failure.path if isinstance(loop.phase, Failed) else (),
            partial_text=getattr(error, "partial_text", None),
        )

    def _error(self) -> Exception | None:
        loop = self.state.root
        if isinstance(loop.phase, Failed):
            failure = loop.phase.failure
            return self._requests.errors.get(failure.path) or error_of(failure)
        if isinstance(loop.phase, TooDeep):
            return MaxDepthExceeded(loop.setup.depth, loop.setup.limits.max_depth or 0)
        return None

    def _result_at_hand(self) -> Completed | Error | None:
        """Return the terminal result, if the loop has ended; None: there is something to drive.

        Raises:
            IllegalCommand: it is the caller's turn.

        """
        turn = self._turn()
        if isinstance(turn, Yielded):
            raise IllegalCommand(
                "next_turn(): a Yielded waits for a command. Give it one (it is handle.pending_turn), then go on",
                state=type(self.state.root.phase).__name__,
                asked="next_turn()",
                allowed=("continue_loop()", "inject_and_continue()", "stop()"),
            )
        return turn

    def _goes_on(self, turn: Yielded) -> bool:
        """Continue a `Yielded` whose calls are all decided. Return False if calls still wait."""
        with self._journal.lock:
            if not turn.is_spent:
                if turn.pending:
                    return False
                self._journal.record(self._commands.go_on(self.state), "step")
            return True


def handle_of(kind: type[H], assembly: Assembly) -> H:
    """Return a handle of this kind for an assembled loop."""
    handle = kind.__new__(kind)
    handle._assemble(assembly)  # noqa: SLF001 - its own module
    return handle
