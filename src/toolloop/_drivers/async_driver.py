"""The async driver, for asyncio and trio. It polls, stores, performs and waits; the engine decides."""

from __future__ import annotations

import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from toolloop._drivers.event_loops import (
    drop_cancellation,
    is_cancelling_task,
    name_library,
    run_in_thread,
    unwrap_only_error,
)
from toolloop._drivers.notifier import AsyncNotifier
from toolloop._drivers.operation_threads import OperationThreads
from toolloop._drivers.streaming import AsyncUnread
from toolloop._engine.engine import Engine
from toolloop._engine.operations import ModelRequest, Operation, exhaust
from toolloop._engine.tool_calls import CallRun
from toolloop.errors import ToolLoopError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class AsyncDriver:
    """Drives a loop in an event loop.

    A single operation is awaited directly; several run in parallel, in tasks. Sync tools run in threads.
    """

    is_async: ClassVar[bool] = True

    def __init__(
        self, engine: Engine, notifier: AsyncNotifier, when_late: Callable[[], None], *, leaves_behind: bool = False
    ) -> None:
        """Drive with an engine. See `Driver`."""
        del leaves_behind  # a stop cancels the task of a single tool or request
        self.engine = engine
        self.notifier = notifier
        self._was_read: Callable[[], Awaitable[None]] = _skip_reader  # waits for the reader of a streamed turn
        self.threads = OperationThreads(engine, self.notifier, when_late, self._ask_late)
        self._when_late = when_late
        self._backend = "asyncio"

    @staticmethod
    def make_notifier(engine: Engine) -> AsyncNotifier:
        """Return a notifier. At each notification, it cancels the operations that the loop no longer waits for."""
        return AsyncNotifier(engine.cancel_left_behind)

    async def drive(self, result: Callable[[], T | None], unread: AsyncUnread | None = None) -> T:
        """Drive until it is the caller's turn. See `Driver`."""
        self._was_read = _skip_reader if unread is None else unread.wait_until_read
        try:
            self.engine.wake()
            self._backend = name_library()
            with self.notifier.listen_meanwhile():
                return await self._drive(result, None)
        except BaseExceptionGroup as errors:  # no task lets an exception out, so it was raised by the driver itself
            raise unwrap_only_error(errors, anyio.get_cancelled_exc_class()) from None

    async def _drive(self, result: Callable[[], T | None], group: TaskGroup | None) -> T:
        engine = self.engine
        while True:
            self.notifier.clear()
            operations = []
            try:
                operations = await self._poll()
            except ToolLoopError as failure:  # it does not cut off the tasks, which come to their end
                engine.fail(failure)
            await self._was_read()
            if group is None and any(self._needs_task(operation) for operation in operations):
                async with anyio.create_task_group() as tasks:
                    turn_of_tasks = await self._drive(result, tasks)
                    tasks.cancel_scope.cancel()  # operations that the loop no longer waits for
                    return turn_of_tasks
            for operation in operations:
                await self._begin(operation, group)
            if operations:
                continue
            if engine.is_busy():
                await self.notifier.wait(engine.measure_patience())
            elif (raised := engine.take_error()) is not None:
                raise raised
            elif (turn := result()) is not None:
                return turn

    async def _poll(self) -> list[Operation]:
        """Record and store what can be recorded now. Return the operations that come next."""
        journal = self.engine.journal
        while True:
            operations, state = self.engine.poll(), journal.state
            self.engine.cancel_left_behind()  # for example, a loop inside a call reached its timeout
            if self.engine.must_store(operations):
                if journal.is_behind:
                    await run_in_thread(journal.commit)
                journal.tell()
            if journal.state is state:
                return operations  # else it has read what others stored

    def _needs_task(self, operation: Operation) -> bool:
        return not operation.runs_in_thread and operation is not self.engine.alone

    async def _begin(self, operation: Operation, group: TaskGroup | None) -> None:
        if operation.runs_in_thread:
            self.threads.launch(operation, lambda: exhaust(operation.work.perform()))
        elif not self.engine.launch(operation):
            return
        elif group is not None and operation is not self.engine.alone:
            group.start_soon(self._perform_cancellable, operation, _make_scope(operation))
        elif isinstance(operation.work, ModelRequest) and name_library() == "asyncio":
            await self._perform_alone(operation)
        else:
            await self._perform_cancellable(operation, _make_scope(operation))

    async def _perform_alone(self, operation: Operation) -> None:
        """Perform a request in asyncio. A scope of anyio would keep its task, and the lease, in a closed event loop."""
        import asyncio  # noqa: PLC0415 - it runs already

        timeout = asyncio.timeout(None)
        operation.cancel = partial(_expire, weakref.ref(timeout), asyncio.get_running_loop().time)
        try:
            async with timeout:
                await self._perform(operation)
        except TimeoutError:
            if not timeout.expired():
                raise

    async def _perform_cancellable(self, operation: Operation, scope: anyio.CancelScope) -> None:
        with scope:
            await self._perform(operation)

    async def _perform(self, operation: Operation) -> None:
        """Perform an operation. Raise nothing but a real cancellation."""
        try:
            value = await operation.work.perform_async(self._was_read)
        except Exception as error:  # noqa: BLE001 - the engine handles every failure
            self.engine.complete(operation, error=error)
        except GeneratorExit:  # the event loop is gone: `wake` ends the operation
            raise
        except BaseException as error:
            # A tool that raises its own cancellation cancels its call. From other operations, the driver raises it.
            is_tool = isinstance(operation.work, CallRun)
            self.engine.cut(operation, drop_cancellation(error, anyio.get_cancelled_exc_class()) if is_tool else error)
            await anyio.lowlevel.checkpoint_if_cancelled()
            if is_cancelling_task():
                raise  # a real cancellation propagates, unlike one that only the tool raised
        else:
            if callable(value):  # making its result takes time, so a thread does it
                self.threads.finish(operation, value)
            else:
                self.engine.complete(operation, value)
        finally:
            self.notifier.notify()
        if self.engine.timer.is_paused and self.engine.journal.is_behind:  # the driver may wait for the reader
            await run_in_thread(self._when_late)

    def _ask_late(self, operation: Operation) -> Any:
        """Call result filters in a thread: the event loop may be gone, so they get one of their own."""
        return anyio.run(operation.work.perform_async, _skip_reader, backend=self._backend)


def _make_scope(operation: Operation) -> anyio.CancelScope:
    """Return the scope of an operation, which may be cancelled before its task has begun."""
    scope = anyio.CancelScope()
    operation.cancel = partial(_cancel, weakref.ref(scope), anyio.current_time() - time.monotonic())
    return scope


def _cancel(scope: weakref.ref[anyio.CancelScope], ahead: float, seconds: float) -> None:
    """Cancel a scope that may be gone, after some seconds.

    `ahead`: how far the clock of the event loop is ahead of `time.monotonic`. A callback of it cannot ask anyio for it.
    """
    if (found := scope()) is not None:
        found.deadline = min(found.deadline, time.monotonic() + ahead + seconds)


def _expire(timeout: weakref.ref[asyncio.Timeout], clock: Callable[[], float], seconds: float) -> None:
    """Let a timeout expire after some seconds, if its block has not ended."""
    if (found := timeout()) is not None:
        at = clock() + seconds
        with suppress(RuntimeError):  # it has ended
            found.reschedule(at if (earlier := found.when()) is None else min(at, earlier))


async def _skip_reader() -> None:
    """Return at once, because the turn is not streamed."""
