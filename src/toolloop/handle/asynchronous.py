"""The async handle, for asyncio and trio.

Whatever can be async under it is awaited: policies, `stop_when`, tools. Sync tools run in threads of their own.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Self

from toolloop.core.errors import IllegalCommand
from toolloop.handle.apart import OpeningLoop, in_thread
from toolloop.handle.awaiting import settled
from toolloop.handle.by_hand import AsyncByHand
from toolloop.handle.config import DEFAULT_CONFIG, DEFAULT_CONTEXT, LoopConfig, LoopContext, check_parts
from toolloop.handle.failing import is_driven
from toolloop.handle.making import to_open
from toolloop.handle.streaming import AsyncOutlet, AsyncTurnStream
from toolloop.handle.tasks import told_of
from toolloop.handle.turns import Completed, Error, Yielded
from toolloop.providers import provider_for
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext, ToolRegistry


class AsyncToolLoopHandle(AsyncByHand):
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
            self._recorder.close()
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
                self._recorder.close()

    async def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where the caller has a say. See `ToolLoopHandle.next_turn`."""
        return await self._turning("next_turn()")

    @asynccontextmanager
    async def stream_turn(self) -> AsyncIterator[AsyncTurnStream]:
        """Drive like `next_turn()`, and read what happens while it happens. See `ToolLoopHandle.stream_turn`.

        `async with handle.stream_turn() as stream:`, then `async for event in stream`. The driver runs in a task of its
        own, in step with the reader.
        """
        import anyio  # noqa: PLC0415 - loaded when it is first needed

        outlet = AsyncOutlet(self._watch)
        raised: BaseException | None = None
        together: BaseExceptionGroup[BaseException] | None = None
        try:
            with outlet.bell.listening():
                async with anyio.create_task_group() as group:
                    stream = AsyncTurnStream(partial(self._turning, "stream_turn()", outlet), outlet, group)
                    try:
                        yield stream
                    except BaseException as error:
                        raised = error
                        raise
                    finally:
                        group.cancel_scope.cancel()  # first, so that nothing goes on because nobody reads any more
                        stream._leave()  # noqa: SLF001 - a stream is its handle's own
        except BaseExceptionGroup as errors:
            together = errors
        if together is not None:  # the driver's task lets nothing out, so it is what befell the reader
            raise raised or told_of(together, anyio.get_cancelled_exc_class())
        if raised is None:
            stream._raise_error()  # noqa: SLF001 - a stream is its handle's own

    async def _turning(self, asked: str, outlet: AsyncOutlet | None = None) -> Yielded | Completed | Error:
        import anyio.lowlevel  # noqa: PLC0415 - loaded when it is first needed

        # Once in each turn others have theirs, also where neither the provider nor a tool ever waits.
        await anyio.lowlevel.checkpoint()
        try:
            # Written out, and no context manager: one that is a generator is dear for each turn, and a Ctrl-C at the
            # beginning of an `__exit__` in Python would leave the lock behind.
            if not self._driver.acquire(blocking=False):
                raise is_driven(self._state, asked)
            try:
                self._read_by(outlet)
                if self._waits():
                    await self.flush()
                if (over := self._nothing_to_drive()) is not None:
                    await self._flush()
                    return over
                return await self._leased_drive()
            finally:
                try:
                    self._read_by(None)
                finally:
                    self._driver.release()
        except GeneratorExit:  # the event loop is gone, and nothing can be awaited any more
            self._abandon()
            raise
        finally:
            if not self._is_abandoned and self._has_ends():
                await self._apart(self._store_ends)

    async def _leased_drive(self) -> Yielded | Completed | Error:
        """Drive, with the lease of a stored loop in hand."""
        try:
            if not self._holds_on():
                await self._apart(self._take_lease)
            if self._stored is not None:
                self._stored.tell_refused()
            turn = self._ready_to_drive() or await self._drive()
            await self._secure()
        except GeneratorExit:
            self._abandon()
            raise
        except BaseException:
            await self._apart(self._flush_quietly)
            raise
        finally:
            if not self._is_abandoned and not self._lets_be():
                await self._apart(self._end_lease)
        return turn

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
