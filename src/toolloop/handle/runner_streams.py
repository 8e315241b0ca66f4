"""What a streaming runner yields: one reply while it comes in."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import JSON
from toolloop.core.states import Finished
from toolloop.handle.running import Stepping
from toolloop.handle.watching import WatchEvent

_UNENDED = (
    "get_final_message(): this stream did not come to its end, for its request failed or it was left; iterate the "
    "runner again for another one"
)
_ENDED = (
    "get_final_message(): there is no message, for the loop ended before this reply was in; into_result().termination "
    "says why"
)
_BARE = (
    "reading the stream: events are read inside of `async with stream:`, where the tasks of the reply end. "
    "get_final_message() needs none"
)


class _Reply:
    """What both kinds share: whose reply it is, and whether it is in."""

    def __init__(self, runner: Stepping, loop: Any) -> None:
        """Made by a runner; nothing is sent before it is read."""
        self._runner = runner
        self._loop = loop
        self._is_over = False
        self._turning: Any = None  # what the events are read in, while it is open
        self._events: Any = None
        self._is_sent = False
        self._final: dict[str, JSON] | None = None
        self._has_ended = False  # the loop did, and no reply was in

    def _is_in(self) -> bool:
        """Whether nothing is left to be read, because the reply came before: a `stop_when` raised then."""
        if self._events is None and self._runner._has_reply():  # noqa: SLF001 - a stream is its runner's own
            self._is_over, self._final = True, self._runner._show()  # noqa: SLF001 - likewise
        return self._is_over

    def _sends(self) -> None:
        """To read is to send the request, with the parameters as they are now."""
        if not self._is_sent:
            self._is_sent = True
            self._runner._is_tuned = False  # noqa: SLF001 - likewise

    def _came(self, turn: Any) -> None:
        """The turn is over: show what came of it."""
        self._final = self._runner._came(turn)  # noqa: SLF001 - likewise
        self._has_ended = self._final is None and isinstance(self._loop.state, Finished)

    def _message(self) -> dict[str, JSON]:
        if self._final is None:
            if self._has_ended:
                raise _not_so(_ENDED, "get_final_message()", "into_result()")
            raise _not_so(_UNENDED, "get_final_message()", "iterating the runner")
        return self._final

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'over' if self._is_over else 'under way'}>"


class ReplyStream(_Reply):
    """A reply while it comes in: iterate its events, those of `ToolLoopHandle.stream_turn`.

    In a `with` statement, leaving it reads the rest, or hangs up if an exception is raised.
    """

    def __iter__(self) -> Iterator[WatchEvent]:
        return self

    def __next__(self) -> WatchEvent:
        """The next event.

        Raises:
            ModelError, ProtocolError: the request failed, or broke off.

        """
        if self._is_over or self._is_in():
            raise StopIteration
        with self._runner._at_work("reading the stream"):  # noqa: SLF001 - a stream is its runner's own
            try:
                self._begin()
                self._sends()
                event: WatchEvent | None = next(self._events, None)
            except BaseException:
                self._hang_up(*sys.exc_info())
                raise
            if event is None:
                self._hang_up()
                self._came(self._events.turn)
                raise StopIteration
        return event

    def get_final_message(self) -> dict[str, JSON]:
        """Read the rest, and give the whole reply.

        Raises:
            ModelError, ProtocolError: as reading.
            IllegalCommand: the stream was left before its end, its request has failed, or the loop ended meanwhile.

        """
        self._finish()
        return self._message()

    def __enter__(self) -> Self:
        """Begin; nothing is sent by that."""
        if not (self._is_over or self._is_in()):
            self._begin()
        return self

    def __exit__(self, *error: object) -> None:
        """Read the rest; or hang up, if an exception is raised."""
        if error[0] is None:
            self._finish()
        else:
            self._hang_up(*error)

    def _begin(self) -> None:
        if self._events is None:
            self._turning = self._loop.stream_turn()
            self._events = self._turning.__enter__()

    def _finish(self) -> None:
        for _ in self:
            pass

    def _hang_up(self, *error: Any) -> None:
        self._is_over, turning = True, self._turning
        self._turning = None
        if turning is not None:
            turning.__exit__(*(error or (None, None, None)))


class AsyncReplyStream(_Reply):
    """The same for `AsyncToolRunner`: `async with stream:`, and in it `async for event in stream`.

    The events are read in there alone, for the tasks of a reply that is under way are ended where it is left. Leaving
    it reads the rest, or hangs up if an exception is raised. `get_final_message()` needs no such block.
    """

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        """The next event.

        Raises:
            ModelError, ProtocolError: the request failed, or broke off.
            IllegalCommand: it is read outside of `async with stream:`.

        """
        if self._is_over or self._is_in():
            raise StopAsyncIteration
        if self._turning is None:
            raise _not_so(_BARE, "reading the stream", "async with stream", "get_final_message()")
        with self._runner._at_work("reading the stream"):  # noqa: SLF001 - a stream is its runner's own
            self._sends()
            try:
                event: WatchEvent | None = await anext(self._events, None)
            except Exception:
                self._is_over = True
                raise
            if self._is_over:  # the runner was closed meanwhile
                raise StopAsyncIteration
            if event is None:
                self._is_over = True
                self._came(self._events.turn)
                raise StopAsyncIteration
        return event

    async def get_final_message(self) -> dict[str, JSON]:
        """Read the rest, and give the whole reply. See `ReplyStream.get_final_message`."""
        await self._finish()
        return self._message()

    async def __aenter__(self) -> Self:
        """Begin; nothing is sent by that.

        Raises:
            IllegalCommand: somebody is in it already.

        """
        if self._turning is not None:
            raise _not_so("`async with stream:` is open already; read in there", "async with stream", "reading it")
        if not (self._is_over or self._is_in()):
            turning = self._loop.stream_turn()
            self._events = await turning.__aenter__()
            self._turning = turning
        return self

    async def __aexit__(self, *error: object) -> None:
        """Read the rest; or hang up, if an exception is raised."""
        if self._turning is None:
            return
        try:
            if error[0] is None:
                await self._finish()
        except BaseException:
            await self._leave(*sys.exc_info())
            raise
        await self._leave(*error)

    async def _finish(self) -> None:
        if self._turning is None:
            async with self:  # to leave it is to read it
                return
        async for _ in self:
            pass

    async def _leave(self, *error: Any) -> None:
        self._is_over, turning = True, self._turning
        self._turning = None
        await turning.__aexit__(*error)

    async def _hang_up(self) -> None:
        """The runner is closed. What is under way is given up where the `async with` statement is left."""
        self._is_over = True
        if self._turning is not None:
            self._events._wake()  # noqa: SLF001 - a stream is its handle's own; another task may wait for an event


def _not_so(text: str, asked: str, *allowed: str) -> IllegalCommand:
    return IllegalCommand(text, state="streaming", asked=asked, allowed=allowed)
