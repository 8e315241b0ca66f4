"""A turn that is read while it happens.

The driver never runs ahead of its reader: it goes on when all that it told so far was read. So a slow reader slows the
turn, and nothing piles up; and who leaves before the end has cancelled the turn at the very place that was read last.
"""

from __future__ import annotations

import contextvars
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from toolloop.core.errors import IllegalCommand
from toolloop.handle.bell import AsyncBell, Bell
from toolloop.handle.tooling import Stopwatch
from toolloop.handle.turns import Completed, Error, Yielded
from toolloop.handle.watching import CitationDelta, Delta, InputDelta, TextDelta, ThinkingDelta, WatchEvent

if TYPE_CHECKING:
    import anyio

    from toolloop.providers.accumulate import Piece

LOG = logging.getLogger("toolloop")

Turn = Yielded | Completed | Error
T = TypeVar("T")


def delta_of(piece: Piece, iteration: int, path: tuple[str, ...]) -> Delta:
    """What is told of a piece of a reply."""
    match piece.kind:
        case "text":
            return TextDelta(iteration, piece.index, piece.value, path=path)
        case "thinking":
            return ThinkingDelta(iteration, piece.index, piece.value, path=path)
        case "citation":
            return CitationDelta(iteration, piece.index, piece.value, path=path)
        case "input":
            return InputDelta(iteration, piece.index, piece.call_id, piece.name, piece.value, path=path)


class Outlet:
    """What was told and not read yet. Any thread may tell; one reads."""

    def __init__(self, bell: Bell, watch: Stopwatch) -> None:
        """`bell`: of the driver, that it hands over what was told; `watch`: counts its active seconds."""
        self._bell = bell
        self.watch = watch
        self._told: deque[WatchEvent] = deque()
        self._gates: deque[SimpleQueue[None]] = deque()
        self._closed = False

    def tell(self, event: WatchEvent) -> None:
        """Keep an event for the reader."""
        self._told.append(event)
        self._bell.ring()

    def next(self) -> WatchEvent | None:
        """The next event. None: all was read, so whoever waits for that goes on."""
        self._bell.clear()  # what it rings for is read here; the driver looks at everything else before it waits
        waiting = len(self._gates)  # who comes later may have told something that is not read
        with suppress(IndexError):
            return self._told.popleft()
        self._open_gates(waiting)
        return None

    def wait(self) -> None:
        """In a thread that is not the reader's: wait until all that was told has been read."""
        gate: SimpleQueue[None] = SimpleQueue()
        self._gates.append(gate)
        if self._closed:
            return
        self._bell.ring()
        gate.get()

    def close(self) -> None:
        """Nobody reads any more."""
        self._closed = True
        while self._gates:
            self._open_gates(len(self._gates))

    def _open_gates(self, number: int) -> None:
        with suppress(IndexError):
            for _ in range(number):
                self._gates.popleft().put(None)


class AsyncOutlet:
    """The same in an event loop: the driver, or a task of it, waits for the reader, and the reader for what is told."""

    def __init__(self, watch: Stopwatch) -> None:
        """`watch`: counts the active seconds of the driver."""
        self.watch = watch
        self._told: deque[WatchEvent] = deque()
        self._gates: list[anyio.Event] = []
        self._closed = False
        self.bell = AsyncBell()

    def tell(self, event: WatchEvent) -> None:
        """Keep an event for the reader; from any thread."""
        self._told.append(event)
        self.bell.ring()

    async def wait(self) -> None:
        """Wait until all that was told has been read, and the reader asks for more."""
        import anyio  # noqa: PLC0415 - loaded already

        gate = anyio.Event()
        if self._closed:
            gate.set()  # to wait for it is to be cancelled, then
        self._gates.append(gate)
        self.bell.ring()
        await gate.wait()

    async def next(self, is_over: Callable[[], bool]) -> WatchEvent | None:
        """The next event, once there is one. None: there is none, and it is over."""
        while True:
            heard = self.bell.fresh()
            with suppress(IndexError):
                return self._told.popleft()
            if is_over():
                return None
            self._open_gates()
            await heard.wait()

    def close(self) -> None:
        """Nobody reads any more. Who waits for an event in another task is woken."""
        self._closed = True
        self._open_gates()
        self.bell.ring()

    def _open_gates(self) -> None:
        gates, self._gates = self._gates, []
        for gate in gates:
            gate.set()


class _Reading:
    """What both kinds of streams share: how the turn came out."""

    _turn: Turn | None = None
    _error: BaseException | None = None
    _is_over = _is_left = False

    @property
    def turn(self) -> Turn:
        """What `next_turn()` would have returned.

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

    def _raise_error(self) -> None:
        """The stream has told all there was; if the turn failed to be one, that is raised, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'over' if self._is_over else 'under way'}>"


