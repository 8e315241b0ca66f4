"""The items of a streaming runner: one reply while it streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from functools import partial
from typing import Any, Self

from toolloop._drivers.streaming import AsyncTurnStream, AsyncUnread, TurnStream, Unread
from toolloop._engine.operations import exhaust
from toolloop._public import set_module
from toolloop._runner.steps import RunnerSteps, runner_refusal
from toolloop.events import WatchEvent
from toolloop.machine.record.loop import Finished
from toolloop.machine.values.jsontext import JSON

_UNENDED = (
    "get_final_message(): this stream is incomplete: its request failed, or it was left early. Iterate the runner "
    "again for a new stream"
)
_ENDED = (
    "get_final_message(): the loop ended before this reply was complete. See into_result().termination for the reason"
)
_OUTSIDE = (
    "reading the stream: events can be read only inside `async with stream:`. Enter it first, or use "
    "get_final_message()"
)
_READING = "reading the stream"


def drive(steps: RunnerSteps) -> None:
    """Drive a runner until it rests."""
    exhaust(_drive_steps(steps))


async def drive_async(steps: RunnerSteps, unread: AsyncUnread | None = None) -> Any:
    """Drive an async runner until it rests. `unread` collects the events for a reader."""
    import anyio.lowlevel  # noqa: PLC0415 - imported when it is first needed

    await anyio.lowlevel.checkpoint()  # other tasks can run, even if nothing here ever waits
    with steps.assembly.driving.turn(unread):
        return await steps.assembly.driver.drive(steps.rests, unread)


def _drive_steps(steps: RunnerSteps, unread: Unread | None = None) -> Generator[None, None, Any]:
    with steps.assembly.driving.turn(unread):
        return (yield from steps.assembly.driver.drive(steps.rests, unread))


async def _no_store() -> None:
    """Store nothing: a runner has no store."""


class _Reply:
    """The base class of both streams."""

    def __init__(self, steps: RunnerSteps) -> None:
        """Made by a runner; nothing is sent before it is read."""
        self._steps = steps
        self._is_over = False
        self._final: dict[str, JSON] | None = None
        if steps.has_reply():  # the reply is complete, but `stop_when` raised after it
            self._show()

    def _show(self) -> None:
        """End the stream: show the reply, unless the runner was closed."""
        if self._is_over:
            return
        self._is_over = True
        self._steps.raise_failure()
        if self._steps.has_reply():
            self._final = self._steps.show()

    def _message(self) -> dict[str, JSON]:
        if self._final is not None:
            return self._final
        if isinstance(self._steps.loop.phase, Finished):
            raise runner_refusal(_ENDED, "streaming", "get_final_message()", "into_result()")
        raise runner_refusal(_UNENDED, "streaming", "get_final_message()", "iterating the runner")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'over' if self._is_over else 'in progress'}>"


@set_module("toolloop.types")
class ReplyStream(_Reply):
    """A reply while it streams. Iterate its events, which are those of `ToolLoopHandle.stream_turn`.

    As a context manager, it reads the rest on exit, or cancels the request if an exception was raised.
    """

    def __init__(self, steps: RunnerSteps) -> None:
        """Made by a runner; nothing is sent before it is read."""
        super().__init__(steps)
        unread = Unread(steps.assembly.driver.notifier)
        timer, late = steps.assembly.engine.timer, steps.assembly.late
        self._events = TurnStream(_drive_steps(steps, unread), unread, timer, late)

    def __iter__(self) -> Iterator[WatchEvent]:
        return self

    def __next__(self) -> WatchEvent:
        """The next event.

        Raises:
            ModelError, ProtocolError: the request failed, or broke off.

        """
        if self._is_over:
            raise StopIteration
        with self._steps.at_work(_READING):
            self._steps.send()
            try:
                event = next(self._events, None)
            except BaseException:
                self.cancel()
                raise
            if event is None:
                self._show()
                raise StopIteration
        return event

    def get_final_message(self) -> dict[str, JSON]:
        """Read the rest, and return the whole reply.

        Raises:
            ModelError, ProtocolError: as for reading events.
            IllegalCommand: the stream was left early, its request failed, or the loop ended meanwhile.

        """
        self.finish()
        return self._message()

    def finish(self) -> None:
        """Read the rest."""
        for _ in self:
            pass

    def cancel(self) -> None:
        """Cancel the request, if it is in progress."""
        self._is_over = True
        self._events.leave()

    def __enter__(self) -> Self:
        """Begin; nothing is sent by that."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Read the rest; or hang up, if an exception is raised."""
        if kind is None:
            self.finish()
        else:
            self._is_over = True
            self._events.__exit__(kind)


@set_module("toolloop.types")
class AsyncReplyStream(_Reply):
    """`ReplyStream` for `AsyncToolRunner`: `async with stream:`, and inside it `async for event in stream`.

    Events can be read only inside the `async with` block, because its end also ends the tasks of the reply. Leaving the
    block reads the rest, or cancels the request if an exception was raised. `get_final_message()` needs no block.
    """

    def __init__(self, steps: RunnerSteps) -> None:
        """Made by a runner; nothing is sent before it is read."""
        super().__init__(steps)
        unread = AsyncUnread()
        self._events = AsyncTurnStream(
            partial(drive_async, steps, unread), unread, steps.assembly.engine.timer, _no_store
        )
        self._is_open = False  # whether it is inside its `async with` block

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        """The next event.

        Raises:
            ModelError, ProtocolError: the request failed, or broke off.
            IllegalCommand: the stream is read outside `async with stream:`.

        """
        if self._is_over:
            raise StopAsyncIteration
        if not self._is_open:
            raise runner_refusal(_OUTSIDE, "streaming", _READING, "async with stream", "get_final_message()")
        with self._steps.at_work(_READING):
            self._steps.send()
            try:
                event = await anext(self._events, None)
            except Exception:
                self._is_over = True
                raise
            if event is None:
                self._show()
                raise StopAsyncIteration
        return event

    async def get_final_message(self) -> dict[str, JSON]:
        """Read the rest, and return the whole reply. See `ReplyStream.get_final_message`."""
        await self.finish()
        return self._message()

    async def finish(self) -> None:
        """Read the rest."""
        if not self._is_open:
            async with self:  # leaving the block reads the rest
                return
        async for _ in self:
            pass

    def cancel(self) -> None:
        """End the reading, in any task. The request is cancelled when the `async with` block is left."""
        self._is_over = True
        self._events.wake()

    async def __aenter__(self) -> Self:
        """Begin; nothing is sent by that.

        Raises:
            IllegalCommand: the block is already open.

        """
        if self._is_open:
            text = "`async with stream:` is already open. Read the events there"
            raise runner_refusal(text, "streaming", "async with stream", "reading it")
        self._is_open = not self._is_over
        return self

    async def __aexit__(self, *error: object) -> None:
        """Read the rest; or hang up, if an exception is raised."""
        if not self._is_open:
            return
        try:
            if error[0] is None:
                await self.finish()
        finally:
            self._is_over = True
            await self._events.leave()
            self._is_open = False
