"""Streamed turns in the tests of all handles: what is read, with every driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from toolloop import AsyncToolLoopHandle, Completed, Error, ToolLoopHandle, Yielded
from toolloop.events import TextDelta, WatchEvent

Handle = ToolLoopHandle | AsyncToolLoopHandle
Turn = Yielded | Completed | Error


class Reader:
    """Reads a stream of either kind."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    async def next(self) -> WatchEvent | None:
        """The next event; None at the end."""
        if hasattr(self.stream, "__anext__"):
            return await anext(self.stream, None)
        return next(self.stream, None)

    async def read_until(self, wanted: type[WatchEvent] | Callable[[WatchEvent], bool]) -> list[WatchEvent]:
        """What comes up to an event, with it."""
        seen: list[WatchEvent] = []
        while (event := await self.next()) is not None:
            seen.append(event)
            if isinstance(event, wanted) if isinstance(wanted, type) else wanted(event):
                return seen
        raise AssertionError(f"no such event among {seen}")

    async def rest(self) -> list[WatchEvent]:
        """All that is left."""
        seen: list[WatchEvent] = []
        while (event := await self.next()) is not None:
            seen.append(event)
        return seen

    async def finish(self) -> Turn:
        """The turn, without looking."""
        finished = self.stream.finish()
        turn: Turn = await finished if hasattr(finished, "__await__") else finished
        return turn

    @property
    def turn(self) -> Turn:
        turn: Turn = self.stream.turn
        return turn


@asynccontextmanager
async def read_turn(handle: Handle) -> AsyncIterator[Reader]:
    """One streamed turn."""
    if isinstance(handle, ToolLoopHandle):
        with handle.stream_turn() as stream:
            yield Reader(stream)
    else:
        async with handle.stream_turn() as stream:
            yield Reader(stream)


async def read(handle: Handle) -> tuple[list[WatchEvent], Turn]:
    """One streamed turn, read to its end."""
    async with read_turn(handle) as reader:
        seen = await reader.rest()
        return seen, reader.turn


def text_in(events: list[WatchEvent]) -> str:
    """The text that was read."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def kinds(events: list[WatchEvent]) -> list[str]:
    """The kinds of the events, runs of equal ones as one."""
    names = [type(event).__name__ for event in events]
    return [name for name, before in zip(names, [None, *names], strict=False) if name != before]
