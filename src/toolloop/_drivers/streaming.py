"""Streamed turns: the reader gets the events of a turn as they happen.

The driver never runs ahead of its reader. It continues when the reader has read all events, so a slow reader slows the
turn down, and no backlog builds up. A reader that leaves cancels the turn at the last event that it read. Everything is
stored before the reader gets the event. While the reader is busy, the thread or task of an operation stores its end.
"""

from __future__ import annotations

import contextvars
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from toolloop._drivers.event_loops import spawn, wait_shielded
from toolloop._drivers.notifier import AsyncNotifier, Notifier
from toolloop._engine.in_progress import ActiveTimer
from toolloop._interface.results import Turn
from toolloop._public import set_module
from toolloop.errors import IllegalCommand
from toolloop.events import WatchEvent

if TYPE_CHECKING:
    import anyio


class _Left(BaseException):
    """Ends the steps of a turn when the reader leaves. Unlike on `close`, they may take locks and store events."""


class _Stream:
    """The base of both kinds of streams: the result of the turn."""

    _turn: Turn | None = None
    _error: BaseException | None = None
    _is_over = _is_left = False

    @property
    def turn(self) -> Turn:
        """The result that `next_turn()` would have returned.

        Raises:
            IllegalCommand: the stream has not been read to its end.

        """
        if self._turn is not None:
            return self._turn
        if self._is_over or self._is_left:
            raise IllegalCommand(
                "stream.turn: the stream was closed or failed before the turn was over, so the turn was given up. "
                "Call next_turn() or stream_turn() on the handle for another turn",
                state="over",
                asked="stream.turn",
                allowed=("next_turn()", "stream_turn()"),
            )
        raise IllegalCommand(
            "stream.turn: the turn is not over. Read the stream to its end, or call finish()",
            state="streaming",
            asked="stream.turn",
            allowed=("iterating", "finish()"),
        )

    def raise_error(self) -> None:
        """Raise the error that ended the turn, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'over' if self._is_over else 'in progress'}>"


class Unread:
    """The events that the reader has not read yet. Any thread may add events; one thread reads.

    Attributes:
        is_closed: whether the turn is over, or the reader has left, so that no more events are kept.

    """

    def __init__(self, notifier: Notifier) -> None:
        """`notifier`: notifies the driver, which hands over the events of other threads."""
        self._notifier = notifier
        self._events: deque[WatchEvent] = deque()
        self._gates: deque[SimpleQueue[None]] = deque()
        self.is_closed: bool = False

    def tell(self, event: WatchEvent) -> None:
        """Keep an event for the reader."""
        if not self.is_closed:
            self._events.append(event)
            self._notifier.notify()

    def read(self) -> WatchEvent | None:
        """Return the next event. If all were read, return None and let the waiting threads continue."""
        waiting = len(self._gates)  # a later waiter may have added an event that is not read yet
        with suppress(IndexError):
            return self._events.popleft()
        for _ in range(waiting):
            self._gates.popleft().put(None)
        return None

    def wait(self) -> None:
        """Wait in another thread until all events were read."""
        gate: SimpleQueue[None] = SimpleQueue()
        self._gates.append(gate)
        if not self.is_closed:
            self._notifier.notify()
            gate.get()

    def close(self) -> None:
        """Let all threads continue, and keep no more events."""
        self.is_closed = True
        with suppress(IndexError):
            while True:
                self._gates.popleft().put(None)


@set_module("toolloop.types")
class TurnStream(_Stream):
    """A streamed turn: iterate its events, then read `turn`. `ToolLoopHandle.stream_turn` makes it.

    Entering it takes the lease of a stored loop, and begins nothing else. The turn runs in a copy of the context in
    which it was entered. So context variables that a sync tool or an observer sets do not leave the turn.
    """

    def __init__(
        self, steps: Generator[None, None, Turn], unread: Unread, timer: ActiveTimer, store: Callable[[], None]
    ) -> None:
        """Keep the parts. The turn begins with the first read.

        Args:
            steps: the steps of the driver. The first one ends when the turn may begin.
            unread: its unread events.
            timer: the timer, which is paused while the reader is busy.
            store: stores the pending records.

        """
        self._steps = steps
        self._unread = unread
        self._timer = timer
        self._store = store
        self._context: contextvars.Context | None = None

    def __enter__(self) -> Self:
        """Take the lease, and return the stream. The turn begins with the first read.

        Raises:
            Conflict: another driver holds the stored loop.
            CallerError, StoreError: as for `ToolLoopHandle.next_turn`, as far as it is known before the turn begins.

        """
        try:
            self._advance()
            self.raise_error()
        except BaseException:
            if not self._is_over:  # a Ctrl-C behind the first step: `__exit__` is not called
                self.leave()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave the stream."""
        self.leave(is_closing=kind is GeneratorExit)

    def __iter__(self) -> Iterator[WatchEvent]:
        return self

    def __next__(self) -> WatchEvent:
        """Return the next event.

        Raises:
            CallerError, StoreError: as for `ToolLoopHandle.next_turn`.

        """
        if self._context is not None and not self._unread.is_closed:
            self._timer.resume()
        while (event := self._unread.read()) is None:
            if self._is_over or self._is_left:
                self.raise_error()
                raise StopIteration
            self._advance()
        if not self._unread.is_closed:
            self._timer.pause()
            self._store()
        return event

    def finish(self) -> Turn:
        """Read the rest, and return the turn."""
        for _ in self:
            pass
        return self.turn

    def _advance(self) -> None:
        if inspect.getgeneratorstate(self._steps) == inspect.GEN_RUNNING:
            raise IllegalCommand(
                "reading the stream: another thread is reading it. Only one thread may read; any thread may decide",
                state="streaming",
                asked="reading the stream",
                allowed=("decide()", "pending", "view()", "resume(Stop())"),
            )
        if self._context is None:
            self._context = contextvars.copy_context()
        try:
            self._context.run(next, self._steps)
        except StopIteration as done:
            self._is_over, self._turn = True, done.value
        except Exception as error:  # noqa: BLE001 - earlier events are read before it is raised
            self._is_over, self._error = True, error
        except BaseException:
            self._is_over = True
            raise
        else:
            if self._is_left:  # another thread gave it up meanwhile
                self.leave()
        finally:
            if self._is_over:
                self._unread.close()
                self._store()

    def leave(self, *, is_closing: bool = False) -> None:
        """Give up the turn, because the reader leaves.

        Args:
            is_closing: whether a generator around the stream is being closed, perhaps by the garbage collector. Then
                nothing is locked or stored, and the operations in progress are left behind.

        """
        self._is_left = True
        self._unread.close()
        if inspect.getgeneratorstate(self._steps) == inspect.GEN_RUNNING:
            return  # the thread that reads leaves
        if self._context is None or is_closing:
            self._steps.close()
            return
        with suppress(_Left):
            self._context.run(self._steps.throw, _Left())
        self._store()


