"""Whatever the model says and the caller does: a loop that compacts its history sends nothing that is refused."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import IS_DEEP, examples
from tests.properties.drawn_compaction import SUMMARIES, is_for_summary
from tests.properties.drawn_programs import BINDS, FREE, Kind, Program, live, programs
from tests.properties.drawn_replies import messages
from toolloop import MemoryStore
from toolloop.compaction import DropRounds, MaskResults, Summarize
from toolloop.history import check
from toolloop.testing import reply

TOO_LONG = reply("Too long. " * 3000)
FEW, AT = st.integers(1, 2), st.sampled_from([None, 1, 700, 1500])
STRATEGIES = st.one_of(
    st.builds(MaskResults, FEW, st.sampled_from([0, 500]), at_tokens=AT),
    st.builds(DropRounds, FEW, at_tokens=AT),
    st.builds(Summarize, keep_last=FEW, at_tokens=AT),
)


def at_length(_call: Any, content: Any) -> Any:
    """A result filter: what is short is told at some length."""
    return f"{content}, as was said before, and more than once" * 30 if isinstance(content, str) else None


@st.composite
def compacting(draw: st.DrawFn) -> Program:
    """Where a model binds thinking, nobody edits: the API knows a pause that it gave only as it gave it."""
    program, model = draw(programs()), draw(st.sampled_from([BINDS, FREE]))
    calling = messages(stop_reason=st.just("tool_use"), calls=st.sampled_from([1, 2, 4]))
    moves = [(("go on" if move == "edit" and model == BINDS else move), choices) for move, choices in program.moves]
    return evolve(
        program,
        answers=(*draw(st.lists(calling, min_size=2, max_size=6)), *program.answers),
        moves=(*moves, *moves),
        model=model,
        strategies=tuple(draw(st.lists(STRATEGIES, min_size=1, max_size=3))),
        summaries=tuple(draw(st.lists(st.one_of(SUMMARIES, st.just(TOO_LONG)), max_size=4))),
        result_filters=(at_length,),
    )


@pytest.mark.parametrize("is_stored", [False, True], ids=["alone", "stored"])
@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_any_loop_with_any_strategies(kind: Kind, is_stored: bool) -> None:
    """Nothing is refused, the first words stay, any part of the journal is a loop, and both handles do the same."""

    @examples(5, derandomize=not IS_DEEP, database=None)
    @given(compacting())
    def agree(program: Program) -> None:
        expected, actual = (live(program, each, MemoryStore() if is_stored else None) for each in ("sync", kind))
        for request in expected.requests:
            first = request.json["messages"][0]["content"]
            assert is_for_summary(request.json) or first in ("Begin.", "Begin otherwise.")
        minded = [*expected.messages, {"role": "user", "content": "Mind this."}]
        problems = check(minded, model=program.model, thinking={"type": "adaptive"})
        assert [problem for problem in problems if problem.level == "error"] == []
        assert expected.bodies == actual.bodies
        assert expected.seen == actual.seen
        assert expected == evolve(actual, requests=expected.requests)

    agree()
