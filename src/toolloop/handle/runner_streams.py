"""What a streaming runner yields: one reply while it comes in."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Self

from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import JSON
from toolloop.handle.running import Stepping
from toolloop.handle.watching import WatchEvent

_HUNG_UP = "the runner hung up on this stream before its end; iterate the runner again for another one"


class _Reply:
    """What both kinds share: whose reply it is, and whether it is in."""

    def __init__(self, runner: Stepping, loop: Any) -> None:
        """Made by a runner; nothing is sent before it is read."""
        self._runner = runner
        self._loop = loop
        self._is_over = self._is_begun = False
        self._final: dict[str, JSON] | None = None

    def _is_in(self) -> bool:
        """Whether nothing is left to be read, because the reply came before: a `stop_when` raised then."""
        if not self._is_begun and self._runner._has_reply():  # noqa: SLF001 - a stream is its runner's own
            self._is_over, self._final = True, self._runner._show()  # noqa: SLF001 - likewise
        return self._is_over

    def _came(self, turn: Any) -> None:
        """The turn is over: show what came of it."""
        self._final = self._runner._came(turn)  # noqa: SLF001 - likewise

    def _message(self) -> dict[str, JSON]:
        if self._final is None:
            raise IllegalCommand(_HUNG_UP, state="over", asked="get_final_message()", allowed=())
        return self._final

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'over' if self._is_over else 'under way'}>"


class ReplyStream(_Reply):
    """A reply while it comes in: iterate its events, those of `ToolLoopHandle.stream_turn`.

    In a `with` statement, leaving it reads the rest, or hangs up if an exception is raised.
    """

    _turning: AbstractContextManager[Any]
    _events: Any

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
                if not self._is_begun:
                    self._turning = self._loop.stream_turn()
                    self._events, self._is_begun = self._turning.__enter__(), True
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
        """Read the rest, and give the whole reply."""
        self._finish()
        return self._message()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Read the rest; or hang up, if an exception is raised."""
        if error[0] is None:
            self._finish()
        else:
            self._hang_up(*error)

    def _finish(self) -> None:
        for _ in self:
            pass

    def _hang_up(self, *error: Any) -> None:
        over, self._is_over = self._is_over, True
        if self._is_begun and not over:
            self._turning.__exit__(*(error or (None, None, None)))


class AsyncReplyStream(_Reply):
    """The same for `AsyncToolRunner`: `async for event in stream`.

    Who may leave before the end, or raise an exception, reads it inside of `async with stream:`. The tasks of a reply
    that is under way are ended there.
    """

    _turning: AbstractAsyncContextManager[Any]
    _events: Any

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        """The next event. See `ReplyStream`."""
        if self._is_over or self._is_in():
            raise StopAsyncIteration
        with self._runner._at_work("reading the stream"):  # noqa: SLF001 - a stream is its runner's own
            try:
                if not self._is_begun:
                    self._turning = self._loop.stream_turn()
                    self._events, self._is_begun = await self._turning.__aenter__(), True
                event: WatchEvent | None = await anext(self._events, None)
            except BaseException:
                await self._hang_up(*sys.exc_info())
                raise
            if event is None:
                await self._hang_up()
                self._came(self._events.turn)
                raise StopAsyncIteration
        return event

    async def get_final_message(self) -> dict[str, JSON]:
        """Read the rest, and give the whole reply."""
        await self._finish()
        return self._message()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Read the rest; or hang up, if an exception is raised."""
        if error[0] is None:
            await self._finish()
        else:
            await self._hang_up(*error)

    async def _finish(self) -> None:
        async for _ in self:
            pass

    async def _hang_up(self, *error: Any) -> None:
        over, self._is_over = self._is_over, True
        if self._is_begun and not over:
            await self._turning.__aexit__(*(error or (None, None, None)))
