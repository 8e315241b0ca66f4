"""Compaction by hand, wherever the caller has the word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.handle.compaction_stories import (
    Reader,
    Reading,
    book,
    pages_in,
    read,
    reading,
    size,
    thoughts_in,
)
from tests.handle.support import user, yielded
from tests.handle.talking import each_driver, play
from toolloop import Completed, MemoryStore
from toolloop.compaction import DropRounds, MaskResults, Summarize
from toolloop.core import events as ev
from toolloop.errors import IllegalCommand, InvalidHistory
from toolloop.events import Compacted, HistoryReplaced
from toolloop.stores.events import decode_event
from toolloop.terminations import MaxIterations, NaturalEnd
from toolloop.testing import call, fault, reply, server_call, server_result

ROUNDS = [read(number) for number in range(101, 105)]
STRATEGIES: dict[str, Callable[[], Any]] = {
    "mask": lambda: MaskResults(keep_rounds=1),
    "drop": lambda: DropRounds(1),
    "summarize": lambda: Summarize(keep_last=1),
}
either_driver = pytest.mark.parametrize("driver", ["sync", "trio"])
each_strategy = pytest.mark.parametrize("name", STRATEGIES)


async def rounds(at: Reading, how_many: int = 4) -> None:
    for _ in range(how_many):
        (await at.turn()).continue_loop()


async def ready(at: Reading) -> None:
    await rounds(at)


async def executed(at: Reading) -> None:
    await rounds(at, 3)
    await at.turn()


async def deciding(at: Reading) -> None:
    await rounds(at)
    assert (await at.turn()).pending


async def paused(at: Reading) -> None:
    await rounds(at)
    assert (await at.turn()).reason == "paused"


async def failed(at: Reading) -> None:
    await rounds(at)
    await at.next()


async def finished(at: Reading) -> None:
    await at.to_the_end()


def go_on(at: Reading) -> None:
    turn = at.handle.pending_turn
    if turn is not None:
        turn.approve_all()
        turn.continue_loop()


def follow(at: Reading) -> None:
    at.handle.follow_up([user("Read on.")])


# How to get there, what the model says there, how the loop goes on.
Place = tuple[Callable[[Reading], Awaitable[None]], list[Any], Callable[[Reading], object]]
WAITS = reply(thinking="thought 5", calls=[call("sign", {"name": "ana"})])
PAUSE = reply("Let me see.", thinking="thought 5", content=[server_call("web_search")], stop_reason="pause_turn")
FOUND = reply(content=[server_result("web_search")], calls=[call("page", {"number": 105})])
SEARCH = book(tools=[{"type": "web_search_20250305", "name": "web_search"}])
PLACES: dict[str, Place] = {
    "Ready": (ready, [], go_on),
    "Executed": (executed, [], go_on),
    "Deciding": (deciding, [WAITS], go_on),
    "Paused": (paused, [PAUSE, FOUND], go_on),
    "Failed": (failed, [fault(500)], lambda at: at.handle.retry()),
    "Finished": (
        finished,
        [reply("done so far", thinking="thought 5")],
        follow,
    ),
}


@either_driver
@pytest.mark.parametrize("place", PLACES)
@each_strategy
def test_wherever_the_caller_has_the_word(driver: str, place: str, name: str) -> None:
    """The history is shorter at once, the report says so, the state stays, and the loop goes on."""
    get_there, last, goes_on = PLACES[place]

    async def story() -> None:
        async with reading(driver, Reader(2, first=[*ROUNDS, *last]), asked=SEARCH) as at:
            await get_there(at)
            assert type(at.handle.state).__name__ == place
            before = at.handle.state
            report = await at.by_hand(STRATEGIES[name]())
            assert isinstance(report, Compacted)
            assert (report.strategy, report.problem) == (type(STRATEGIES[name]()).__name__, None)
            assert report.after < report.before
            assert at.compactions == [report]
            assert type(at.handle.state) is type(before)
            assert at.handle.messages[0] == user("Read the book.")
            assert 101 not in pages_in(at.handle.messages)
            assert len(at.summaries) == (name == "summarize")
            goes_on(at)
            assert (await at.to_the_end()).text == "done"
            assert 101 not in pages_in(at.requests[-1]["messages"])
            again = await at.by_hand(STRATEGIES[name]())
            assert again.after <= again.before
            assert at.dropped

    play(driver, story)


@either_driver
@each_strategy
def test_a_pause_that_hangs_on_its_thinking(driver: str, name: str) -> None:
    """No server call ends it, and without its thinking the API would not know it as its own: the report says so."""

    async def story() -> None:
        hangs = reply("Let me see.", thinking="thought 5", stop_reason="pause_turn")
        async with reading(driver, Reader(2, first=[*ROUNDS, hangs])) as at:
            await paused(at)
            before = at.handle.state
            report = await at.by_hand(STRATEGIES[name]())
            assert report.before == report.after
            assert "pauses" in str(report.problem)
            assert at.handle.state == before
            go_on(at)
            await at.turn()
            assert thoughts_in(at.requests[-1]["messages"])[-1] == "thought 5"
            assert (await at.by_hand(STRATEGIES[name]())).problem is None

    play(driver, story)


@either_driver
@each_strategy
def test_nothing_to_do_is_said_by_equal_numbers(driver: str, name: str) -> None:
    """Before the first turn, a second time, and below the threshold; no event, no request, no entry."""

    async def story() -> None:
        async with reading(driver, Reader(4)) as at:
            report = await at.by_hand(STRATEGIES[name]())
            assert report.before == report.after > 0
            await rounds(at)
            strategy = STRATEGIES[name]()
            object.__setattr__(strategy, "at_tokens", 100_000)
            report = await at.by_hand(strategy)
            assert report.before == report.after == size({**at.requests[-1], "messages": list(at.handle.messages)})
            await at.by_hand(STRATEGIES[name]())
            requests, state = len(at.api.requests), at.handle.state
            report = await at.by_hand(STRATEGIES[name]())
            assert (report.before, report.problem) == (report.after, None)
            assert at.handle.state == state
            assert len(at.api.requests) == requests
            assert len(at.compactions) == 1

    play(driver, story)


@either_driver
@each_strategy
def test_edits_in_hand_are_adopted_first(driver: str, name: str) -> None:
    """The working list is what is compacted; and afterwards it is spent."""

    async def story() -> None:
        async with reading(driver, Reader(4)) as at:
            await rounds(at)
            working = at.handle.messages_mut()
            working[0]["content"] = "Read the other book."
            report = await at.by_hand(STRATEGIES[name]())
            assert report.after < report.before
            assert at.handle.messages[0] == user("Read the other book.")
            told = [type(event) for event in at.events if isinstance(event, HistoryReplaced | Compacted)]
            assert told == [HistoryReplaced, Compacted]
            with pytest.raises(IllegalCommand):
                working.append(user("too late"))
            assert (await at.to_the_end()).text == "done"

    play(driver, story)


@either_driver
@each_strategy
def test_a_broken_edit_is_refused(driver: str, name: str) -> None:
    """Nothing changes, and the list stays to be mended."""

    async def story() -> None:
        async with reading(driver, Reader(4)) as at:
            await rounds(at)
            state = at.handle.state
            working = at.handle.messages_mut()
            gone = working.pop(1)
            with pytest.raises(InvalidHistory):
                await at.by_hand(STRATEGIES[name]())
            assert at.handle.state == state
            working.insert(1, gone)
            assert (await at.by_hand(STRATEGIES[name]())).problem is None

    play(driver, story)


@either_driver
@each_strategy
def test_a_limit_s_end_goes_on_from_the_compacted_history(driver: str, name: str) -> None:
    """`extend` after a compaction by hand sends what was made of the history."""

    async def story() -> None:
        async with reading(driver, Reader(6), max_iterations=4) as at:
            done = await at.to_the_end()
            assert done.termination == MaxIterations(4)
            assert (await at.by_hand(STRATEGIES[name]())).after < 4000
            compacted = at.handle.messages
            at.handle.extend(max_iterations=20)
            assert (await at.to_the_end()).termination == NaturalEnd()
            sent = at.requests[4]["messages"]
            assert [*map(without_thinking, sent)] == [*map(without_thinking, compacted)]
            assert thoughts_in(sent) == (["thought 1"] if name == "mask" else [])

    play(driver, story)


def without_thinking(message: Any) -> Any:
    if message["role"] == "user":
        return message
    return {**message, "content": [block for block in message["content"] if block["type"] != "thinking"]}


@either_driver
@each_strategy
def test_the_journal_stores_what_is_new(driver: str, name: str) -> None:
    """The compaction is one event with splices, far smaller than the history; another process reads the same."""

    async def story() -> None:
        store = MemoryStore()
        async with reading(driver, Reader(4), store=store) as at:
            await rounds(at)
            await at.by_hand(STRATEGIES[name]())
            done = at.handle.flush()
            if done is not None:
                await done
            bodies = [entry.body for entry in store.load("loop").entries]
            (body,) = [body for body in bodies if isinstance(decode_event(body), ev.Compacted)]
            assert len(body) < 1500 < len(str(at.handle.messages))
            kinds = [type(decode_event(body)) for body in bodies]
            assert ev.HistoryEdited not in kinds

    play(driver, story)


@each_driver
def test_it_is_refused_after_nothing_can_follow(driver: str) -> None:
    """A loop that is too deep has no next request."""

    async def story() -> None:
        async with reading(driver, Reader(4), max_depth=0) as at:
            await at.next()
            before = at.handle.state
            with pytest.raises(IllegalCommand, match="has not the word"):
                await at.by_hand(DropRounds(1))
            assert at.handle.state == before

    play(driver, story)


@each_driver
def test_what_is_learned_between_turns_counts_by_hand_too(driver: str) -> None:
    """A strategy by hand and the same in the configuration: the latter does not repeat what was just done."""

    async def story() -> None:
        async with reading(driver, Reader(6), Summarize(keep_last=1, at_tokens=4500)) as at:
            await rounds(at)
            await at.by_hand(Summarize(keep_last=1))
            yielded(await at.turn()).continue_loop()
            assert len(at.summaries) == 1
            assert isinstance(await at.to_the_end(), Completed)

    play(driver, story)


@each_driver
def test_one_drives_at_a_time(driver: str) -> None:
    """A tool cannot compact the loop that it runs in."""
    told: list[str] = []

    def meddle(_call: Any, view: Any) -> None:
        return None

    async def story() -> None:
        async with reading(driver, Reader(4), on_tool_call=meddle) as at:

            def filtered(_call: Any, result: Any) -> Any:
                try:
                    DropRounds(1)(at.handle)
                except IllegalCommand as error:
                    told.append(str(error))
                return result

            object.__setattr__(at.handle._config, "result_filters", (filtered,))
            await rounds(at, 2)
            assert len(told) == 2
            assert at.compactions == []

    play(driver, story)


@each_driver
def test_parameters_by_hand(driver: str) -> None:
    async def story() -> None:
        asked = book(extra_headers={"x-secret": "mine"})
        async with reading(driver, Reader(4), asked=asked) as at:
            await rounds(at)
            await at.by_hand(Summarize(keep_last=1, params={"max_tokens": 77}))
            assert at.summaries[0]["max_tokens"] == 77
            assert at.api.requests[-1].headers["x-secret"] == "mine"

    play(driver, story)
