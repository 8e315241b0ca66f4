"""Read the raw events of a reply's stream from a client of the anthropic SDK."""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from toolloop.errors import OutsideError
from toolloop.machine.values.jsontext import JSON
from toolloop.providers.accumulate import Accumulator
from toolloop.providers.protocol import Reply
from toolloop.providers.replies import built_reply, parse_response, request_id_of
from toolloop.providers.sdk_errors import outside_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping

    import httpx2

# The content types of the API and of Bedrock. Any other body is a proxy's page, or a message.
_EVENT_STREAMS = ("text/event-stream", "application/vnd.amazon.eventstream")

_END = object()


class EventStream:
    """The raw events of a reply, as JSON. If the server does not stream, the message itself is the only item.

    The request is sent when the first item is read, and nothing is read ahead. Read the stream to its end, or close it.

    Attributes:
        request_id: the API's request id once the reply has begun; else None.

    """

    def __init__(self, begin: Callable[[], Any]) -> None:
        """Store `begin`, which sends the request and returns the SDK's stream, or a whole reply."""
        self.request_id: str | None = None
        self._events = self._read(begin)

    def __iter__(self) -> Iterator[Mapping[str, JSON]]:
        return self

    def __next__(self) -> Mapping[str, JSON]:
        """Return the next event.

        Raises:
            ModelError: the request or the stream failed; its cause is the SDK's exception.
            ProtocolError: the reply is neither a stream of JSON events nor a message.

        """
        return next(self._events)

    def close(self) -> None:
        """Close the connection. Closing twice has no effect."""
        self._events.close()

    def _read(self, begin: Callable[[], Any]) -> Generator[Mapping[str, JSON], None, None]:
        with outside_errors():
            stream = begin()
            if isinstance(stream, Reply):
                yield stream
                return
            with closing(stream):
                response = stream.response
                self.request_id = request_id_of(response)
                if _is_streamed(response):
                    yield from stream
                else:
                    response.read()
                    yield parse_response(response)


class AsyncEventStream:
    """`EventStream` for `async for`. Read it to its end, or await `aclose`."""

    def __init__(self, begin: Callable[[], Awaitable[Any]]) -> None:
        """Store `begin`, a coroutine function; see `EventStream`."""
        self.request_id: str | None = None
        self._begin = begin
        self._stream: Any = None
        self._is_over = False

    def __aiter__(self) -> AsyncIterator[Mapping[str, JSON]]:
        return self

    async def __anext__(self) -> Mapping[str, JSON]:
        """Return the next event. It raises like `EventStream`."""
        if self._is_over:
            raise StopAsyncIteration
        try:
            with outside_errors():
                event = await (self._first() if self._stream is None else _next(self._stream))
        except BaseException:
            await self.aclose()
            raise
        if event is _END:
            self._is_over = True
            raise StopAsyncIteration
        return event  # type: ignore[no-any-return] # a body is JSON

    async def aclose(self) -> None:
        """Close the connection. Closing twice has no effect."""
        import anyio  # noqa: PLC0415 - `import toolloop` must not load it

        self._is_over = True
        stream, self._stream = self._stream, None
        if stream is None:
            return
        # The SDK reads through nested async generators. The garbage collector finishes generators that were not read to
        # the end, and trio warns about each. So we continue to read, and cancel at the next wait. Then the generators
        # end from the innermost outwards, and the connection is closed.
        with anyio.CancelScope(shield=True) as scope, suppress(Exception):
            scope.cancel()
            while await _next(stream) is not _END:
                pass
        await stream.close()  # for the SDK's tracing

    async def _first(self) -> Any:
        begun = await self._begin()
        if isinstance(begun, Reply):
            self._is_over = True
            return begun
        response = begun.response
        self.request_id = request_id_of(response)
        if _is_streamed(response):
            self._stream = begun
            return await _next(begun)
        await response.aread()
        self._is_over = True
        return parse_response(response)


class RawEvents:
    """The raw events of an async stream of the SDK, as JSON.

    The SDK's own iterator nests several async generators, and an error in the stream leaves the inner ones unfinished.
    So this class reads the SDK's `raw_events`, raises the same error, and skips pings.
    """

    def __init__(self, stream: Any) -> None:
        """Store an unread `anthropic.AsyncStream`."""
        self.response: httpx2.Response = stream.response
        self._events = type(stream).raw_events(self.response)

    async def __anext__(self) -> Any:
        """Return the next event, or raise the SDK's error."""
        import anthropic  # noqa: PLC0415 - loaded already

        while True:
            event = await anext(self._events)
            if event.event == "error":
                body: Any = event.data
                with suppress(ValueError):
                    body = event.json()
                raise anthropic.APIStatusError(f"{body}", response=self.response, body=body)
            if event.event not in {None, "ping"} and event.data:
                return event.json()

    async def close(self) -> None:
        """Close the connection."""
        await self.response.aclose()


def whole(events: EventStream) -> Reply:
    """Read a stream to its end and return the reply.

    Raises:
        ModelError, ProtocolError: the stream failed or is invalid; `partial_text` has the text so far.

    """
    accumulator = Accumulator()
    with _partial_text(accumulator), closing(events):
        for event in events:
            accumulator.add(event)
        return built_reply(accumulator.message(), events.request_id)


async def async_whole(events: AsyncEventStream) -> Reply:
    """Read a stream to its end and return the reply. See `whole`."""
    accumulator = Accumulator()
    with _partial_text(accumulator):
        async for event in events:
            accumulator.add(event)
        return built_reply(accumulator.message(), events.request_id)


@contextmanager
def _partial_text(accumulator: Accumulator) -> Generator[None]:
    try:
        yield
    except OutsideError as error:
        error.partial_text = accumulator.partial_text or None
        raise


def _is_streamed(response: httpx2.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.lower().startswith(_EVENT_STREAMS)


async def _next(stream: Any) -> Any:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return _END
