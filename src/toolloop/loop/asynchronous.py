"""The async handle, for asyncio and trio."""

from __future__ import annotations

import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar, Self

from toolloop.face.config import DEFAULT_CONFIG, LoopConfig, LoopContext
from toolloop.face.results import Completed, Error, Yielded
from toolloop.loop.assembly import Driver, assemble
from toolloop.loop.async_driver import AsyncDriver
from toolloop.loop.handle import HandleBase, Turn
from toolloop.loop.journal import LOG
from toolloop.loop.opening import loaded, new_loop, restored
from toolloop.loop.questions import call_either
from toolloop.loop.store_thread import OpeningLoop, in_thread
from toolloop.loop.streaming import AsyncTurnStream, AsyncUnread
from toolloop.machine.errors import Conflict, IllegalCommand, ToolLoopError
from toolloop.machine.jsontext import JSON
from toolloop.machine.loop import Waiting
from toolloop.providers import provider_for
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext, ToolRegistry


class AsyncToolLoopHandle(HandleBase):
    """A tool-use loop that its caller drives, turn by turn, under asyncio or trio.

    The same as `ToolLoopHandle`, over an `anthropic.AsyncAnthropic` client or an `AsyncProvider`, with `await` before
    `next_turn()` and `run()`.
    """

    _driver_class: ClassVar[type[Driver]] = AsyncDriver

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
        parts = new_loop(
            params=params,
            tools=tools,
            config=config,
            context=context,
            store=store,
            loop_id=loop_id,
            clock=clock,
            is_async=True,
        )
        self._assemble(assemble(provider_for(provider, is_async=True), parts, AsyncDriver))

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
                cls._loaded,
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

    @classmethod
    def _loaded(cls, store: Store, loop_id: str, provider: Any, **given: Any) -> Self:
        """Load or create a stored loop; this blocks."""
        while True:
            parts = loaded(store, loop_id, is_async=True, **given)
            handle = cls._made(provider_for(provider, is_async=True), parts)
            try:
                handle._begin_stored()  # noqa: SLF001 - its own class
            except Conflict:
                if parts.rev:
                    raise
                continue  # somebody created it in this very moment
            return handle

    @classmethod
    def restore(  # noqa: PLR0913 - the parts of a loop that no snapshot can hold
        cls,
        snapshot: Mapping[str, JSON],
        provider: Any,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        params: Mapping[str, Any] | None = None,
        config: LoopConfig | None = None,
        context: LoopContext | ToolContext | None = None,
        store: Store | None = None,
        on_drift: str = "raise",
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """A loop from its snapshot, in this process or another. The next request has the very same bytes.

        Args:
            snapshot: what `snapshot()` returned.
            provider: as for a new handle.
            tools: as for a new handle.
            params: brings back what a snapshot leaves out (headers, timeouts, tokens); what else it holds is compared.
            config: None takes the stored limits. Callables are in no snapshot: give them again.
            context: as for a new handle; its depth is the stored one.
            store: where it is kept from now on, as a new loop there: two copies of one snapshot are two loops.
            on_drift: `raise` if tools, callables or parameters are others than they were; `accept` to go on with these.
            clock: as for a new handle.

        Raises:
            UnreadableSnapshot: it is damaged, foreign, or of a newer format.
            Drift: what changed.
            BadTool: two tools of one name.
            InvalidHistory: the API would refuse the history with these parameters.

        """
        parts = restored(
            snapshot,
            tools=tools,
            params=params,
            config=config,
            context=context,
            store=store,
            on_drift=on_drift,
            clock=clock,
            is_async=True,
        )
        return cls._made(provider_for(provider, is_async=True), parts)

    async def flush(self) -> None:
        """Store what was decided and said, and look at what others stored. See `ToolLoopHandle.flush`.

        Raises:
            StoreError: the store failed; nothing is lost.
            CallerError: what was said is not possible any more, because somebody else was first.

        """
        self._take_edits("flush()")
        await self._catch_up()

    async def _catch_up(self) -> None:
        if self._lease is not None:
            await self._in_thread(self._journal.commit)
            await self._in_thread(self._journal.refresh)

    async def _in_thread(self, work: Callable[[], object]) -> None:
        """Do what waits for the store apart from the event loop; it is not cancelled half-way."""
        if self._lease is not None:
            await in_thread(work)
            self._journal.tell()

    async def close(self) -> None:
        """Store what waits to be stored, and give the lease back. The handle stays usable."""
        try:
            self._take_edits("close()")
            await self._in_thread(self._journal.commit)
        finally:
            self._journal.bus.close()
            await self._in_thread(self._late)

    async def __aenter__(self) -> Self:
        """Return the handle; `__aexit__` closes it."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the handle. See `ToolLoopHandle.__exit__`."""
        try:
            await self.close()
        except ToolLoopError:
            if error[0] is None:
                raise
            LOG.exception("not everything is stored yet", extra={"loop_id": self.loop_id})

    async def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where the caller can act. See `ToolLoopHandle.next_turn`."""
        return await self._steps("next_turn()")

    @asynccontextmanager
    async def stream_turn(self) -> AsyncIterator[AsyncTurnStream]:
        """Drive like `next_turn()`, and read what happens while it happens. See `ToolLoopHandle.stream_turn`.

        `async with handle.stream_turn() as stream:`, then `async for event in stream`. The turn runs in a task of its
        own, in step with the reader. A generator around it may be closed by another task.
        """
        unread = AsyncUnread()
        stream = AsyncTurnStream(partial(self._steps, "stream_turn()", unread), unread, self._engine.timer)
        with unread.notifier.listening():
            try:
                yield stream
            finally:
                await stream.leave()
        stream.raise_error()

    def _steps(self, asked: str, unread: AsyncUnread | None = None) -> Awaitable[Turn]:
        """Return the coroutine of a turn, which knows itself: see `Driving`."""
        own: list[weakref.ref[Any]] = []
        steps = self._turning(asked, own, unread)
        own.append(weakref.ref(steps))
        return steps

    async def _turning(self, asked: str, own: list[weakref.ref[Any]], unread: AsyncUnread | None) -> Turn:
        import anyio.lowlevel  # noqa: PLC0415 - loaded when it is first needed

        # Once in each turn others have theirs, also if neither the provider nor a tool ever waits.
        await anyio.lowlevel.checkpoint()
        self._driving.begin(own[0], asked=asked, state=type(self.state.root.phase).__name__)
        holder = object()
        async with self._holding(holder):
            self._take_edits(asked)
            if isinstance(self.state.root.phase, Waiting):
                await self._catch_up()
            over = self._result_at_hand()
            self._edits.taken()
            if over is not None:
                return over
            if self._lease is not None and not self._lease.join(holder):
                await self._in_thread(partial(self._lease.acquire, holder))
            with self._read_by(unread):
                turn: Turn = self._turn() or await self._driver.drive(self._turn)
            if self._journal.is_behind:
                await self._in_thread(self._journal.commit)
            return turn

    @asynccontextmanager
    async def _holding(self, holder: object) -> AsyncIterator[None]:
        """In the end `holder` needs the lease no longer. What happened is stored, and the lease given back."""
        try:
            yield
        except GeneratorExit:  # the event loop is gone, and nothing can be awaited any more
            if self._lease is not None:
                self._lease.forget_holder(holder)
            raise
        except BaseException:
            await self._let_go(holder)
            raise
        await self._let_go(holder)

    async def _let_go(self, holder: object) -> None:
        if self._lease is not None:
            self._lease.forget_holder(holder)
            if self._journal.is_behind or not self._lease.is_needed:
                await self._in_thread(self._late)

    async def run(
        self, ask: Callable[[Yielded], object | Awaitable[object]] | None = None
    ) -> Yielded | Completed | Error:
        """Keep going while nothing needs the caller; `ask` may be an async function. See `ToolLoopHandle.run`."""
        while True:
            turn = await self._run_to_question()
            if not isinstance(turn, Yielded) or not turn.pending or ask is None:
                return turn
            await call_either(ask, turn)
            await self._catch_up()
            if self.pending_turn is turn and not self._goes_on(turn):
                return turn

    async def _run_to_question(self) -> Turn:
        """Drive until calls wait, or the loop has ended. The lease stays from turn to turn."""
        holder = object()
        async with self._holding(holder):
            if self._lease is not None:
                self._lease.keep(holder)
            while True:
                if isinstance(self.state.root.phase, Waiting):
                    await self._catch_up()
                    self._tick()
                turn = self.pending_turn
                if turn is None:
                    try:
                        result = await self.next_turn()
                    except IllegalCommand:
                        if self._driving.is_active or not isinstance(self.state.root.phase, Waiting):
                            raise
                        continue  # another process drove it to a wait in this very moment
                    if not isinstance(result, Yielded):
                        return result
                    turn = result
                self._tick()
                if not self._goes_on(turn):
                    return turn
