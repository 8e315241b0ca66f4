"""What a compaction by hand reports where no summary comes of it, or something else than the model writes it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.handle.compaction_stories import USED, WORDS, Reader, Reading, reading
from tests.handle.talking import each_driver, play
from toolloop import Budget, Usage
from toolloop.compaction import MaskResults, Summarize
from toolloop.testing import fault, reply


async def rounds(at: Reading) -> None:
    for _ in range(4):
        (await at.turn()).continue_loop()


@each_driver
def test_a_summary_that_fails_by_hand(driver: str) -> None:
    """It is reported, not raised; and what it used is counted."""

    async def story() -> None:
        script = Reader(4, summaries=[fault(500), reply(WORDS, stop_reason="max_tokens", usage=USED), reply(WORDS)])
        async with reading(driver, script) as at:
            await rounds(at)
            before = at.handle.messages
            for word in ("500", "max_tokens"):
                report = await at.by_hand(Summarize(keep_last=1))
                assert word in str(report.problem)
                assert report.before == report.after
                assert at.handle.messages == before
            assert [entry.usage for entry in at.handle.usage_log if entry.kind == "summary"] == [Usage(900, 30)]
            assert (await at.by_hand(Summarize(keep_last=1))).problem is None
            assert (await at.to_the_end()).text == "done"

    play(driver, story)


@each_driver
def test_a_function_by_hand(driver: str) -> None:
    async def story() -> None:
        async with reading(driver, Reader(4)) as at:
            await rounds(at)
            report = await at.by_hand(Summarize(lambda messages: f"{len(messages)} messages", keep_last=1))
            assert report.problem is None
            assert at.handle.messages[1]["content"][0]["text"].endswith("7 messages")
            assert {entry.kind for entry in at.handle.usage_log} == {"reply"}

    play(driver, story)


class Mute(Exception):
    """One that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@each_driver
@pytest.mark.parametrize("raised", [ValueError("no pen"), Mute()], ids=["error", "mute"])
def test_a_function_that_raises_by_hand(driver: str, raised: Exception) -> None:
    """Whatever it raises is a problem of the report."""

    def write(_messages: Any) -> str:
        raise raised

    async def story() -> None:
        async with reading(driver, Reader(4)) as at:
            await rounds(at)
            report = await at.by_hand(Summarize(write, keep_last=1))
            assert type(raised).__name__ in str(report.problem)
            assert report.before == report.after

    play(driver, story)


@each_driver
def test_a_spent_budget_asks_for_no_summary(driver: str) -> None:
    """The report says so; masking is free."""

    async def story() -> None:
        async with reading(driver, Reader(4), budget=Budget(requests=4)) as at:
            await rounds(at)
            report = await at.by_hand(Summarize(keep_last=1))
            assert "4 of 4" in str(report.problem)
            assert report.before == report.after
            assert len(at.api.requests) == 4
            report = await at.by_hand(MaskResults(keep_rounds=1))
            assert report.after < report.before

    play(driver, story)
