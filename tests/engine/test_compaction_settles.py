"""Compaction that settles: it folds far enough, and does not try again and again what saves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.engine.compaction_stories import Reader, asks_for_summary, book, read, reading, size
from tests.kit.concurrency import play
from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.support import failed
from tests.kit.tools import params, user
from toolloop import LoopConfig, ToolLoopHandle, tool
from toolloop.compaction import DropRounds, MaskResults, Strategy, Summarize
from toolloop.events import Compacted
from toolloop.testing import ScriptedProvider, call, fault, reply

AT = 4000
LONG = "These are so many words that nothing is saved. " * 500
NONE = {"type": "none"}
# What a model may answer when it is asked for a summary.
ANSWERS = [
    reply("short"),
    reply(LONG),
    reply(" "),
    reply(content=[]),
    reply("a", stop_reason="max_tokens"),
    reply(calls=[call("text", {"tokens": 1})]),
    fault(529),
]


@tool
def text(tokens: int) -> str:
    """Return a text."""
    return "blah " * tokens


def live(tokens: Sequence[int], strategies: Any, summaries: Sequence[Any] = ()) -> tuple[list[Any], list[Compacted]]:
    """Drive a loop that reads texts of these sizes. Return its requests, and what was compacted."""
    told: list[Any] = []
    calls = [reply(calls=[call("text", {"tokens": each}, id=f"c{at}")]) for at, each in enumerate(tokens)]
    rest, later = iter([*calls, reply("done")]), iter(summaries)

    def answer(body: Mapping[str, Any]) -> Any:
        return next(later) if asks_for_summary(body) else next(rest)

    provider = ScriptedProvider(answer)
    config = LoopConfig(compaction=strategies, max_iterations=None, observers=[told.append])
    handle = ToolLoopHandle(provider, params=params(messages=[user("Read.")]), tools=[text], config=config)
    assert handle.run().unwrap().text == "done"
    return provider.requests, [event for event in told if isinstance(event, Compacted)]


def sum_up(messages: list[Any]) -> str:
    """A short summary."""
    return f"There were {len(messages)} messages."


FOLDING: dict[str, Callable[[int], Any]] = {
    "drop": lambda keep: DropRounds(keep, at_tokens=AT),
    "summarize": lambda keep: Summarize(sum_up, keep, at_tokens=AT),
    "to": lambda keep: DropRounds(keep, at_tokens=AT, to_tokens=3200),
    "mask, drop": lambda keep: [MaskResults(keep, at_tokens=AT), DropRounds(keep, at_tokens=AT)],
}


@each("name", FOLDING)
@examples(20, deadline=None)
@given(st.integers(1, 30), st.lists(st.integers(0, 1200), max_size=30))
def test_no_request_is_above_the_trigger_where_the_target_can_be_reached(
    name: str, keep: int, tokens: list[int]
) -> None:
    """However many rounds are to be kept: the last one, the question and the tools always fit into the target."""
    requests, compacted = live(tokens, FOLDING[name](keep))
    assert [body for body in requests if size(body) >= AT] == []
    target = 3200 if name == "to" else AT // 2
    assert all(event.after <= target + 30 for event in compacted if event.strategy != "MaskResults")


def test_as_many_rounds_as_fit_are_kept() -> None:
    """Of those that `keep_last` names."""
    requests, (event,) = live([300] * 11, DropRounds(20, at_tokens=AT))
    results = [block for message in requests[event.iteration]["messages"][1:] for block in message["content"]]
    assert sum(block["type"] == "tool_result" for block in results) == 4
    assert event.after <= AT // 2 < event.after + 350


@examples(20, deadline=None)
@given(
    st.lists(st.integers(0, 1200), max_size=30),
    st.lists(st.sampled_from(ANSWERS), min_size=30, max_size=30),
)
def test_at_most_one_summary_for_a_quarter_of_growth(tokens: list[int], summaries: list[Any]) -> None:
    """Whatever the model answers. One without text changes nothing, and is one event."""
    _, compacted = live(tokens, Summarize(keep_last=1, at_tokens=AT), summaries)
    assert all(later.before >= 1.25 * earlier.after - 1 for earlier, later in pairwise(compacted))
    assert all((event.after == event.before) == (event.problem is not None) for event in compacted)


def test_masking_without_a_trigger_goes_in_batches() -> None:
    """Each time the request has grown by a quarter, if that pays."""
    _, compacted = live([600] * 40, MaskResults(keep_rounds=1))
    assert 2 < len([event for event in compacted if event.after < event.before]) < 20
    assert all(later.before >= 1.25 * earlier.after - 1 for earlier, later in pairwise(compacted))


def test_a_retry_does_not_wait() -> None:
    """Nor a prompt that is too long: the summary that failed is asked for again."""

    async def story() -> None:
        script = Reader(8, summaries=[reply(" "), reply("short")], first=[*map(read, range(1, 5)), fault(400)])
        async with reading("sync", script, Summarize(keep_last=1, at_tokens=AT)) as at:
            failed(at.handle.run())
            assert (len(at.summaries), at.problems) == (1, ["the summary is blank"])
            at.handle.retry()
            await at.aturn()
            assert at.problems == ["the summary is blank", None]

    play("sync", story)


@each(
    ("tools", "given", "choice"),
    [
        (True, {}, NONE),
        (True, {"tool_choice": None}, None),
        (True, {"tool_choice": {"type": "auto"}}, {"type": "auto"}),
        (False, {}, None),
    ],
)
def test_a_summary_is_asked_for_without_calls(*, tools: bool, given: Any, choice: Any) -> None:
    """With tools, unless the strategy has a choice of its own. Only a request that shares the cache has its mark."""

    async def story() -> None:
        strategy = Summarize(keep_last=1, at_tokens=AT if tools else 1, params=given)
        more: dict[str, Any] = {} if tools else {"tools": ()}
        script = Reader(5 if tools else 0)
        async with reading("sync", script, strategy, asked=book(), cache="1h", **more) as at:
            await at.to_the_end()
            for _ in range(2 * (not tools)):
                at.handle.follow_up([user("And?" * 99)])
                await at.to_the_end()
            body = at.summaries[0]
            assert body.get("tool_choice") == choice
            assert ("cache_control" in body) == (choice is None)

    play("sync", story)


@each(
    ("given", "words"),
    [
        ({"to_tokens": 3}, "at_tokens, which is missing, got 3"),
        ({"at_tokens": 100, "to_tokens": 81}, "at_tokens, that is 80, got 81"),
        ({"at_tokens": 100, "to_tokens": 0}, "to_tokens: expected an int of at least 1, got 0"),
    ],
)
def test_a_target_near_the_trigger_is_refused(given: dict[str, Any], words: str) -> None:
    """There would be no room to grow by a quarter."""
    kinds: tuple[type[Strategy], ...] = (MaskResults, Summarize)
    for kind in kinds:
        with pytest.raises(ValueError, match=words):
            kind(**given)
