"""The async worker, for asyncio and trio: a task for each loop that it drives."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from toolloop._drivers.event_loops import call_soon, run_in_thread, unwrap_only_error
from toolloop._engine.questions import FunctionCall, Questions, await_each
from toolloop._handles.asynchronous import AsyncToolLoopHandle, OpeningLoop
from toolloop._public import set_module
from toolloop._worker import desk
from toolloop._worker.base import Until, WorkerBase
from toolloop._worker.desk import POLL
from toolloop._worker.signals import Signals
from toolloop.inbox.items import InboxCall
from toolloop.providers import AsyncProvider
from toolloop.providers.anthropic import AsyncSdkClient
from toolloop.stores.protocol import StoredLoop

if TYPE_CHECKING:
    import asyncio

    _StopEvent = asyncio.Event | anyio.Event | None


@set_module("toolloop")
class AsyncWorker(WorkerBase[AsyncProvider | AsyncSdkClient]):
    """Drives the loops of a store that can go on without a person, under asyncio or trio.

    It works like `Worker`, with `await` before `run_once()`, `run()`, `run_until_idle()` and `drive()`. `params`,
    `context` and `notify` may be async functions. Only an async `notify` can be given up when it hangs. If the task
    that runs the worker is cancelled, the turns in progress are cancelled, too.
    """

    _is_async = True

    async def run_once(self) -> int:
        """Drive each loop that is due now, as far as it goes without a person. See `Worker.run_once`."""
        async with _tasks() as jobs:
            return await await_each(self._once(jobs))

    async def run(self, stop_event: asyncio.Event | anyio.Event | None = None) -> None:
        """Drive loops as they become due, until the event is set or, without one, a signal. See `Worker.run`."""
        await self._run(stop_event, until_idle=False)

    async def run_until_idle(self, stop_event: asyncio.Event | anyio.Event | None = None) -> None:
        """Drive loops like `run`, and return when nothing is left to do. See `Worker.run_until_idle`."""
        await self._run(stop_event, until_idle=True)

    async def _run(self, stop_event: _StopEvent, *, until_idle: bool) -> None:
        soon = call_soon()
        async with _tasks(stop_event) as jobs:
            looking = self._desk.watching(partial(soon, jobs.look_again))
            with Signals(partial(soon, jobs.stop), installed=stop_event is None) as signals, looking:
                await await_each(self._on_and_on(jobs, until_idle=until_idle))
        signals.pass_on()

    def _blocking(self, work: Callable[..., Any], *arguments: Any) -> FunctionCall:
        return run_in_thread, (partial(work, *arguments),)

    async def drive(self, loop_id: str, until: Callable[[], bool] | None = None) -> StoredLoop:
        """Drive one loop, if it is due, as far as it goes without a person. See `Worker.drive`."""
        return await await_each(self._one(loop_id, until))

    async def _tell(self, call: InboxCall) -> None:
        with anyio.move_on_after(desk.NOTIFY_SECONDS) as limit:
            if inspect.isawaitable(waiting := self._notify(call)):
                await waiting
        if limit.cancelled_caught:
            raise desk.NotifyHangs

    async def _drive(self, loop_id: str, until: Until, given: dict[str, Any]) -> Any:
        opening, options = self._open(loop_id, given), self._options(until)
        load = partial(AsyncToolLoopHandle._load, opening, options)  # noqa: SLF001 - of the same library
        async with OpeningLoop(load) as handle:
            is_due = await run_in_thread(partial(self._desk.admits, handle))
            return await handle.run(until=until) if is_due else None


@asynccontextmanager
async def _tasks(stop_event: _StopEvent = None) -> AsyncGenerator[_Tasks]:
    try:
        async with anyio.create_task_group() as group:
            yield _Tasks(group, stop_event)
    except BaseExceptionGroup as errors:
        raise unwrap_only_error(errors, anyio.get_cancelled_exc_class()) from None


class _Tasks:
    """See `Jobs`."""

    def __init__(self, group: TaskGroup, stop_event: _StopEvent) -> None:
        self.busy: set[str] = set()
        self._group = group
        self._news = anyio.Event()
        self._stop_event = stop_event
        self._is_over = False

    def start(self, key: str, questions: Questions[None]) -> None:
        async def answer() -> None:
            try:
                await await_each(questions)
            finally:
                self.busy.discard(key)
                self._news.set()

        self.busy.add(key)
        self._group.start_soon(answer)

    async def wait(self, seconds: float) -> None:
        while True:
            with anyio.move_on_after(min(seconds, POLL)):
                await self._news.wait()
            if self._news.is_set() or (seconds := seconds - POLL) <= 0 or self.is_over():
                break  # setting the stop event does not notify this task
        self._news = anyio.Event()

    def look_again(self) -> None:
        self._news.set()

    async def wait_for_all(self) -> None:
        while self.busy:
            await self.wait(POLL)

    def is_over(self) -> bool:
        return self._is_over or (self._stop_event is not None and self._stop_event.is_set())

    def stop(self) -> None:
        self._is_over = True
        self._news.set()
