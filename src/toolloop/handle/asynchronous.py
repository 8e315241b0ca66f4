"""The async handle, for asyncio and trio. Its driver awaits, fans out to tasks, locks and records; it decides nothing.

Whatever can be async under it is awaited: policies, `stop_when`, tools. Sync tools run in threads of their own.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Self

from toolloop.core.effects import EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import Conflict, IllegalCommand, ToolLoopError
from toolloop.core.machine import outstanding
from toolloop.core.states import Running
from toolloop.core.values import Result
from toolloop.handle.apart import OpeningLoop, in_thread
from toolloop.handle.awaiting import DEPTH, await_each, called, is_at_hand, settled, within_limit
from toolloop.handle.bell import AsyncBell
from toolloop.handle.config import DEFAULT_CONFIG, DEFAULT_CONTEXT, LoopConfig, LoopContext, check_parts
from toolloop.handle.driving import Driving
from toolloop.handle.judging import discard
from toolloop.handle.making import to_open
from toolloop.handle.tooling import Job, failed, returned
from toolloop.handle.turns import Completed, Error, Yielded
from toolloop.providers import provider_for
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext, ToolRegistry

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


class AsyncToolLoopHandle(Driving):
    """A tool-use loop that its caller drives, turn by turn, under asyncio or trio.

    The same as `ToolLoopHandle`, over an `anthropic.AsyncAnthropic` client or an `AsyncProvider`, with `await` before
    `next_turn()` and `run()`.
    """

    _is_async = True

    def __init__(  # noqa: PLR0913 - the parts of a loop, all but two of them optional
        self,
        provider: Any,
        *,
        params: Mapping[str, Any],
        tools: Iterable[Any] | ToolRegistry = (),
        config: LoopConfig = DEFAULT_CONFIG,
        context: LoopContext | ToolContext | None = None,
        store: Store | None = None,
        loop_id: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set the loop up; nothing is sent or stored, and no clock starts. See `ToolLoopHandle`."""
        context = DEFAULT_CONTEXT if context is None else context
        check_parts(config, context, loop_id=loop_id, clock=clock)
        self._make_bell()
        self._open(
            provider_for(provider, is_async=True),
            params=params,
            tools=tools,
            config=config,
            context=context,
            loop_id=loop_id or uuid.uuid4().hex,
            clock=clock,
            store=store,
        )

    @classmethod
    def open(  # noqa: PLR0913 - the parts of a loop that no store can hold
        cls,
        store: Store,
        loop_id: str,
        provider: Any,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        params: Mapping[str, Any] | None = None,
        config: LoopConfig | None = None,
        context: LoopContext | ToolContext | None = None,
        on_drift: str = "raise",
        take_over: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> OpeningLoop[Self]:
        """Load a loop from a store, or create it there: `async with AsyncToolLoopHandle.open(...) as handle`.

        What it gives can also be awaited. See `ToolLoopHandle.open`.
        """
        return OpeningLoop(
            partial(
                cls._from_store,
                store,
                loop_id,
                provider,
                tools=tools,
                params=params,
                config=config,
                context=context,
                on_drift=on_drift,
                take_over=take_over,
                clock=clock,
            )
        )

    async def flush(self) -> None:
        """Store what was decided and said, and look at what others stored. See `ToolLoopHandle.flush`.

        Raises:
            StoreError: the store failed; nothing is lost.
            CallerError: what was said is not possible any more, because somebody else was first.

        """
        if self._stored is not None:
            await self._apart(self._stored.catch_up)
            self._stored.tell_refused()

    async def _flush(self) -> None:
        """Store what waits; the event loop goes on meanwhile."""
        if self._stored is not None and self._stored.is_behind:
            await self._apart(self._stored.flush)
            self._stored.tell_refused()

    async def _secure(self) -> None:
        """The driver's flush. See `Recorder.secure`."""
        await self._flush()
        self._recorder.check()

    async def close(self) -> None:
        """Store what waits to be stored, and give the lease back. The handle stays usable."""
        try:
            await self._flush()
        finally:
            await self._apart(self._let_go)

    async def _apart(self, work: Callable[[], None]) -> None:
        """What waits for the store is done apart from the event loop, and is not cancelled half-way."""
        if self._stored is not None:
            await in_thread(work)
            self._stored.tell_noted()

    async def __aenter__(self) -> Self:
        """Open what the tools open: each context manager once, async or not, in the order of the tools."""
        self._refuse_open()
        opening = AsyncExitStack()
        try:
            for each in to_open(self._tools):
                if hasattr(each, "__aenter__"):
                    await opening.enter_async_context(each)
                else:
                    opening.enter_context(each)
        except BaseException:
            await opening.__aexit__(*sys.exc_info())  # one of them may swallow the exception, and we do not
            raise
        self._opened = opening
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close what the tools opened, the last one first, and the loop's dealings with its store."""
        opened, self._opened = self._opened, None
        try:
            if opened is not None:
                await opened.__aexit__(*error)
        finally:
            if error[0] is None:
                await self.close()
            else:
                await self._apart(self._close_quietly)

    async def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where the caller has a say. See `ToolLoopHandle.next_turn`."""
        try:
            with self._driving("next_turn()"):
                if self._waits():
                    await self.flush()
                if (over := self._nothing_to_drive()) is not None:
                    await self._flush()
                    return over
                async with self._holding_the_lease():
                    return self._ready_to_drive() or await self._drive()
        except GeneratorExit:  # the event loop is gone, and nothing can be awaited any more
            self._abandon()
            raise
        finally:
            if not self._is_abandoned and self._has_ends():
                await self._apart(self._store_ends)

    @asynccontextmanager
    async def _holding_the_lease(self) -> AsyncIterator[None]:
        try:
            await self._apart(self._take_lease)
            await self._flush()
            yield
            await self._secure()
        except GeneratorExit:
            self._abandon()
            raise
        except BaseException:
            await self._apart(self._flush_quietly)
            raise
        finally:
            if not self._is_abandoned:
                await self._apart(self._end_lease)

    async def run(
        self, ask: Callable[[Yielded], object | Awaitable[object]] | None = None
    ) -> Yielded | Completed | Error:
        """Keep going while nothing needs the caller; `ask` may be async. See `ToolLoopHandle.run`."""
        async with self._staying():
            while True:
                if self._waits():
                    await self.flush()
                self._tick()
                turn = self.pending_turn
                if turn is None:
                    try:
                        result = await self.next_turn()
                    except IllegalCommand:
                        if self._driver.locked() or not self._waits():
                            raise
                        continue  # somebody else drove it to a wait just now
                    if not isinstance(result, Yielded):
                        return result
                    turn = result
                if turn.pending and ask is not None:
                    await self._apart(self._pause)
                    await settled(ask(turn))
                    await self.flush()
                    self._stays = True
                if not self._goes_on(turn):
                    return turn
                with suppress(Conflict):  # somebody else said it first, or something better: the loop goes on
                    await self._flush()

    @asynccontextmanager
    async def _staying(self) -> AsyncIterator[None]:
        """From turn to turn the lease stays, until the caller is asked or this is over."""
        self._stays = True
        try:
            yield
        except GeneratorExit:
            self._abandon()
            raise
        finally:
            if not self._is_abandoned:
                await self._apart(self._pause)

    async def _drive(self) -> Yielded | Completed | Error:
        while True:
            await self._secure()
            match self._effects():
                case (SendRequest(),):
                    await self._send()
                case (Judge(),):
                    if (questions := self._judging()) is not None:
                        self._judged(await await_each(questions))
                case (EndTurn(),):
                    self._turn_ended()
                case _ if isinstance(self._state, Running):
                    await self._run_calls()
                case _:
                    if (result := self._result()) is not None:
                        return result

    async def _send(self) -> None:
        with self._flight() as request:
            if request is None:
                return
            await self._secure()
            if not self._is_asking():
                return
            try:
                reply = await self._provider.send(request)
            except Exception as error:  # noqa: BLE001 - any failure of a provider is an Error result
                self._fault(error)
            else:
                self._answer(reply)

    async def _run_calls(self) -> None:
        """Run what may run, and wait until nothing of the round runs any more."""
        import anyio  # noqa: PLC0415 - loaded when it is first needed

        for job in tuple(self._jobs.values()):
            job.taken = False  # nobody but this driver filters, and an earlier one may have been cancelled
        try:
            with self._bell.listening():
                async with anyio.create_task_group() as group:
                    await self._fan_out(group)
                    group.cancel_scope.cancel()  # what the caller stopped meanwhile; nothing runs otherwise
        except BaseExceptionGroup as errors:
            # No task lets anything out, so what is in the group befell the driver itself: a Ctrl-C under trio.
            raise (errors.exceptions[0] if len(errors.exceptions) == 1 else errors) from None

    async def _fan_out(self, group: TaskGroup) -> None:
        import anyio  # noqa: PLC0415 - loaded already

        failing: ToolLoopError | None = None
        for job in tuple(self._jobs.values()):
            job.launched = job.thread is not None  # no task of an earlier turn is left
        while self._abort is None:
            heard = self._bell.fresh()
            self._expire()
            self._filter_what_came(group)
            jobs = self._unlaunched() + (self._start_all() if failing is None else [])
            try:
                await self._secure()
            except ToolLoopError as error:  # what runs comes to its end first, and is kept; then this is told
                failing = failing or error
            for job in jobs:
                self._launch(group, job)
            if jobs:
                continue
            if failing is not None and not self._tasks:
                raise failing
            if failing is None and not self._calls_run():
                return
            with anyio.move_on_after(self._patience(inf)):
                await heard.wait()

    def _filter_what_came(self, group: TaskGroup) -> None:
        for job in tuple(self._jobs.values()):
            if job.result is not None and not job.taken and self._is_live(job):
                job.taken = True
                group.start_soon(self._guarded, self._filter_task, job)

    def _start_all(self) -> list[Job]:
        starts = [effect.call_id for effect in outstanding(self._state) if isinstance(effect, RunCall)]
        return [job for job in map(self._start, starts) if job is not None]

    def _launch(self, group: TaskGroup, job: Job) -> None:
        job.launched = True
        if job.tool.is_async:
            group.start_soon(self._guarded, self._run_task, job)
        else:
            self._spawn(job)

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

    async def _filter_task(self, job: Job) -> None:
        """Filter what a sync tool brought back from its thread."""
        if job.result is not None:
            self._end(job, await await_each(self._filtering(job, job.result)))

    def _filter(self, job: Job, result: Result) -> None:  # noqa: ARG002 - the other driver asks them right here
        self._ring()  # filters may be async, so the driver asks them, in its event loop

    async def _guarded(self, work: Callable[[Job], Awaitable[None]], job: Job) -> None:
        """Work in a task that lets nothing out but a real cancellation."""
        import anyio  # noqa: PLC0415 - loaded already
        import anyio.lowlevel  # noqa: PLC0415 - likewise

        self._tasks += 1
        try:
            await work(job)
        except GeneratorExit:  # the event loop was closed over the task
            self._cut(job)
            raise
        except BaseException as error:  # noqa: BLE001 - sorted out below
            self._sort_out(job, error, anyio.get_cancelled_exc_class())
            # Real cancellation goes on; a tool that only raised the exception itself has ended, and that is all.
            await anyio.lowlevel.checkpoint_if_cancelled()
        finally:
            self._tasks -= 1
            self._ring()

    def _sort_out(self, job: Job, error: BaseException, cancelled: type[BaseException]) -> None:
        """A tool ended by something that is no exception of its own: a cancellation, an exit, or both in a group."""
        rest: BaseException | None = None if isinstance(error, cancelled) else error
        if isinstance(error, BaseExceptionGroup):
            rest = error.split(cancelled)[1]
        if isinstance(rest, Exception):
            self._end(job, failed(job, rest))
        else:
            self._cut(job, rest)

    def _settle(self, awaitable: Awaitable[Any]) -> Any:
        try:
            return self._bell.wait_for(awaitable)
        finally:
            discard(awaitable)  # if the event loop is over

    def _make_bell(self) -> None:
        self._bell = AsyncBell()

    def _ring(self) -> None:
        self._bell.ring()
