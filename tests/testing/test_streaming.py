"""The fake API's event streams: their grammar, and that they say what the unstreamed reply says."""

from __future__ import annotations

import itertools
import json
from typing import Any

import anthropic
import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolloop.testing import FakeMessagesAPI, call, fault, reply, server_call, server_result, sse, verbatim

ASK: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "What is new?"}],
}
USAGE = {"input_tokens": 11, "output_tokens": 22, "cache_read_input_tokens": 33}
CITATION = {
    "type": "char_location",
    "cited_text": "so",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 2,
}
REPLIES = {
    "text": reply("A text that is longer than one delta, and not all ASCII: żółw 🐢."),
    "nothing": reply(),
    "empty text": reply("", calls=[call("add", {})]),
    "calls": reply(
        "Let me see.", calls=[call("add", {"a": 1, "b": ["long enough for pieces", None, 1.5]}), ("now", {})]
    ),
    "thinking": reply("Well.", thinking="First this, then that, then the other."),
    "hidden thinking": reply("Well.", thinking=""),
    "redacted": reply("Well.", content=[{"type": "redacted_thinking", "data": "xyz"}]),
    "cited": reply(content=[{"type": "text", "text": "so it is", "citations": [CITATION]}]),
    "uncited": reply(content=[{"type": "text", "text": "so it is", "citations": None}]),
    "search": reply(
        "Found it.",
        content=[
            server_call("web_search", {"query": "news"}),
            server_result(
                "web_search",
                [
                    {
                        "type": "web_search_result",
                        "title": "t",
                        "url": "https://e.x",
                        "encrypted_content": "E",
                        "page_age": None,
                    }
                ],
            ),
        ],
    ),
    "compacted": reply(
        "On.", content=[{"type": "compaction", "content": "So far, so good.", "encrypted_content": "E"}]
    ),
    "paused": reply(content=[server_call("web_search", {"query": "more"})], stop_reason="pause_turn"),
    "stopped": reply("half a", stop_reason="stop_sequence", stop_sequence="word", usage=USAGE),
    "refused": reply(stop_reason="refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": None}),
}


def collected(stream: Any) -> dict[str, Any]:
    message: dict[str, Any] = stream.get_final_message().to_dict(mode="json", warnings=False)
    return _without_parsed(message)


def _without_parsed(message: dict[str, Any]) -> dict[str, Any]:
    for block in message["content"]:
        block.pop("parsed_output", None)  # the SDK's own addition
    return message


@pytest.mark.parametrize("name", REPLIES)
def test_what_a_client_collects_is_the_unstreamed_reply(name: str) -> None:
    with FakeMessagesAPI([REPLIES[name]]) as plain, FakeMessagesAPI([REPLIES[name]]) as streamed:
        whole = plain.client().beta.messages.create(**ASK).to_dict(mode="json", warnings=False)
        with streamed.client().beta.messages.stream(**ASK) as stream:
            assert collected(stream) == whole
        assert streamed.requests[0].json["stream"] is True


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_client_collects_it_too(backend: str) -> None:
    async def ask() -> dict[str, Any]:
        with FakeMessagesAPI([REPLIES["calls"]]) as api:
            async with api.async_client() as client, client.messages.stream(**ASK) as stream:
                message = await stream.get_final_message()
                return _without_parsed(message.to_dict(mode="json", warnings=False))

    with FakeMessagesAPI([REPLIES["calls"]]) as api:
        whole = api.client().messages.create(**ASK).to_dict(mode="json", warnings=False)
    assert anyio.run(ask, backend=backend) == whole


@pytest.mark.parametrize("name", REPLIES)
def test_a_stream_follows_the_grammar(name: str) -> None:
    with FakeMessagesAPI([REPLIES[name]]) as api:
        raw = api.client().messages.with_raw_response.create(**ASK, stream=True)
        assert raw.headers["content-type"] == "text/event-stream; charset=utf-8"
        frames = raw.http_response.read().decode().split("\n\n")
    assert frames.pop() == ""
    events = []
    for frame in frames:
        first, second = frame.split("\n")
        events.append(json.loads(second.removeprefix("data: ")))
        assert first == f"event: {events[-1]['type']}"
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["stop_reason"] is None
    blocks = len(events[-2] and {event["index"] for event in events if "index" in event})
    if blocks:
        assert kinds[1:3] == ["content_block_start", "ping"]
    indexes = [event["index"] for event in events if "index" in event]
    assert [index for index, _ in itertools.groupby(indexes)] == list(range(blocks))
    for index in range(blocks):
        inside = [event["type"] for event in events if event.get("index") == index]
        assert inside[0] == "content_block_start"
        assert inside[-1] == "content_block_stop"
        assert set(inside[1:-1]) <= {"content_block_delta"}
    assert events[-2]["usage"] == REPLIES[name].get("usage", {"input_tokens": 10, "output_tokens": 5})


@given(st.lists(st.text(max_size=60), max_size=3), st.dictionaries(st.text(), st.integers() | st.text(), max_size=4))
def test_any_text_and_any_input_come_out_of_the_deltas_as_they_went_in(texts: list[str], given_input: Any) -> None:
    content = [{"type": "text", "text": text} for text in texts]
    content.append({"type": "tool_use", "id": "t", "name": "n", "input": given_input})
    message = {"content": content, "stop_reason": "tool_use", "usage": {"output_tokens": 9}}
    found = [""] * len(content)
    for event in sse.events(message):
        if event["type"] == "content_block_delta":
            found[event["index"]] += event["delta"].get("text", "") + event["delta"].get("partial_json", "")
    assert found[:-1] == texts
    assert json.loads(found[-1] or "{}") == given_input
    assert all(sse.frame(event).decode().count("\n\n") == 1 for event in sse.events(message))


def test_a_fault_before_a_stream_is_an_ordinary_error() -> None:
    with (
        FakeMessagesAPI([fault(529)]) as api,
        pytest.raises(anthropic.InternalServerError) as caught,
        api.client().messages.stream(**ASK),
    ):
        pass
    assert caught.value.type == "overloaded_error"


def test_a_recorded_stream_is_sent_verbatim() -> None:
    text = 'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    with FakeMessagesAPI([verbatim(200, {"content-type": "text/event-stream"}, text)]) as api:
        raw = api.client().messages.with_raw_response.create(**ASK, stream=True)
        assert raw.http_response.read().decode() == text
