"""A streamed turn: what is read and in which order, and that it comes to what the turn would have come to without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from tests.kit.concurrency import either_driver, play
from tests.kit.streams import kinds, read, read_turn, text_in
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import params, user
from tests.kit.world import open_over_http_of
from toolloop import AsyncToolLoopHandle, Completed, MemoryStore, Yielded
from toolloop.errors import IllegalCommand
from toolloop.events import CitationDelta, Delta, InputDelta, TextDelta, ThinkingDelta
from toolloop.testing import AsyncScriptedProvider, call, reply

LONG = "a text that comes in several pieces, with an ä and a 🙂 in it"
CITED = {"type": "char_location", "cited_text": "x", "document_index": 0, "start_char_index": 0, "end_char_index": 1}
WHOLE: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "let me think about that for a while", "signature": ""},
    {"type": "text", "text": LONG, "citations": [CITED | {"document_title": "t", "file_id": None}]},
    call("add", {"a": 1, "b": 2}, id="toolu_1"),
    call("look", {"path": "a file with a name that is long enough"}, id="toolu_2"),
]


def test_a_turn_is_streamed_as_it_happens() -> None:
    """The request, its pieces, the answer, the calls, their ends; then the turn."""

    async def story() -> None:
        async with open_over_http_of("sync", [reply(content=WHOLE), reply("done")], params()) as talk:
            seen, turn = await read(talk.handle)
            assert expect_yielded(turn).reason == "tools_executed"
            assert kinds(seen)[:8] == [
                "RequestStarted",
                "ThinkingDelta",
                "TextDelta",
                "CitationDelta",
                "InputDelta",
                "RequestAnswered",
                "CallProposed",
                "CallStarted",
            ]
            assert kinds(seen)[-1] == "CallFinished"
            assert text_in(seen) == LONG
            assert "".join(each.thinking for each in seen if isinstance(each, ThinkingDelta)) == WHOLE[0]["thinking"]
            inputs = [each for each in seen if isinstance(each, InputDelta)]
            for number, block in enumerate(WHOLE[2:], 2):
                pieces = [each for each in inputs if each.call_id == block["id"]]
                assert {each.name for each in pieces} == {block["name"]}
                assert {each.index for each in pieces} == {number}
                assert "".join(each.partial_json for each in pieces).replace(" ", "") == str(block["input"]).replace(
                    "'", '"'
                ).replace(" ", "")
            assert [each.citation for each in seen if isinstance(each, CitationDelta)] == WHOLE[1]["citations"]
            expect_yielded(turn).continue_loop()
            seen, turn = await read(talk.handle)
            assert expect_completed(turn).text == text_in(seen) == "done"

    play("sync", story)


def test_it_comes_to_the_same_as_without() -> None:
    """Results, history, requests and usage are the same; so are the events, but for the pieces."""
    told: dict[bool, list[Any]] = {}

    async def story() -> None:
        for streams in (True, False):
            script = [reply(content=WHOLE), reply("more", stop_reason="pause_turn"), reply("done")]
            heard: list[Any] = []
            async with open_over_http_of(
                "sync", script, params(), observers=(heard.append,), max_parallel_tools=1
            ) as talk:
                results = []
                while not talk.handle.is_finished:
                    turn = (await read(talk.handle))[1] if streams else await talk.anext()
                    results.append(turn)
                    if isinstance(turn, Yielded):
                        turn.continue_loop()
                bodies = [{**body, "stream": None} for body in talk.sent_bodies]
                told[streams] = [
                    talk.handle.messages,
                    talk.handle.total_usage,
                    bodies,
                    [type(each) for each in heard if not isinstance(each, Delta)],
                    [[type(each) for each in turn.events] for turn in results],
                    expect_completed(results[-1]).text,
                ]

    play("sync", story)
    assert told[True] == told[False]


def test_observers_hear_the_pieces_too_and_results_do_not_keep_them() -> None:
    """The very objects that the stream gives, in the same order."""
    heard: list[Any] = []

    async def story() -> None:
        async with open_over_http_of("sync", [reply(LONG)], params(), observers=(heard.append,)) as talk:
            seen, turn = await read(talk.handle)
            assert all(one is other for one, other in zip(heard, seen, strict=True))
            assert [each for each in turn.events if isinstance(each, Delta)] == []
            assert [type(each) for each in turn.events] == [type(each) for each in seen if not isinstance(each, Delta)]

    play("sync", story)


def test_nothing_happens_before_it_is_read() -> None:
    """To enter and to leave costs nothing; the turn that is to come is the same."""

    async def story() -> None:
        async with open_over_http_of("sync", [reply("done")], params()) as talk:
            before = talk.handle.snapshot()
            async with read_turn(talk.handle) as reader:
                with pytest.raises(IllegalCommand, match="Read the stream to its end"):
                    _ = reader.turn
            assert talk.handle.snapshot() == before
            assert talk.api.requests == []
            assert (await talk.aexpect_done()).text == "done"

    play("sync", story)


@either_driver
def test_one_drives(driver: str) -> None:
    """While a stream is read, no other caller drives, and any caller may inject; a second stream raises when read."""

    async def story() -> None:
        async with open_over_http_of(driver, [reply(LONG), reply("more")], params()) as talk:
            async with read_turn(talk.handle) as reader:
                await reader.read_until(TextDelta)
                with pytest.raises(IllegalCommand, match="another caller drives"):
                    await talk.anext()
                with pytest.raises(IllegalCommand, match="another caller drives"):
                    await read(talk.handle)
                with pytest.raises(IllegalCommand):
                    talk.handle.messages_mut()
                if driver == "sync":
                    talk.handle.update_params(max_tokens=300)
                await reader.rest()
                assert expect_completed(reader.turn).text == LONG
            talk.handle.follow_up([user("more")])
            assert (await talk.aexpect_done()).text == "more"

    play(driver, story)


def test_a_turn_that_is_over_or_waits() -> None:
    """After the end a stream is empty and has the same result; where a command is awaited it cannot be entered."""

    async def story() -> None:
        async with open_over_http_of(
            "sync", [reply(calls=[call("add", {"a": 1, "b": 2})]), reply("done")], params()
        ) as talk:
            turn = await talk.aturn()
            with pytest.raises(IllegalCommand, match="needs a command"):
                async with read_turn(talk.handle):
                    raise AssertionError("it was entered")
            turn.continue_loop()
            done = await talk.aexpect_done()
            seen, again = await read(talk.handle)
            assert (seen, again) == ([], done)

    play("sync", story)


PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]}


async def events_of(handle: AsyncToolLoopHandle) -> AsyncGenerator[Any, None]:
    """Yield the events of a turn, as a web handler does."""
    async with handle.stream_turn() as stream:
        async for event in stream:
            yield event


def test_another_task_closes_the_generator_and_the_lease_is_returned() -> None:
    """The turn is given up at whatever event was read last, and the loop goes on from before it."""

    async def main(reads: int) -> None:
        store = MemoryStore()
        provider = AsyncScriptedProvider([reply("a long answer")] * 2)
        handle = AsyncToolLoopHandle(provider, params=PARAMS, store=store, loop_id="loop")
        events = events_of(handle)
        for _ in range(reads):
            await asyncio.gather(anext(events))  # each event is read by a task of its own
        await asyncio.gather(events.aclose())
        assert [stored.lease for stored in store.list()] in ([], [None])
        assert isinstance(await handle.run(), Completed)

    for reads in range(4):
        asyncio.run(main(reads))


def test_a_task_that_is_cancelled_while_it_reads_closes_the_stream() -> None:
    """Also if asyncio cancels the task that reads, between two events."""

    async def main() -> None:
        store = MemoryStore()
        provider = AsyncScriptedProvider([reply("a long answer")] * 2)
        handle = AsyncToolLoopHandle(provider, params=PARAMS, store=store, loop_id="loop")
        first = asyncio.Event()

        async def read() -> None:
            async with aclosing(events_of(handle)) as events:
                async for _ in events:
                    first.set()
                    await asyncio.sleep(3600)

        task = asyncio.create_task(read())
        await first.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert isinstance(await handle.run(), Completed)
        assert [stored.lease for stored in store.list()] == [None]

    asyncio.run(main())
