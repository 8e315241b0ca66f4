"""Compaction between turns: what is promised to stay stays, and no request is refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from attrs import define

from tests.each import each
from tests.loop.compaction_stories import (
    BINDS,
    FREE,
    WORDS,
    Reader,
    Reading,
    book,
    pages_in,
    read,
    reading,
    size,
    thoughts_in,
)
from tests.loop.support import user, yielded
from tests.loop.talking import either_driver, play
from toolloop import Approve, Completed
from toolloop.compaction import DropRounds, MaskResults, Summarize
from toolloop.events import Compacted
from toolloop.history import check
from toolloop.testing import call, reply, server_call, server_result

ALONE: dict[str, Any] = {
    "mask": lambda: MaskResults(keep_rounds=2),
    "mask at": lambda: MaskResults(keep_rounds=2, at_tokens=4000),
    "drop": lambda: DropRounds(2),
    "drop at": lambda: DropRounds(2, at_tokens=4000),
    "summarize": lambda: Summarize(keep_last=2),
    "summarize at": lambda: Summarize(keep_last=2, at_tokens=4000),
}
TOGETHER: dict[str, Any] = {
    "mask, drop": lambda: [MaskResults(keep_rounds=1, at_tokens=3000), DropRounds(3, at_tokens=4000)],
    "mask, summarize": lambda: [MaskResults(keep_rounds=2), Summarize(keep_last=2, at_tokens=4000)],
    "drop, drop": lambda: [DropRounds(4, at_tokens=5000), DropRounds(2, at_tokens=7000)],
    "all": lambda: [MaskResults(), Summarize(keep_last=2, at_tokens=4500), DropRounds(3, at_tokens=6000)],
}
each_strategy = each("name", [*ALONE, *TOGETHER])
STRATEGIES = ALONE | TOGETHER


def assert_kept(at: Reading, rounds: int = 1) -> None:
    """Each request begins with the first user turn and ends with the last rounds, and obeys the rules."""
    for number, body in enumerate(at.requests):
        messages = body["messages"]
        assert messages[0] == user("Read the book.")
        kept = range(max(1, number - rounds + 1), number + 1)
        assert [page for page in kept if page not in pages_in(messages)] == []
        problems = check(messages, model=body["model"], tools=body["tools"], thinking=body["thinking"])
        assert [problem for problem in problems if problem.level == "error"] == []


@each(("name", "model"), [*((name, BINDS) for name in (*ALONE, *TOGETHER)), ("summarize", FREE)])
def test_a_long_loop_is_made_shorter(name: str, model: str) -> None:
    """What stays is promised, what came is told, thinking is left out only where a model binds it."""

    async def story() -> None:
        async with reading("sync", Reader(14), STRATEGIES[name](), asked=book(model=model)) as at:
            assert (await at.to_the_end()).text == "done"
            assert_kept(at)
            assert at.compactions
            assert all(event.after < event.before for event in at.compactions)
            assert set(at.problems) == {None}
            assert bool(at.dropped) == (model == BINDS)
            assert max(map(size, at.requests)) < 14 * 1000

    play("sync", story)


@either_driver
@each("name", ["mask", "drop at", "all"])
def test_all_drivers_send_the_same(driver: str, name: str) -> None:
    """To the byte; and they tell the same."""

    async def story() -> None:
        async with (
            reading("sync", Reader(10), STRATEGIES[name]()) as first,
            reading(driver, Reader(10), STRATEGIES[name]()) as second,
        ):
            await first.to_the_end()
            await second.to_the_end()
            assert [each.body for each in first.api.requests] == [each.body for each in second.api.requests]
            assert first.compactions == second.compactions

    play(driver, story)


STEPPING: dict[str, Any] = {
    "mask": MaskResults,
    "mask at": lambda: MaskResults(at_tokens=12_000),
    "drop": lambda: DropRounds(3),
    "drop at": lambda: DropRounds(3, at_tokens=12_000),
    "summarize": lambda: Summarize(keep_last=3),
    "summarize at": lambda: Summarize(keep_last=3, at_tokens=12_000),
    "together": lambda: [MaskResults(at_tokens=11_000), Summarize(at_tokens=13_000)],
}


@each("name", STEPPING)
def test_the_prefix_is_another_only_after_a_compaction(name: str) -> None:
    """Between two that were told of, each request begins with the bytes of the one before; and they are rare."""

    async def story() -> None:
        async with reading("sync", Reader(25), STEPPING[name](), asked=book(model=FREE)) as at:
            sent: list[Any] = []
            moved = 0
            while True:
                told = len(at.compactions)
                turn = await at.next()
                sent.append(at.requests[-1]["messages"])
                if len(sent) > 1:
                    begins_alike = sent[-1][: len(sent[-2])] == sent[-2]
                    assert begins_alike == (len(at.compactions) == told)
                moved += len(at.compactions) > told
                if isinstance(turn, Completed):
                    break
                yielded(turn).continue_loop()
            assert 0 < moved <= 9
            assert len(sent) == 26

    play("sync", story)


@each("name", ALONE)
def test_nothing_happens_below_the_threshold(name: str) -> None:
    """And a history that does not grow is left alone."""

    async def story() -> None:
        strategy = type(STRATEGIES[name]())
        keep: dict[str, Any] = {"keep_rounds" if strategy is MaskResults else "keep_last": 1}
        given = strategy(**keep, at_tokens=50_000)
        async with reading("sync", Reader(8), given) as at:
            await at.to_the_end()
            assert at.compactions == []
            assert at.dropped == []
            assert pages_in(at.requests[-1]["messages"]) == list(range(1, 9))

    play("sync", story)


@each("name", ["mask", "drop at", "summarize at", "all"])
def test_nothing_is_compacted_while_calls_wait(name: str) -> None:
    """The caller looks at what the model saw; the history is compacted before the next request."""

    async def story() -> None:
        waits = reply(calls=[call("sign", {"name": "ana"})])
        async with reading("sync", Reader(12, first=[*map(read, range(1, 4)), waits]), STRATEGIES[name]()) as at:
            for _ in range(3):
                (await at.turn()).continue_loop()
            turn = await at.turn()
            assert turn.reason == "decision_required"
            told, messages = len(at.compactions), at.handle.messages
            assert turn.pending
            turn.approve_all()
            turn.continue_loop()
            assert at.handle.messages == messages
            assert len(at.compactions) == told
            assert (await at.to_the_end()).text == "done"
            assert_kept_after(at)

    play("sync", story)


def assert_kept_after(at: Reading) -> None:
    assert at.compactions
    assert all(body["messages"][0] == user("Read the book.") for body in at.requests)


@each("name", STRATEGIES)
def test_what_the_user_said_last_stays(name: str) -> None:
    """A follow-up, and the words that were injected after it, are in each request until the next one."""

    async def story() -> None:
        script = Reader(14, first=[read(100), reply("done")])
        async with reading("sync", script, STRATEGIES[name]()) as at:
            await at.to_the_end()
            at.handle.follow_up([user("Read on.")])
            (await at.turn()).inject_and_continue([user("And be brief.")])
            assert (await at.to_the_end()).text == "done"
            assert at.compactions
            for body in at.requests[3:]:
                assert user("Read on.") in body["messages"]
                assert user("And be brief.") in body["messages"]

    play("sync", story)


def test_a_paused_turn_is_not_touched() -> None:
    """What stands beside the history goes out as it came, server calls in flight among it."""

    async def story() -> None:
        search = server_call("web_search", {"query": "storms"}, id="srvtoolu_1")
        pause = reply("Searching.", content=[search], stop_reason="pause_turn")
        found = reply(
            content=[server_result("web_search"), {"type": "text", "text": "Found."}],
            calls=[call("page", {"number": 6})],
        )
        tools = [{"type": "web_search_20250305", "name": "web_search"}]
        script = Reader(8, first=[*map(read, range(1, 6)), pause, found])
        async with reading("sync", script, DropRounds(1, at_tokens=5000), asked=book(tools=tools, model=FREE)) as at:
            turn = await at.turn()
            while turn.reason != "paused":
                turn.continue_loop()
                turn = await at.turn()
            at.events.clear()
            at.handle.update_params(max_tokens=300)
            turn.continue_loop()
            turn = await at.turn()
            resumed = at.requests[-1]["messages"]
            assert resumed[-1]["content"][-1] == search
            turn.continue_loop()
            assert (await at.to_the_end()).text == "done"
            assert at.compactions

    play("sync", story)


def test_a_long_pause_is_compacted_around() -> None:
    """The threshold is reached by the pause itself: the closed history is compacted before it is resumed."""

    async def story() -> None:
        pause = reply("Long words. " * 1500, stop_reason="pause_turn")
        script = Reader(1, first=[*map(read, range(1, 5)), pause])
        async with reading("sync", script, DropRounds(1, at_tokens=6000)) as at:
            for _ in range(4):
                (await at.turn()).continue_loop()
            turn = await at.turn()
            assert turn.reason == "paused"
            assert at.compactions == []
            turn.continue_loop()
            await at.turn()
            (event,) = at.compactions
            assert event.before >= 6000 > event.after
            sent = at.requests[-1]["messages"]
            assert pages_in(sent) == [4]
            assert sent[-1]["content"][0]["text"].startswith("Long words.")

    play("sync", story)


def test_a_pause_that_hangs_on_its_thinking_is_resumed_first() -> None:
    """No server call ends it, and without its thinking the API would not know it: compacted is after it."""

    async def story() -> None:
        pause = reply("Long words. " * 1500, thinking="a thought", stop_reason="pause_turn")
        script = Reader(1, first=[*map(read, range(1, 5)), pause, read(5)])
        async with reading("sync", script, DropRounds(1, at_tokens=6000)) as at:
            for _ in range(5):
                (await at.turn()).continue_loop()
            (await at.turn()).continue_loop()
            assert at.compactions == []
            assert (await at.to_the_end()).text == "done"
            assert at.compactions

    play("sync", story)


def test_what_is_told_of_a_summary() -> None:
    """It stands behind the first user turn, and the numbers are those of whole requests."""

    async def story() -> None:
        async with reading("sync", Reader(5), Summarize(keep_last=2, at_tokens=4000)) as at:
            await at.to_the_end()
            (event,) = at.compactions
            assert event == Compacted(event.iteration, "Summarize", event.before, event.after)
            number = at.bodies().index(at.summaries[0])
            after = at.bodies()[number + 1]
            assert after["messages"][1]["content"][0]["text"].endswith(WORDS)
            assert size(after) <= event.after <= size(after) + 10  # with the thinking that is left out
            assert (
                at.summaries[0]["messages"][:-1]
                == at.requests[number - 1]["messages"][: len(at.summaries[0]["messages"]) - 1]
            )
            assert thoughts_in(after["messages"]) == []

    play("sync", story)


class Counting(Reader):
    """A model whose API counts four times as many tokens as toolloop takes for granted."""

    def __call__(self, body: Any) -> Any:
        return {**super().__call__(body), "usage": {"input_tokens": 4 * size(body), "output_tokens": 1}}


@each("name", ["mask at", "drop at", "summarize at"])
def test_what_the_api_counts_is_believed(name: str) -> None:
    """The threshold is one of its tokens: it is not passed by more than a round."""

    async def story() -> None:
        made = type(STRATEGIES[name]())
        keep: dict[str, Any] = {"keep_rounds" if made is MaskResults else "keep_last": 2}
        async with reading("sync", Counting(14), made(**keep, at_tokens=16_000)) as at:
            assert (await at.to_the_end()).text == "done"
            assert at.compactions
            assert max(4 * size(body) for body in at.requests) <= 16_000 + 4 * 1000
            assert len(at.compactions) < 12

    play("sync", story)


@define
class Reporting(Reader):
    """A model whose API reports this usage from the fifth reply on, when there are rounds to drop."""

    usage: Any = None

    def __call__(self, body: Any) -> Any:
        made = super().__call__(body)
        return {**made, "usage": self.usage} if self.said >= 5 else made


MANY = {"input_tokens": 100_000, "output_tokens": 1}


@each(
    ("usage", "compacts"),
    [
        (MANY, True),
        ({"input_tokens": 1, "iterations": [{"type": "message", **MANY}]}, True),
        ({**MANY, "iterations": [{"type": "compaction", **MANY}, {"type": "message", "input_tokens": 9}]}, False),
        ({**MANY, "iterations": [{"type": "compaction", **MANY}]}, False),
        ({**MANY, "server_tool_use": {"web_search_requests": 0}}, False),
    ],
)
def test_only_the_count_of_the_whole_history_is_used(usage: Any, compacts: bool) -> None:
    """Of a reply in several steps the last step counts. Passes of the server's tools say nothing of the history."""

    async def story() -> None:
        async with reading("sync", Reporting(6, usage=usage), DropRounds(3, at_tokens=50_000)) as at:
            assert (await at.to_the_end()).text == "done"
            assert bool(at.compactions) == compacts

    play("sync", story)


