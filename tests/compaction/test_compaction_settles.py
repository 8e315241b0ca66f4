"""Compaction that settles: it folds far enough, and does not try again and again what saves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import pytest
from attrs import define, field, frozen
from hypothesis import example, given, strategies as st

from tests.compaction.compaction_stories import Reader, asks_for_summary, book, reading, size
from tests.kit.concurrency import play
from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.tools import params, user
from toolloop import Completed, Error, LoopConfig, MemoryStore, ToolLoopHandle, tool
from toolloop.compaction import DropRounds, MaskResults, Strategy, Summarize
from toolloop.errors import ModelError
from toolloop.events import Compacted, ModelRequestFailed
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


def test_masking_without_a_trigger_goes_in_batches() -> None:
    """Each time the request has grown by a quarter, if that pays."""
    _, compacted = live([600] * 40, MaskResults(keep_rounds=1))
    assert 2 < len([event for event in compacted if event.after < event.before]) < 20
    assert all(later.before >= 1.25 * earlier.after - 1 for earlier, later in pairwise(compacted))


# --- random lives ----------------------------------------------------------------------------------------------------

How = Literal["retry", "follow_up", "say"]


@frozen
class Read:
    """The model reads a text of so many tokens."""

    tokens: int


@frozen
class Say:
    """The model is done, and a person says so many words; then perhaps another process continues."""

    words: int
    sleeps: bool = False


@frozen
class Fail:
    """The request fails, and a person continues in some way."""

    retryable: bool = False
    how: How = "retry"


Step = Read | Say | Fail


@define
class Life:
    """A loop in a store that takes these steps, and the requests of it besides those for summaries.

    Attributes:
        told: what was compacted, and the requests that failed.
        sent: the other requests, each with how much was reported before it.

    """

    steps: Sequence[Step]
    strategies: Any
    summaries: Sequence[Any] = ()
    told: list[Any] = field(factory=list)
    sent: list[tuple[dict[str, Any], int]] = field(factory=list)
    taken: int = 0

    def answer(self, body: dict[str, Any]) -> Any:
        if asks_for_summary(body):
            asked = sum(isinstance(event, Compacted) for event in self.told)
            return self.summaries[asked] if asked < len(self.summaries) else reply("short")
        self.sent.append((body, len(self.told)))
        step = self.steps[self.taken] if self.taken < len(self.steps) else Say(0)
        self.taken += 1
        match step:
            case Read(tokens):
                return reply(calls=[call("text", {"tokens": tokens}, id=f"c{self.taken}")])
            case Fail(retryable):
                return ModelError("It failed.", status=529 if retryable else 400, retryable=retryable)
        return reply("done")

    def tell(self, event: Any) -> None:
        if isinstance(event, Compacted | ModelRequestFailed):
            self.told.append(event)

    def live(self) -> None:
        """Take all steps."""
        store, provider = MemoryStore(), ScriptedProvider(self.answer)
        config = LoopConfig(compaction=self.strategies, max_iterations=None, observers=[self.tell])
        start = partial(ToolLoopHandle.open, store, "loop", provider, tools=[text], config=config)
        handle = start(params=params(messages=[user("Read.")]))
        while self.taken <= len(self.steps):
            result = handle.run()
            step = self.steps[self.taken - 1] if self.taken <= len(self.steps) else None
            match result, step:
                case Error(), Fail(how="retry"):
                    handle.retry()
                case Error(), Fail(how=how):
                    getattr(handle, how)("Go on.")
                case Completed(), Say(words, sleeps):
                    if sleeps:
                        handle.close()
                        handle = start()
                    handle.follow_up("word " * (words + 1))
        handle.close()


SIZES = st.one_of(st.integers(0, 1200), st.integers(0, 6000))
STEPS = st.one_of(
    SIZES.map(Read),
    SIZES.map(Read),
    st.builds(Say, SIZES, st.booleans()),
    st.builds(Fail, st.booleans(), st.sampled_from(["retry", "follow_up", "say"])),
)
LIVES = st.lists(STEPS, max_size=16)
LARGE: Sequence[Step] = (Read(4500), *(Read(100),) * 5)


def reaches_target(body: Mapping[str, Any], strategy: Any) -> bool:
    """Whether a strategy by hand reaches its target, and a little more: enough for a short summary."""
    return size({**body, "messages": strategy(body["messages"])}) <= AT // 2 - 60


def is_waiting(told: Sequence[Any], body: Mapping[str, Any]) -> bool:
    """Whether a summary was asked for since the request grew by a quarter, and no request was too large since."""
    last = [event for event in told if isinstance(event, Compacted) or not event.retryable][-1:]
    return any(isinstance(event, Compacted) and size(body) < 1.25 * event.after + 1 for event in last)


@each("name", ["drop", "summarize", "mask", "mask, drop"])
@examples(60, deadline=None)
@given(LIVES, st.integers(1, 5), st.lists(st.sampled_from(ANSWERS), max_size=9))
@example(LARGE, 1, [])
@example([Read(3900), Read(600), *LARGE[1:]], 1, [])
@example([Read(1500), Read(1500), Read(1500), Fail(how="follow_up"), Say(1)], 1, [reply(LONG)])
def test_no_request_of_any_life_is_above_the_trigger_where_the_target_can_be_reached(
    name: str, steps: Sequence[Step], keep: int, summaries: Sequence[Any]
) -> None:
    """Whatever happens to it, and however large a round is. Only a summary waits for a quarter of growth."""
    masks = MaskResults(keep, at_tokens=AT)
    life = Life(steps, masks if name == "mask" else FOLDING[name](keep), summaries)
    if name == "summarize":
        life.strategies = Summarize(keep_last=keep, at_tokens=AT)
    life.live()
    by_hand = MaskResults(1) if name == "mask" else DropRounds(1)
    for body, before in life.sent:
        if size(body) >= AT and reaches_target(body, by_hand):
            assert name == "summarize"
            assert is_waiting(life.told[:before], body)


@examples(60, deadline=None)
@given(LIVES, st.integers(1, 5), st.lists(st.sampled_from(ANSWERS), max_size=9))
@example([Read(1500), Read(1500), Read(1500), *(Fail(retryable=True),) * 5], 1, [reply(LONG)] * 9)
@example([Read(1500), Read(1500), Read(1500), *(Fail(retryable=True, how="say"),) * 5], 1, [reply(LONG)] * 9)
def test_at_most_one_summary_for_a_quarter_of_growth_of_any_life(
    steps: Sequence[Step], keep: int, summaries: Sequence[Any]
) -> None:
    """Whatever the model answers, and however often a request is sent again that may succeed as it is.

    A summary without text changes nothing, and is one event.
    """
    life = Life(steps, Summarize(keep_last=keep, at_tokens=AT), summaries)
    life.live()
    told = [event for event in life.told if isinstance(event, Compacted) or not event.retryable]
    assert all((event.after == event.before) == bool(event.problem) for event in told if isinstance(event, Compacted))
    for earlier, later in pairwise(told):
        if isinstance(earlier, Compacted) and isinstance(later, Compacted):
            assert later.before >= 1.25 * earlier.after - 1


@each("how", ["retry", "follow_up", "say"])
def test_after_a_request_that_may_be_too_large_no_strategy_waits(how: How) -> None:
    """The summary that failed is asked for again."""
    life = Life([*(Read(1500),) * 3, Fail(how=how)], Summarize(keep_last=1, at_tokens=AT), [reply(" ")])
    life.live()
    problems = [event.problem for event in life.told if isinstance(event, Compacted)]
    assert problems == ["the summary is blank", None]


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
