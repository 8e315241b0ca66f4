"""One request through a real client: sync, under asyncio, and under trio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import anthropic
import trio

from toolloop.core.jsontext import encode
from toolloop.providers import AnthropicProvider, AsyncAnthropicProvider, Reply, Request

if TYPE_CHECKING:
    from tests.providers.server import Server

KEY = "sk-ant-not-a-real-key"

Face = Literal["sync", "asyncio", "trio"]
FACES: tuple[Face, ...] = ("sync", "asyncio", "trio")
HISTORY = [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": [{"type": "text", "text": "Ja?"}]}]


def request(*, options: dict[str, Any] | None = None, **params: Any) -> Request:
    params = {"model": "claude-opus-5-5", "max_tokens": 100} | params
    return Request(encode(params), [encode(message) for message in HISTORY], options or {})


def ask(face: Face, server: Server, asked: Request, **settings: Any) -> Reply:
    """The reply to a request, from a client of its own."""
    given: dict[str, Any] = {"api_key": KEY, "base_url": server.url, "max_retries": 0} | settings
    # Neither a proxy of the environment nor the reading of certificates gets in the way.
    direct: dict[str, Any] = {"trust_env": False, "verify": False}
    if face == "sync":
        given["http_client"] = anthropic.DefaultHttpxClient(**direct)
        with anthropic.Anthropic(**given) as client:
            return AnthropicProvider(client).send(asked)

    async def main() -> Reply:
        given["http_client"] = anthropic.DefaultAsyncHttpxClient(**direct)
        async with anthropic.AsyncAnthropic(**given) as client:
            return await AsyncAnthropicProvider(client).send(asked)

    return asyncio.run(main()) if face == "asyncio" else trio.run(main)
