"""Providers that use clients of the anthropic SDK, with its authentication, retries and headers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from attrs import field, frozen
from typing_extensions import TypeAliasType

from toolloop.machine.values.jsontext import describe_type, to_plain
from toolloop.providers.message_threads import sets_betas
from toolloop.providers.replies import built_reply, parse_response
from toolloop.providers.sdk_arguments import create_arguments, must_stream, options_of, post_arguments
from toolloop.providers.sdk_errors import outside_errors
from toolloop.providers.streaming import AsyncEventStream, EventStream, RawEvents, async_whole, whole

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic
    from anthropic.lib.bedrock import (
        AnthropicBedrock,
        AnthropicBedrockMantle,
        AsyncAnthropicBedrock,
        AsyncAnthropicBedrockMantle,
    )
    from anthropic.lib.vertex import AnthropicVertex, AsyncAnthropicVertex

    from toolloop.providers.protocol import AsyncProvider, Provider, Reply, Request

# The clients for AWS, Foundry and Google Cloud are subclasses. The values are strings, so that the SDK is not imported.
SdkClient = TypeAliasType("SdkClient", "Anthropic | AnthropicBedrock | AnthropicBedrockMantle | AnthropicVertex")
AsyncSdkClient = TypeAliasType(
    "AsyncSdkClient", "AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicBedrockMantle | AsyncAnthropicVertex"
)
# `Provider | SdkClient` in the sync class of a pair, `AsyncProvider | AsyncSdkClient` in the async one.
ProviderOrClient = TypeVar("ProviderOrClient")


@frozen(eq=False)
class AnthropicProvider:
    """A `Provider` that uses a client of the anthropic SDK.

    A plain `anthropic.Anthropic` posts pre-serialized bytes. A client with middleware, a subclass, and the clients for
    Bedrock, Vertex and other platforms get JSON values through their `messages.create`. If the SDK would refuse to send
    a request without streaming, `send` streams the reply internally.

    Args:
        client: the client; its retries and timeouts apply.

    """

    client: Any = field(repr=lambda client: type(client).__name__)

    @property
    def takes_threads(self) -> bool:
        """Whether requests may use a message thread: the client posts pre-serialized bytes and sets no betas."""
        import anthropic  # noqa: PLC0415 - `import toolloop` must not load the SDK

        return _posts_bytes(self.client, anthropic.Anthropic) and not sets_betas(self.client)

    def send(self, request: Request) -> Reply:
        """Return the reply to a request: the JSON of the API's message.

        Raises:
            ModelError: the request failed; its cause is the SDK's exception.
            ProtocolError: the reply is not a message.
            TypeError: `extra_body` is not JSON, or has the key `stream`.

        """
        import anthropic  # noqa: PLC0415 - `import toolloop` must not load the SDK

        if must_stream(self.client, request):
            return whole(self.stream(request))
        call = _call(self.client, anthropic.Anthropic, request)
        with outside_errors():
            answer = call()
        return _read(answer)

    def stream(self, request: Request) -> EventStream:
        """Return the raw events of the reply. The request is sent when the first event is read.

        Raises:
            TypeError: `extra_body` is not JSON, or has the key `stream`.

        """
        import anthropic  # noqa: PLC0415 - `import toolloop` must not load the SDK

        kind = anthropic.Stream[object]  # its events are plain JSON
        call = _call(self.client, anthropic.Anthropic, request, stream_cls=kind)

        def begin() -> Any:
            answer = call()
            if hasattr(answer, "http_response"):
                return answer.parse(to=kind)
            return answer if isinstance(answer, anthropic.Stream) else built_reply(to_plain(answer), None)

        return EventStream(begin)


@frozen(eq=False)
class AsyncAnthropicProvider:
    """An `AsyncProvider` that uses an async client of the anthropic SDK. See `AnthropicProvider`.

    Args:
        client: the client; its retries and timeouts apply.

    """

    client: Any = field(repr=lambda client: type(client).__name__)

    @property
    def takes_threads(self) -> bool:
        """Whether requests may use a message thread. See `AnthropicProvider.takes_threads`."""
        import anthropic  # noqa: PLC0415 - `import toolloop` must not load the SDK

        return _posts_bytes(self.client, anthropic.AsyncAnthropic) and not sets_betas(self.client)

    async def send(self, request: Request) -> Reply:
        """Return the reply to a request. See `AnthropicProvider.send`."""
        import anthropic  # noqa: PLC0415 - `import toolloop` must not load the SDK

        if must_stream(self.client, request):
            return await async_whole(self.stream(request))
        call = _call(self.client, anthropic.AsyncAnthropic, request)
        with outside_errors():
            answer = await call()
        return _read(answer)

    def stream(self, request: Request) -> AsyncEventStream:
        """Return the raw events of the reply, without `await`. See `AnthropicProvider.stream`."""
        import anthropic  # noqa: PLC0415 - `import toolloop` must not load the SDK

        kind = anthropic.AsyncStream[object]  # its events are plain JSON
        call = _call(self.client, anthropic.AsyncAnthropic, request, stream_cls=kind)

        async def begin() -> Any:
            answer = await call()
            if hasattr(answer, "http_response"):
                return await answer.parse(to=kind)
            return (
                RawEvents(answer) if isinstance(answer, anthropic.AsyncStream) else built_reply(to_plain(answer), None)
            )

        return AsyncEventStream(begin)


def _posts_bytes(client: Any, first_party: Any) -> bool:
    """Return whether a client can post a pre-serialized body.

    Subclasses, clients for other platforms and middleware edit the JSON of a request, so they cannot post a
    pre-serialized body.
    """
    return type(client) is first_party and not client.middleware


def _call(client: Any, first_party: Any, request: Request, *, stream_cls: Any = None) -> Callable[[], Any]:
    """Return the SDK call that sends a request."""
    import httpx2  # noqa: PLC0415 - `import toolloop` must not load it

    streams = stream_cls is not None
    if _posts_bytes(client, first_party):
        arguments = post_arguments(client, request, stream=streams)
        if streams:
            return partial(client.post, cast_to=object, stream=True, stream_cls=stream_cls, **arguments)
        return partial(client.post, cast_to=httpx2.Response, **arguments)
    messages = client.beta.messages if "betas" in options_of(request) else client.messages
    arguments = create_arguments(messages.create, request)
    return partial(messages.with_raw_response.create, **arguments, **({"stream": True} if streams else {}))


def _read(answer: Any) -> Reply:
    import httpx2  # noqa: PLC0415 - loaded already

    response = getattr(answer, "http_response", answer)
    # Middleware may return a message of its own.
    return parse_response(response) if isinstance(response, httpx2.Response) else built_reply(to_plain(answer), None)


@overload
def provider_for(client_or_provider: Provider | SdkClient, *, is_async: Literal[False]) -> Provider: ...
@overload
def provider_for(client_or_provider: AsyncProvider | AsyncSdkClient, *, is_async: Literal[True]) -> AsyncProvider: ...
def provider_for(client_or_provider: Any, *, is_async: bool) -> Provider | AsyncProvider:
    """Return a provider unchanged, and wrap a client of the anthropic SDK in a provider.

    Args:
        client_or_provider: any client of the anthropic SDK, or an object with `send` and optionally `stream`.
        is_async: whether an `AsyncToolLoopHandle` uses it.

    Raises:
        TypeError: the object is neither, or it is sync but must be async, or the reverse.

    """
    value = client_or_provider
    send, create = _method(value, "send"), _method(value, "messages", "with_raw_response", "create")
    method = send or create
    client = "AsyncAnthropic" if is_async else "Anthropic"
    if isinstance(value, type) or method is None:
        raise TypeError(
            f"provider: expected a client of the anthropic SDK, such as anthropic.{client}(), or an object with "
            f"`send(request)` (toolloop.providers.Provider or AsyncProvider), got {describe_type(value)}"
        )
    if inspect.iscoroutinefunction(method) != is_async:
        has, needs = ("sync", "async") if is_async else ("async", "sync")
        raise TypeError(
            f"provider: {type(value).__name__}.{'send' if send else 'messages.create'} is {has}, but {needs} methods "
            f"are needed here. Pass anthropic.{client}() or another {needs} provider, or use the {has} handle, runner "
            "or worker"
        )
    if send is None:
        return AsyncAnthropicProvider(value) if is_async else AnthropicProvider(value)
    return value  # type: ignore[no-any-return] # any object with `send` is a provider


def _method(value: object, *path: str) -> Any:
    for name in path:
        value = getattr(value, name, None)
    return inspect.unwrap(value) if callable(value) else None
