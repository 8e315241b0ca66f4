"""The operations in progress, whether the loop still waits for each, and the seconds that they take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from attrs import evolve

from toolloop.loop.journal import Journal, PendingRecord
from toolloop.loop.operations import Key, ModelRequest, Operation, Question
from toolloop.loop.questions import Questions
from toolloop.loop.tool_calls import CallRun
from toolloop.machine import events as ev
from toolloop.machine.loop import Loop, Ready, Requesting, Running, round_of
from toolloop.machine.queries import driven_at
from toolloop.machine.state import Path, State
from toolloop.machine.usage import IterationUsage
from toolloop.machine.values import Status

_DIGITS = 4  # of a second: every event of a journal has them


class ActiveTimer:
    """Counts seconds from one event to the next."""

    def __init__(self) -> None:
        """Start paused: there is no driver yet."""
        self._last = time.monotonic()
        self._paused: float | None = self._last

    def pause(self) -> None:
        """Stop counting: the caller reads, or there is no driver."""
        if self._paused is None:
            self._paused = time.monotonic()

    def resume(self) -> None:
        """Count again."""
        paused, self._paused = self._paused, None
        if paused is not None:
            self._last += time.monotonic() - paused

    def so_far(self) -> float:
        """Return the seconds since the last split."""
        return (time.monotonic() if self._paused is None else self._paused) - self._last

    def split(self) -> float:
        """Return the seconds since the last split, and start again. What is rounded off counts in the next."""
        seconds = max(0.0, round(self.so_far(), _DIGITS))
        self._last += seconds
        return seconds


class InProgress:
    """What is in progress in a tree of loops. Hold the lock of the journal when you call a method.

    Attributes:
        journal: of the tree.
        timer: measures the active seconds that go with each event.
        operations: by their keys.

    """

    def __init__(self, journal: Journal, report_usage: Callable[[IterationUsage], None] | None) -> None:
        """`report_usage`: told of the usage of each request."""
        self.journal = journal
        self.timer = ActiveTimer()
        self.operations: dict[Key, Operation] = {}
        self._report_usage = report_usage

    @property
    def state(self) -> State:
        """Return where the tree is."""
        return self.journal.state

    def loop(self, path: Path) -> Loop | None:
        """Return the loop at a path, if it is driven: None if it is gone, or a loop above it does not run."""
        return driven_at(self.journal.state, path)

    def record(self, event: ev.Event, kind: Any = None) -> PendingRecord:
        """Record an event, with the time and the active seconds since the last one."""
        known = len(self.state.root.usage_log)
        event = evolve(event, at=self.journal.now(), seconds=self.timer.split())
        record = self.journal.record(event, kind)
        if self._report_usage is not None:
            for usage in self.state.root.usage_log[known:]:
                self._report_usage(usage)
        return record

    def has(self, operation: Operation) -> bool:
        """Return whether an operation is in progress."""
        return self.operations.get(operation.key) is operation

    def add(self, operation: Operation) -> None:
        """Add an operation."""
        self.operations = {**self.operations, operation.key: operation}

    def drop(self, operation: Operation) -> None:
        """Remove an operation, if it is there."""
        self.operations = {key: each for key, each in self.operations.items() if each is not operation}

    def ask(
        self,
        path: Path,
        key: Key,
        asking: Questions[Any],
        finish: Callable[[Any], None],
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask functions of the caller, in an operation: what happened is stored before they are asked.

        Args:
            path: of the loop.
            key: of the operation.
            asking: yields each function with its arguments.
            finish: takes the answer.
            give_up: called if the question was cancelled.

        """
        try:
            first = next(asking)
        except StopIteration as done:  # there is no function to ask, as for most calls
            finish(done.value)
        else:
            self.add(Operation(path, key, Question(asking, first, finish, give_up)))

    def is_awaited(self, operation: Operation) -> bool:
        """Return whether the loop waits for this very operation."""
        if not self.has(operation):
            return False
        loop = self.loop(operation.path)
        match operation.work:
            case ModelRequest(summary=None):
                return loop is not None and isinstance(loop.phase, Requesting)
            case ModelRequest():
                return loop is not None and isinstance(loop.phase, Ready)
            case CallRun() as run:
                return loop is not None and _runs(loop, run)
        return True

    def may_count(self, operation: Operation) -> bool:
        """Return whether the end of a run may still count: its call, and each call above that, has not ended."""
        _, *path = operation.key
        loops = [self.state.at(tuple(path[:at])) for at in range(len(path))]
        rounds = [None if loop is None else round_of(loop) for loop in loops]
        calls = [None if round_ is None else round_.find(name) for round_, name in zip(rounds, path, strict=True)]
        return all(call is not None and call.status is Status.RUNNING for call in calls)

    def log_fields(self, path: Path) -> dict[str, str]:
        """Return what a line of the log says of a loop."""
        return {"loop_id": self.state.root.setup.loop_id, "path": "/".join(path)}


def one_question(ask: Callable[[], Any]) -> Questions[Any]:
    """Ask one function. The answer is what it returned, or the exception it raised."""
    try:
        return (yield ask, ())
    except Exception as error:  # noqa: BLE001 - code of the caller may raise anything
        return error


def _runs(loop: Loop, run: CallRun) -> bool:
    """Return whether a loop waits for the end of this very run."""
    if loop.round is None or not isinstance(loop.phase, Running) or run.setup.within != loop.setup.within:
        return False
    call = loop.round.find(run.call.id)
    is_running = call is not None and call.status is Status.RUNNING
    return is_running and run.identity == (loop.round.iteration, call.attempts if call else 0)
