"""A strategy between the turns of a long loop: under its ceiling, and with work that grows with the rounds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.history.bodies import HI
from tests.history.long import round_of
from toolloop.compaction import DropRounds, Summarize
from toolloop.core.jsontext import encode
from toolloop.history import check
from toolloop.history.compaction import Strategy, live_tokens
from toolloop.history.outline import Outline, outline
from toolloop.history.summarizing import Summary

CEILING = 20_000


class Loop:
    """What a loop keeps between turns: an outline of each message, by its text; and what it had to do."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.outlines: list[Outline] = []
        self.work: Counter[str] = Counter()
        self.largest = 0

    def say(self, message: Any) -> None:
        self.work["outlines made"] += 1
        self.outlines.append(outline(encode(message)))

    def turn(self) -> None:
        tokens = live_tokens(self.outlines)
        self.largest = max(self.largest, tokens)
        if not self.strategy.is_due(tokens):
            return
        self.work["compactions"] += 1
        self.work["messages looked at"] += len(self.outlines)
        plan = self.strategy.plan(self.outlines)
        if isinstance(plan, Summary):
            self.work["messages summarized"] += plan.prefix
            plan = plan.finish_text("It went well.")
        self.outlines = list(plan.outlines)


def run(strategy: Strategy, rounds: int) -> Loop:
    loop = Loop(strategy)
    loop.say(HI)
    for number in range(rounds):
        for message in round_of(number):
            loop.say(message)
        loop.turn()
    return loop


@pytest.mark.parametrize(
    "strategy",
    [DropRounds(4, at_tokens=CEILING), Summarize(keep_last=4, at_tokens=CEILING)],
    ids=lambda each: each.name,
)
def test_a_long_loop_stays_under_its_ceiling_with_work_that_grows_with_it(strategy: Strategy) -> None:
    """Twice the rounds are twice the work, and no message is read a second time."""
    once, twice = run(strategy, 150), run(strategy, 300)
    assert twice.largest < CEILING * 1.1
    assert twice.work["outlines made"] == 601
    assert twice.work["compactions"] > 5
    for what, count in twice.work.items():
        assert count <= 2.2 * once.work[what], what
    assert check([each.message() for each in twice.outlines]) == []
