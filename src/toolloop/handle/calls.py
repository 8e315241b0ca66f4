"""What both drivers do about calls that run: the pure halves of starting them, and of their ends."""

from __future__ import annotations

import contextvars
import inspect
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

from toolloop.core import events as ev
from toolloop.core.effects import RunCall
from toolloop.core.errors import ToolLoopError
from toolloop.core.evolving import evolve, quick
from toolloop.core.freezing import frozen
from toolloop.core.policy import digest_of
from toolloop.core.states import Finished, Ready, Requesting, Running
from toolloop.core.terminations import LIMITS
from toolloop.core.tree import loop_at, loops, round_of
from toolloop.core.usage import IterationUsage
from toolloop.core.values import Call, Outcome, Result, Status
from toolloop.handle.filtering import filtering
from toolloop.handle.flights import Flying
from toolloop.handle.judging import Question, discard
from toolloop.handle.kits import Kit
from toolloop.handle.params import Secrets
from toolloop.handle.recording import LOG, Path
from toolloop.handle.sub_loops import SubLoop
from toolloop.handle.tooling import Job, failed, returned, timed_out
from toolloop.handle.watching import CallProgress, CallStarted, WatchEvent


@quick
@frozen
class _Startable:
    """A call that may start now, in a loop that is being driven."""

    kit: Kit
    loop: Running
    call: Call


