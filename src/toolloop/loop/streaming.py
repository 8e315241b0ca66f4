"""A turn that is read while it happens.

The driver never runs ahead of its reader: it continues when everything it told was read. So a slow reader slows the
turn down, and nothing piles up. A reader who leaves cancels the turn at the place that was read last. What happened is
stored before an event is given to the reader, and by the thread or task in which it happens while the reader is busy.
"""

from __future__ import annotations

import contextvars
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from toolloop.face.results import Turn
from toolloop.face.watch_events import WatchEvent
from toolloop.loop.event_loops import shielded, spawn
from toolloop.loop.in_progress import ActiveTimer
from toolloop.loop.notifier import AsyncNotifier, Notifier
from toolloop.machine.errors import IllegalCommand

if TYPE_CHECKING:
    import anyio


class _Left(BaseException):
    """Ends the steps of a turn that is left: unlike `close`, they may take locks, and store what happened."""


class _Stream:
    """What both kinds of streams share: how the turn came out."""

    _turn: Turn | None = None
    _error: BaseException | None = None
    _is_over = _is_left = False

    @property
    def turn(self) -> Turn:
        """Return what `next_turn()` would have returned.

        Raises:
            IllegalCommand: the stream has not been read to its end.

        """
        if self._turn is not None:
            return self._turn
        if self._is_over or self._is_left:
            raise IllegalCommand(
                "stream.turn: the stream was left, or broke off, before the turn was over, and the turn was given up; "
                "call next_turn() or stream_turn() on the handle for another one",
                state="over",
                asked="stream.turn",
                allowed=("next_turn()", "stream_turn()"),
            )
        raise IllegalCommand(
            "stream.turn: the turn is not over; read the stream to its end, or call finish()",
            state="streaming",
            asked="stream.turn",
            allowed=("iterating", "finish()"),
        )

    def raise_error(self) -> None:
        """Raise what ended the turn, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'over' if self._is_over else 'in progress'}>"


class Unread:
    """What a driver told, and its reader did not read yet. Any thread tells; one reads.

    Attributes:
        is_closed: the turn is over, or the reader has left: nothing more is kept.

    """

    def __init__(self, notifier: Notifier) -> None:
        """`notifier`: wakes the driver, which hands over what other threads told."""
        self._notifier = notifier
        self._events: deque[WatchEvent] = deque()
        self._gates: deque[SimpleQueue[None]] = deque()
        self.is_closed = False

    def tell(self, event: WatchEvent) -> None:
        """Keep an event for the reader."""
        if not self.is_closed:
            self._events.append(event)
            self._notifier.notify()

    def read(self) -> WatchEvent | None:
        """Return the next event. None: everything was read, so the threads that wait for that continue."""
        waiting = len(self._gates)  # who comes later may have told an event that is not read
        with suppress(IndexError):
            return self._events.popleft()
        for _ in range(waiting):
            self._gates.popleft().put(None)
        return None

    def wait(self) -> None:
        """Wait in another thread until everything was read."""
        gate: SimpleQueue[None] = SimpleQueue()
        self._gates.append(gate)
        if not self.is_closed:
            self._notifier.notify()
            gate.get()

    def close(self) -> None:
        """Let every thread continue, and keep nothing more."""
        self.is_closed = True
        with suppress(IndexError):
            while True:
                self._gates.popleft().put(None)


class TurnStream(_Stream):
    """A turn while it happens: iterate its events, then see its `turn`. Made by `ToolLoopHandle.stream_turn`.

    Context variables that a sync tool or an observer sets stay in the turn: it runs in a copy of the context in which
    the first event was read.
    """

    def __init__(
        self, steps: Generator[None, None, Turn], unread: Unread, timer: ActiveTimer, store: Callable[[], None]
    ) -> None:
        """Begin nothing yet.

        Args:
            steps: of the driver.
            unread: what it told.
            timer: does not count while the reader is busy.
            store: stores what happened.

        """
        self._steps = steps
        self._unread = unread
        self._timer = timer
        self._store = store
        self._context: contextvars.Context | None = None

    def __enter__(self) -> Self:
        """Return the stream; nothing happens before it is read."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave the stream."""
        self.leave(is_closing=kind is GeneratorExit)

    def __iter__(self) -> Iterator[WatchEvent]:
        return self

    def __next__(self) -> WatchEvent:
        """Return the next event.

        Raises:
            CallerError, StoreError: as `ToolLoopHandle.next_turn`.

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
                "reading the stream: another thread reads it right now; one reads, any may decide",
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
        except Exception as error:  # noqa: BLE001 - what was told before it is read first
            self._is_over, self._error = True, error
        except BaseException:
            self._is_over = True
            raise
        else:
            if self._is_left:  # meanwhile, by another thread
                self.leave()
        finally:
            if self._is_over:
                self._unread.close()
                self._store()

    def leave(self, *, is_closing: bool = False) -> None:
        """Give up what is in progress: the reader leaves.

        Args:
            is_closing: a generator around the stream is closed, perhaps by the garbage collector. Then nothing is
                locked or stored: what is in progress is left behind.

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
    """The same in an event loop: the driver and its tasks wait for the reader, and the reader for events."""

    def __init__(self) -> None:
        """Nothing was told."""
        self.notifier = AsyncNotifier()
        self._events: deque[WatchEvent] = deque()
        self._gates: list[anyio.Event] = []
        self.is_closed = False

    def tell(self, event: WatchEvent) -> None:
        """Keep an event for the reader; from any thread."""
        if not self.is_closed:
            self._events.append(event)
            self.notifier.notify()

    async def was_read(self) -> None:
        """Wait until everything was read, and the reader asks for more."""
        import anyio  # noqa: PLC0415 - loaded already

        gate = anyio.Event()
        if self.is_closed:
            gate.set()  # the turn is cancelled
        self._gates.append(gate)
        self.notifier.notify()
        await gate.wait()

    async def read(self, is_over: Callable[[], bool]) -> WatchEvent | None:
        """Return the next event; None if the turn is over, and everything was read."""
        while True:
            self.notifier.clear()
            with suppress(IndexError):
                return self._events.popleft()
            if is_over():
                return None
            self._open_gates()
            await self.notifier.wait(float("inf"))

    def close(self) -> None:
        """Let everything continue, and keep nothing more."""
        self.is_closed = True
        self._open_gates()
        self.notifier.notify()

    def _open_gates(self) -> None:
        gates, self._gates = self._gates, []
        for gate in gates:
            gate.set()


