"""Replies as event streams, and what `streamed` changes about them."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_a_fault_before_a_stream_is_an_ordinary_error() -> None:
    with (
        FakeMessagesAPI([fault(529)]) as api,
        pytest.raises(anthropic.InternalServerError) as caught,
        api.client().messages.stream(**ASK),
    ):
        pass
    assert caught.value.type == "overloaded_error"


def test_it_changes_nothing_unless_asked_to() -> None:
    assert seen(streamed(REPLY)) == seen(REPLY)
    assert seen(delayed(0.001, streamed(REPLY))) == seen(REPLY)


@settings(max_examples=40, deadline=None)
@given(POSITIONS)
def test_a_stream_ends_after_any_number_of_events_as_if_it_were_whole(end: int) -> None:
    assert (seen(streamed(REPLY, end=end)).chunks, seen(streamed(REPLY, end=end)).ended) == (FRAMES[:end], True)


@settings(max_examples=20, deadline=None)
@given(st.integers(-len(WHOLE) - 2, len(WHOLE) + 2))
def test_a_stream_ends_after_any_number_of_bytes_as_if_it_were_whole(end: int) -> None:
    answered = seen(streamed(REPLY, end_bytes=end))
    assert (answered.body, answered.ended) == (WHOLE[:end], True)


def test_an_empty_stream_is_an_event_stream_of_nothing() -> None:
    answered = seen(streamed(REPLY, end=0))
    assert answered.head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: text/event-stream" in answered.head
    assert (answered.chunks, answered.ended) == ([], True)


def test_an_error_comes_in_mid_stream() -> None:
    for end in (0, 1, 4, -1):
        trouble = fault(529, message="not now")
        answered = seen(streamed(REPLY, end=end, fault=trouble))
        assert answered.ended
        assert answered.chunks == [
            *FRAMES[:end],
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"not now"}}\n\n',
        ]


def test_a_client_raises_an_error_that_comes_in_mid_stream() -> None:
    with pytest.raises(anthropic.APIStatusError, match="not now") as caught:
        collected(streamed(REPLY, end=5, fault=fault(529, message="not now")))
    assert caught.value.type == "overloaded_error"
    assert caught.value.status_code == 200


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


def test_an_input_cut_by_the_limit_has_no_end_of_its_block() -> None:
    cut = reply(calls=[call("add", {"a": "b", "c": "d"}, id="toolu_1")], stop_reason="max_tokens")
    answer = streamed(cut, inputs={"add": '{"a":"b","c":"d'}, without=["content_block_stop"])
    kinds = [event["type"] for event in events(seen(answer).body)]
    assert "content_block_stop" not in kinds
    assert kinds[-2:] == ["message_delta", "message_stop"]


def test_noise_is_passed_over_by_a_client() -> None:
    assert collected(streamed(REPLY, noise=True)) == collected(REPLY)


def test_noise_has_everything_that_a_client_must_pass_over() -> None:
    body = seen(streamed(REPLY, noise=True)).body
    noisy = events(body)
    assert body.count(b": a comment\n\n") == len(FRAMES)
    assert {"ping", "forecast"} < {event["type"] for event in noisy}
    assert "mood_delta" in {event["delta"]["type"] for event in noisy if event["type"] == "content_block_delta"}
    assert (noisy[0]["type"], noisy[-1]["type"]) == ("message_start", "message_stop")
    quiet = [event for event in noisy if event.get("delta", {}).get("type") != "mood_delta" and "mood" not in event]
    assert [event for event in quiet if event["type"] != "ping"] == [
        event for event in events(WHOLE) if event["type"] != "ping"
    ]


def test_a_delta_of_an_unknown_type_comes_only_while_its_block_is_open() -> None:
    opened: set[int] = set()
    for event in events(seen(streamed(REPLY, noise=True)).body):
        if event["type"] == "content_block_start":
            opened.add(event["index"])
        elif event["type"] == "content_block_stop":
            opened.remove(event["index"])
        elif event["type"] == "content_block_delta":
            assert event["index"] in opened


def test_noise_is_not_counted_as_events() -> None:
    quiet = events(seen(streamed(REPLY, noise=True, end=2)).body)
    assert [event["type"] for event in quiet if event["type"] not in {"ping", "forecast"}] == [
        "message_start",
        "content_block_start",
    ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_client_collects_a_stream_in_single_bytes_and_with_noise(backend: str) -> None:
    async def ask() -> dict[str, Any]:
        with FakeMessagesAPI([streamed(REPLY, chunk=1, noise=True)]) as api:
            async with api.async_client() as client, client.messages.stream(**ASK) as stream:
                message: dict[str, Any] = (await stream.get_final_message()).to_dict(mode="json", warnings=False)
                return message

    assert anyio.run(ask, backend=backend) == collected(REPLY)


def test_lines_end_as_told() -> None:
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


def test_a_recorded_stream_is_ended_and_cut_like_any_other() -> None:
    recorded = verbatim(200, {}, RECORDED)
    for options in ({"end": 3}, {"end": 3, "fault": fault(529)}, {"cut_bytes": 77}, {"chunk": 5}):
        assert seen(streamed(recorded, **options)).chunks == seen(streamed(REPLY, **options)).chunks


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
