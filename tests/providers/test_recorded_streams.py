"""Recorded streams of the real API give the message that the SDK makes of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.providers.asking import KEY, ask, request
from tests.providers.server import Answer, serving
from toolloop.providers import AnthropicProvider
from toolloop.providers.accumulate import Accumulator, accumulate
from toolloop.providers.calls import MOST_UNSTREAMED
from toolloop.testing import FakeMessagesAPI, streamed, verbatim

_FOUND = Path(os.environ.get("TOOLLOOP_SHARED", Path(__file__).parents[2] / ".." / "shared")) / "recordings"
_KIND = {"content-type": "text/event-stream; charset=utf-8"}
FILES = ["sdk_streamed_call", "web_search_tool_stream", "code_execution_tool_stream"]


def recorded(name: str) -> list[bytes]:
    path = _FOUND / f"{name}.json"
    if not path.exists():
        pytest.skip("the recordings are not here; TOOLLOOP_SHARED may name the folder that holds them")
    exchanges = json.loads(path.read_text(encoding="utf-8"))["exchanges"]
    return [exchange["response"]["sse"].encode() for exchange in exchanges if "sse" in exchange["response"]]


@pytest.mark.parametrize("name", FILES)
def test_a_recorded_stream_is_the_message_the_sdk_makes_of_it(name: str) -> None:
    """Two implementations of accumulating agree, block by block and count by count."""
    streams = recorded(name)
    assert streams
    for body in streams:
        answer = Answer(body, headers=_KIND)
        with serving(answer) as server:
            reply = ask("sync", server, request(max_tokens=MOST_UNSTREAMED + 1))
            with anthropic.Anthropic(api_key=KEY, base_url=server.url) as client:
                theirs = _theirs(client)
        assert _without_nulls(theirs) == _without_nulls(dict(reply))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", [{"chunk": 1}, {"chunk": 1000}, {}])
def test_a_recorded_stream_is_the_same_however_it_comes(name: str, how: dict[str, Any]) -> None:
    """Over real HTTP, split inside events and characters: the same blocks; and every text of it is told in pieces."""
    for body in recorded(name):
        accumulator = Accumulator()
        with FakeMessagesAPI([streamed(verbatim(200, _KIND, body), **how)], enforce=False) as api:
            told = [accumulator.add(event) for event in AnthropicProvider(api.client()).stream(request())]
        on_the_wire = [
            json.loads(line[len("data:") :]) for line in body.decode().split("\n") if line.startswith("data:")
        ]
        assert accumulator.message() == accumulate(on_the_wire)
        texts = [block["text"] for block in accumulator.message()["content"] if block["type"] == "text"]
        assert any(told)
        assert "".join(piece.value for piece in told if piece is not None and piece.kind == "text") == "".join(texts)
        assert accumulator.partial_text == "\n".join(texts)


def _theirs(client: anthropic.Anthropic) -> Any:
    with client.beta.messages.stream(
        model="claude-opus-5-5", max_tokens=10, messages=[{"role": "user", "content": "Hi"}]
    ) as stream:
        return stream.get_final_message().to_dict(mode="json", warnings=False)


def _without_nulls(value: Any) -> Any:
    # The SDK's snapshot says null where a delta said nothing.
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