class AsyncTurnStream(_Stream):
    """The same for `AsyncToolLoopHandle`: `async for event in stream`.

    The turn runs in a task of its own, which belongs to the event loop and not to the task that reads. So a generator
    around the stream may be closed by another task.
    """

    def __init__(
        self,
        drive: Callable[[], Awaitable[Turn]],
        unread: AsyncUnread,
        timer: ActiveTimer,
        store: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Begin nothing yet. `drive`: drives the turn. For the rest see `TurnStream`."""
        import anyio  # noqa: PLC0415 - loaded already

        self._drive = drive
        self._unread = unread
        self._timer = timer
        self._store = store
        self._task: Any = None  # begins with the reading
        self._scope, self._done = anyio.CancelScope(), anyio.Event()

    async def __aenter__(self) -> Self:
        """Return the stream; nothing happens before it is read."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave the stream. After an exit of a tool, or an error that was not read, raise that."""
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
            self._unread.notifier.listen()
            self._task = spawn(self._run)
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
        except BaseException as error:  # noqa: BLE001 - the reader raises it, after everything that was told
            self._error = error
        finally:
            self._is_over = True
            self._done.set()
            self._unread.close()

    def wake(self) -> None:
        """End the reading, in whatever task that is; the turn stays where it is until the stream is left."""
        self._is_left = True
        self._unread.notifier.notify()

    async def leave(self) -> None:
        """Cancel the turn, and wait for its end: the reader leaves."""
        self._is_left = True
        self._scope.cancel()  # before the driver is let go on, so that it begins nothing more
        self._unread.close()
        if self._task is not None:
            await shielded(self._done)
