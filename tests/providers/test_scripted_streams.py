"""Streams of a scripted provider: the reply of `send`, as the API streams it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st

from tests.providers.asking import request
from toolloop.errors import ModelError
from toolloop.providers import AsyncStreamingProvider, StreamingProvider, accumulate, provider_for
from toolloop.providers.scripted import AsyncScriptedProvider, ScriptedProvider

TEXTS = st.text(max_size=40)
CITATIONS = st.none() | st.lists(st.just({"type": "char_location", "cited_text": "x"}), max_size=2)
INPUTS = st.dictionaries(TEXTS, st.integers() | TEXTS | st.none(), max_size=3)
BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS),
    st.builds(lambda text, cited: {"type": "text", "text": text, "citations": cited}, TEXTS, CITATIONS),
    st.builds(lambda text: {"type": "thinking", "thinking": text}, TEXTS),
    st.just({"type": "redacted_thinking"}),
    st.builds(lambda value: {"type": "tool_use", "id": None, "name": "f", "input": value}, INPUTS),
    st.builds(lambda value: {"type": "server_tool_use", "id": None, "name": "web_search", "input": value}, INPUTS),
    st.just({"type": "compaction", "content": "Sum.", "encrypted_content": "e"}),
    st.builds(lambda value: {"type": "yet_unknown", "value": value}, INPUTS),
)
REPLIES = st.fixed_dictionaries(
    {"content": st.lists(BLOCKS, max_size=4), "stop_reason": st.sampled_from(["end_turn", "tool_use", "pause_turn"])},
    optional={
        "usage": st.just({"input_tokens": 7, "output_tokens": 9, "server_tool_use": {"web_search_requests": 1}}),
        "container": st.just({"id": "container_1"}),
        "context_management": st.just({"applied_edits": []}),
        "stop_sequence": st.just("END"),
    },
)

GRAMMAR = re.compile(
    "message_start (ping |content_block_start (ping )?(content_block_delta )*content_block_stop )*"
    "message_delta message_stop "
)


@given(REPLIES)
def test_a_scripted_stream_is_the_scripted_reply(reply: dict[str, Any]) -> None:
    """Accumulated, it is what `send` gives, and it follows the grammar with the blocks numbered as they come."""
    sent = ScriptedProvider([reply]).send(request())
    events = list(ScriptedProvider([reply]).stream(request()))
    assert accumulate(events) == sent
    assert GRAMMAR.fullmatch("".join(f"{event['type']} " for event in events))
    starts = [event["index"] for event in events if event["type"] == "content_block_start"]
    assert starts == list(range(len(reply["content"])))


@pytest.mark.parametrize("run", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)])
def test_the_async_one_streams_the_same(run: Any) -> None:
    """Its function may be async, and a stream may be left early."""
    reply = {"content": [{"type": "text", "text": "Grüße an alle, die das lesen"}]}

    async def script(_: dict[str, Any]) -> Any:
        return reply

    async def main() -> list[Any]:
        provider = AsyncScriptedProvider(script)
        left = provider.stream(request())
        await anext(left)
        await left.aclose()  # type: ignore[attr-defined] # an async generator
        return [event async for event in AsyncScriptedProvider([reply]).stream(request())]

    assert run(main()) == list(ScriptedProvider([reply]).stream(request()))


def test_the_script_is_asked_with_the_first_event() -> None:
    """A stream that is not read asks for nothing. An exception of the script is raised at the first event."""
    provider = ScriptedProvider([ModelError("down", retryable=True), {}])
    events = provider.stream(request())
    assert provider.requests == []
    with pytest.raises(ModelError, match="down"):
        next(events)
    assert accumulate(provider.stream(request()))["content"] == []
    assert [body["model"] for body in provider.requests] == ["claude-opus-5-5"] * 2


def test_they_are_streaming_providers() -> None:
    """By the protocols, and to `provider_for`."""
    sync, awaited = ScriptedProvider([]), AsyncScriptedProvider([])
    assert isinstance(sync, StreamingProvider)
    assert isinstance(awaited, AsyncStreamingProvider)
    assert provider_for(sync, is_async=False) is sync
    assert provider_for(awaited, is_async=True) is awaited
