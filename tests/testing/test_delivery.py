"""How the bytes of a stream come over the wire, how they stop, and what the server learns of its client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.testing.wire import ASK, Wire, asked, frames, seen
from toolloop.testing import FakeMessagesAPI, RecordedStream, Streamed, reply, streamed

REPLY = reply("żółw 🐢, and enough of it for a few pieces", calls=[("add", {"a": 1, "b": "ü"})])
WHOLE = seen(REPLY).body
FRAMES = frames(WHOLE)
LONG = reply("x" * 400_000)  # some 3 MB of stream


def stream_of(api: FakeMessagesAPI) -> RecordedStream:
    stream = api.requests[-1].stream
    assert stream is not None
    return stream


def test_each_event_is_a_chunk_of_its_own() -> None:
    answered = seen(REPLY)
    assert b"transfer-encoding: chunked\r\n" in answered.head
    assert b"content-length" not in answered.head
    assert (answered.chunks, answered.ended) == (FRAMES, True)


@examples(50)
@given(st.integers(-len(FRAMES) - 2, len(FRAMES) + 2), st.none() | st.integers(1, 300))
def test_the_connection_breaks_after_any_number_of_events(cut: int, chunk: int | None) -> None:
    answered = seen(streamed(REPLY, cut=cut, chunk=chunk))
    assert (answered.body, answered.ended) == (b"".join(FRAMES[:cut]), False)


@examples(50)
@given(st.integers(-len(WHOLE) - 2, len(WHOLE) + 2), st.none() | st.integers(1, 300))
def test_the_connection_breaks_after_any_number_of_bytes(cut: int, chunk: int | None) -> None:
    with FakeMessagesAPI([streamed(REPLY, cut_bytes=cut, chunk=chunk)]) as api, asked(api) as wire:
        answered = wire.seen()
        assert (answered.body, answered.ended) == (WHOLE[:cut], False)
        stream = stream_of(api)
        assert stream.ended.wait(30)
        assert (stream.bytes, stream.hung_up.is_set()) == (len(WHOLE[:cut]), False)
        assert stream.events == WHOLE[:cut].count(b"\n\n")


def test_a_stream_is_held_until_its_release() -> None:
    chunk_cases: list[int | None] = [None, 1, 50]
    for hold in (0, 1, 4, -1, len(FRAMES)):
        for chunk in chunk_cases:
            held = streamed(REPLY, hold=hold, chunk=chunk)
            there = b"".join(FRAMES[:hold])
            with FakeMessagesAPI([held]) as api, asked(api) as wire:
                assert b"200 OK" in wire.head()
                body = b""
                while len(body) < len(there):
                    body += wire.chunk() or b""
                assert body == there
                assert held.arrived.wait(30)
                assert wire.is_silent()
                assert (stream_of(api).bytes, stream_of(api).events) == (len(there), len(FRAMES[:hold]))
                assert not stream_of(api).ended.is_set()
                held.release()
                while more := wire.chunk():
                    body += more
                assert (body, more) == (WHOLE, b"")
                assert stream_of(api).ended.wait(30)


def test_the_server_sees_that_a_client_leaves_a_held_stream() -> None:
    held = streamed(REPLY, hold=3)
    with FakeMessagesAPI([held]) as api, api.client().messages.create(**ASK, stream=True) as stream:
        next(stream)
        assert held.arrived.wait(30)
        stream.close()
        assert stream_of(api).hung_up.wait(30)
        assert stream_of(api).ended.wait(30)
        assert stream_of(api).events == 3


def test_the_server_sees_that_a_client_leaves_a_stream_that_flows() -> None:
    cases: list[int | None] = [None, 4096]
    for buffer in cases:
        with FakeMessagesAPI([streamed(LONG, send_buffer=buffer)]) as api, asked(api) as wire:
            wire.head()
            assert wire.chunk()
            wire.close()
            assert stream_of(api).hung_up.wait(30)
            assert stream_of(api).events < len(LONG["content"][0]["text"]) // 16


def to_the_hold(wire: Wire) -> None:
    wire.head()
    wire.chunk()


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (streamed(REPLY, hold=1), to_the_hold),
        (streamed(REPLY, hold=0), Wire.head),
        (streamed(LONG, send_buffer=4096), to_the_hold),
        (streamed(LONG), Wire.head),
    ],
)
def test_closing_ends_a_stream_at_once_and_leaves_no_thread(answer: Streamed, read: Callable[[Wire], Any]) -> None:
    before = set(threading.enumerate())
    api = FakeMessagesAPI([answer])
    with asked(api) as wire:
        read(wire)
        assert answer.hold is None or answer.arrived.wait(30)
        started = time.monotonic()
        api.close()
        assert time.monotonic() - started < 60  # not the hour, or for ever, that the answer takes
        assert {thread for thread in set(threading.enumerate()) - before if thread.is_alive()} == set()
        assert stream_of(api).ended.is_set()
        assert not stream_of(api).hung_up.is_set()
