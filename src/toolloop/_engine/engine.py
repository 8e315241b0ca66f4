"""The engine: decides which operations come next, and records their ends. It does not wait, and performs nothing.

`poll` records everything that can be recorded now, and returns the operations that come next. A driver stores the
records (`Journal.commit`), then asks `launch` for each operation, performs it, and reports its end to `complete` or
`cut`. One rule keeps the promises: an operation is launched only if its own record is stored and the loop still waits
for it. And the lease under which it is stored must not have run out: the host may have been suspended.

Any thread may complete an operation, decide, stop or inject at any time. So each method takes the lock of the journal
and reads the state first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Any

from toolloop._engine.beginning import Beginnings
from toolloop._engine.in_progress import ActiveTimer, InProgress, list_keys
from toolloop._engine.model_requests import ModelRequests
from toolloop._engine.operations import (
    ModelRequest,
    Operation,
    Question,
    is_given_up,
    is_graced,
    list_graces,
    notice_ends,
)
from toolloop._engine.runtimes import Runtimes
from toolloop._engine.tool_calls import CallRun
from toolloop._engine.tool_runs import ToolRuns
from toolloop._interface.calls import RunningCall
from toolloop._journal.journal import Journal
from toolloop._journal.records import PendingRecord
from toolloop.machine.queries import everywhere, is_due, outstanding, time_left, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, Effect, RunCall, SendRequest
from toolloop.machine.record.loop import State, Stopping, Waiting

LOG = logging.getLogger("toolloop")


class Engine:
    """Decides for a driver which events to record, which operations to perform, and when to poll again."""

    def __init__(  # noqa: PLR0913 - its parts
        self,
        progress: InProgress,
        runtimes: Runtimes,
        requests: ModelRequests,
        runs: ToolRuns,
        *,
        woken: Callable[[], ev.Woken],
        is_asleep: bool,
        holds: Callable[[State, Effect], bool] | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            progress: the operations in progress.
            runtimes: the runtimes of the loops of the tree.
            requests: makes model requests.
            runs: starts calls.
            woken: returns the event that records a takeover of the loop, or raises `Drift`.
            is_asleep: whether another driver may have driven the loop last.
            holds: see `DriveOptions`.

        """
        self.journal: Journal = progress.journal
        self.timer: ActiveTimer = progress.timer
        self.requests = requests
        self.goes_on = False  # whether `run` continues by itself after a turn
        self.error: BaseException | None = None  # raised by the driver once nothing is in progress
        self.progress: InProgress = progress
        self._runtimes = runtimes
        self._runs = runs
        self._beginnings = Beginnings(progress, runtimes, requests, runs)
        self._woken = woken
        self._holds = holds
        self._was_asleep = is_asleep
        self._taken_over: PendingRecord | None = None
        self._remote_drives = 0
        # The only operation in progress at the last poll, for which a driver may just wait, as nothing can time out.
        self.alone: Operation | None = None
        for path, _ in everywhere(self.journal.state):
            runtimes.at(self.journal.state, path)  # so that its observers get all events from the first on

    # --- for the driver ---

    def wake(self) -> None:
        """Begin to drive: start the timer, and end the operations that the previous turn left behind."""
        with self.journal.lock:
            self._sort_out()
            self.timer.resume()
            self.timer.split()
            self._runtimes.keep(self.journal.state, as_new=False)

    @property
    def is_asleep(self) -> bool:
        """Whether another driver may have driven the loop last: no record shows that this driver took it over."""
        record = self._taken_over
        return self._was_asleep if record is None else bool(record.rejection) and not record.stored

    def make_woken(self) -> ev.Woken | None:
        """Return the event to record before this driver drives the loop; None if it was the last one to drive it.

        Raises:
            Drift: the loop may not be driven with its current configuration.

        """
        with self.journal.lock:
            is_asleep = self.is_asleep or self.journal.remote_drives != self._remote_drives
            return self._woken() if is_asleep else None

    def _take_over(self, woken: ev.Woken) -> None:
        """Record that this driver takes the loop over.

        The record is a step, because its setup is derived from the current state. After a conflict it is made again.
        """
        self._beginnings.revoke_grants(self.journal.state.root, woken.setup)
        self._taken_over = self.progress.record(woken, "step")
        self._remote_drives = self.journal.remote_drives
        self._runtimes.root.is_unchecked |= woken.setup is not None
        self._runtimes.keep(self.journal.state, as_new=True)

    def poll(self) -> list[Operation]:
        """Record everything that can be recorded now.

        Returns:
            The operations to perform, once the events that allow them are stored.

        Raises:
            Drift: the loop may not be driven with its current configuration.
            InvalidHistory: the API would refuse the next request.

        """
        with self.journal.lock:
            if self.journal.lost is not None:
                return []
            if (woken := self.make_woken()) is not None:
                self._take_over(woken)
            if self.progress.operations:
                self._end_late()
            left = time_left(self.journal.state)
            if (left is not None and left <= self.timer.measure()) or is_due(self.journal.state, self.journal.now()):
                self.progress.record(ev.Ticked())
            while (orphan := self.progress.find_orphan()) is not None:  # in progress in the state, but not here
                self.progress.record(orphan)
            if self.progress.operations:
                self._drop_stale_questions()
            while (effect := self._find_effect()) is not None:
                self._beginnings.begin(effect)
            operations = tuple(self.progress.operations.values())
            notice_ends(self.journal.state, operations)
            is_alone = len(operations) == 1 and operations[0].limit is None and time_left(self.journal.state) is None
            self.alone = operations[0] if is_alone else None
            waiting = [each for each in operations if not (each.launched or each.has_thread)]
            paused = [each for each in waiting if self.requests.pause(each) > 0]
            if paused:
                self.error = self.error or self.requests.over
            return [each for each in waiting if each not in paused and not self._is_unsure(each)]

    def launch(self, operation: Operation) -> bool:
        """Return whether to perform an operation: its own record is stored, and the loop still waits for it."""
        with self.journal.lock:
            is_paused = self.requests.pause(operation) > 0
            if operation.launched or is_paused or self._is_unsure(operation) or self.journal.may_be_lost:
                return False  # it stays, and the next commit renews the lease
            is_stored = operation.recorded is None or operation.recorded.stored
            is_question = isinstance(operation.work, Question) and operation.run is None
            is_ours = self.journal.lost is None or not is_question  # after a takeover, result filters are still called
            operation.launched = is_stored and is_ours and self.progress.is_awaited(operation)
            operation.begun = time.monotonic()
            if not operation.launched:
                if isinstance(question := operation.work, Question):
                    question.give_up()
                elif isinstance(run := operation.work, CallRun) and is_stored and self.progress.is_ending(operation):
                    self._runs.record_end(operation, run, run.make_not_run())
                self.progress.drop(operation)
            return operation.launched

    def _is_unsure(self, operation: Operation) -> bool:
        """Return whether an error comes first, and only the next turn finds out whether its record is stored."""
        record = operation.recorded
        return self.error is not None and record is not None and record.sent and not record.stored

    def must_store(self, operations: Sequence[Operation]) -> bool:
        """Return whether to store what is recorded now. `operations`: those that come next."""
        return bool(operations) or self.is_busy() or not self.may_store_later()

    def may_store_later(self) -> bool:
        """Return whether the end of a turn may be stored with the request that follows.

        Then nothing begins, no event is delivered and nothing is returned before that.
        """
        state = self.journal.state
        if not self.goes_on or self.error is not None or self.journal.lost is not None:
            return False
        phase = state.root.phase
        return isinstance(phase, Waiting) and phase.reason == "tools_executed" and not waiting(state)

    def is_busy(self) -> bool:
        """Return whether an operation must end before the driver raises or returns."""
        with self.journal.lock:
            return any(map(self._holds_up, self.progress.operations.values()))

    def _holds_up(self, operation: Operation) -> bool:
        is_task = operation.launched and operation.thread is None  # raising cancels tasks; threads continue
        if self.journal.lost is not None:
            return is_task
        if self.error is not None:
            return is_task or (operation.launched and self.progress.is_awaited(operation))
        return self.progress.is_awaited(operation) or self._is_waited_out(operation)

    def _is_given_up(self, operation: Operation) -> bool:
        return self.progress.has(operation) and is_given_up(self.journal.state, operation)

    def _is_waited_out(self, operation: Operation) -> bool:
        """Return whether the driver waits for a run of a loop that is to end, or for the thread that may begin it."""
        # Threads of the root get `stop_grace` seconds. Tasks end before the driver, and a runner has no turn to return.
        if not ((operation.launched or operation.has_thread) and self.progress.is_ending(operation)):
            return False
        is_left = isinstance(self.journal.state.root.phase, Stopping) and operation.thread is not None
        return not is_left or self._holds is not None or is_graced(self.journal.state, operation)

    def fail(self, error: Exception) -> None:
        """Begin no further operation. The driver raises this error once no task runs."""
        self.error = self.error or error

    def take_error(self) -> BaseException | None:
        """Return the error that the driver must raise, or None."""
        error, self.error = self.error or self.journal.lost, None
        return error

    def measure_patience(self) -> float:
        """Return the seconds until something may time out; infinity if nothing can."""
        with self.journal.lock:
            left = time_left(self.journal.state)
            waits = self.progress.list_timeouts() + self.requests.list_pauses()
            return max(0.0, min([inf if left is None else left - self.timer.measure(), *waits]))

    def complete(self, operation: Operation, value: Any = None, error: Exception | None = None) -> None:
        """Record the end of an operation: its value or its error. An interrupt here loses nothing; see `_sort_out`."""
        operation.outcome = (value, error)
        if isinstance(run := operation.work, CallRun) and error is not None:  # runs the caller's code
            value, error = run.results.to_error_result(error), None
            operation.outcome = (value, error)
        with self.journal.lock:
            is_awaited = self.progress.is_awaited(operation)
            match operation.work:
                case Question() as question if error is None and is_awaited:
                    question.finish(value)
                case Question() as question:
                    self.error = self.error or (error if is_awaited else None)
                    question.give_up()
                case ModelRequest() as request if is_awaited or (request.summary and self.progress.has(operation)):
                    self.requests.take_end(operation, request, value, error)
                case ModelRequest() if self._is_given_up(operation):
                    self.requests.cancel(operation.path)
                case ModelRequest():
                    LOG.info(  # a stop or a limit gave it up, so it is not a failure
                        "a model request ended after the loop stopped waiting for it",
                        extra=self.progress.log_fields(operation.path),
                    )
                case CallRun() as run:
                    is_awaited = is_awaited or self.progress.is_ending(operation)
                    self._runs.take_end(operation, run, value, is_awaited=is_awaited)
            self.progress.drop(operation)  # last, so that an interrupt before it is found by `_sort_out`

    def cut(self, operation: Operation, error: BaseException | None = None) -> None:
        """Record that an operation was cancelled, or ended by an exit that the driver must raise."""
        with self.journal.lock:
            is_awaited = self.progress.is_awaited(operation)
            if is_awaited:
                self.error = self.error or error
            match operation.work:
                case Question() as question:
                    question.give_up()
                case ModelRequest(summary=None) if is_awaited:
                    self.progress.record(ev.RequestFailed(path=operation.path))
                case ModelRequest() if self._is_given_up(operation):
                    self.requests.cancel(operation.path)
                case CallRun() as run if is_awaited or self.progress.is_ending(operation):
                    self._runs.record_end(operation, run, None)
            self.progress.drop(operation)

    def leave(self) -> None:
        """End a turn: drop the steps that are not stored, and give up requests. Threads continue."""
        with self.journal.lock:
            if not self.may_store_later():
                self.journal.drop_steps()
            self._sort_out()
            self.timer.pause()
            self.error = None

    def _sort_out(self) -> None:
        """End every operation that no thread performs, except those that can still begin."""
        for operation in tuple(self.progress.operations.values()):
            if operation.outcome is not None:
                self.complete(operation, *operation.outcome)
            elif (isinstance(operation.work, CallRun) and operation.has_thread) or self._can_begin(operation):
                continue
            else:
                operation.cancel(0.0)
                self.cut(operation)

    def _can_begin(self, operation: Operation) -> bool:
        """Return whether a run has not begun and its start may be stored, or its result filters have not begun."""
        record, is_run = operation.recorded, operation.run is not None
        if operation.launched or not is_run or record is None:
            return is_run and not operation.launched
        return self.progress.is_awaited(operation) if record.stored else record.sent

    def cancel_left_behind(self) -> None:
        """Cancel the tasks that the loop no longer waits for, and those of which it will in some seconds not.

        The operations of a lost loop come to their end.
        """
        with self.journal.lock:
            if self.error is not None or self.journal.lost is not None:
                return
            operations = [each for each in self.progress.operations.values() if each.launched]
            notice_ends(self.journal.state, self.progress.operations.values())
            left = [(each, 0.0) for each in operations if not self.progress.is_awaited(each)]
            left += list_graces(self.journal.state, operations)
        for operation, seconds in left:
            operation.cancel(seconds)

    def list_running_calls(self) -> tuple[RunningCall, ...]:
        """Return the calls whose tools still run here, though the loop is to end."""
        with self.journal.lock:
            return self.progress.list_running_calls()

    def interrupt(self) -> float:
        """Tell the tools in threads that they are cancelled. Return for how many seconds to wait for their ends."""
        for operation in tuple(self.progress.operations.values()):
            operation.interrupted |= isinstance(operation.work, CallRun)
        return self.journal.state.root.setup.stop_grace

    def find_filters(self, run: Operation) -> Operation | None:
        """Return the result filters to call for a run that has ended, if no driver has begun to."""
        with self.journal.lock:
            found = self.progress.operations.get(run.key)
            return found if found is not None and isinstance(found.work, Question) and not found.launched else None

    # --- effects ---

    def _find_effect(self) -> Effect | None:
        state = self.journal.state
        effects: Iterable[Effect] = outstanding(state)
        for effect in self._leave_out_others(effects) if self.progress.operations else effects:
            if self.error is not None and not isinstance(effect, CancelRequest):
                continue  # the operations in progress must end first
            if self._holds is None or not self._holds(state, effect):
                return effect
        return None

    def _leave_out_others(self, effects: Iterable[Effect]) -> Iterator[Effect]:
        """Yield the effects that are not in progress, and for which those in progress leave room."""
        operations, free = self.progress.operations, self.progress.list_effects_beside_summaries()
        for effect in effects:
            if any(key in operations for key in list_keys(effect)):
                continue
            if isinstance(effect, RunCall) and not self._runs.has_place(effect):
                continue  # it is recorded as started only when its thread can begin
            if free is None or not isinstance(effect, SendRequest) or effect in free:
                yield effect

    def _drop_stale_questions(self) -> None:
        """Cancel questions that the loop no longer waits for: they may be slow, and a new one may be due."""
        for operation in tuple(self.progress.operations.values()):
            is_before_effect = isinstance(operation.work, Question) and operation.run is None
            if is_before_effect and operation.launched and not self.progress.is_awaited(operation):
                operation.cancel(0.0)
                self.progress.drop(operation)

    def _end_late(self) -> None:
        """End the runs whose time is over, and the requests that a stop cut off."""
        notice_ends(self.journal.state, self.progress.operations.values())
        now = time.monotonic()
        for operation in tuple(self.progress.operations.values()):
            if operation.deadline is None or operation.deadline > now or not self.progress.is_awaited(operation):
                continue
            if isinstance(run := operation.work, CallRun):
                self._runs.record_end(operation, run, run.make_timeout(left_behind=True))
                self.progress.drop(operation)
        for operation in tuple(self.progress.operations.values()):
            if self._is_given_up(operation):
                self.requests.cancel(operation.path)