class Calling(Flying):
    """Calls that run."""

    def _wake_up(self) -> None:
        """In another process the policies judge once more; and what nobody here is at work on has ended unseen."""
        was_asleep = self._asleep
        if not was_asleep and isinstance(self._state, Ready):
            self._kits.keep((), as_new=False)  # nothing of it was under way, and nothing runs inside of it
            return
        if was_asleep:
            self._record(self._waking())
            self._asleep = False
        paths = [path for path, _ in loops(self._state)]
        self._kits.keep(paths, as_new=was_asleep)
        for path in paths:
            loop = self._at(path)
            if isinstance(loop, Requesting):
                self._give_up(path)
            for call in loop.round.having(Status.RUNNING) if isinstance(loop, Running) else ():
                job = self._jobs.get((*path, call.id))
                if call.child is None and (job is None or not (job.has_runner or job.is_ready)):
                    self._jobs.pop((*path, call.id), None)
                    self._record(ev.Cancelled(call.id, at=self._recorder.now(), path=path))

    # --- their beginning ---

    def _startable(self, effect: RunCall) -> _Startable | None:
        """The call that is to start, if it still is."""
        kit, loop = self._ready_kit(effect.path), self._at(effect.path)
        call = loop.round.find(effect.call_id) if isinstance(loop, Running) else None
        if kit is None or not isinstance(loop, Running) or call is None or effect not in self._to_do():
            return None
        return None if self._let_pass(self._recorder.now()) else _Startable(kit, loop, call)

    def _start(self, effect: RunCall) -> Job | None:
        """Record that a call starts, and give what is to be run; None if nothing is, or it may not start any more."""
        with self._recorder.lock:
            found = self._startable(effect)
            if found is None:
                return None
            tool = found.kit.tools.get(found.call.name)
            if not isinstance(tool, SubLoop):
                seconds = self._lap_in_time()
                return None if seconds is None else self._start_job(effect.path, found, seconds)
        self._begin_inside(effect, found, tool)
        return None

    def _start_job(self, path: Path, found: _Startable, seconds: float) -> Job:
        loop, call = found.loop, found.call
        job = self._job(path, found.kit, loop, evolve(call, status=Status.RUNNING, attempts=call.attempts + 1))
        self._jobs[job.key] = job
        digest = None if self._stored is None else digest_of(job.setup, loop.round.iteration, call)
        started = ev.Started(call.id, digest, at=self._recorder.now(), seconds=seconds, path=path)
        self._record(started)
        job.recorded = None if self._stored is None else self._stored.staged(started)
        return job

    def _job(self, path: Path, kit: Kit, loop: Running, call: Call) -> Job:
        """What there is to know of a run of a call."""
        iteration = loop.round.iteration

        def report(message: str | None, progress: float | None, total: float | None) -> None:
            self._tell(job, CallProgress(iteration, call.id, call.name, message, progress, total, path=path))

        def spent(usage: IterationUsage) -> None:
            self._record(ev.Spent(call.id, usage, at=self._recorder.now(), path=path))
            self._store_soon()

        job = kit.toolbox.job(
            loop,
            call,
            cancelled=lambda: not self._is_live(job),
            report=report,
            spent=spent,
            known=partial(self._known_tools, path),
        )
        if self._kits.audience(path):
            job.around = partial(self._recorder.around, CallStarted(iteration, call.id, call.name, path=path))
        return job

    def _begin_inside(self, effect: RunCall, found: _Startable, tool: SubLoop) -> None:
        """A loop begins inside of a call: that is its start. What keeps it from beginning is the call's result."""
        setup, iteration = found.loop.ledger.setup, found.loop.round.iteration
        opened, secrets, error = None, Secrets(), None
        try:  # it may run code of the caller's, so without the lock
            opened, secrets = tool.begun(setup, iteration, found.call, at=self._recorder.now())
        except Exception as raised:  # noqa: BLE001 - code of the caller's may raise anything
            error = raised
        with self._recorder.lock:
            again = self._startable(effect)
            if again is None or (again.call, again.loop.ledger.setup) != (found.call, setup):
                return  # it is looked at anew
            if (seconds := self._lap_in_time()) is None:
                return
            if opened is None or error is not None:
                job = self._start_job(effect.path, again, seconds)
                self._end(job, failed(job, error or TypeError("the loop did not begin")))
                return
            self._record(evolve(opened, at=self._recorder.now(), seconds=seconds))
            self._kits.begin(opened.setup, tool, secrets)

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

    # --- while they run ---

    def _counts(self, job: Job) -> bool:
        """Whether the end of this very run is the result of its call: ids may come again, jobs do not.

        It is also where a limit of time ended a loop while it ran: that may yet go on.
        """
        state = self._state
        if self._jobs.get(job.key) is not job:
            return False
        if isinstance(state, Finished) and not isinstance(state.termination, LIMITS):
            return False
        loop = loop_at(state, job.path)
        round_ = None if loop is None or loop.ledger.setup.within != job.setup.within else round_of(loop)
        call = None if round_ is None else round_.find(job.context.call_id)
        if round_ is None or call is None or round_.iteration != job.context.iteration:
            return False
        return call.status is Status.RUNNING and call.attempts == job.call.attempts

    def _has_running_jobs(self) -> bool:
        return any(job.has_runner and self._counts(job) for job in tuple(self._jobs.values()))

    def _is_live(self, job: Job) -> bool:
        """Whether the loop waits for the end of this very run now."""
        return self._counts(job) and isinstance(self._at(job.path), Running)

    def _tell(self, job: Job, event: WatchEvent) -> None:
        """Tell those who watch of a run, as long as the loop waits for its end."""
        with self._recorder.lock:
            if self._is_live(job):
                self._recorder.tell(event)

    def _expire(self) -> None:
        """Leave behind what took too long. An async tool is cancelled by its own task; this is for threads."""
        if not self._jobs or not any(job.limit for job in tuple(self._jobs.values())):
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
        left = [deadline - now for deadline in deadlines if deadline is not None]
        return max(0.0, min([longest, self._time_left(), *left]))

    # --- their end ---

    def _end(self, job: Job, result: Result) -> None:
        """Record the end of a call. One that comes after the loop went on without it is logged and forgotten."""
        took = round(time.monotonic() - job.begun if job.took is None else job.took, 6)
        iteration, attempt = job.context.iteration, job.call.attempts
        ended = partial(
            ev.Ended,
            job.context.call_id,
            result,
            took,
            iteration,
            attempt,
            above=job.setup.runs,
            at=self._recorder.now(),
            path=job.path,
        )
        try:
            with self._recorder.lock:
                if self._over(job):
                    self._record(ended(seconds=self._lap()))
                else:
                    extra = {"loop_id": self.loop_id, "call_id": job.context.call_id}
                    LOG.warning("a call ended too late to count", extra=extra)
                    if self._stored is not None:
                        self._stored.record_late(ended())
        finally:
            self._ring()
            self._store_ends()

    def _over(self, job: Job) -> bool:
        """A job is over. Whether its end counts."""
        counts = self._counts(job)
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
        return counts

    def _cut(self, job: Job, error: BaseException | None = None) -> None:
        """Record that a call was seen to end by cancellation, or by an exit that the driver is to raise.

        If its tool was back by then, and only a filter was cut off, the call has ended with what the tool returned. An
        exit in a tool that was left behind is nobody's any more. Where a limit ended the loop before, the call is found
        without a runner when that goes on.
        """
        with self._recorder.lock:
            if error is not None and self._is_live(job):
                self._abort = error
        if job.result is not None:
            self._end(job, job.result)
            return
        try:
            with self._recorder.lock:
                live = self._is_live(job)
                if self._over(job) and live:
                    cancelled = ev.Cancelled(job.context.call_id, at=self._recorder.now(), path=job.path)
                    self._record(evolve(cancelled, seconds=self._lap()))
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

    def _store_soon(self) -> None:
        """What a running tool used is stored now, and not with its end: by whoever waits for it, or right here."""
        self._ring()
        if self._is_async:
            return
        try:
            self._recorder.flush()
        except ToolLoopError:
            LOG.exception("what a tool used is not stored yet", extra={"loop_id": self.loop_id})

    def _has_ends(self) -> bool:
        """Whether there is something to store, or a lease to give back, that no driver sees to."""
        return self._stored is not None and (self._stored.is_behind or not self._keeps_lease())

    def _came_back(self, job: Job, result: Result) -> None:
        """A sync tool is back. What comes too late is not filtered: it only gets its line in the log."""
        with self._recorder.lock:
            job.took = time.monotonic() - job.begun
            filters = result.outcome is Outcome.RETURNED and bool(self._filters_of(job))
            if to_filter := filters and self._counts(job):
                job.result = result  # from here on it is back, whatever its limit
        if to_filter:
            self._filter(job, result)
        else:
            self._end(job, result)

    def _filters_of(self, job: Job) -> tuple[Callable[..., Any], ...]:
        kit = self._kit(job.path)
        return () if kit is None else tuple(kit.config.result_filters)

    def _filtering(self, job: Job, result: Result) -> Generator[Question, Any, Result]:
        """The questions to ask the result filters about what a tool came back with."""
        job.result, job.taken = result, True
        return filtering(self._filters_of(job), job, result, lambda event: self._tell(job, event))

    def _filter(self, job: Job, result: Result) -> None:
        """Let the filters look at what a sync tool came back with, and record it; each driver does it in its way."""

    # --- threads ---

    def _spawn(self, job: Job, work: Callable[[], Result] | None = None) -> None:
        """Work in a thread of its own, which never holds up the exit of the process. What is left out: run the tool."""
        job.launched = True
        work = work or partial(outcome, job, self._settle)
        try:
            job.thread = thread_of(f"toolloop-{'/'.join(job.key)}", self._run_job, job, work)
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


def thread_of(name: str, work: Callable[..., None], *arguments: Any) -> threading.Thread:
    """A thread in a copy of this one's context, which never holds up the exit of the process; it is not started."""
    context = contextvars.copy_context()
    context.run(_leave_event_loop)
    return threading.Thread(target=context.run, args=(work, *arguments), name=name, daemon=True)


def _leave_event_loop() -> None:
    """A thread is in no event loop, whatever its context was copied from: a tool may run one of its own."""
    if (sniffio := sys.modules.get("sniffio")) is not None:
        sniffio.current_async_library_cvar.set(None)


def outcome(job: Job, settle: Callable[[Awaitable[Any]], Any]) -> Result:
    """Run a sync tool to its end. Its exception is a result; KeyboardInterrupt and SystemExit are not."""
    try:
        with job.around():
            value = job.run()
            if inspect.isawaitable(value):
                value = settle(value)
    except BaseException as error:
        # Nobody cancels a function: a cancellation that comes out of one is that of an event loop inside it.
        if isinstance(error, Exception) or type(error).__module__.partition(".")[0] in {"asyncio", "trio"}:
            return failed(job, error)
        raise
    return returned(job, value)