class Pondering(Reader):
    """A model that thinks at length."""

    def __call__(self, body: Any) -> Any:
        made = super().__call__(body)
        for block in made["content"]:
            if block["type"] == "thinking":
                block["thinking"] += " and then again" * 400
        return made


def test_thinking_that_is_left_out_does_not_count() -> None:
    """A request that is short without it is not compacted: the one before each compaction had nearly reached it."""

    async def story() -> None:
        async with reading("sync", Pondering(20), DropRounds(3, at_tokens=12_000)) as at:
            assert (await at.to_the_end()).text == "done"
            assert len(at.compactions) > 1
            assert at.dropped
            before = [size(at.requests[event.iteration - 1]) for event in at.compactions]
            assert min(before) >= 12_000 - 2500

    play("sync", story)


def test_a_strategy_that_finds_nothing_does_nothing() -> None:
    """Short results are not masked, whatever the threshold."""

    async def story() -> None:
        small = [reply(calls=[call("sign", {"name": f"a{number}"})]) for number in range(10)]
        script = Reader(0, first=small)
        async with reading("sync", script, MaskResults(at_tokens=1), on_tool_call=lambda *_: Approve()) as at:
            assert (await at.to_the_end()).text == "done"
            assert at.compactions == []

    play("sync", story)


def test_a_problem_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody need listen for events to hear that nothing is compacted; one that went well is none."""

    async def story() -> None:
        script = Reader(9, summaries=[reply(""), reply(WORDS)])
        async with reading("sync", script, Summarize(keep_last=1, at_tokens=4000)) as at:
            await at.to_the_end()
            failed, *others = at.problems
            assert set(others) == {None}
            lines = [record for record in caplog.records if record.levelno == logging.WARNING]
            (line,) = [record for record in lines if record.name.startswith("toolloop")]
            assert failed
            assert failed not in line.getMessage()  # it may repeat what was said
            assert "Summarize" in line.getMessage()

    with caplog.at_level(logging.WARNING, logger="toolloop"):
        play("sync", story)
