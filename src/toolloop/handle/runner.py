"""The for-loop face: `ToolRunner` and `AsyncToolRunner`, the well-known iterators over a loop.

Both are a private handle and the steps of `running`; here they only ask, await, and hand over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Self

from toolloop.core.jsontext import JSON
from toolloop.handle.asynchronous import AsyncToolLoopHandle
from toolloop.handle.awaiting import await_each
from toolloop.handle.config import DEFAULT_CONFIG, LoopConfig, LoopContext
from toolloop.handle.judging import ask_each
from toolloop.handle.runner_streams import AsyncReplyStream, ReplyStream
from toolloop.handle.running import ShowingReplies, Stepping
from toolloop.handle.sync import ToolLoopHandle
from toolloop.handle.turns import Yielded
from toolloop.tools import ToolContext, ToolRegistry


class _Loop(ShowingReplies, ToolLoopHandle):
    """The handle under a `ToolRunner`."""


class _AsyncLoop(ShowingReplies, AsyncToolLoopHandle):
    """The handle under an `AsyncToolRunner`."""

    _called = "AsyncToolRunner(...)"


class ToolRunner(Stepping):
    """An iterator over the replies of the model: `for message in runner`.

    One step: a request goes out, and its reply is yielded. The body of the loop runs, and may read and change what is
    to come. When it is over the reply is appended to `params["messages"]`, unless the body changed something: then what
    is there counts. The calls with which this history ends, and which it does not answer, are run, and their results
    appended there. It ends with a reply that asks for no call and for no resumption.

    Args:
        provider: as for `ToolLoopHandle`.
        params: the keyword arguments of `client.messages.create`, `messages` included. If these end with calls that are
            not answered, those are run first.
        tools: as for `ToolLoopHandle`.
        config: limits and callables.
        context: an object for the tools, and the depth.
        stream: each step yields a stream of the reply instead; what the body leaves unread is read before the next one.
        ask: called with a `Yielded` when calls wait for a decision, and decides them through it. Without it, or if it
            leaves some undecided, `UndecidedCalls` is raised, and after `decide` the iteration goes on.

    Raises:
        InvalidHistory: the API would refuse the messages.
        BadTool, TypeError, ValueError: as for `ToolLoopHandle`.

    """

    _loop: _Loop
    _stream: ReplyStream | None = None

    def __init__(  # noqa: PLR0913 - the parts of a loop, all but two of them optional
        self,
        provider: Any,
        *,
        params: Mapping[str, Any],
        tools: Iterable[Any] | ToolRegistry = (),
        config: LoopConfig = DEFAULT_CONFIG,
        context: LoopContext | ToolContext | None = None,
        stream: bool = False,
        ask: Callable[[Yielded], object] | None = None,
    ) -> None:
        """Set the runner up; nothing is sent."""
        self._streams = bool(stream)
        self._start(partial(_Loop, provider), params, ask, tools=tools, config=config, context=context)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next reply, as plain JSON (`toolloop.providers.as_sdk` gives the SDK's object); or a stream of it.

        Raises:
            ModelError, ProtocolError: the request failed; iterating again makes it again. Nothing was consumed.
            UndecidedCalls: calls wait for a decision.
            InvalidHistory: the API would refuse the history; it stays to be mended with `set_messages_params`.

        """
        self._finish_stream()
        with self._at_work("the next step"):
            if not self._streams:
                reply = ask_each(self._to_reply())
            elif reply := ask_each(self._advance(stops=True)):
                reply = self._stream = ReplyStream(self, self._loop)
        if not reply:
            raise StopIteration
        return reply

    def until_done(self) -> dict[str, JSON] | None:
        """Iterate to the end, and give the last reply; None if there never was one."""
        for message in self:
            del message
        return self._last_reply()

    def generate_tool_response(self, retry: Iterable[str] = ()) -> dict[str, JSON] | None:
        """Run the calls with which the history ends, and give the user message that answers them; None: there are none.

        It is what the runner itself does next, and does it once: a call that has run is not run again. The history
        stays as it is; you may append the message, changed or not, or leave that to the runner.

        Args:
            retry: the ids of calls that are to be run again, and whose results are to be replaced.

        Raises:
            UndecidedCalls: calls wait for a decision.
            UnknownCall: a call to retry is not open.
            IllegalCommand: a call to retry never ran.

        """
        self._finish_stream()
        with self._at_work("generate_tool_response()"):
            message: dict[str, JSON] | None = ask_each(self._respond(retry))
            return message

    def close(self) -> None:
        """Hang up on a stream that is not read to its end: that request was not made. The runner stays usable.

        Raises:
            IllegalCommand: another thread is reading the stream. Let that one leave it, by an exception or at its end.

        """
        if self._stream is not None:
            with self._at_work("close()"):
                stream, self._stream = self._stream, None
                stream._hang_up()  # noqa: SLF001 - a stream is its runner's own

    def __enter__(self) -> Self:
        """Open what the tools open."""
        self._loop.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Hang up, and close what the tools opened."""
        try:
            self.close()
        finally:
            self._loop.__exit__(*error)

    def _finish_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream._finish()  # noqa: SLF001 - likewise


class AsyncToolRunner(Stepping):
    """The same under asyncio or trio: `async for message in runner`. See `ToolRunner`; `ask` may be async."""

    _loop: _AsyncLoop
    _stream: AsyncReplyStream | None = None

    def __init__(  # noqa: PLR0913 - the parts of a loop, all but two of them optional
        self,
        provider: Any,
        *,
        params: Mapping[str, Any],
        tools: Iterable[Any] | ToolRegistry = (),
        config: LoopConfig = DEFAULT_CONFIG,
        context: LoopContext | ToolContext | None = None,
        stream: bool = False,
        ask: Callable[[Yielded], object | Awaitable[object]] | None = None,
    ) -> None:
        """Set the runner up; nothing is sent."""
        self._streams = bool(stream)
        self._start(partial(_AsyncLoop, provider), params, ask, tools=tools, config=config, context=context)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """The next reply, or a stream of it. See `ToolRunner.__next__`."""
        await self._finish_stream()
        with self._at_work("the next step"):
            if not self._streams:
                reply = await await_each(self._to_reply())
            elif reply := await await_each(self._advance(stops=True)):
                reply = self._stream = AsyncReplyStream(self, self._loop)
        if not reply:
            raise StopAsyncIteration
        return reply

    async def until_done(self) -> dict[str, JSON] | None:
        """Iterate to the end, and give the last reply. See `ToolRunner.until_done`."""
        async for message in self:
            del message
        return self._last_reply()

    async def generate_tool_response(self, retry: Iterable[str] = ()) -> dict[str, JSON] | None:
        """Run the calls with which the history ends. See `ToolRunner.generate_tool_response`."""
        await self._finish_stream()
        with self._at_work("generate_tool_response()"):
            message: dict[str, JSON] | None = await await_each(self._respond(retry))
            return message

    async def aclose(self) -> None:
        """Hang up on a stream that is not read to its end. See `ToolRunner.close`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream._hang_up()  # noqa: SLF001 - a stream is its runner's own

    async def __aenter__(self) -> Self:
        """Open what the tools open."""
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Hang up, and close what the tools opened."""
        try:
            await self.aclose()
        finally:
            await self._loop.__aexit__(*error)

    async def _finish_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream._finish()  # noqa: SLF001 - likewise
