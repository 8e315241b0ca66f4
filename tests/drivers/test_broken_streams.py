"""Streams that break off, and readers that leave or are slow: nothing is half, nothing is lost."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.kit.concurrency import either_driver, play
from tests.kit.each import each
from tests.kit.streams import kinds, read, read_turn, text_in
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import params
from tests.kit.world import World, open_over_http_of
from toolloop import AsyncToolLoopHandle, LoopConfig, ToolLoopHandle, Yielded, sub_loop
from toolloop.compaction import Summarize
from toolloop.errors import IllegalCommand, ModelError, ProtocolError
from toolloop.events import InputDelta, RequestStarted, TextDelta
from toolloop.testing import call, fault, reply, streamed

LONG = "one two three four five six seven eight nine ten"
CALLS = reply(LONG, calls=[call("add", {"a": 1, "b": 2})])
BROKEN = {
    "cut": (streamed(CALLS, cut=7), ModelError, True),
    "cut in a frame": (streamed(CALLS, cut_bytes=700), ModelError, True),
    "without an end": (streamed(CALLS, end=-1), ProtocolError, True),
    "without a stop reason": (streamed(CALLS, end=-2), ProtocolError, True),
    "nothing at all": (streamed(CALLS, end=0), ProtocolError, True),
    "overloaded": (streamed(CALLS, end=6, fault=fault(529)), ModelError, True),
    "refused half-way": (streamed(CALLS, end=6, fault=fault(400)), ModelError, False),
    "an input that is not JSON": (streamed(CALLS, inputs={"add": '{"a": 1, "b"'}), ProtocolError, True),
    "an input that is a list": (streamed(CALLS, inputs={"add": "[1]"}), ProtocolError, True),
}


async def expect_unchanged(talk: World) -> None:
    """The loop stands as before, and goes on."""
    assert talk.handle.messages == (params()["messages"][0],)
    assert talk.handle.iterations == 0
    talk.handle.retry()
    seen, turn = await read(talk.handle)
    assert (expect_yielded(turn).reason, text_in(seen)) == ("tools_executed", LONG)
    assert talk.sent_bodies[0] == talk.sent_bodies[1]


@either_driver
@each("how", BROKEN)
def test_a_stream_that_breaks(driver: str, how: str) -> None:
    """The error says whether to try again and has the text so far; nothing of it is in the history."""
    answer, kind, retryable = BROKEN[how]

    async def story() -> None:
        async with open_over_http_of(driver, [answer, CALLS], params()) as talk:
            seen, turn = await read(talk.handle)
            error = expect_error(turn)
            assert (type(error.error), error.retryable) == (kind, retryable)
            assert (error.partial_text or "") == text_in(seen)
            assert LONG.startswith(text_in(seen))
            assert kinds(seen)[-1] == "ModelRequestFailed"
            assert LONG not in repr(error)
            copy = pickle.loads(pickle.dumps(error.error))
            assert copy.partial_text == error.partial_text
            await expect_unchanged(talk)

    play(driver, story)


@either_driver
def test_cut_input_of_a_truncated_reply(driver: str) -> None:
    """A reply that `max_tokens` cut in the middle of an input: no call of it runs, and the rest is whole."""
    cut = streamed(
        reply(LONG, calls=[call("add", {"a": 1, "b": 2})], stop_reason="max_tokens"), inputs={"add": '{"a": 1'}
    )

    async def story() -> None:
        async with open_over_http_of(driver, [cut], params()) as talk:
            seen, turn = await read(talk.handle)
            assert expect_completed(turn).termination.kind == "truncated"
            assert "CallStarted" not in kinds(seen)
            assert talk.handle.messages[-1]["content"] == [{"type": "text", "text": LONG}]

    play(driver, story)


@either_driver
@each("after", [RequestStarted, TextDelta, InputDelta])
def test_who_leaves_early_has_cancelled_the_request(driver: str, after: type[Any]) -> None:
    """The connection to the API closes, and the loop is as before; the next turn makes the request again."""
    held = streamed(CALLS, hold=-3)

    async def story() -> None:
        async with open_over_http_of(
            driver, [held, CALLS] if after is not RequestStarted else [CALLS], params()
        ) as talk:
            async with read_turn(talk.handle) as reader:
                seen = await reader.read_until(after)
                assert type(seen[-1]) is after
            if after is not RequestStarted:
                stream = talk.api.requests[0].stream
                assert stream is not None
                assert stream.hung_up.wait(30)
            assert talk.handle.messages == (params()["messages"][0],)
            with pytest.raises(IllegalCommand, match="was closed or failed"):
                _ = reader.turn
            seen, turn = await read(talk.handle)
            assert (text_in(seen), expect_yielded(turn).reason) == (LONG, "tools_executed")

    play(driver, story)


@either_driver
def test_an_exception_of_the_reader_comes_through(driver: str) -> None:
    """As it is, in no group, with its own cause."""

    async def story() -> None:
        async with open_over_http_of(driver, [CALLS], params()) as talk:
            for error in (LookupError("mine"), ExceptionGroup("mine", [LookupError("mine")])):
                with pytest.raises(type(error)) as caught:
                    await _read_and_raise(talk.handle, error)
                assert caught.value is error
                assert isinstance(error.__cause__, OSError)
            assert expect_yielded((await read(talk.handle))[1]).reason == "tools_executed"

    play(driver, story)


async def _read_and_raise(handle: ToolLoopHandle | AsyncToolLoopHandle, error: Exception) -> None:
    async with read_turn(handle) as reader:
        await reader.read_until(RequestStarted)
        raise error from OSError("its cause")


@either_driver
def test_a_slow_reader_slows_the_stream(driver: str) -> None:
    """What is not read is not fetched: the API cannot send more than the buffers on the way hold."""
    text = "x" * 200_000

    async def story() -> None:
        async with (
            open_over_http_of(driver, [streamed(reply(text), send_buffer=4_096)], params()) as talk,
            read_turn(talk.handle) as reader,
        ):
            await reader.read_until(TextDelta)
            stream = talk.api.requests[0].stream
            assert stream is not None
            for _ in range(100):
                await reader.read_until(TextDelta)
            assert stream.events < 6_000
            assert not stream.ended.is_set()

    play(driver, story)


@either_driver
def test_loops_inside_calls_stream_through_their_parent(driver: str) -> None:
    """Each piece says by its path of which loop it is, and all of each loop come in order."""
    child = sub_loop("child", "Ask a person.", params={"model": "claude-opus-5-5", "max_tokens": 64}, tools=[])

    def script(body: Any) -> Any:
        said = body["messages"][0]["content"]
        if said != "hello":
            return reply(f"I heard {said}, and have a lot to say about it")
        if len(body["messages"]) == 1:
            return reply(calls=[call("child", {"prompt": f"number {each}"}, id=f"toolu_{each}") for each in (1, 2)])
        return reply("done")

    async def story() -> None:
        async with open_over_http_of(driver, script, params()) as talk:
            handle = type(talk.handle)(talk.client, params=params(), tools=[child])
            seen, turn = await read(handle)
            assert expect_yielded(turn).reason == "tools_executed"
            for each in (1, 2):
                own = [event for event in seen if event.path == (f"toolu_{each}",)]
                assert text_in(own) == f"I heard number {each}, and have a lot to say about it"
                assert kinds(own)[:3] == ["RequestStarted", "TextDelta", "RequestAnswered"]

    play(driver, story)


@either_driver
def test_a_summary_is_not_streamed_in_pieces(driver: str) -> None:
    """A request for a compaction is none of the reader's: its events are there, and no words of it."""

    def script(body: Any) -> Any:
        if "summar" in str(body["messages"][-1]).lower():
            return reply("THE SUMMARY")
        return reply("and on", calls=[call("look", {"path": "a"})]) if len(body["messages"]) < 9 else reply("done")

    async def story() -> None:
        shorten = Summarize(keep_last=1)
        async with open_over_http_of(driver, script, params(), compaction=shorten, max_iterations=9) as talk:
            seen: list[Any] = []
            while not talk.handle.is_finished:
                events, turn = await read(talk.handle)
                seen += events
                if isinstance(turn, Yielded):
                    turn.continue_loop()
            asked = [event for event in seen if isinstance(event, RequestStarted) and event.summary]
            assert asked
            assert "THE SUMMARY" not in text_in(seen)
            assert [request.json.get("stream", False) for request in talk.api.requests].count(False) == len(asked)

    play(driver, story)


@either_driver
def test_a_limit_of_time_ends_a_stream(driver: str) -> None:
    """The request is given up, and its reader gets an error."""
    held = streamed(CALLS, hold=5)

    async def story() -> None:
        async with open_over_http_of(driver, [held], params()) as talk:
            handle = type(talk.handle)(talk.client, params=params(), config=LoopConfig(timeout=0.2))
            seen, turn = await read(handle)
            assert expect_completed(turn).termination.kind == "timeout"
            assert kinds(seen)[-1] == "LoopFinished"
            held.release()

    play(driver, story)
