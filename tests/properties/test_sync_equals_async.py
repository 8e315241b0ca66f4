"""The sync handle and the async one, told the same, do the same: under asyncio and under trio."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from attrs import frozen
from hypothesis import given, settings

from tests.properties.bench import TOOLS, Bench, Boom
from tests.properties.drawing import WholeScript
from tests.properties.programs import PARAMS, Program, play, programs, timeless
from toolloop import AsyncToolLoopHandle, LoopContext, ToolLoopHandle
from toolloop.testing import FakeMessagesAPI


@frozen
class Story:
    """What came of a program."""

    requests: list[bytes]
    seen: list[Any]
    starts: dict[str, int]
    snapshot: Any


def in_sync(program: Program) -> Story:
    with FakeMessagesAPI(WholeScript(list(program.answers))) as api:
        bench, seen = Bench(), list[Any]()
        handle = ToolLoopHandle(
            api.client(), params=PARAMS, tools=TOOLS, config=program.config(), context=LoopContext(bench), loop_id="one"
        )
        story = play(program, handle, seen)
        try:
            turn = next(story)
            while True:
                try:
                    result: Any = turn()
                except Boom as boom:
                    result = boom
                turn = story.send(result)
        except StopIteration:
            return Story([request.body for request in api.requests], seen, dict(bench.starts), told(handle))


async def in_async(program: Program) -> Story:
    with FakeMessagesAPI(WholeScript(list(program.answers))) as api:
        async with api.async_client() as client:
            bench, seen = Bench(), list[Any]()
            handle = AsyncToolLoopHandle(
                client, params=PARAMS, tools=TOOLS, config=program.config(), context=LoopContext(bench), loop_id="one"
            )
            story = play(program, handle, seen)
            try:
                turn = next(story)
                while True:
                    try:
                        result: Any = await turn()
                    except Boom as boom:
                        result = boom
                    turn = story.send(result)
            except StopIteration:
                return Story([request.body for request in api.requests], seen, dict(bench.starts), told(handle))


def told(handle: Any) -> Any:
    return timeless(handle.snapshot())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_two_handles_do_the_same(backend: str) -> None:
    """Requests to the byte, results, refusals, events, starts and snapshots are the same, times aside."""

    @settings(max_examples=120, deadline=None, derandomize=True, database=None)
    @given(programs())
    def agree(program: Program) -> None:
        expected, actual = in_sync(program), anyio.run(in_async, program, backend=backend)
        assert expected.seen == actual.seen
        assert expected == actual

    agree()
