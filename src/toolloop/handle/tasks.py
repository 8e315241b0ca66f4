"""The async driver, for asyncio and trio. It awaits, fans out to tasks, locks and records; it decides nothing.

What the outermost loop waits for alone, it waits for right here. All else runs side by side in tasks: the calls, and
what the loops inside them do. No task lets anything out but a real cancellation.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from toolloop.core.effects import CancelRequest, Conclude, Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import ToolLoopError
from toolloop.core.values import Result
from toolloop.handle.awaiting import DEPTH, await_each, called, is_at_hand, within_limit
from toolloop.handle.bell import AsyncBell
from toolloop.handle.driving import Driving
from toolloop.handle.judging import discard
from toolloop.handle.recording import Path
from toolloop.handle.streaming import aclose
from toolloop.handle.tooling import Flight, Job, failed, returned
from toolloop.handle.turns import Completed, Error, Yielded
from toolloop.providers.protocol import Reply

if TYPE_CHECKING:
    from anyio import CancelScope
    from anyio.abc import TaskGroup

_Mark = tuple[type[Effect], Path, str]


class AsyncDriving(Driving):
    """The driver of `AsyncToolLoopHandle`."""

    _asking: set[_Mark]  # what tasks ask policies and filters about
    _raised: Exception | None  # by a task, or by the store; it is told when no task is left

    async def _secure(self) -> None:
        """The driver's flush. See `Recorder.secure`."""

    async def _drive(self) -> Yielded | Completed | Error:
        try:
            while True:
                if self._rides():
                    self._recorder.check()
                else:
                    await self._secure()
                await self._was_read()
                match self._effects():
                    case (SendRequest(path=()) as effect,) if self._limit_of_time() is None:
                        await self._send(effect)
                    case (Judge(path=()) as effect,):
                        await self._judge(effect)
                    case (EndTurn(path=()) as effect,) if not self._calls_run():
                        self._turn_ended(effect)
                    case () if not self._calls_run():
                        if (result := self._result()) is not None:
                            return result
                    case _:
                        await self._run_side_by_side()
        finally:
            self._give_up_requests()

    async def _send(self, effect: SendRequest) -> None:
        try:
            if (flight := self._take_request(effect.path)) is not None:
                await self._secure()
                await self._was_read()
                await self._fly(flight)
        finally:
            self._give_up(effect.path)  # what the caller says counts from here on

    async def _fly(self, flight: Flight) -> None:
        if not self._is_asking(flight):
            return
        provider = flight.provider or self._provider
        try:
            with self._around(flight):
                is_read = self._is_read(flight, provider)
                reply = await (self._read(flight, provider) if is_read else provider.send(flight.request))
        except Exception as error:  # noqa: BLE001 - any failure of a provider is an Error result
            self._fault(flight, error)
        else:
            self._answer(flight, reply)

    async def _read(self, flight: Flight, provider: Any) -> Reply:
        """A reply, piece by piece."""
        events = provider.stream(flight.request)
        try:
            async for event in events:
                if self._hears(flight, event):
                    await self._was_read()
            return self._whole(flight, events)
        finally:
            await aclose(events)

    async def _was_read(self) -> None:
        """Wait until the reader of a streamed turn has read all that was told, and asks for more."""
        if self._outlet is not None:
            await self._outlet.wait()

    async def _judge(self, effect: Judge) -> None:
        if (questions := self._judging(effect)) is not None:
            self._judged(effect, await await_each(questions))

    async def _conclude(self, effect: Conclude) -> None:
        if (questions := self._concluding(effect)) is not None:
            self._concluded(effect, await await_each(questions))

    # --- side by side ---

    async def _run_side_by_side(self) -> None:
        """Do what can be done side by side, and wait until nothing of it is under way any more."""
        import anyio  # noqa: PLC0415 - loaded when it is first needed

        for job in tuple(self._jobs.values()):
            job.taken = False  # nobody but this driver filters, and an earlier one may have been cancelled
        self._asking.clear()
        try:
            with self._bell.listening():
                async with anyio.create_task_group() as group:
                    await self._fan_out(group)
                    group.cancel_scope.cancel()  # what the caller stopped meanwhile; nothing runs otherwise
        except BaseExceptionGroup as errors:
            # No task lets anything out, so what is in the group befell the driver itself: a Ctrl-C under trio; or its
            # store, beside a cancellation, and then that is what is told.
            raise told_of(errors, anyio.get_cancelled_exc_class()) from None

    async def _fan_out(self, group: TaskGroup) -> None:
        import anyio  # noqa: PLC0415 - loaded already

        self._raised = None
        for job in tuple(self._jobs.values()):
            job.launched = job.thread is not None  # no task of an earlier turn is left
        while self._abort is None:
            heard = self._bell.fresh()
            self._expire()
            self._let_time_pass()
            self._filter_what_came(group)
            before = self._state
            begun = [*self._unlaunched(), *self._begin(group)]
            goes_on = bool(begun) or self._state is not before
            try:
                if goes_on or self._is_busy() or not self._rides():
                    await self._secure()
                else:  # what waits may wait for the turn to be over
                    self._recorder.check()
            except ToolLoopError as error:  # what runs comes to its end first, and is kept; then this is told
                self._raised = self._raised or error
            await self._was_read()
            for each in begun:
                self._launch(group, each)
            self._cancel_left_behind()
            if goes_on:
                continue
            if self._raised is not None and not self._tasks:
                raise self._raised
            if self._raised is None and not self._is_busy():
                return
            with anyio.move_on_after(self._patience(inf)):
                await heard.wait()

    def _is_busy(self) -> bool:
        """Whether something is under way, or is asked about by a task."""
        return self._calls_run() or any(_mark(effect) in self._asking for effect in self._to_do())

    def _begin(self, group: TaskGroup) -> list[Job | Flight]:
        """Record what is done next, and give what is to be run of it. What the loop does alone waits until it is."""
        begun: list[Job | Flight | None] = []
        for effect in self._to_do():
            match effect:
                case CancelRequest():
                    self._give_up(effect.path)
                case EndTurn() if effect.path or self._calls_run():
                    self._turn_ended(effect)
                case _ if self._raised is not None:
                    continue
                case SendRequest():
                    begun.append(self._take_request(effect.path))
                case RunCall():
                    begun.append(self._start(effect))
                case Judge(path=(_, *_)):
                    self._ask_in_task(group, effect, partial(self._judge, effect))
                case Conclude():
                    self._ask_in_task(group, effect, partial(self._conclude, effect))
        return [each for each in begun if each is not None]

    def _ask_in_task(self, group: TaskGroup, effect: Effect, asking: Callable[[], Awaitable[None]]) -> None:
        """Ask policies or filters in a task, unless one does already."""
        mark = _mark(effect)
        if mark in self._asking:
            return
        self._asking.add(mark)
        group.start_soon(self._guarded, partial(self._ask, mark, asking), self._interrupted)

    async def _ask(self, mark: _Mark, asking: Callable[[], Awaitable[None]]) -> None:
        try:
            await asking()
        except Exception as error:  # noqa: BLE001 - `stop_when` raised: the driver tells it when no task is left
            self._raised = self._raised or error
        finally:
            self._asking.discard(mark)

    def _interrupted(self, error: BaseException | None) -> None:
        """A task was cut off: by a cancellation, or by an exit that the driver is to raise."""
        if error is not None:
            self._abort = error

    def _launch(self, group: TaskGroup, begun: Job | Flight) -> None:
        if isinstance(begun, Flight):
            group.start_soon(self._guarded, partial(self._fly_in_task, begun), self._interrupted, begun)
            return
        begun.launched = True
        if begun.tool.is_async:
            group.start_soon(self._guarded, partial(self._run_task, begun), partial(self._sort_out, begun), begun)
        else:
            self._spawn(begun)

    async def _fly_in_task(self, flight: Flight) -> None:
        import anyio  # noqa: PLC0415 - loaded already
        import anyio.lowlevel  # noqa: PLC0415 - likewise

        try:
            await self._fly(flight)
        except anyio.get_cancelled_exc_class() as error:
            await anyio.lowlevel.checkpoint_if_cancelled()
            self._fault(flight, RuntimeError(f"{type(error).__name__}, and nobody cancelled it"))
        finally:
            self._drop(flight)

    async def _run_task(self, job: Job) -> None:
        """Run an async tool, for as long as it may take."""
        if not self._enter(job):
            return
        came = await (called(job) if job.limit is None else within_limit(job))
        if not isinstance(came, Result) and not is_at_hand(came.value, DEPTH):
            self._spawn(job, partial(returned, job, came.value))
            return
        job.took = time.monotonic() - job.begun
        result = came if isinstance(came, Result) else returned(job, came.value)
        self._end(job, await await_each(self._filtering(job, result)))

    def _filter_what_came(self, group: TaskGroup) -> None:
        for job in tuple(self._jobs.values()):
            if job.result is not None and not job.taken and self._is_live(job):
                job.taken = True
                work = partial(self._filter_task, job, job.result)
                group.start_soon(self._guarded, work, partial(self._sort_out, job), job)

    async def _filter_task(self, job: Job, result: Result) -> None:
        """Filter what a sync tool brought back from its thread."""
        self._end(job, await await_each(self._filtering(job, result)))

    def _filter(self, job: Job, result: Result) -> None:  # noqa: ARG002 - the other driver asks them right here
        self._ring()  # filters may be async, so the driver asks them, in its event loop

    async def _guarded(
        self,
        work: Callable[[], Awaitable[None]],
        cut: Callable[[BaseException | None], None],
        whose: Job | Flight | None = None,
    ) -> None:
        """Work in a task that lets nothing out but a real cancellation.

        Args:
            work: to be done.
            cut: told that it was cut off: by an exception that is no cancellation, or by None.
            whose: what the task is for; it can be ended through that.

        """
        import anyio  # noqa: PLC0415 - loaded already
        import anyio.lowlevel  # noqa: PLC0415 - likewise

        self._tasks += 1
        try:
            with anyio.CancelScope() as scope:
                if whose is not None:
                    whose.cancel = partial(_cancel, weakref.ref(scope))  # which keeps no task alive
                try:
                    await work()
                except GeneratorExit:  # the event loop was closed over the task
                    cut(None)
                    raise
                except BaseException as error:  # noqa: BLE001 - sorted out below
                    cut(_but(anyio.get_cancelled_exc_class(), error))
                    # Real cancellation goes on; what only raised the exception itself has ended, and that is all.
                    await anyio.lowlevel.checkpoint_if_cancelled()
        finally:
            self._tasks -= 1
            self._ring()

    def _sort_out(self, job: Job, error: BaseException | None) -> None:
        """A tool ended by something that is no exception of its own: a cancellation, an exit, or both in a group."""
        if isinstance(error, Exception):
            self._end(job, failed(job, error))
        else:
            self._cut(job, error)

    def _cancel_left_behind(self) -> None:
        """Cancel what a limit left behind, while the rest of the tree goes on. Calls of a lost loop go on, too."""
        for job in tuple(self._jobs.values()):
            if self._raised is None and not self._is_live(job):
                job.cancel()
        self._drop_left_behind()

    def _settle(self, awaitable: Awaitable[Any]) -> Any:
        try:
            return self._bell.wait_for(awaitable)
        finally:
            discard(awaitable)  # if the event loop is over

    def _make_bell(self) -> None:
        self._bell = AsyncBell()
        self._asking = set()
        self._raised = None

    def _ring(self) -> None:
        self._bell.ring()


def _cancel(scope: weakref.ref[CancelScope]) -> None:
    if (there := scope()) is not None:
        there.cancel()


def _mark(effect: Effect) -> _Mark:
    """What is asked about, however much of it there is to ask: one task at a time does."""
    return type(effect), effect.path, getattr(effect, "call_id", "")


def _but(cancelled: type[BaseException], error: BaseException) -> BaseException | None:
    """What of an exception, or of a group of them, is no cancellation."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(cancelled)[1]
    return None if isinstance(error, cancelled) else error


def told_of(errors: BaseExceptionGroup[BaseException], cancelled: type[BaseException]) -> BaseException:
    """What is raised for a group of exceptions: what is no cancellation, alone where it is one."""
    rest = errors.split(cancelled)[1]
    error: BaseException = errors if rest is None else rest
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
