"""What both drivers do between their waits: the pure halves of sending, judging and running.

Any thread may decide, stop or inject at any moment. So whatever a driver does, it looks at the state again under the
lock first: what was outstanding a moment ago need not be any more, and then it just looks again what is.
"""

from __future__ import annotations

import contextvars
import inspect
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core.effects import Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import Conflict, ModelError, OutsideError, ToolLoopError
from toolloop.core.machine import is_due, outstanding
from toolloop.core.policy import digest_of
from toolloop.core.states import Judging, Ready, Requesting, Running
from toolloop.core.values import Outcome, Result, Status
from toolloop.handle.editing import outgoing
from toolloop.handle.filtering import filtering
from toolloop.handle.judging import Question, discard
from toolloop.handle.opening import Opening
from toolloop.handle.recording import LOG
from toolloop.handle.tooling import Job, failed, returned, timed_out
from toolloop.handle.turns import Yielded
from toolloop.handle.watching import CallProgress, WatchEvent
from toolloop.providers import Request


class Driving(Opening):
    """The shared half of the two drivers."""

    def _effects(self) -> tuple[Effect, ...]:
        """What is to be done now. An exit or interrupt that a tool raised is raised here, in the driver."""
        if self._abort is not None:
            abort, self._abort = self._abort, None
            raise abort
        return outstanding(self._state)

    def _goes_on(self, turn: Yielded) -> bool:
        """Continue a `Yielded` whose calls are all decided, unless somebody gave it its command already."""
        with self._recorder.lock:
            if not turn.is_spent:
                self._tick()  # it may have taken a while to ask
                if turn.pending:
                    return False
                with suppress(Conflict):  # somebody else said it first, or something better: the loop goes on
                    turn.continue_loop()
            return True

    def _calls_run(self) -> bool:
        state = self._state
        return isinstance(state, Running) and bool(state.round.having(Status.RUNNING))

    def _lap(self) -> float:
        """Active seconds since the last event; none pass while nobody drives."""
        return self._watch.lap() if self._driver.locked() else 0.0

    # --- requests ---

    @contextmanager
    def _flight(self) -> Generator[Request | None, None, None]:
        """The outstanding request, if it still is. While it is under way, what the caller says counts afterwards."""
        try:
            with self._recorder.lock:
                request = self._take_request()
            yield request
        finally:
            with self._recorder.lock:
                if isinstance(self._state, Requesting):  # neither answered nor failed
                    self._record(ev.RequestCancelled(at=self._recorder.now(), seconds=self._lap()))

    def _take_request(self) -> Request | None:
        """The request to send, recorded as under way."""
        state = self._state
        if not isinstance(state, Ready) or outstanding(state) != (SendRequest(),):
            return None
        ledger, tail = state.ledger, state.tail
        request = self._requests.make(ledger.setup.params, [*ledger.messages, *tail], ledger.container)
        if self._requests.may_add_up():  # over rounds that were each judged by themselves
            self._refuse(outgoing(state, list(state.ledger.messages)), "next_turn()")
            self._requests.passed()
        requested = ev.Requested(at=self._recorder.now())
        self._record(requested)
        self._asked = None if self._stored is None else self._stored.staged(requested)
        return request

    def _is_asking(self) -> bool:
        """Whether the very request that was recorded is still to be sent: somebody else may have been first."""
        if self._stored is not None and (self._asked is None or not self._asked.stored):
            return False
        return isinstance(self._state, Requesting)

    def _answer(self, reply: Any) -> None:
        with self._recorder.lock:
            self._answered(reply, self._lap())

    def _fault(self, error: Exception) -> None:
        """A provider raised. Whatever it was, the outside world failed, and the loop is as it was before."""
        if not isinstance(error, OutsideError):
            wrapped = ModelError(f"the provider raised {type(error).__name__}: {_told(error)}")
            wrapped.__cause__ = error
            error = wrapped
        with self._recorder.lock:
            self._failed(error, self._lap())

    # --- policies ---

    def _judging(self) -> Generator[Question, Any, ev.Judged] | None:
        """The questions to ask; each is to be answered by what it returns or raises. None if nobody is to judge."""
        with self._recorder.lock:
            state = self._state
            match outstanding(state):
                case (Judge() as effect,) if isinstance(state, Judging):
                    return self._judges.judge(state, effect, self._external(), self._recorder.now())
        return None

    def _judged(self, event: ev.Judged) -> None:
        """Record a judgement, unless the caller stopped the loop meanwhile."""
        with self._recorder.lock:
            if isinstance(self._state, Judging):
                quiet = not event.stop and not event.verdicts and self._state.round.calls
                # A judgement that lets all run is in no journal, so its time goes with the first start.
                self._record(event if quiet else evolve(event, seconds=self._lap()))

    # --- calls ---

    def _start(self, call_id: str) -> Job | None:
        """Record that a call starts, and give what is to be run; None if it may not start any more."""
        with self._recorder.lock:
            state = self._state
            call = state.round.find(call_id) if isinstance(state, Running) else None
            if not isinstance(state, Running) or call is None or RunCall(call_id) not in outstanding(state):
                return None
            now = self._recorder.now()
            if self._let_pass(now):
                return None
            iteration = state.round.iteration

            def report(message: str | None, progress: float | None, total: float | None) -> None:
                self._tell(job, CallProgress(iteration, call_id, call.name, message, progress, total))

            job = self._toolbox.job(
                state, call, cancelled=lambda: not self._is_live(job), report=report, known=self._known_tools
            )
            self._jobs[call_id] = job
            digest = None if self._stored is None else digest_of(state.ledger.setup, iteration, call)
            started = ev.Started(call_id, digest, at=now, seconds=self._lap())
            self._record(started)
            job.recorded = None if self._stored is None else self._stored.staged(started)
            return job

    def _let_pass(self, now: float) -> bool:
        """Whether time alone changes what is to be done by now; then that is recorded, and it is to be looked at anew.

        What is done next is done at that very moment, so that time cannot come between.
        """
        if not is_due(self._state, now):
            return False
        self._record(ev.Ticked(at=now))
        return True

    def _unlaunched(self) -> list[Job]:
        """Calls whose start is recorded, and whose run was interrupted before it began."""
        with self._recorder.lock:
            return [job for job in self._jobs.values() if job.is_ready and self._is_live(job)]

    def _enter(self, job: Job) -> bool:
        """Somebody runs a job from here on. False if it was given up before: then it must not run at all."""
        with self._recorder.lock:
            job.begun = time.monotonic()  # waiting for a thread is no time of the tool's
            # The very start that was recorded for it is in the store: another driver's looks just like it.
            begun = self._stored is None or (job.recorded is not None and job.recorded.stored)
            job.entered = begun and self._is_live(job)
        if job.limit is not None:
            self._ring()  # whoever waits has a deadline from here on
        return job.entered

    def _runs(self, job: Job) -> bool:
        state = self._state
        if not isinstance(state, Running) or state.round.iteration != job.context.iteration:
            return False
        call = state.round.find(job.context.call_id)
        return call is not None and call.status is Status.RUNNING and call.attempts == job.call.attempts

    def _is_live(self, job: Job) -> bool:
        """Whether the loop waits for the end of this very run; ids may come again, jobs do not."""
        return self._jobs.get(job.context.call_id) is job and self._runs(job)

    def _tell(self, job: Job, event: WatchEvent) -> None:
        """Tell those who watch of a run, as long as the loop waits for its end."""
        with self._recorder.lock:
            if self._is_live(job):
                self._recorder.tell(event)

    def _end(self, job: Job, result: Result) -> None:
        """Record the end of a call. One that comes after the loop went on without it is logged and forgotten."""
        took = round(time.monotonic() - job.begun if job.took is None else job.took, 6)
        iteration, attempt = job.context.iteration, job.call.attempts
        ended = ev.Ended(job.context.call_id, result, took, iteration, attempt, at=self._recorder.now())
        try:
            with self._recorder.lock:
                if self._over(job):
                    self._record(evolve(ended, seconds=self._lap()))
                else:
                    extra = {"loop_id": self.loop_id, "call_id": ended.call_id}
                    LOG.warning("a call ended too late to count", extra=extra)
                    if self._stored is not None:
                        self._stored.record_late(ended)
        finally:
            self._ring()
            self._store_ends()

    def _filtering(self, job: Job, result: Result) -> Generator[Question, Any, Result]:
        """The questions to ask the result filters about what a tool came back with."""
        job.result, job.taken = result, True
        return filtering(self._config.result_filters, job, result, lambda event: self._tell(job, event))

    def _expire(self) -> None:
        """Leave behind what took too long. An async tool is cancelled by its own task; this is for threads."""
        if not any(job.limit for job in tuple(self._jobs.values())):
            return
        with self._recorder.lock:
            now = time.monotonic()
            for job in tuple(self._jobs.values()):
                late = job.thread is not None and job.deadline is not None and job.deadline <= now
                if late and self._is_live(job):
                    self._end(job, timed_out(job, left_behind=True))

    def _patience(self, longest: float) -> float:
        """How many seconds to wait, at most, until something has to be looked at."""
        now = time.monotonic()
        deadlines = (job.deadline for job in tuple(self._jobs.values()) if job.thread is not None)
        return max(0.0, min([longest, *(deadline - now for deadline in deadlines if deadline is not None)]))

    def _cut(self, job: Job, error: BaseException | None = None) -> None:
        """Record that a call was seen to end by cancellation, or by an exit that the driver is to raise.

        If its tool was back by then, and only a filter was cut off, the call has ended with what the tool returned. An
        exit in a tool that was left behind is nobody's any more.
        """
        with self._recorder.lock:
            if error is not None and self._is_live(job):
                self._abort = error
        if job.result is not None:
            self._end(job, job.result)
            return
        try:
            with self._recorder.lock:
                if self._over(job):
                    call_id = job.context.call_id
                    self._record(ev.Cancelled(call_id, at=self._recorder.now(), seconds=self._lap()))
        finally:
            self._ring()
            self._store_ends()

    def _store_ends(self) -> None:
        """A call is over. Whoever drives stores that; where nobody does, it is done here, in the thread of the call."""
        if not self._has_ends() or self._driver.locked():
            return
        try:
            self._recorder.flush()
        except ToolLoopError:
            LOG.exception("the end of a call is not stored yet", extra={"loop_id": self.loop_id})
        finally:
            self._let_go()

    def _has_ends(self) -> bool:
        """Whether there is something to store, or a lease to give back, that no driver sees to."""
        return self._stored is not None and (self._stored.is_behind or self._stored.lease is not None)

    def _over(self, job: Job) -> bool:
        """A job is over. Whether the loop still waited for it."""
        live = self._is_live(job)
        if self._jobs.get(job.context.call_id) is job:
            del self._jobs[job.context.call_id]
        return live

    def _spawn(self, job: Job, work: Callable[[], Result] | None = None) -> None:
        """Work in a thread of its own, which never holds up the exit of the process. What is left out: run the tool."""
        job.launched = True
        context = contextvars.copy_context()
        context.run(_leave_event_loop)
        target = context.run
        name = f"toolloop-{job.context.call_id}"
        work = work or partial(outcome, job, self._settle)
        try:
            job.thread = threading.Thread(target=target, args=(self._run_job, job, work), name=name, daemon=True)
            job.thread.start()
        except RuntimeError as error:  # no more threads are to be had: it did not run, and that is known
            self._end(job, failed(job, error))
        except BaseException:
            with self._recorder.lock:
                if not job.has_runner:  # else it runs, whatever befell us meanwhile
                    self._cut(job)
            raise

    def _run_job(self, job: Job, work: Callable[[], Result]) -> None:
        try:
            if job.entered or self._enter(job):
                self._came_back(job, work())
        except BaseException as error:  # noqa: BLE001 - an exit or interrupt is the driver's to raise
            self._cut(job, error)

    def _settle(self, awaitable: Awaitable[Any]) -> Any:
        """What an ordinary function gave that only wraps an async one."""
        discard(awaitable)
        raise TypeError("the tool is async, and was not awaited, so it did not run: use AsyncToolLoopHandle")

    def _came_back(self, job: Job, result: Result) -> None:
        """A sync tool is back. What comes too late is not filtered: it only gets its line in the log."""
        with self._recorder.lock:
            job.took = time.monotonic() - job.begun
            filters = result.outcome is Outcome.RETURNED and bool(self._config.result_filters)
            if to_filter := filters and self._is_live(job):
                job.result = result  # from here on it is back, whatever its limit
        if to_filter:
            self._filter(job, result)
        else:
            self._end(job, result)

    def _filter(self, job: Job, result: Result) -> None:
        """Let the filters look at what a sync tool came back with, and record it; each driver does it in its way."""

    def _turn_ended(self) -> None:
        with self._recorder.lock:
            now = self._recorder.now()
            if outstanding(self._state) == (EndTurn(),) and not self._let_pass(now):
                self._record(ev.TurnEnded(at=now))


def _leave_event_loop() -> None:
    """A thread is in no event loop, whatever its context was copied from: a tool may run one of its own."""
    if (sniffio := sys.modules.get("sniffio")) is not None:
        sniffio.current_async_library_cvar.set(None)


def _told(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot even say what it is
        return "it says nothing more"


def outcome(job: Job, settle: Callable[[Awaitable[Any]], Any]) -> Result:
    """Run a sync tool to its end. Its exception is a result; KeyboardInterrupt and SystemExit are not."""
    try:
        value = job.run()
        if inspect.isawaitable(value):
            value = settle(value)
    except BaseException as error:
        # Nobody cancels a function: a cancellation that comes out of one is that of an event loop inside it.
        if isinstance(error, Exception) or type(error).__module__.partition(".")[0] in {"asyncio", "trio"}:
            return failed(job, error)
        raise
    return returned(job, value)
