"""What both drivers do between their waits: the pure halves of sending, judging and running."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from toolloop.core import events as ev
from toolloop.core.effects import Effect, Judge
from toolloop.core.errors import ModelError, OutsideError
from toolloop.core.machine import outstanding
from toolloop.core.states import Judging, Ready, Running
from toolloop.core.values import Result, Status
from toolloop.handle.judging import Question
from toolloop.handle.recording import LOG
from toolloop.handle.tooling import Job, failed, returned
from toolloop.handle.waking import Waking
from toolloop.providers import Request


class Stopwatch:
    """Active seconds since it was last read."""

    def __init__(self) -> None:
        """Start now."""
        self._last = time.monotonic()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        return seconds


class Driving(Waking):
    """The shared half of the two drivers."""

    _watch: Stopwatch

    def _effects(self) -> tuple[Effect, ...]:
        """What is to be done now. An exit or interrupt that a tool raised is raised here, in the driver."""
        if self._abort is not None:
            abort, self._abort = self._abort, None
            raise abort
        return outstanding(self._state)

    def _calls_run(self) -> bool:
        state = self._state
        return isinstance(state, Running) and bool(state.round.having(Status.RUNNING))

    def _request(self) -> Request:
        """The request that is outstanding."""
        state = self._state
        if not isinstance(state, Ready):
            raise AssertionError(f"no request is outstanding in {type(state).__name__}")  # noqa: TRY004 - a bug of ours
        messages = state.ledger.messages
        return self._requests.make(state.ledger.setup.params, [*messages, *state.tail])

    @contextmanager
    def _flight(self) -> Generator[None, None, None]:
        """While a request is under way, what the caller says counts once it is answered."""
        with self._recorder.lock:
            self._in_flight = True
        self._recorder.request_starts()
        try:
            yield
        finally:
            with self._recorder.lock:
                self._in_flight = False
                self._say_staged()

    def _answer(self, reply: Any) -> None:
        with self._recorder.lock:
            self._in_flight = False
            self._answered(reply, self._watch.lap())

    def _fault(self, error: Exception) -> None:
        """A provider raised. Whatever it was, the outside world failed, and the loop is as it was before."""
        if not isinstance(error, OutsideError):
            wrapped = ModelError(f"the provider raised {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            error = wrapped
        with self._recorder.lock:
            self._in_flight = False
            self._failed(error, self._watch.lap())

    def _judging(self, effect: Judge) -> Generator[Question, Any, ev.Judged]:
        """The questions to ask; each is to be answered by what it returns or raises."""
        state = self._state
        if not isinstance(state, Judging):
            raise AssertionError(f"nothing is to be judged in {type(state).__name__}")  # noqa: TRY004 - a bug of ours
        return self._judges.judge(state, effect, self._external(), self._recorder.now())

    def _judged(self, state: Any, event: ev.Judged) -> None:
        """Record a judgement, unless the caller stopped the loop meanwhile."""
        with self._recorder.lock:
            if self._state is state or isinstance(self._state, Judging):
                self._record(event)

    def _start(self, call_id: str) -> Job | None:
        """Record that a call starts, and give what is to be run; None if it may not start any more."""
        with self._recorder.lock:
            state = self._state
            if not isinstance(state, Running):
                return None  # stopped from another thread a moment ago
            call = state.round.find(call_id)
            if call is None or call.status is not Status.CLEARED:
                return None
            job = self._toolbox.job(state, call, cancelled=lambda: not self._runs(call_id, state.round.iteration))
            self._alive[call_id] = job
            self._record(ev.Started(call_id, at=self._recorder.now(), seconds=self._watch.lap()))
            return job

    def _runs(self, call_id: str, iteration: int) -> bool:
        state = self._state
        if not isinstance(state, Running) or state.round.iteration != iteration:
            return False
        call = state.round.find(call_id)
        return call is not None and call.status is Status.RUNNING

    def _end(self, job: Job, result: Result, took: float) -> None:
        """Record the end of a call. One that comes after the loop went on without it is logged and forgotten."""
        call_id = job.context.call_id
        with self._recorder.lock:
            if not self._over(job):
                LOG.warning("a call ended too late to count", extra={"loop_id": self.loop_id, "call_id": call_id})
                return
            seconds = self._watch.lap() if self._driver.locked() else 0.0
            self._record(ev.Ended(call_id, result, took=took, at=self._recorder.now(), seconds=seconds))
        self._ring()

    def _cut(self, job: Job, error: BaseException | None = None) -> None:
        """Record that a call was seen to end by cancellation, or by an exit that the driver is to raise."""
        with self._recorder.lock:
            if error is not None:
                self._abort = error
            if self._over(job):
                self._record(ev.Cancelled(job.context.call_id, at=self._recorder.now(), seconds=self._watch.lap()))
        self._ring()

    def _over(self, job: Job) -> bool:
        """A job is over. Whether the loop still waits for it; ids may come again, jobs do not."""
        call_id = job.context.call_id
        if self._alive.get(call_id) is not job:
            return False
        del self._alive[call_id]
        return self._runs(call_id, job.context.iteration)

    def _spawn(self, job: Job) -> None:
        """Run a sync tool in a thread of its own, which never holds up the exit of the process."""
        target = contextvars.copy_context().run
        name = f"toolloop-{job.context.call_id}"
        thread = threading.Thread(target=target, args=(self._run_job, job), name=name, daemon=True)
        try:
            thread.start()
        except BaseException:
            self._cut(job)
            raise

    def _run_job(self, job: Job) -> None:
        begun = time.monotonic()
        try:
            result = outcome(job)
        except BaseException as error:  # noqa: BLE001 - an exit or interrupt is the driver's to raise
            self._cut(job, error)
        else:
            self._end(job, result, time.monotonic() - begun)

    def _turn_ended(self) -> None:
        with self._recorder.lock:
            if outstanding(self._state):  # still so: the caller may have stopped the loop meanwhile
                self._record(ev.TurnEnded(at=self._recorder.now()))


def outcome(job: Job) -> Result:
    """Run a sync tool to its end. Its exception is a result; KeyboardInterrupt and SystemExit are not."""
    try:
        value = job.run()
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is told to the model
        return failed(error)
    return returned(value)
