"""A reply as the raw events of its stream, read from a client of the anthropic SDK as its reader asks for them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolloop.core.errors import OutsideError
from toolloop.core.jsontext import JSON
from toolloop.providers.accumulate import Accumulator
from toolloop.providers.failures import outside_errors
from toolloop.providers.protocol import Reply
from toolloop.providers.replies import built_reply, read_reply, request_id_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    import httpx2

# The API's, and Bedrock's. What has another type is the page of a proxy, or a message after all.
_EVENT_STREAMS = ("text/event-stream", "application/vnd.amazon.eventstream")

_END = object()


class EventStream:
    """The raw events of a reply, as JSON; from a server that does not stream, the message itself as the only item.

    Nothing is sent before the first item is asked for, and nothing is read ahead. Read it to its end, or `close` it.

    Attributes:
        request_id: the API's id of the request, once the answer has begun.

    """

    def __init__(self, begin: Callable[[], Any]) -> None:
        """`begin`: sends the request, and gives the SDK's stream, or a reply that is there already."""
        self._begin = begin
        self._stream: Any = None
        self._is_over = False
        self.request_id: str | None = None

    def __iter__(self) -> Iterator[Mapping[str, JSON]]:
        return self

    def __next__(self) -> Mapping[str, JSON]:
        """The next event.

        Raises:
            ModelError: the request failed, or its answer broke off; its cause is the SDK's exception.
            ProtocolError: what came makes no sense.

        """
        if self._is_over:
            raise StopIteration
        try:
            with outside_errors():
                event: Any = self._first() if self._stream is None else next(self._stream, _END)
        except BaseException:
            self.close()
            raise
        if event is _END:
            self.close()
            raise StopIteration
        return event  # type: ignore[no-any-return] # a body is JSON

    def close(self) -> None:
        """Hang up, unless it is over. Closing twice does nothing."""
        self._is_over = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _first(self) -> Any:
        begun = self._begin()
        if isinstance(begun, Reply):
            self._is_over = True
            return begun
        self._stream, response = begun, begun.response
        self.request_id = request_id_of(response)
        if _is_streamed(response):
            return next(begun, _END)
        response.read()
        self._is_over = True
        return read_reply(response)


class AsyncEventStream:
    """The same for `async for`. Read it to its end, or `await` its `aclose`.

    Attributes:
        request_id: the API's id of the request, once the answer has begun.

    """

    def __init__(self, begin: Callable[[], Awaitable[Any]]) -> None:
        """`begin`: as for `EventStream`."""
        self._begin = begin
        self._stream: Any = None
        self._is_over = False
        self.request_id: str | None = None

    def __aiter__(self) -> AsyncIterator[Mapping[str, JSON]]:
        return self

    async def __anext__(self) -> Mapping[str, JSON]:
        """The next event. Raises as `EventStream` does."""
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
        """Hang up, unless it is over. Closing twice does nothing."""
        import anyio  # noqa: PLC0415 - loaded already, where there is something to close

        self._is_over = True
        stream, self._stream = self._stream, None
        if stream is None:
            return
        # The SDK reads through async generators, one inside the other. Those that are left half-way are finished when
        # the garbage is collected, and trio complains of each. So they are asked for more, and cancelled where they
        # wait for it: then they end from the innermost outwards, and the connection is closed. A caller that was
        # cancelled itself hears of that later.
        with anyio.CancelScope(shield=True) as scope, suppress(Exception):
            scope.cancel()
            while await _next(stream) is not _END:
                pass
        await stream.close()  # all is closed; that is for the SDK's tracing

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
        return read_reply(response)


class RawEvents:
    """The raw events of an async stream of the SDK, as JSON, one by one.

    The SDK reads them through several async generators. Where it raises for an error in mid-stream it leaves the inner
    ones half-way, and nobody could finish them. So they are taken as its `raw_events` gives them, with what it makes of
    them itself: the same error, and nothing of pings.

    Attributes:
        response: the HTTP response.

    """

    def __init__(self, stream: Any) -> None:
        """`stream`: an `anthropic.AsyncStream` of which nothing was read."""
        self.response: httpx2.Response = stream.response
        self._events = type(stream).raw_events(self.response)

    async def __anext__(self) -> Any:
        """The next event.

        Raises:
            APIStatusError: the API told of an error.
            JSONDecodeError: an event is not JSON.

        """
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
        """Close the connection, unless all was read."""
        await self.response.aclose()


def whole(events: EventStream) -> Reply:
    """The reply that a stream amounts to.

    Raises:
        ModelError, ProtocolError: as `EventStream` and `Accumulator.message`, with the text as far as it came.

    """
    accumulator = Accumulator()
    try:
        for event in events:
            accumulator.add(event)
        return built_reply(accumulator.message(), events.request_id)
    except OutsideError as error:
        error.partial_text = accumulator.partial_text or None
        raise
    finally:
        events.close()


async def async_whole(events: AsyncEventStream) -> Reply:
    """Like `whole`."""
    accumulator = Accumulator()
    try:
        async for event in events:
            accumulator.add(event)
        return built_reply(accumulator.message(), events.request_id)
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
