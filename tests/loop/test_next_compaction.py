"""The next step of compaction before a request, asked of a loop directly: what the handles cannot show alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.long_loops import loop_of, round_of
from tests.each import each
from tests.messages.bodies import text, user
from toolloop.compaction import DropRounds, Summarize
from toolloop.compaction.strategy import Strategy
from toolloop.compaction.token_counts import TokenCounter
from toolloop.errors import ModelError
from toolloop.loop.compacting import Compactor, SummaryRequest
from toolloop.machine import HistoryEdited
from toolloop.machine.chain import Chain
from toolloop.machine.jsontext import encode
from toolloop.machine.loop import Loop
from toolloop.machine.setup import Setup
from toolloop.machine.splicing import spliced
from toolloop.requests.params import RequestMaker, Secrets
from toolloop.testing import reply
from toolloop.tools import ToolRegistry

PARAMS = encode({"model": "claude-opus-5-5", "max_tokens": 1000})
SUMMARIES = [
    "It went well.",
    ModelError("overloaded"),
    "",
    reply("It went well."),
    reply("cut", stop_reason="max_tokens"),
]


def loop_with(messages: list[Any]) -> Loop:
    return Loop(Setup("loop", PARAMS), Chain(map(encode, messages)))


def compactor_of(*strategies: Strategy) -> Compactor:
    return Compactor(strategies, ToolRegistry(), RequestMaker((), Secrets()))


def summary_for(loop: Loop) -> SummaryRequest:
    asked = compactor_of(Summarize(keep_last=2, at_tokens=1)).next_compaction(loop, is_async=False)
    assert isinstance(asked, SummaryRequest)
    return asked


def edited(loop: Loop, event: Any) -> list[str]:
    """The history after an event of a compaction."""
    assert isinstance(event, HistoryEdited)
    return spliced(loop.messages, event.splices)


def test_a_summary_is_spliced_into_a_history_that_has_grown_meanwhile() -> None:
    """The loop stays Ready while a summary is written, so that messages may be added to its history."""
    loop = loop_with(loop_of(6))
    asked = summary_for(loop)
    alone = edited(loop, asked.finish("It went well.", loop, 0.1))
    assert len(alone) < len(loop.messages)
    more = list(map(encode, [*round_of(7), user(text("and now?"))]))
    grown = evolve(loop, messages=loop.messages.extend(more))
    assert edited(grown, asked.finish("It went well.", grown, 0.1)) == [*alone, *more]


@given(st.integers(0, 3), st.sampled_from(SUMMARIES))
def test_a_summary_of_messages_that_were_edited_meanwhile_changes_nothing(place: int, came: Any) -> None:
    """Whatever came of it, the caller's edit stands."""
    loop = loop_with(loop_of(6))
    asked = summary_for(loop)
    messages = list(loop.messages)
    messages[place] = encode(user(text("other words")))
    after = asked.finish(came, evolve(loop, messages=Chain(messages)), 0.1)
    assert (after.splices, after.before) == ((), after.after)
    assert after.problem


@each("came", SUMMARIES[1:3] + SUMMARIES[4:])
def test_a_summary_that_failed_changes_nothing(came: Any) -> None:
    """The event says why, and what the request used."""
    loop = loop_with(loop_of(6))
    event = summary_for(loop).finish(came, loop, 0.1)
    assert edited(loop, event) == list(loop.messages)
    assert event.problem
    assert (event.spent is not None) == isinstance(came, dict)


def test_a_strategy_that_finds_nothing_looks_again_only_after_growth() -> None:
    """Its event records the size that it saw."""
    loop, compactor = loop_with(loop_of(2)), compactor_of(DropRounds(keep_last=5))
    event = compactor.next_compaction(loop, is_async=False)
    assert isinstance(event, HistoryEdited)
    assert (event.strategy, event.splices, event.before) == ("DropRounds", (), event.after)
    seen = evolve(loop, compacted=(("DropRounds", event.after),))
    assert compactor.next_compaction(seen, is_async=False) is None
    grown = evolve(seen, messages=seen.messages.extend([encode(message) for message in loop_of(4)]))
    assert compactor.next_compaction(grown, is_async=False) is not None


def test_a_function_beside_an_event_loop_writes_in_a_thread_or_is_awaited() -> None:
    """Either way an async driver awaits the writer as it awaits a provider."""

    def plain(messages: list[Any]) -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return f"{len(messages)} messages"

    async def later(messages: list[Any]) -> str:
        return f"{len(messages)} messages"

    loop = loop_with(loop_of(6))
    for function in (plain, later):
        asked = compactor_of(Summarize(function, 2, at_tokens=1)).next_compaction(loop, is_async=True)
        assert isinstance(asked, SummaryRequest)
        assert asyncio.run(_sent(asked)) == "9 messages"


async def _sent(asked: SummaryRequest) -> Any:
    return await asked.provider.send(asked.request)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=6))
def test_counting_step_by_step_equals_counting_at_once(steps: list[tuple[int, int]]) -> None:
    """A counter that has seen other histories before, longer, shorter or edited, counts like a fresh one."""
    texts = [encode(message) for message in loop_of(6)]
    counter, history = TokenCounter(), Chain[str]()
    for length, beside in steps:
        history = history.extend(texts[len(history) : length]) if length >= len(history) else Chain(texts[-length:])
        loop = evolve(loop_with([]), messages=history, unjoined=tuple(texts[:beside]), stale_thinking=length)
        assert counter.next_request(loop, PARAMS) == TokenCounter().next_request(loop, PARAMS)
