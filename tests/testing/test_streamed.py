"""Replies as event streams, and what `streamed` changes about them."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from hypothesis import given, settings, strategies as st

from tests.testing.wire import ASK, events, frames, seen
from toolloop.testing import (
    FakeMessagesAPI,
    call,
    delayed,
    dropped,
    fault,
    reply,
    server_call,
    server_result,
    streamed,
    verbatim,
)

REPLY = reply("żółw 🐢, and enough of it for a few pieces", calls=[("add", {"a": 1, "b": "ü"}), ("now", {})])
WHOLE = seen(REPLY).body
FRAMES = frames(WHOLE)
POSITIONS = st.integers(-len(FRAMES) - 2, len(FRAMES) + 2)


def collected(answer: Any, **ask: Any) -> dict[str, Any]:
    """What the SDK makes of a stream."""
    with FakeMessagesAPI([answer]) as api, api.client().messages.stream(**ASK, **ask) as stream:
        message: dict[str, Any] = stream.get_final_message().to_dict(mode="json", warnings=False)
        return message


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


def test_a_collected_stream_is_the_reply() -> None:
    for answer in REPLIES.values():
        with FakeMessagesAPI([answer]) as plain, FakeMessagesAPI([answer]) as streaming:
            whole = plain.client().beta.messages.create(**ASK).to_dict(mode="json", warnings=False)
            with streaming.client().beta.messages.stream(**ASK) as stream:
                message: Any = stream.get_final_message().to_dict(mode="json", warnings=False)
        for block in message["content"]:
            block.pop("parsed_output", None)  # the SDK adds it
        assert message == whole
        assert streaming.requests[0].json["stream"] is True


@settings(max_examples=40, deadline=None)
@given(POSITIONS)
def test_a_stream_ends_after_any_number_of_events_as_if_it_were_whole(end: int) -> None:
    assert (seen(streamed(REPLY, end=end)).chunks, seen(streamed(REPLY, end=end)).ended) == (FRAMES[:end], True)


@settings(max_examples=20, deadline=None)
@given(st.integers(-len(WHOLE) - 2, len(WHOLE) + 2))
def test_a_stream_ends_after_any_number_of_bytes_as_if_it_were_whole(end: int) -> None:
    answered = seen(streamed(REPLY, end_bytes=end))
    assert (answered.body, answered.ended) == (WHOLE[:end], True)


def test_an_error_comes_in_mid_stream() -> None:
    for end in (0, 1, 4, -1):
        trouble = fault(529, message="not now")
        answered = seen(streamed(REPLY, end=end, fault=trouble))
        assert answered.ended
        assert answered.chunks == [
            *FRAMES[:end],
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"not now"}}\n\n',
        ]


def test_events_are_left_out_by_type() -> None:
    without = events(seen(streamed(REPLY, without=["content_block_stop", "ping"])).body)
    assert without == [event for event in events(WHOLE) if event["type"] not in {"content_block_stop", "ping"}]


def test_a_call_streams_any_text_as_its_input() -> None:
    for text in ('{"a": 1, "b', "[1]", " ", "not JSON at all, and longer than a piece", '{"a": 7}'):
        written = {1: "", 2: ""}
        for event in events(seen(streamed(REPLY, inputs={"add": text})).body):
            if event.get("delta", {}).get("type") == "input_json_delta":
                written[event["index"]] += event["delta"]["partial_json"]
        assert written == {1: text, 2: ""}


def test_noise_is_passed_over_by_a_client() -> None:
    assert collected(streamed(REPLY, noise=True)) == collected(REPLY)


def test_lines_end_as_configured() -> None:
    for newline in ("\r\n", "\r"):
        for options in ({}, {"noise": True}, {"end": 4, "fault": fault(500)}):
            plain = seen(streamed(REPLY, **options)).body
            assert seen(streamed(REPLY, newline=newline, **options)).body == plain.replace(b"\n", newline.encode())
        assert collected(streamed(REPLY, newline=newline)) == collected(REPLY)


RECORDED = b"".join(FRAMES)


def test_a_recorded_stream_is_sent_to_the_byte_frame_by_frame() -> None:
    cases: list[str | bytes] = [RECORDED, RECORDED.decode(), RECORDED.replace(b"\n", b"\r\n"), RECORDED[:-1]]
    for text in cases:
        answered = seen(streamed(verbatim(200, {"request-id": "req_recorded"}, text)))
        assert answered.body == (text if isinstance(text, bytes) else text.encode())
        assert len(answered.chunks) == len(FRAMES)
        assert b"request-id: req_recorded\r\n" in answered.head
        assert b"content-type: text/event-stream; charset=utf-8\r\n" in answered.head


def test_a_recorded_stream_is_changed_in_nothing_else() -> None:
    cases: list[dict[str, Any]] = [{"without": ["ping"]}, {"inputs": {"add": ""}}, {"noise": True}]
    for options in cases:
        with pytest.raises(ValueError, match="a verbatim stream is sent unchanged"):
            streamed(verbatim(200, {}, RECORDED), **options)


def test_what_makes_no_sense_is_refused() -> None:
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        (REPLY, {"fault": fault(529)}, ValueError, "Pass end as well"),
        (REPLY, {"chunk": 0}, ValueError, "Pass 1 or more bytes"),
        (fault(529), {}, TypeError, "cannot stream"),
        (dropped(), {}, TypeError, "cannot stream"),
        (streamed(REPLY), {}, TypeError, "cannot stream"),
        (delayed(0, REPLY), {}, TypeError, "cannot stream"),
    ]
    for answer, options, error, words in cases:
        with pytest.raises(error, match=words):
            streamed(answer, **options)


def test_a_request_for_no_stream_learns_that_its_answer_is_one() -> None:
    with (
        FakeMessagesAPI([streamed(REPLY)]) as api,
        pytest.raises(anthropic.InternalServerError, match="the request does not ask for a stream"),
    ):
        api.client(max_retries=5).messages.create(**ASK)


def test_what_is_streamed_is_remembered_as_handed_out() -> None:
    thinking = reply("Well.", thinking="First this, then that.")
    with FakeMessagesAPI([streamed(thinking, chunk=3), reply("fine")]) as api:
        client = api.client()
        with client.messages.stream(**ASK) as stream:
            content = [block.to_dict() for block in stream.get_final_message().content]
        asked = [*ASK["messages"], {"role": "assistant", "content": content}, {"role": "user", "content": "And?"}]
        client.messages.create(**{**ASK, "messages": json.loads(json.dumps(asked))})
        assert api.refused == []
