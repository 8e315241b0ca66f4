"""The sync handle and the async one, told the same, do the same: under asyncio and under trio, stored or not."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings

from tests.properties.bench import TOOLS, Bench, Boom
from tests.properties.drawing import WholeScript
from tests.properties.programs import PARAMS, Program, play, programs, timeless
from toolloop import AsyncToolLoopHandle, LoopContext, MemoryStore, ToolLoopHandle
from toolloop.stores.events import read_journal
from toolloop.testing import FakeMessagesAPI


@frozen
class Story:
    """What came of a program."""

    requests: list[bytes]
    seen: list[Any]
    starts: dict[str, int]
    snapshot: Any
    journal: list[Any]


def in_sync(program: Program, store: MemoryStore | None) -> Story:
    with FakeMessagesAPI(WholeScript(list(program.answers))) as api:
        bench, seen = Bench(), list[Any]()
        handle = ToolLoopHandle(
            api.client(),
            params=PARAMS,
            tools=TOOLS,
            config=program.config(),
            context=LoopContext(bench),
            clock=noon,
            store=store,
            loop_id="one",
        )
        story = play(program, handle, seen, bench)
        try:
            turn = next(story)
            while True:
                try:
                    result: Any = turn()
                except Boom as boom:
                    result = boom
                turn = story.send(result)
        except StopIteration:
            handle.close()
            assert not bench.wrong
            requests = [request.body for request in api.requests]
            return Story(requests, seen, dict(bench.starts), told(handle), kept(program, handle, store))


async def in_async(program: Program, store: MemoryStore | None) -> Story:
    with FakeMessagesAPI(WholeScript(list(program.answers))) as api:
        async with api.async_client() as client:
            bench, seen = Bench(), list[Any]()
            handle = AsyncToolLoopHandle(
                client,
                params=PARAMS,
                tools=TOOLS,
                config=program.config(),
                context=LoopContext(bench),
                clock=noon,
                store=store,
                loop_id="one",
            )
            story = play(program, handle, seen, bench)
            try:
                turn = next(story)
                while True:
                    try:
                        result: Any = await turn()
                    except Boom as boom:
                        result = boom
                    turn = story.send(result)
            except StopIteration:
                await handle.close()
                assert not bench.wrong
                requests = [request.body for request in api.requests]
                return Story(requests, seen, dict(bench.starts), told(handle), kept(program, handle, store))


def noon() -> float:
    """A clock that stands, for deadlines."""
    return 1_000_000.0


def told(handle: Any) -> Any:
    return timeless(handle.snapshot())


def kept(program: Program, handle: Any, store: MemoryStore | None) -> list[Any]:
    """The journal, which says the same as the handle. Of tools that ran side by side nobody knows which ended first."""
    if store is None:
        return []
    bodies = [entry.body for entry in store.load("one").entries]
    assert read_journal(bodies) == handle.state
    assert store.lease("one") is None
    events = [timeless(json.loads(body)) for body in bodies]
    return events if program.parallel == 1 else sorted(events, key=json.dumps)


@pytest.mark.parametrize("is_stored", [False, True], ids=["alone", "stored"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_two_handles_do_the_same(backend: str, is_stored: bool) -> None:
    """Requests to the byte, results, refusals, events, starts, snapshots and journals are the same, times aside."""

    @settings(max_examples=60 if is_stored else 120, deadline=None, derandomize=True, database=None)
    @given(programs())
    def agree(program: Program) -> None:
        expected = in_sync(program, MemoryStore() if is_stored else None)
        actual = anyio.run(in_async, program, MemoryStore() if is_stored else None, backend=backend)
        assert expected.seen == actual.seen
        assert expected.journal == actual.journal
        assert expected == actual

    agree()


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(programs())
def test_a_store_changes_nothing_of_what_is_done(program: Program) -> None:
    """Requests, results, refusals, events, starts and snapshots are those of a loop that is in no store."""
    alone, stored = in_sync(program, None), in_sync(program, MemoryStore())
    assert alone.seen == stored.seen
    assert alone == evolve(stored, journal=[])
