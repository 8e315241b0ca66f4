"""The async handle, for asyncio and trio."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar, Generic, Literal, NoReturn, Self, TypeVar

import anyio.lowlevel

from toolloop._drivers.async_driver import AsyncDriver
from toolloop._drivers.event_loops import run_in_thread
from toolloop._drivers.streaming import AsyncTurnStream, AsyncUnread
from toolloop._engine.questions import await_each, call_either
from toolloop._handles.forking import Fork
from toolloop._handles.handle import HandleBase
from toolloop._handles.issuing import ENDED
from toolloop._handles.opening import Here, Opening
from toolloop._handles.turns import check_ask
from toolloop._interface.config import LoopConfig
from toolloop._interface.decisions import name_of
from toolloop._interface.results import Completed, Error, Turn, Yielded
from toolloop._public import set_module
from toolloop.errors import ToolLoopError
from toolloop.machine.record.loop import Waiting
from toolloop.machine.values.names import Person
from toolloop.providers import AsyncProvider
from toolloop.providers.anthropic import AsyncSdkClient
from toolloop.stores.protocol import Store
from toolloop.tools import Context
from toolloop.tools.registry import Tools

H = TypeVar("H", bound="AsyncToolLoopHandle")


@set_module("toolloop")
class AsyncToolLoopHandle(HandleBase[AsyncProvider | AsyncSdkClient, AsyncDriver]):
    """A tool-use loop that its caller drives, turn by turn, under asyncio or trio.

    It is `ToolLoopHandle` for an `anthropic.AsyncAnthropic` client or an `AsyncProvider`, with `await` before
    `next_turn()` and `run()`.
    """

    _driver_class: ClassVar[type[AsyncDriver]] = AsyncDriver

    @classmethod
    def open(  # noqa: PLR0913 - the parts of a loop that are not stored
        cls,
        store: Store,
        loop_id: str,
        provider: AsyncProvider | AsyncSdkClient,
        *,
        tools: Tools = (),
        params: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        config: LoopConfig | None = None,
        context: Context | None = None,
        on_drift: Literal["raise", "accept", "strict"] = "raise",
        take_over: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> OpeningLoop[Self]:
        """Load a loop from a store, or create it there: `async with AsyncToolLoopHandle.open(...) as handle`.

        You can also await its result. See `ToolLoopHandle.open`.
        """
        here = Here.of(provider, tools, config, context, clock, is_async=True)
        opening = Opening(here, store, loop_id, params, metadata, on_drift, take_over)
        return OpeningLoop(partial(cls._load, opening))

    async def flush(self) -> None:
        """Store pending decisions and commands, and read the events that others stored. See `ToolLoopHandle.flush`.

        Raises:
            StoreError: the store failed; nothing is lost.
            CallerError: a decision or command is no longer allowed, because another caller or process was first.

        """
        self._parts.issuer.take_edits("flush()")
        await self._catch_up()

    async def _catch_up(self) -> None:
        await self._run_in_thread(self._parts.journal.commit)
        await self._run_in_thread(self._parts.journal.refresh)

    async def _run_in_thread(self, work: Callable[[], object]) -> None:
        """Call a function that waits for the store, in a thread if there is a store. It is not cancelled half-way."""
        if self._parts.lease is not None:
            await run_in_thread(work)
            self._parts.journal.tell()

    async def fork(
        self,
        loop_id: str | None = None,
        *,
        at: int | str | None = None,
        metadata: Mapping[str, str] | None = None,
        by: str | Person | None = None,
    ) -> Self:
        """Return an independent copy: as the loop is now, or as it was. See `ToolLoopHandle.fork`."""
        wanted = Fork.of(loop_id, at, metadata, by, "handle")
        self._parts.issuer.take_edits("fork()")
        if self._parts.lease is None:
            return self._fork(wanted)
        return await run_in_thread(partial(self._fork, wanted))

    async def set_metadata(self, by: str | Person | None = None, **changes: str | None) -> None:
        """Change metadata of the stored loop, such as a title. See `ToolLoopHandle.set_metadata`."""
        self._change_metadata(changes, await run_in_thread(self._read_metadata), name_of(by))
        await self._run_in_thread(self._parts.journal.commit)

    async def aclose(self) -> None:
        """Store everything pending, and give the lease back. See `ToolLoopHandle.close`."""
        try:
            self._parts.issuer.take_edits("aclose()")
            await self._run_in_thread(self._parts.journal.commit)
        finally:
            self._parts.journal.bus.close()
            await self._run_in_thread(self._parts.late)

    def close(self) -> Awaitable[None]:
        """Close the handle. Deprecated: use `aclose`."""
        warnings.warn(
            "AsyncToolLoopHandle.close() is now AsyncToolLoopHandle.aclose()", DeprecationWarning, stacklevel=2
        )
        return self.aclose()

    async def __aenter__(self) -> Self:
        """Return the handle; `__aexit__` closes it."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the handle. See `ToolLoopHandle.__exit__`."""
        try:
            await self.aclose()
        except ToolLoopError as unstored:
            self._report_unstored(unstored, error[0])

    async def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where the caller can act. See `ToolLoopHandle.next_turn`."""
        return await self._drive("next_turn()")

    def stream_turn(self) -> AsyncTurnStream:
        """Drive like `next_turn()`, and stream the events as they happen. See `ToolLoopHandle.stream_turn`.

        Use `async with handle.stream_turn() as stream:`, then `async for event in stream`. The turn runs in its own
        task, at the reader's pace. Another task may close a generator around it.
        """
        unread = AsyncUnread()
        drive = partial(self._drive, "stream_turn()", unread)
        return AsyncTurnStream(drive, unread, self._parts.engine.timer, self._store_ends)

    async def _store_ends(self) -> None:
        if self._parts.journal.is_behind:
            await self._run_in_thread(self._parts.late)

    async def _drive(self, asked: str, unread: AsyncUnread | None = None) -> Turn:
        async with self._let_go_at_end():
            turn: Turn = await self._parts.driving.make_steps(self._drive_turn, asked, unread)
            return turn

    async def _drive_turn(self, own: list[weakref.ref[Any]], asked: str, unread: AsyncUnread | None = None) -> Turn:
        """Drive one turn. `own`: see `Driving`."""
        # Let other tasks run at least once in each turn, even if neither the provider nor a tool ever waits.
        await anyio.lowlevel.checkpoint()
        parts, turns = self._parts, self._parts.turns
        parts.driving.begin(own, asked=asked)
        with parts.driving.turn(unread):
            if (edits := parts.issuer.edits).working is not None:
                parts.issuer.take_edits(asked)
            phase = parts.journal.state.root.phase
            if isinstance(phase, Waiting) or (isinstance(phase, ENDED) and parts.journal.is_behind):
                await self._catch_up()
            over = turns.find_end()
            if edits.working is not None:
                edits.invalidate()
            if over is not None:
                return turns.hand_over(over)
            if parts.lease is not None and not parts.lease.is_shared:
                await self._run_in_thread(parts.lease.acquire)
            turn = turns.find_current()
            if turn is None and unread is not None:
                parts.engine.make_woken()  # raises `Drift` when the stream is entered
                await unread.wait_until_read()
            if turn is not None:
                return turns.hand_over(turn)
            driven: Turn = await parts.driver.drive(turns.find_turn_at_rest, unread)
            return turns.hand_over(driven)

    @asynccontextmanager
    async def _let_go_at_end(self) -> AsyncGenerator[None]:
        """Store what happened, and give the lease back if it is not needed."""
        try:
            yield
        except GeneratorExit:  # the event loop is gone, so nothing can be awaited
            raise
        except BaseException:
            await self._let_go()
            raise
        await self._let_go()

    async def _let_go(self) -> None:
        is_behind = self._parts.journal.is_behind and not self._parts.engine.may_store_later()
        if self._parts.lease is not None and (is_behind or not self._parts.lease.is_needed):
            await self._run_in_thread(self._parts.late)

    async def run(
        self,
        ask: Callable[[Yielded], object | Awaitable[object]] | None = None,
        *,
        until: Callable[[], bool] | None = None,
    ) -> Yielded | Completed | Error:
        """Drive turns until the caller is needed; `ask` may be an async function. See `ToolLoopHandle.run`."""
        check_ask(ask, "run()")
        return await self._run(ask, until=until)

    def stream(self, ask: Callable[[Yielded], object | Awaitable[object]] | None = None) -> AsyncTurnStream:
        """Drive like `run()`, and stream the events as they happen. See `ToolLoopHandle.stream`."""
        check_ask(ask, "stream()")
        unread = AsyncUnread()
        return AsyncTurnStream(partial(self._run, ask, unread), unread, self._parts.engine.timer, self._store_ends)

    async def _run(
        self,
        ask: Callable[[Yielded], object | Awaitable[object]] | None,
        unread: AsyncUnread | None = None,
        until: Callable[[], bool] | None = None,
    ) -> Turn:
        while True:
            questions = self._parts.turns.make_questions(until, partial(self._drive, "run()", unread), self._catch_up)
            known = self._parts.journal.lost
            async with self._let_go_at_end():
                self._parts.engine.goes_on = unread is None and self._parts.lease is not None
                try:
                    turn = await await_each(questions)
                finally:
                    self._parts.engine.goes_on = False
                    questions.close()
            self._parts.turns.refuse_loss(known)
            if not isinstance(turn, Yielded) or not turn.pending or ask is None:
                return turn
            await call_either(ask, turn)
            await self._catch_up()
            if self.pending_turn is turn and not self._parts.issuer.continue_turn(turn):
                return turn


@set_module("toolloop.types")
class OpeningLoop(Generic[H]):
    """A stored loop that is being opened. Await it for the handle, or use `async with`, which closes the handle."""

    def __init__(self, load: Callable[[], H]) -> None:
        """`load`: returns the handle; it blocks while the store works."""
        self._load = load
        self._handle: H | None = None

    def __getattr__(self, name: str) -> NoReturn:
        """Say that the handle is not there yet."""
        raise AttributeError(
            f"{name}: the loop is still to be opened. Write `handle = await AsyncToolLoopHandle.open(...)`, or "
            "`async with AsyncToolLoopHandle.open(...) as handle:`",
            name=name,
            obj=self,
        )

    def __await__(self) -> Generator[Any, Any, H]:
        return run_in_thread(self._load).__await__()

    async def __aenter__(self) -> H:
        """Load the loop."""
        self._handle = await self
        return await self._handle.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        """Close the handle."""
        if self._handle is not None:
            await self._handle.__aexit__(*error)
