"""Make the result of each turn: a `Yielded` while the loop waits, or its end. One caller drives at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from attrs import define, field

from toolloop import terminations
from toolloop._drivers.streaming import AsyncUnread, Unread
from toolloop._engine.failures import make_error
from toolloop._engine.questions import Questions
from toolloop._handles.issuing import ENDED, CommandIssuer
from toolloop._interface.calls import RunningCall, text_of
from toolloop._interface.results import Completed, Error, Moves, ToolLoopResult, Turn, Yielded
from toolloop._journal.journal import Journal
from toolloop._journal.lease import DriverLease, StepsOrTask, is_on_its_way
from toolloop._requests.output import MisfitError, Output, find_answer_text, read_json
from toolloop.errors import IllegalCommand, MaxDepthExceeded
from toolloop.events import WatchEvent
from toolloop.machine.queries import is_empty
from toolloop.machine.record.loop import Failed, Finished, Loop, Path, State, Stopping, TooDeep, Waiting
from toolloop.machine.values.jsontext import JSON, decode, describe_type

S = TypeVar("S", bound=StepsOrTask)


@define(eq=False)
class Turns:
    """Makes the result of each turn once. It is compared with the journal's turn counter, so it is never outdated.

    Args:
        journal: holds the state.
        issuer: issues the commands of a `Yielded`.
        driving: whether a turn is in progress.
        errors: the error of the last failed request of each loop.
        running: returns the calls that still run though the loop is to end.
        output: the class of the result.

    """

    _journal: Journal
    _issuer: CommandIssuer
    _driving: Driving
    _errors: Mapping[Path, Exception]
    _running: Callable[[], tuple[RunningCall, ...]]
    _output: Output | None
    # The turn number in the journal, its result, and the number of events before the next result.
    _shown: tuple[int, Turn | None, int] = field(default=(-1, None, 0), init=False)
    _returned: Turn | None = field(default=None, init=False)

    def find_current(self) -> Turn | None:
        """Return the result for the loop's wait or end; None if the loop can be driven."""
        with self._journal.lock:
            turn_number, phase = self._journal.turn, self._journal.state.root.phase
            if not isinstance(phase, (Waiting, *ENDED)):
                return None
            known, turn, position = self._shown
            if known == turn_number and turn is not None:
                return turn
            seen, position = self._journal.bus.list_since(position)
            if isinstance(phase, Waiting):
                issuer, look = self._issuer, partial(self._look, turn_number)
                moves = Moves(
                    decide=issuer.decide, command=issuer.give, edit=issuer.edit, now=self._journal.now, look=look
                )
                turn = Yielded(self._journal.state, moves, seen)
            else:
                turn = self._make_end(seen)
            self._shown = (turn_number, turn, position)
            return turn

    def find_turn_at_rest(self) -> Turn | None:
        """Return the result of a turn that nothing is left to do for: as `find_current`, or that the loop is to end."""
        with self._journal.lock:
            turn = self.find_current()
            if turn is not None or not isinstance(self._journal.state.root.phase, Stopping):
                return turn
            seen, position = self._journal.bus.list_since(self._shown[2])
            turn = self._make_completed(self._journal.state.root.phase.termination, seen)
            self._shown = (self._journal.turn, turn, position)
            return turn

    @property
    def pending(self) -> Yielded | None:
        """The `Yielded` that waits for a command, or None."""
        turn = self.find_current() if isinstance(self._journal.state.root.phase, Waiting) else None
        return turn if isinstance(turn, Yielded) else None

    def hand_over(self, turn: Turn) -> Turn:
        """Return a turn to the caller."""
        self._returned = turn
        return turn

    @property
    def is_finished(self) -> bool:
        """Return whether the terminal result was returned, and is still the result."""
        turn_number, turn, _ = self._shown
        is_returned = turn is self._returned and isinstance(turn, (Completed, Error))
        return is_returned and turn_number == self._journal.turn

    def find_end(self) -> Completed | Error | None:
        """Return the terminal result if the loop has ended; None if the loop can be driven.

        Raises:
            IllegalCommand: it is the caller's turn.

        """
        turn = self.find_current()
        if turn is None and is_empty(self._journal.state.root):
            raise IllegalCommand(
                "next_turn(): the conversation is empty. Begin it with follow_up(...), with a string or messages",
                state="Ready",
                asked="next_turn()",
                allowed=("follow_up()", "messages_mut()"),
            )
        if isinstance(turn, Yielded):
            raise IllegalCommand(
                "next_turn(): the previous turn still needs a command. Call continue_loop(), inject_and_continue() or "
                "stop() on handle.pending_turn first",
                state=type(self._journal.state.root.phase).__name__,
                asked="next_turn()",
                allowed=("continue_loop()", "inject_and_continue()", "stop()"),
            )
        return turn

    def make_questions(
        self, until: Callable[[], bool] | None, next_turn: Callable[[], object], catch_up: Callable[[], object]
    ) -> Questions[Turn]:
        """Return questions that drive until calls wait, or the loop has ended. They keep the lease until they close.

        Args:
            until: see `ToolLoopHandle.run`.
            next_turn: drives one turn, sync or async.
            catch_up: reads the events that others stored, sync or async.

        """
        return self._driving.keep_lease(self._ask(until, next_turn, catch_up))

    def _ask(
        self, until: Callable[[], bool] | None, next_turn: Callable[[], object], catch_up: Callable[[], object]
    ) -> Questions[Turn]:
        while True:
            if isinstance(self._journal.state.root.phase, Waiting):
                yield catch_up, ()
                self._issuer.tick()
            turn = self.pending
            if turn is None:
                try:
                    result: Turn = yield next_turn, ()
                except IllegalCommand:
                    if self._driving.is_active or not isinstance(self._journal.state.root.phase, Waiting):
                        raise
                    continue  # another process has just driven it to a wait
                if not isinstance(result, Yielded):
                    return result
                turn = result
            self._issuer.tick()
            if until is not None and until():
                yield catch_up, ()  # the end of the turn may not be stored yet
                return turn
            if not self._issuer.continue_turn(turn):
                return turn

    def refuse_loss(self, known: Exception | None) -> None:
        """Refuse to return what another driver did in the meantime. `known`: the loss that was known before.

        Raises:
            Conflict: another driver has taken the loop over between two turns.

        """
        if (lost := self._journal.lost) is not None and lost is not known:
            raise lost

    def find_error(self) -> Exception | None:
        """Return the error with which the loop ended, if it did."""
        loop = self._journal.state.root
        if isinstance(loop.phase, Failed):
            failure = loop.phase.failure
            return make_error(failure, self._errors.get(failure.path))
        if isinstance(loop.phase, TooDeep):
            return MaxDepthExceeded(loop.setup.depth, loop.setup.limits.max_depth or 0)
        return None

    def make_result(self) -> ToolLoopResult:
        """Return the outcome of the loop so far: see `ToolLoopResult`."""
        loop, error = self._journal.state.root, self.find_error()
        return ToolLoopResult(
            response=None if loop.response is None else decode(loop.response),
            termination=_find_termination(loop, error),
            iterations=loop.iterations,
            total_usage=loop.total_usage,
            usage_log=tuple(loop.usage_log),
            error=error,
        )

    def _look(self, turn_number: int) -> State | None:
        """Return the current state; None if the wait of this turn is over."""
        with self._journal.lock:
            state = self._journal.state
            return state if self._journal.turn == turn_number and isinstance(state.root.phase, Waiting) else None

    def _make_completed(self, termination: terminations.Termination, seen: tuple[WatchEvent, ...]) -> Completed:
        loop = self._journal.state.root
        response = None if loop.response is None else decode(loop.response)
        return Completed(
            termination=termination,
            response=response,
            text=None if response is None else text_of(response["content"]),
            iterations=loop.iterations,
            total_usage=loop.total_usage,
            usage_log=tuple(loop.usage_log),
            events=seen,
            running=self._running(),
            output=self._read_output(loop, response) if isinstance(termination, terminations.NaturalEnd) else None,
        )

    def _read_output(self, loop: Loop, response: dict[str, JSON] | None) -> Any:
        """Return the typed result, which was found to fit when the reply came."""
        if not loop.setup.output or response is None:
            return None
        text = find_answer_text(response)
        with suppress(MisfitError):  # this process has another class than the one that read it
            return read_json(text) if self._output is None else self._output.read(text)
        return None if text is None else read_json(text)

    def _make_end(self, seen: tuple[WatchEvent, ...]) -> Completed | Error:
        loop = self._journal.state.root
        if isinstance(loop.phase, Finished):
            return self._make_completed(loop.phase.termination, seen)
        error = self.find_error() or MaxDepthExceeded(0, 0)
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


