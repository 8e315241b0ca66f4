"""`streamed`: what may be odd about the events of a stream, and that everything else is as it would have been."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.testing.wire import ASK, events, frames, seen
from toolloop.testing import FakeMessagesAPI, call, delayed, dropped, fault, reply, streamed, verbatim

REPLY = reply("żółw 🐢, and enough of it for a few pieces", calls=[("add", {"a": 1, "b": "ü"}), ("now", {})])
WHOLE = seen(REPLY).body
FRAMES = frames(WHOLE)
POSITIONS = st.integers(-len(FRAMES) - 2, len(FRAMES) + 2)
BYTES = st.integers(-len(WHOLE) - 2, len(WHOLE) + 2)


def collected(answer: Any, **ask: Any) -> dict[str, Any]:
    """What the SDK makes of a stream."""
    with FakeMessagesAPI([answer]) as api, api.client().messages.stream(**ASK, **ask) as stream:
        message: dict[str, Any] = stream.get_final_message().to_dict(mode="json", warnings=False)
        return message


def test_it_changes_nothing_unless_asked_to() -> None:
    assert seen(streamed(REPLY)) == seen(REPLY)
    assert seen(delayed(0.001, streamed(REPLY))) == seen(REPLY)


@settings(max_examples=40, deadline=None)
@given(POSITIONS)
def test_a_stream_ends_after_any_number_of_events_as_if_it_were_whole(end: int) -> None:
    assert (seen(streamed(REPLY, end=end)).chunks, seen(streamed(REPLY, end=end)).ended) == (FRAMES[:end], True)


@settings(max_examples=40, deadline=None)
@given(BYTES)
def test_a_stream_ends_after_any_number_of_bytes_as_if_it_were_whole(end: int) -> None:
    answered = seen(streamed(REPLY, end_bytes=end))
    assert (answered.body, answered.ended) == (WHOLE[:end], True)


def test_bytes_count_after_events() -> None:
    assert seen(streamed(REPLY, end=3, end_bytes=-1)).body == b"".join(FRAMES[:3])[:-1]


def test_an_empty_stream_is_an_event_stream_of_nothing() -> None:
    answered = seen(streamed(REPLY, end=0))
    assert answered.head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: text/event-stream" in answered.head
    assert (answered.chunks, answered.ended) == ([], True)


@pytest.mark.parametrize("end", [0, 1, 4, -1])
def test_an_error_comes_in_mid_stream(end: int) -> None:
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


@pytest.mark.parametrize("text", ['{"a": 1, "b', "[1]", " ", "not JSON at all, and longer than a piece", '{"a": 7}'])
def test_a_call_streams_any_text_as_its_input(text: str) -> None:
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


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_lines_end_as_told(newline: str) -> None:
    trouble = {"end": 4, "fault": fault(500)}
    for options in ({}, {"noise": True}, trouble):
        plain = seen(streamed(REPLY, **options)).body
        assert seen(streamed(REPLY, newline=newline, **options)).body == plain.replace(b"\n", newline.encode())
    assert collected(streamed(REPLY, newline=newline)) == collected(REPLY)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_async_client_collects_the_oddest_stream_too(backend: str, newline: str) -> None:
    async def ask() -> dict[str, Any]:
        with FakeMessagesAPI([streamed(REPLY, chunk=1, noise=True, newline=newline)]) as api:
            async with api.async_client() as client, client.messages.stream(**ASK) as stream:
                message: dict[str, Any] = (await stream.get_final_message()).to_dict(mode="json", warnings=False)
                return message

    assert anyio.run(ask, backend=backend) == collected(REPLY)


RECORDED = b"".join(FRAMES)


@pytest.mark.parametrize("text", [RECORDED, RECORDED.decode(), RECORDED.replace(b"\n", b"\r\n"), RECORDED[:-1]])
def test_a_recorded_stream_is_sent_to_the_byte_frame_by_frame(text: str | bytes) -> None:
    answered = seen(streamed(verbatim(200, {"request-id": "req_recorded"}, text)))
    assert answered.body == (text if isinstance(text, bytes) else text.encode())
    assert len(answered.chunks) == len(FRAMES)
    assert b"request-id: req_recorded\r\n" in answered.head
    assert b"content-type: text/event-stream; charset=utf-8\r\n" in answered.head


def test_a_recorded_stream_is_ended_and_cut_like_any_other() -> None:
    recorded = verbatim(200, {}, RECORDED)
    for options in ({"end": 3}, {"end": 3, "fault": fault(529)}, {"cut_bytes": 77}, {"chunk": 5}, {"end_bytes": -2}):
        assert seen(streamed(recorded, **options)).chunks == seen(streamed(REPLY, **options)).chunks


@pytest.mark.parametrize(
    "options", [{"without": ["ping"]}, {"inputs": {"add": ""}}, {"noise": True}, {"newline": "\r"}]
)
def test_a_recorded_stream_is_changed_in_nothing_else(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a verbatim stream is sent as it is"):
        streamed(verbatim(200, {}, RECORDED), **options)


@pytest.mark.parametrize(
    ("answer", "options", "error", "words"),
    [
        (REPLY, {"fault": fault(529)}, ValueError, "say where, with end"),
        (REPLY, {"chunk": 0}, ValueError, "chunk is 0: a write has 1 byte or more"),
        (fault(529), {}, TypeError, "cannot be streamed"),
        (dropped(), {}, TypeError, "cannot be streamed"),
        (streamed(REPLY), {}, TypeError, "cannot be streamed"),
        (delayed(0, REPLY), {}, TypeError, "cannot be streamed"),
    ],
)
def test_what_makes_no_sense_is_refused(answer: Any, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        streamed(answer, **options)


def test_a_request_for_no_stream_learns_that_its_answer_is_one() -> None:
    with (
        FakeMessagesAPI([streamed(REPLY)]) as api,
        pytest.raises(anthropic.InternalServerError, match="the request asks for no stream"),
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
