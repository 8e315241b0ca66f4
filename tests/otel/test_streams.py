"""Spans of streamed turns."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace as tracing

from tests.kit.concurrency import either_driver, play
from tests.kit.streams import read, read_turn
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import MODEL, params
from tests.kit.world import open_over_http_of
from tests.otel.traced import Traces, attributes, status
from toolloop import AsyncToolLoopHandle
from toolloop.events import CallFinished, TextDelta
from toolloop.testing import call, reply, streamed

LONG = "a text that comes in several pieces, for it is long enough for that"
ADD = call("add", {"a": 1, "b": 2}, id="t1")
CHAT = f"chat {MODEL}"


@either_driver
def test_a_streamed_request_says_when_its_first_piece_came(driver: str) -> None:
    """Pieces make no spans; all other attributes are those of an unstreamed request."""
    said: dict[bool, list[Any]] = {}

    async def story() -> None:
        for streams in (True, False):
            traces = Traces()
            script = [reply(LONG, calls=[ADD]), reply("done")]
            async with open_over_http_of(driver, script, params(), observers=[traces.observer]) as talk:
                for _ in range(2):
                    turn = (await read(talk.handle))[1] if streams else await talk.anext()
                    if not talk.handle.is_finished:
                        expect_yielded(turn).continue_loop()
            first = attributes(traces.all(CHAT)[0])
            if streams:
                assert first.pop("gen_ai.request.stream") is True
                assert first.pop("gen_ai.response.time_to_first_chunk") > 0
            said[streams] = [traces.names, first]

    play(driver, story)
    assert said[True] == said[False]


@either_driver
def test_between_two_pieces_the_reader_is_in_its_own_span(driver: str) -> None:
    """The current span of a request or a tool does not leak; the loop is inside the reader's span."""
    traces = Traces()

    async def story() -> None:
        tracer = traces.tracer()
        async with open_over_http_of(driver, [reply(LONG, calls=[ADD])], params(), observers=[traces.observer]) as talk:
            with tracer.start_as_current_span("reader") as own:
                async with read_turn(talk.handle) as reader:
                    for wanted in (TextDelta, TextDelta, CallFinished):
                        await reader.read_until(wanted)
                        assert tracing.get_current_span() is own
                    await reader.finish()
            if isinstance(talk.handle, AsyncToolLoopHandle):
                await talk.handle.aclose()
            else:
                talk.handle.close()

    play(driver, story)
    assert traces.above(traces.one(CHAT)) == ["invoke_agent", "reader"]
    assert traces.above(traces.one("execute_tool add")) == ["invoke_agent", "reader"]


@either_driver
def test_who_leaves_early_ends_the_span_of_the_request(driver: str) -> None:
    """They end with the turn. The next turn is in the same loop."""
    traces = Traces()

    async def story() -> None:
        script = [streamed(reply(LONG), hold=4), reply("done")]
        async with open_over_http_of(driver, script, params(), observers=[traces.observer]) as talk:
            async with read_turn(talk.handle) as reader:
                await reader.read_until(TextDelta)
            assert traces.names == [CHAT]
            expect_completed(await talk.anext())

    play(driver, story)
    left, whole = traces.all(CHAT)
    assert status(left)[0] == "ERROR"
    assert status(whole) == status(traces.one("invoke_agent")) == ("UNSET", None)
