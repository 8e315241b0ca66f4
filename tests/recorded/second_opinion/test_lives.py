"""The second opinion on every request of random lives: the API accepts it."""

from __future__ import annotations

import json
from typing import Any

from attrs import evolve
from hypothesis import given, settings, strategies as st

from tests.kit.effort import IS_DEEP
from tests.promises.properties import runner_model
from tests.promises.properties.drawn_programs import BINDS, FREE, live, programs
from tests.promises.properties.test_runner_random import played
from tests.promises.properties.wire import check_accepted
from tests.recorded.second_opinion.judge import problems
from tests.recorded.second_opinion.lives import Life, lived, lives
from tests.recorded.second_opinion.moved import moved_thinking


def many(count: int, deep: int) -> settings:
    """Return settings with so many lives, in `make deep` with so many more."""
    return settings(max_examples=deep if IS_DEEP else count, deadline=None)


@many(8, 700)
@given(lives())
def test_loops_with_edits_and_updates(life: Life) -> None:
    """The API accepts each request after edits, updates and messages, or the caller gets an error before it."""
    exchanges = lived(life)
    assert [text for body, _ in exchanges for text in problems(body)] == []
    assert moved_thinking(exchanges) == []


@many(5, 200)
@given(programs(), st.sampled_from([BINDS, FREE]))
def test_programs(program: Any, model: str) -> None:
    """The API accepts each request of a program: parallel calls, decisions, loops that are stopped and continued."""
    for sent in live(evolve(program, model=model), "sync").bodies:
        check_accepted(json.loads(sent))


@many(5, 100)
@given(runner_model.programs)
def test_runners(program: list[Any]) -> None:
    """The API accepts each request of a runner whose body answers, adds messages, resets and tunes."""
    assert [text for sent in played("sync", program) for text in problems(json.loads(sent))] == []