def _find_termination(loop: Loop, error: Exception | None) -> terminations.Termination | terminations.Failed:
    if isinstance(loop.phase, (Finished, Stopping)):
        return loop.phase.termination
    return terminations.Unfinished() if error is None else terminations.Failed(error)


def check_ask(ask: object, asked: str) -> None:
    """Refuse an `ask` that cannot be called, such as the text of a person.

    Raises:
        TypeError: it is neither None nor callable.

    """
    if ask is not None and not callable(ask):
        raise TypeError(
            f"{asked}: ask: expected a function that decides the calls of a Yielded, or None, got "
            f"{describe_type(ask)}. Pass the words of a person to follow_up() or say()"
        )


class Driving:
    """Tracks whether a turn is in progress: its generator or coroutine has begun and has not ended.

    It does not use a flag, which an interrupt could leave set.
    """

    def __init__(self, journal: Journal, lease: DriverLease | None, leave: Callable[[], None]) -> None:
        """Start without a turn.

        Args:
            journal: of the loop.
            lease: kept while a turn or a `run()` is in progress.
            leave: gives up the operations in progress at the end of a turn.

        """
        self._journal = journal
        self._leave = leave
        self._lease = lease
        self._steps: weakref.ref[StepsOrTask] | None = None

    @property
    def is_active(self) -> bool:
        """Return whether a turn is in progress."""
        steps = None if self._steps is None else self._steps()
        return steps is not None and is_on_its_way(steps)

    def make_steps(self, make: Callable[..., S], *arguments: Any) -> S:
        """Return the generator or coroutine of a turn. `make` makes it, and gets a reference to it for `begin`."""
        own: list[weakref.ref[StepsOrTask]] = []
        steps = self.keep_lease(make(own, *arguments))
        own.append(weakref.ref(steps))
        return steps

    def keep_lease(self, steps: S) -> S:
        """Keep the lease, once it is taken, while a generator or coroutine is open. Return that."""
        if self._lease is not None:
            self._lease.keep(steps)
        return steps

    def begin(self, own: list[weakref.ref[StepsOrTask]], *, asked: str) -> None:
        """Begin to drive. The generator or coroutine itself calls this.

        Raises:
            IllegalCommand: another caller drives.

        """
        with self._journal.lock:
            if self.is_active:
                raise IllegalCommand(
                    f"{asked}: another caller drives this loop. Wait until its turn is over; you can decide calls now",
                    state=type(self._journal.state.root.phase).__name__,
                    asked=asked,
                    allowed=("decide()", "pending", "view()", "resume(Stop())"),
                )
            (self._steps,) = own
            self._journal.is_handed_over = asked != "run()"

    @contextmanager
    def turn(self, unread: Unread | AsyncUnread | None) -> Generator[None]:
        """Give up the operations in progress at the end of a turn, unless the turn's generator is being closed.

        The garbage collector may close a generator in any thread, between any two bytecodes, and that thread may hold
        any lock. So closing takes no lock and stores nothing. `Engine.wake` ends the operations that such a turn left
        behind, and the thread that renews leases gives back its lease.

        `unread`: of the turn's reader; None means that it is not streamed. It replaces that of the previous turn.
        """
        self._journal.bus.reader, is_closed = None if unread is None else unread.tell, False
        try:
            yield
        except GeneratorExit:
            is_closed = True
            raise
        finally:
            if not is_closed:
                self._leave()
                self._journal.bus.settle()
