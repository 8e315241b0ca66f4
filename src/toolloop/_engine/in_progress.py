"""The operations in progress, whether the loop still waits for each, and their active time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from attrs import evolve

from toolloop._engine.operations import (
    DIGITS,
    Key,
    ModelRequest,
    Operation,
    Question,
    is_ending,
    is_given_up,
    list_graces,
)
from toolloop._engine.questions import FunctionCall, Questions, T
from toolloop._engine.tool_calls import CallRun
from toolloop._interface.calls import RunningCall
from toolloop._interface.progress import Progress
from toolloop._journal.journal import Journal
from toolloop._journal.records import Kind, PendingRecord
from toolloop._usage import IterationUsage
from toolloop.events import WatchEvent
from toolloop.machine.queries import driven, driven_at, find_run, list_running, outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Conclude, Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.loop import Finished, Loop, Path, Ready, Requesting, Running, State
from toolloop.machine.rules.calls import may_end
from toolloop.machine.values.calls import Result, Status

# These events follow from others and have no time; it goes with the next event that has one. `Opened` has a time,
# because the seconds before it do not belong to its loop.
_UNTIMED = (ev.Requested, ev.Started, ev.TurnEnded)


class ActiveTimer:
    """Measures the seconds from one event to the next."""

    def __init__(self) -> None:
        """Start paused, because the driver has not begun."""
        self._last = time.monotonic()
        self._paused: float | None = self._last

    @property
    def is_paused(self) -> bool:
        """Return whether the timer is stopped: no driver works, or it waits for the reader of a stream."""
        return self._paused is not None

    def pause(self) -> None:
        """Stop the timer, while the caller reads or no driver works."""
        if self._paused is None:
            self._paused = time.monotonic()

    def resume(self) -> None:
        """Count again."""
        paused, self._paused = self._paused, None
        if paused is not None:
            self._last += time.monotonic() - paused

    def measure(self) -> float:
        """Return the seconds since the last split."""
        return (time.monotonic() if self._paused is None else self._paused) - self._last

    def split(self) -> float:
        """Return the seconds since the last split, and start again. The rounding error is carried over."""
        seconds = max(0.0, round(self.measure(), DIGITS))
        self._last += seconds
        return seconds


class InProgress:
    """The operations in progress in a tree of loops. Hold the lock of the journal when you call a method.

    Attributes:
        journal: of the tree.
        timer: measures the active seconds of each event.
        operations: the operations by key.

    """

    def __init__(self, journal: Journal, report_usage: Callable[[IterationUsage], None] | None) -> None:
        """`report_usage`: called with the usage of each request."""
        self.journal = journal
        self.timer: ActiveTimer = ActiveTimer()
        self.operations: dict[Key, Operation] = {}
        self._report_usage = report_usage

    def record(self, event: ev.Event, kind: Kind | None = None) -> PendingRecord:
        """Record an event, with the time and the active seconds since the last event that has them."""
        known = len(self.journal.state.root.usage_log)
        if not isinstance(event, _UNTIMED):
            event = evolve(event, at=self.journal.now(), seconds=self.timer.split())
        record = self.journal.record(event, kind)
        if self._report_usage is not None:
            for usage in self.journal.state.root.usage_log[known:]:
                self._report_usage(usage)
        return record

    def announce(self, event: WatchEvent) -> None:
        """Deliver a watch event that does not come from an event of the machine. Call it without the lock."""
        with self.journal.lock:
            self.journal.bus.note([event])
        self.journal.bus.tell()

    def has(self, operation: Operation) -> bool:
        """Return whether an operation is in progress."""
        return self.operations.get(operation.key) is operation

    def add(self, operation: Operation) -> None:
        """Add an operation."""
        self.operations = {**self.operations, operation.key: operation}

    def drop(self, operation: Operation) -> None:
        """Remove an operation, if it exists."""
        self.operations = {key: each for key, each in self.operations.items() if each is not operation}

    def ask(self, effect: Effect, asking: Questions[Any], finish: Callable[[Any], None]) -> None:
        """Call the caller's functions before an effect. The events so far are stored before that.

        Args:
            effect: the effect; the loop waits for the answer as long as it is outstanding.
            asking: yields each function with its arguments.
            finish: takes the answer.

        """
        if (first := _ask_first(asking, finish)) is None:
            return
        key, place = list_keys(effect)[-1], self._identify(effect.path)

        def is_wanted() -> bool:
            is_here = self._identify(effect.path) == place  # ids may repeat, so the key may be that of a later round
            return is_here and any(key in list_keys(each) for each in outstanding(self.journal.state))

        question = Question(asking, finish, lambda: None, is_wanted, first, partial(self._goes_on, key))
        self.add(Operation(effect.path, key, question))

    def _identify(self, path: Path) -> tuple[Any, ...] | None:
        """Return the identity of the loop at a path and of its last reply."""
        loop = driven_at(self.journal.state, path)
        return None if loop is None else (loop.setup.within, loop.iterations)

    def ask_filters(
        self, run: CallRun, result: Result, asking: Questions[Result], record: Callable[[Result | None], object]
    ) -> None:
        """Call the result filters before a result is recorded, as long as it may count.

        If not all of them can be called, the result is recorded as the last one returned it.
        """
        key = ("run", *run.setup.path, run.call.id)

        def is_wanted() -> bool:
            loop = self.journal.state.at(run.setup.path)
            return self.may_count(run, result) and loop is not None and not isinstance(loop.phase, Finished)

        if (first := _ask_first(asking, record)) is not None:
            goes_on, give_up = partial(self._goes_on, key), lambda: record(run.result)
            self.add(Operation(run.setup.path, key, Question(asking, record, give_up, is_wanted, first, goes_on, run)))

    def _goes_on(self, key: Key, question: Question) -> bool:
        """Return whether to call the next function. Once the loop does not wait for the answer, it never will again."""
        with self.journal.lock:
            operation = self.operations.get(key)
            if operation is None or operation.work is not question:
                return False
            if not (is_awaited := question.is_wanted()):
                self.drop(operation)
            return is_awaited

    def is_awaited(self, operation: Operation) -> bool:
        """Return whether the loop still waits for this operation."""
        if not self.has(operation):
            return False
        loop = driven_at(self.journal.state, operation.path)
        match operation.work:
            case ModelRequest(summary=None):
                if loop is None or not isinstance(loop.phase, Requesting):
                    return False
                return not (loop.phase.stopping and is_given_up(self.journal.state, operation))
            case ModelRequest():
                return loop is not None and isinstance(loop.phase, Ready)
            case CallRun() as run:
                return loop is not None and _awaits(loop, run)
            case Question() as question:
                return question.is_wanted()

    def is_ending(self, operation: Operation) -> bool:
        """Return whether it is the run of a call that a loop waits for before it ends."""
        run = operation.work
        return isinstance(run, CallRun) and is_ending(self.journal.state, run.setup.path) and self.may_count(run)

    def list_running_calls(self) -> tuple[RunningCall, ...]:
        """Return the calls whose tools run here, or are about to, and which a loop waits for before it ends."""
        begun = [each for each in self.operations.values() if each.launched or each.has_thread]
        return tuple(self._describe(each) for each in begun if self.is_ending(each))

    def _describe(self, operation: Operation) -> RunningCall:
        if operation.since is None:  # kept, because the difference of the clocks varies
            operation.since = round(self.journal.now() - time.monotonic() + operation.begun, 3)
        name = operation.work.call.name if isinstance(operation.work, CallRun) else ""
        since = datetime.fromtimestamp(operation.since, UTC)
        return RunningCall("/".join(operation.key[1:]), name, since, *operation.report)

    def show(self, *, has_text: bool = False) -> Progress:
        """Return what is in progress, for other processes. `has_text`: with the text of the reply that streams.

        It takes no lock: another thread asks, or the copy of a handle in a forked child.
        """
        operations = self.operations
        runs = [each for each in operations.values() if each.launched and isinstance(each.work, CallRun)]
        calls = tuple(self._describe(each) for each in runs if self.is_awaited(each) or self.is_ending(each))
        reply = operations.get(("request",))
        if has_text and reply is not None and isinstance(reply.work, ModelRequest) and reply.work.hear is not None:
            return Progress(calls, reply.work.read.partial_text or None)
        return Progress(calls)

    def list_timeouts(self) -> list[float]:
        """Return the seconds until each limit of a tool, and until each grace that is not over."""
        operations = tuple(self.operations.values())
        limits = [each.deadline - time.monotonic() for each in operations if each.deadline is not None]
        return limits + [seconds for _, seconds in list_graces(self.journal.state, operations) if seconds > 0]

    def find_orphan(self) -> ev.Event | None:
        """Return the end of a request or call that is in progress in the state, but not in this process."""
        for path, loop in driven(self.journal.state):
            if isinstance(loop.phase, Requesting) and ("request", *path) not in self.operations:
                return ev.RequestFailed(path=path)
        for path, call in list_running(self.journal.state):
            above = driven_at(self.journal.state, path)
            is_open = above is not None and isinstance(above.phase, Running)
            if ("run", *path, call.id) not in self.operations and (is_open or is_ending(self.journal.state, path)):
                return ev.Ended(call.id, None, path=path)
        return None

    def list_effects_beside_summaries(self) -> tuple[Effect, ...] | None:
        """Return the effects with requests for summaries counted in the budgets; None if there are none."""
        asked = [
            each.path
            for each in self.operations.values()
            if isinstance(each.work, ModelRequest) and each.work.summary is not None and self.is_awaited(each)
        ]
        if not asked:
            return None
        requesting = {path: self.journal.state.loops[path]._replace(phase=Requesting()) for path in asked}
        return outstanding(State({**self.journal.state.loops, **requesting}))

    def may_count(self, run: CallRun, result: Result | None = None) -> bool:
        """Return whether the end of a run may still be the result of its call. `result`: None if it is unknown."""
        *above, call = self.journal.state.calls_along((*run.setup.path, run.call.id))
        loop = self.journal.state.at(run.setup.path)
        if loop is None or call is None or loop.iterations != run.context.iteration:
            return False
        return may_end(call, run.call.attempts, result) and all(
            each and each.status is Status.RUNNING for each in above
        )

    def has_runs(self) -> bool:
        """Return whether a tool whose end may count still runs in a thread.

        It takes no lock, because other handles call it while they hold theirs.
        """
        operations = tuple(self.operations.values())
        runs = [each.work for each in operations if isinstance(each.work, CallRun) and each.has_thread]
        return any(map(self.may_count, runs))

    def log_fields(self, path: Path) -> dict[str, str]:
        """Return the log fields of a loop."""
        return {"loop_id": self.journal.state.root.setup.loop_id, "path": "/".join(path)}


def ask_one(ask: Callable[[], Any]) -> Questions[Any]:
    """Call one function. The answer is its value, or the exception that it raised."""
    try:
        return (yield ask, ())
    except Exception as error:  # noqa: BLE001 - the caller's code may raise anything
        return error


def _ask_first(asking: Questions[T], finish: Callable[[T], object]) -> FunctionCall | None:
    """Return the first function to call. If there is none, as for most calls, finish, and return None."""
    try:
        return next(asking)
    except StopIteration as done:
        finish(done.value)
        return None


def _awaits(loop: Loop, run: CallRun) -> bool:
    """Return whether a loop waits for the end of this run."""
    if not isinstance(loop.phase, Running) or run.setup.within != loop.setup.within:
        return False
    call = loop.phase.round.calls.find(run.call.id)
    is_running = call is not None and call.status is Status.RUNNING
    return is_running and run.identity == find_run(loop, run.call.id)


def list_keys(effect: Effect) -> tuple[Key, ...]:
    """Return the keys of the operations that an effect may have led to."""
    path = effect.path
    match effect:
        case SendRequest():
            return ("request", *path), ("secrets", *path)
        case Judge():
            return (("judge", *path),)
        case RunCall(call_id=call_id):
            return (("begin", *path, call_id),)
        case Conclude(call_id=call_id):
            return (("conclude", *path, call_id),)
        case EndTurn():
            return (("end", *path),)
    return ()
