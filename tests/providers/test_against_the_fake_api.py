"""A round of tools over the fake API: it accepts the requests, and its replies arrive unchanged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.providers.asking import FACES, Face
from toolloop.machine.values.jsontext import encode
from toolloop.providers import Request, provider_for
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED
from toolloop.testing import FakeMessagesAPI, call, reply

if TYPE_CHECKING:
    from toolloop.providers import AsyncProvider, Provider

TOOLS = [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]


def after(history: list[Any], message: Any) -> list[Any]:
    """Return the history with the message and a result for each call."""
    blocks = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    return [*history, {"role": "assistant", "content": message["content"]}, {"role": "user", "content": blocks}]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("max_tokens", "options"),
    [(100, {}), (MOST_UNSTREAMED + 1, {"betas": ["mid-conversation-tool-changes-2026-07-01"]})],
)
def test_a_round_of_tools(face: Face, max_tokens: int, options: dict[str, Any]) -> None:
    """Streamed internally or not, with betas or without."""
    calls = [call("f", {"n": 2**80, "ü": "\N{SNOWMAN}"}, id="toolu_1"), call("f", id="toolu_2")]
    params = encode({"model": "claude-opus-5-5", "max_tokens": max_tokens, "tools": TOOLS})
    history: list[Any] = [{"role": "user", "content": "Go"}]

    def request(messages: list[Any]) -> Request:
        return Request(params, [encode(message) for message in messages], options)

    def ask(provider: Provider) -> list[Any]:
        first = provider.send(request(history))
        return [first, provider.send(request(after(history, first)))]

    async def ask_async(provider: AsyncProvider) -> list[Any]:
        first = await provider.send(request(history))
        return [first, await provider.send(request(after(history, first)))]

    async def main() -> list[Any]:
        async with api.async_client() as client:
            return await ask_async(provider_for(client, is_async=True))

    with FakeMessagesAPI([reply(text="Look.", calls=calls), reply(text="Done.")]) as api:
        match face:
            case "sync":
                replies = ask(provider_for(api.client(), is_async=False))
            case "asyncio":
                replies = asyncio.run(main())
            case "trio":
                replies = trio.run(main)
        assert api.refused == []
    first, second = replies
    assert [block.get("input") for block in first["content"]] == [None, {"n": 2**80, "ü": "\N{SNOWMAN}"}, {}]
    assert second["content"] == [{"type": "text", "text": "Done."}]
    assert (first["stop_reason"], second["stop_reason"]) == ("tool_use", "end_turn")
