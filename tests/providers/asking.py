"""One request through a real client: sync, under asyncio, and under trio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import anthropic
import trio

from toolloop.machine.values.jsontext import encode
from toolloop.providers import AnthropicProvider, AsyncAnthropicProvider, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

KEY = "sk-ant-not-a-real-key"

T = TypeVar("T")

Face = Literal["sync", "asyncio", "trio"]
FACES: tuple[Face, ...] = ("sync", "asyncio", "trio")
HISTORY = [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": [{"type": "text", "text": "Ja?"}]}]


def request(*, options: dict[str, Any] | None = None, messages: list[Any] = HISTORY, **params: Any) -> Request:
    params = {"model": "claude-opus-5-5", "max_tokens": 100} | params
    return Request(encode(params), [encode(message) for message in messages], options or {})


class At(Protocol):
    """Any test server."""

    @property
    def url(self) -> str: ...


def client(server: At, **settings: Any) -> anthropic.Anthropic:
    """Make a client that ignores proxy settings and does not read certificates."""
    http = anthropic.DefaultHttpxClient(trust_env=False, verify=False)
    given: dict[str, Any] = {"api_key": KEY, "base_url": server.url, "max_retries": 0, "http_client": http}
    return anthropic.Anthropic(**given | settings)


def async_client(server: At, **settings: Any) -> anthropic.AsyncAnthropic:
    http = anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False)
    given: dict[str, Any] = {"api_key": KEY, "base_url": server.url, "max_retries": 0, "http_client": http}
    return anthropic.AsyncAnthropic(**given | settings)


def ask(face: Face, server: At, asked: Request, **settings: Any) -> Reply:
    """Return the reply to a request, sent by a new client."""
    if face == "sync":
        with client(server, **settings) as sdk:
            return AnthropicProvider(sdk).send(asked)

    async def main() -> Reply:
        async with async_client(server, **settings) as sdk:
            return await AsyncAnthropicProvider(sdk).send(asked)

    return run(face, main)


def read(face: Face, server: At, asked: Request, **settings: Any) -> tuple[list[Mapping[str, Any]], str | None]:
    """Return the events of a streamed reply and the id of its request, read by a new client."""
    if face == "sync":
        with client(server, **settings) as sdk:
            events = AnthropicProvider(sdk).stream(asked)
            return list(events), events.request_id

    async def main() -> tuple[list[Mapping[str, Any]], str | None]:
        async with async_client(server, **settings) as sdk:
            events = AsyncAnthropicProvider(sdk).stream(asked)
            return [event async for event in events], events.request_id

    return run(face, main)


def run(face: Face, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function in a new event loop."""
    return asyncio.run(main()) if face == "asyncio" else trio.run(main)