class AsyncUnread:
    """`Unread` for an event loop: the driver and its tasks wait for the reader, and the reader waits for events."""

    def __init__(self) -> None:
        """Start without events."""
        self.notifier: AsyncNotifier = AsyncNotifier()
        self._events: deque[WatchEvent] = deque()
        self._gates: list[anyio.Event] = []
        self.is_closed: bool = False

    def tell(self, event: WatchEvent) -> None:
        """Keep an event for the reader. Any thread may call this."""
        if not self.is_closed:
            self._events.append(event)
            self.notifier.notify()

    async def wait_until_read(self) -> None:
        """Wait until all events were read and the reader asks for more."""
        import anyio  # noqa: PLC0415 - loaded already

        gate = anyio.Event()
        if self.is_closed:
            gate.set()  # the turn is cancelled
        self._gates.append(gate)
        self.notifier.notify()
        await gate.wait()

    async def is_awaited(self, is_over: Callable[[], bool]) -> None:
        """Wait until a task waits for the reader, or the turn is over."""
        while not (self._gates or is_over()):
            self.notifier.clear()
            if not (self._gates or is_over()):
                await self.notifier.wait(float("inf"))

    async def read(self, is_over: Callable[[], bool]) -> WatchEvent | None:
        """Return the next event; None if the turn is over and all events were read."""
        while True:
            self.notifier.clear()
            with suppress(IndexError):
                return self._events.popleft()
            if is_over():
                return None
            self._open_gates()
            await self.notifier.wait(float("inf"))

    def close(self) -> None:
        """Let all tasks continue, and keep no more events."""
        self.is_closed = True
        self._open_gates()
        self.notifier.notify()

    def _open_gates(self) -> None:
        gates, self._gates = self._gates, []
        for gate in gates:
            gate.set()


@set_module("toolloop.types")
class AsyncTurnStream(_Stream):
    """A streamed turn of an `AsyncToolLoopHandle`: `async for event in stream`.

    The turn runs in its own task, which belongs to the event loop and not to the reading task. So another task may
    close a generator around the stream.
    """

    def __init__(
        self,
        drive: Callable[[], Awaitable[Turn]],
        unread: AsyncUnread,
        timer: ActiveTimer,
        store: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Keep the parts. `drive`: drives the turn. For the others see `TurnStream`."""
        import anyio  # noqa: PLC0415 - loaded already

        self._drive = drive
        self._unread = unread
        self._timer = timer
        self._store = store
        self._task: Any = None  # begins with the first read
        self._scope, self._done = anyio.CancelScope(), anyio.Event()

    async def __aenter__(self) -> Self:
        """Take the lease, and return the stream. The turn begins with the first read. See `TurnStream`."""
        self._begin()
        try:
            await self._unread.is_awaited(lambda: self._is_over)
        except BaseException:
            await self.leave()
            raise
        self.raise_error()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave the stream. Raise an exit of a tool, or an error that was not read."""
        await self.leave()
        if kind is None:
            self.raise_error()

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        """Return the next event. See `TurnStream`."""
        if self._is_left:
            raise StopAsyncIteration
        if self._task is None:
            self._begin()
        elif not self._unread.is_closed:
            self._timer.resume()
        event = await self._unread.read(lambda: self._is_over or self._is_left)
        if event is None:
            self.raise_error()
            raise StopAsyncIteration
        if not self._unread.is_closed:
            self._timer.pause()
            await self._store()
        return event

    def _begin(self) -> None:
        self._unread.notifier.listen()
        self._task = spawn(self._run)

    async def finish(self) -> Turn:
        """Read the rest, and return the turn."""
        async for _ in self:
            pass
        return self.turn

    async def _run(self) -> None:
        """Drive, in a task that lets no exception out."""
        try:
            with self._scope:
                self._turn = await self._drive()
        except BaseException as error:  # noqa: BLE001 - the reader raises it after all earlier events
            self._error = error
        finally:
            self._is_over = True
            self._done.set()
            self._unread.close()

    def wake(self) -> None:
        """Stop reading, in any task. The turn does not continue, and ends when the stream is left."""
        self._is_left = True
        self._unread.notifier.notify()

    async def leave(self) -> None:
        """Cancel the turn and wait for its end, because the reader leaves."""
        self._is_left = True
        self._scope.cancel()  # before the driver can continue, so that it begins no more operations
        self._unread.close()
        if self._task is not None:
            await wait_shielded(self._done)