class TurnStream(_Reading):
    """A turn while it happens: iterate its events, then see its `turn`. Made by `ToolLoopHandle.stream_turn`.

    What a sync tool or an observer sets in context variables stays in the turn: it runs in a copy of the context in
    which the first event was read.
    """

    def __init__(self, steps: Generator[None, None, Turn], outlet: Outlet) -> None:
        """`steps`: of the driver; `outlet`: where it tells."""
        self._steps = steps
        self._outlet = outlet
        self._context: contextvars.Context | None = None

    def __iter__(self) -> Iterator[WatchEvent]:
        return self

    def __next__(self) -> WatchEvent:
        """The next event.

        Raises:
            CallerError, StoreError: as `ToolLoopHandle.next_turn`.

        """
        self._outlet.watch.resume()
        while (event := self._outlet.next()) is None:
            if self._is_over or self._is_left:
                self._raise_error()
                raise StopIteration
            self._advance()
        self._outlet.watch.pause()
        return event

    def finish(self) -> Turn:
        """Read the rest, and give the turn."""
        for _ in self:
            pass
        return self.turn

    def _advance(self) -> None:
        if inspect.getgeneratorstate(self._steps) == inspect.GEN_RUNNING:
            raise IllegalCommand(
                "reading the stream: somebody else reads it right now; one reads, any may decide",
                state="streaming",
                asked="reading the stream",
                allowed=("decide()", "pending", "view()", "resume(Stop())"),
            )
        if self._context is None:
            # What observers and tools set in it must not leak to the reader between two pieces.
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
            if self._is_left:  # while this thread was at it
                self._close()

    def _close(self) -> None:
        """Nobody reads any more: what is under way is given up, as if the driver had been interrupted."""
        self._is_left = True
        self._outlet.close()
        if inspect.getgeneratorstate(self._steps) == inspect.GEN_RUNNING:
            return  # another thread reads right now, and closes it when it is back
        (self._context or contextvars.copy_context()).run(self._steps.close)


class AsyncTurnStream(_Reading):
    """The same for `AsyncToolLoopHandle`: `async for event in stream`."""

    def __init__(self, drive: Callable[[], Awaitable[Turn]], outlet: AsyncOutlet, group: Any) -> None:
        """`drive`: the driver; `outlet`: where it tells; `group`: the tasks of the stream."""
        self._drive = drive
        self._outlet = outlet
        self._group = group
        self._is_begun = False

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        """The next event. See `TurnStream`."""
        if not self._is_begun and not self._is_left:
            self._is_begun = True
            self._group.start_soon(self._run)
        self._outlet.watch.resume()
        event = await self._outlet.next(lambda: self._is_over or self._is_left)
        if event is None:
            self._raise_error()
            raise StopAsyncIteration
        self._outlet.watch.pause()
        return event

    async def finish(self) -> Turn:
        """Read the rest, and give the turn."""
        async for _ in self:
            pass
        return self.turn

    def _leave(self) -> None:
        """Nobody reads any more."""
        self._is_left = True
        self._outlet.close()

    def _wake(self) -> None:
        """End the reading, in whatever task that is; the driver stays where it is until the stream is left."""
        self._is_left = True
        self._outlet.bell.ring()

    async def _run(self) -> None:
        """Drive, in a task that lets nothing out but a cancellation."""
        import anyio.lowlevel  # noqa: PLC0415 - loaded already

        try:
            self._turn = await self._drive()
        except anyio.get_cancelled_exc_class() as error:
            await anyio.lowlevel.checkpoint_if_cancelled()
            self._error = error  # nobody cancelled it: a provider or a policy let out one of its own
        except GeneratorExit:
            raise  # the event loop is gone
        except BaseException as error:  # noqa: BLE001 - it is the reader's to raise, after all that was told
            self._error = error
        finally:
            self._is_over = True
            self._outlet.bell.ring()


def exhaust(steps: Generator[None, None, T], wait: Callable[[], None] | None = None) -> T:
    """What steps come to. `wait`: done at each of them."""
    try:
        while True:
            next(steps)
            if wait is not None:
                wait()
    except StopIteration as done:
        value: T = done.value
        return value
    except RuntimeError as error:
        # A `stop_when` may raise anything, and this is what Python makes of a StopIteration that leaves a generator.
        if isinstance(error.__cause__, StopIteration):
            raise error.__cause__ from None
        raise
    finally:
        steps.close()


def close(stream: object) -> None:
    """Hang up on a stream of a provider's, if it can be. What fails in that changes nothing of what was read."""
    try:
        getattr(stream, "close", _nothing)()
    except Exception:
        LOG.exception(_UNCLOSED)


async def aclose(stream: object) -> None:
    """The same for an async one."""
    if (closing := getattr(stream, "aclose", None)) is not None:
        try:
            await closing()
        except Exception:
            LOG.exception(_UNCLOSED)


_UNCLOSED = "the stream of a reply could not be closed"


def _nothing() -> None:
    """There is nothing to close."""
