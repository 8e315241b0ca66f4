"""Requests answered by a client of the anthropic SDK, with its authentication, retries, headers and error classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.core.jsontext import plain
from toolloop.providers.calls import Bound, create_arguments, messages_of, post_arguments, takes_ready_body
from toolloop.providers.counting import count_arguments, count_in, count_post_arguments, read_count
from toolloop.providers.failures import outside_errors
from toolloop.providers.replies import built_reply, read_reply
from toolloop.providers.streaming import AsyncEventStream, EventStream, RawEvents, async_whole, whole

if TYPE_CHECKING:
    from toolloop.providers.protocol import Reply, Request


class AnthropicProvider:
    """A `Provider` over a client of the anthropic SDK.

    A plain `anthropic.Anthropic` gets the ready bytes of a request. A client with middleware, a subclass, and the
    clients for Bedrock, Vertex and other platforms get JSON values through their `messages.create`. Above the SDK's
    bound for unstreamed requests the reply is streamed underneath.

    Args:
        client: the client; `retries` and timeouts are its own.

    """

    def __init__(self, client: Any) -> None:
        """Keep the client; nothing is imported or sent."""
        self.client = client
        self._bound = Bound()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.client).__name__})"

    def send(self, request: Request) -> Reply:
        """Answer a request with the JSON of the API's message.

        Raises:
            ModelError: the request failed; its cause is the SDK's exception.
            ProtocolError: the reply made no sense.
            TypeError: `extra_body` is not JSON, or asks for a stream.

        """
        import anthropic  # noqa: PLC0415 - `import toolloop` must not pay for the SDK

        if self._bound.streams(self.client, request):
            return whole(self.stream(request))
        if not takes_ready_body(self.client, anthropic.Anthropic):
            return self._create(request)
        return self._post(post_arguments(self.client, request, stream=False))

    def stream(self, request: Request) -> EventStream:
        """Answer a request with the raw events of the reply's stream. Nothing is sent before the first is asked for.

        Raises:
            TypeError: `extra_body` is not JSON, or asks for a stream.

        """
        import anthropic  # noqa: PLC0415 - `import toolloop` must not pay for the SDK

        kind = anthropic.Stream[object]  # whose events are plain JSON
        if takes_ready_body(self.client, anthropic.Anthropic):
            posted = post_arguments(self.client, request, stream=True)
            return EventStream(lambda: self.client.post(cast_to=object, stream=True, stream_cls=kind, **posted))
        messages = messages_of(self.client, request)
        arguments = create_arguments(messages.create, request)

        def begin() -> Any:
            raw = messages.with_raw_response.create(stream=True, **arguments)
            # Middleware may answer with a message of its own making.
            return raw.parse(to=kind) if hasattr(raw, "http_response") else built_reply(plain(raw), None)

        return EventStream(begin)

    def count_tokens(self, request: Request) -> int:
        """Count the input tokens of a request, without sending it: `POST /v1/messages/count_tokens`.

        Of the request it takes what matters to that. It is not billed, and has a rate limit of its own.

        Raises:
            ModelError: the request failed; its cause is the SDK's exception.
            ProtocolError: the answer made no sense.
            TypeError: `extra_body` is not JSON.

        """
        import anthropic  # noqa: PLC0415 - `import toolloop` must not pay for the SDK
        import httpx2  # noqa: PLC0415 - likewise

        if takes_ready_body(self.client, anthropic.Anthropic):
            arguments = count_post_arguments(self.client, request)
            with outside_errors():
                response = self.client.post(cast_to=httpx2.Response, **arguments)
            return read_count(response)
        messages = messages_of(self.client, request)
        arguments = count_arguments(messages, request)
        with outside_errors():
            raw = messages.with_raw_response.count_tokens(**arguments)
        return read_count(raw.http_response) if hasattr(raw, "http_response") else count_in(plain(raw))

    def _post(self, arguments: dict[str, Any]) -> Reply:
        import httpx2  # noqa: PLC0415 - `import toolloop` must not pay for it

        with outside_errors():
            response = self.client.post(cast_to=httpx2.Response, **arguments)
        return read_reply(response)

    def _create(self, request: Request) -> Reply:
        messages = messages_of(self.client, request)
        arguments = create_arguments(messages.create, request)
        with outside_errors():
            raw = messages.with_raw_response.create(**arguments)
        # Middleware may answer with a message of its own making.
        return read_reply(raw.http_response) if hasattr(raw, "http_response") else built_reply(plain(raw), None)


class AsyncAnthropicProvider:
    """An `AsyncProvider` over an async client of the anthropic SDK; else as `AnthropicProvider`.

    Args:
        client: the client; retries and timeouts are its own.

    """

    def __init__(self, client: Any) -> None:
        """Keep the client; nothing is imported or sent."""
        self.client = client
        self._bound = Bound()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.client).__name__})"

    async def send(self, request: Request) -> Reply:
        """Like `AnthropicProvider.send`."""
        import anthropic  # noqa: PLC0415 - `import toolloop` must not pay for the SDK

        if self._bound.streams(self.client, request):
            return await async_whole(self.stream(request))
        if not takes_ready_body(self.client, anthropic.AsyncAnthropic):
            return await self._create(request)
        return await self._post(post_arguments(self.client, request, stream=False))

    def stream(self, request: Request) -> AsyncEventStream:
        """Like `AnthropicProvider.stream`; it is not awaited itself."""
        import anthropic  # noqa: PLC0415 - `import toolloop` must not pay for the SDK

        kind = anthropic.AsyncStream[object]  # whose events are plain JSON
        if takes_ready_body(self.client, anthropic.AsyncAnthropic):
            posted = post_arguments(self.client, request, stream=True)

            async def post() -> RawEvents:
                return RawEvents(await self.client.post(cast_to=object, stream=True, stream_cls=kind, **posted))

            return AsyncEventStream(post)
        messages = messages_of(self.client, request)
        arguments = create_arguments(messages.create, request)

        async def begin() -> Any:
            raw = await messages.with_raw_response.create(stream=True, **arguments)
            # Middleware may answer with a message of its own making.
            return await raw.parse(to=kind) if hasattr(raw, "http_response") else built_reply(plain(raw), None)

        return AsyncEventStream(begin)

    async def count_tokens(self, request: Request) -> int:
        """Like `AnthropicProvider.count_tokens`."""
        import anthropic  # noqa: PLC0415 - `import toolloop` must not pay for the SDK
        import httpx2  # noqa: PLC0415 - likewise

        if takes_ready_body(self.client, anthropic.AsyncAnthropic):
            arguments = count_post_arguments(self.client, request)
            with outside_errors():
                response = await self.client.post(cast_to=httpx2.Response, **arguments)
            return read_count(response)
        messages = messages_of(self.client, request)
        arguments = count_arguments(messages, request)
        with outside_errors():
            raw = await messages.with_raw_response.count_tokens(**arguments)
        return read_count(raw.http_response) if hasattr(raw, "http_response") else count_in(plain(raw))

    async def _post(self, arguments: dict[str, Any]) -> Reply:
        import httpx2  # noqa: PLC0415 - `import toolloop` must not pay for it

        with outside_errors():
            response = await self.client.post(cast_to=httpx2.Response, **arguments)
        return read_reply(response)

    async def _create(self, request: Request) -> Reply:
        messages = messages_of(self.client, request)
        arguments = create_arguments(messages.create, request)
        with outside_errors():
            raw = await messages.with_raw_response.create(**arguments)
        # Middleware may answer with a message of its own making.
        return read_reply(raw.http_response) if hasattr(raw, "http_response") else built_reply(plain(raw), None)
