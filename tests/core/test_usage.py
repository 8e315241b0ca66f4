"""Token counts: how they are read, and how they add up."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import astuple, fields
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from toolloop.core import events as ev
from toolloop.core.folding import stride
from toolloop.core.replies import read_reply
from toolloop.core.usage import Billed, IterationUsage, Usage

NAMES = [part.name for part in fields(Usage)]
PLAIN = NAMES[:4]
usages = st.builds(Usage, **{name: st.integers(0, 10**12) for name in NAMES})
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, "iterations", "type", "status", "fallback_credit", "speed"]), inner)
    ),
    max_leaves=8,
)


def entry_of(usage: Any, *blocks: Any) -> IterationUsage:
    """The line of the usage log of a reply with this usage."""
    return read_reply({"content": list(blocks), "model": "m", "usage": usage}).entry(1, 0.5)


# --- adding ---


@given(usages, usages, usages)
def test_sums_are_sums_of_every_part(one: Usage, two: Usage, three: Usage) -> None:
    """Part by part, in any order, with nothing as the neutral element."""
    assert astuple(one + two) == tuple(map(sum, zip(astuple(one), astuple(two), strict=True)))
    assert (one + two) + three == one + (three + two)
    assert one + Usage() == one
    assert (one + two).total_tokens == one.total_tokens + two.total_tokens


@given(st.lists(anything, max_size=5).flatmap(lambda told: st.tuples(st.just(told), st.permutations(told))))
def test_requests_add_up_in_any_order(orders: tuple[list[Any], list[Any]]) -> None:
    """Nothing is cumulative across requests."""
    one, other = (sum(map(Usage.read, order), Usage()) for order in orders)
    assert one == other


def test_a_usage_adds_to_nothing_else() -> None:
    """A number is no usage."""
    with pytest.raises(TypeError):
        Usage() + 1  # type: ignore[operator]


def test_totals_count_each_token_once() -> None:
    """What splits or details another count is not added again."""
    usage = Usage(1, 2, 4, 8, 3, 1, 2, 16, 32)
    assert usage.total_input_tokens == 1 + 4 + 8
    assert usage.total_tokens == 1 + 2 + 4 + 8


# --- reading ---


def test_every_count_of_the_api_is_read() -> None:
    """All fields, nested ones included."""
    told = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation_input_tokens": 3,
        "cache_read_input_tokens": 4,
        "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 6},
        "output_tokens_details": {"thinking_tokens": 7},
        "server_tool_use": {"web_search_requests": 8, "web_fetch_requests": 9},
        "service_tier": "standard",
    }
    assert Usage.read(told) == Usage(1, 2, 3, 4, 5, 6, 7, 8, 9)


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        "much",
        {"input_tokens": None, "cache_creation": None, "server_tool_use": None},
        {"output_tokens": "2"},
        {"output_tokens": -1},
        {"output_tokens": True},
        {"output_tokens": 10**4000},
        {"iterations": [{"type": "message"}], "input_tokens": None},
    ],
)
def test_what_is_not_told_is_zero(told: Any) -> None:
    """Absent, null, or no count at all."""
    assert Usage.read(told) == Usage()


def variants(told: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The same usage, its zeros and empty objects told as such, as null or not at all."""

    def said(value: Any) -> st.SearchStrategy[Any]:
        if isinstance(value, dict):
            return variants(value)
        if isinstance(value, list):
            return st.tuples(*map(variants, value)).map(list)
        return st.sampled_from([0, None, ...]) if value == 0 else st.just(value)

    parts = st.fixed_dictionaries({name: said(value) for name, value in told.items()})
    return parts.map(lambda found: {name: value for name, value in found.items() if value is not ...})


SMALL = st.integers(0, 2)
DETAILS = {
    "cache_creation": st.fixed_dictionaries({"ephemeral_5m_input_tokens": SMALL, "ephemeral_1h_input_tokens": SMALL}),
    "output_tokens_details": st.fixed_dictionaries({"thinking_tokens": SMALL}),
}
COUNTS = st.fixed_dictionaries({**dict.fromkeys(PLAIN, SMALL), **DETAILS})
TOLD = st.tuples(COUNTS, st.lists(COUNTS, max_size=2)).map(lambda told: told[0] | {"iterations": told[1]})


@given(TOLD.flatmap(lambda told: st.tuples(st.just(told), variants(told))))
def test_absent_null_and_zero_are_the_same(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """At every depth."""
    whole, sparse = both
    # An iteration that says nothing of a detail leaves it to the top level, which is where all details may be.
    whole = whole | {name: None for name in DETAILS if whole["iterations"]}
    sparse = sparse | {name: None for name in DETAILS if sparse["iterations"]}
    assert Usage.read(whole) == Usage.read(sparse)


@given(anything, st.booleans())
def test_reading_never_fails(told: Any, asked: bool) -> None:
    """Whatever a reply says it used, the loop goes on."""
    assert isinstance(Usage.read(told), Usage)
    entry = entry_of(told, *([m.server_call("s")] if asked else []))
    assert entry.usage == Usage.read(told)
    assert entry.context_tokens is None or entry.context_tokens > 0


# --- what is billed ---

ITERATION = st.fixed_dictionaries(
    {**dict.fromkeys(PLAIN, SMALL), **DETAILS},
    optional={
        "type": st.sampled_from(["message", "compaction", "advisor_message", "fallback_message", "new", 1]),
        "model": st.sampled_from(["a", "b", None]),
    },
)


@given(st.lists(ITERATION, max_size=6), COUNTS)
def test_the_breakdown_adds_up_to_the_whole(iterations: list[dict[str, Any]], top: dict[str, Any]) -> None:
    """Each iteration is in one part of it, by type and model; without iterations there is no breakdown."""
    entry = entry_of(top | {"iterations": iterations})
    kinds = [(part.type, part.model) for part in entry.billed]
    assert len(set(kinds)) == len(kinds)
    assert bool(entry.billed) == bool(iterations)
    if iterations:
        assert sum((part.usage for part in entry.billed), Usage()) == entry.usage
        assert sum((Usage.read(part) for part in iterations), Usage()) == entry.usage
    else:
        assert Usage.read(top) == entry.usage


def whole_of(parts: list[dict[str, Any]], *, detailed: bool) -> dict[str, Any]:
    """A usage as the API tells it: the top level is the sum of the messages; details are there, or below too."""
    messages = [Usage.read(part) for part in parts if part["type"] == "message"]
    top = sum(messages, Usage())
    details = {
        "cache_creation": {
            "ephemeral_5m_input_tokens": top.cache_creation_5m_input_tokens,
            "ephemeral_1h_input_tokens": top.cache_creation_1h_input_tokens,
        },
        "output_tokens_details": {"thinking_tokens": top.thinking_tokens},
    }
    plain = [{name: value for name, value in part.items() if name not in DETAILS} for part in parts]
    return {name: getattr(top, name) for name in PLAIN} | details | {"iterations": parts if detailed else plain}


@st.composite
def consistent(draw: st.DrawFn) -> dict[str, Any]:
    """An iteration whose details are parts of what they detail."""
    short, long, thinking, said = (draw(SMALL) for _ in range(4))
    return {
        "type": draw(st.sampled_from(["message", "compaction", "advisor_message"])),
        "input_tokens": draw(SMALL),
        "output_tokens": thinking + said,
        "cache_creation_input_tokens": short + long,
        "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long},
        "output_tokens_details": {"thinking_tokens": thinking},
    }


@given(st.lists(consistent(), max_size=5), st.booleans())
def test_no_detail_is_more_than_its_whole(parts: list[dict[str, Any]], detailed: bool) -> None:
    """Wherever the API tells it; told below, the split of what was cached is a split of all of it."""
    usage = Usage.read(whole_of(parts, detailed=detailed))
    split = usage.cache_creation_5m_input_tokens + usage.cache_creation_1h_input_tokens
    assert split <= usage.cache_creation_input_tokens
    assert usage.thinking_tokens <= usage.output_tokens
    if detailed:
        assert split == usage.cache_creation_input_tokens


def test_details_that_only_the_top_level_has_are_kept() -> None:
    """Iterations tell of no thinking; and where they say nothing of the split, the top level may."""
    message = {"type": "message", "output_tokens": 9, "cache_creation_input_tokens": 7, "cache_creation": None}
    top = {"cache_creation": {"ephemeral_1h_input_tokens": 7}, "output_tokens_details": {"thinking_tokens": 4}}
    told = {**message, **top, "iterations": [message, "noise", None], "server_tool_use": {"web_search_requests": 2}}
    usage = Usage.read(told)
    assert (usage.cache_creation_input_tokens, usage.cache_creation_1h_input_tokens) == (7, 7)
    assert (usage.output_tokens, usage.thinking_tokens, usage.web_search_requests) == (9, 4, 2)


# --- the documented cases: the figures are those of the reference, which has them from recordings ---


def message(**counts: Any) -> dict[str, Any]:
    return {"type": "message", **counts}


def test_a_compaction_is_billed_beside_the_top_level() -> None:
    """The top level says 220 and 8; the 55,196 tokens that were summarized are in the iterations alone."""
    compaction = {"type": "compaction", "input_tokens": 55196, "output_tokens": 125}
    last = message(input_tokens=220, output_tokens=8)
    entry = entry_of({"input_tokens": 220, "output_tokens": 8, "iterations": [compaction, last]})
    assert entry.usage == Usage(input_tokens=55416, output_tokens=133)
    assert entry.billed == (
        Billed("compaction", None, Usage(input_tokens=55196, output_tokens=125)),
        Billed("message", None, Usage(input_tokens=220, output_tokens=8)),
    )
    assert entry.context_tokens == 228


def test_a_reply_that_is_a_compaction_only_costs_what_that_did() -> None:
    """Its top level is 0 and 0, and it tells nothing of the context (anthropic-sdk, 1: compaction)."""
    compaction = {"type": "compaction", "input_tokens": 3000, "output_tokens": 200}
    entry = entry_of({"input_tokens": 0, "output_tokens": 0, "iterations": [compaction]})
    assert entry.usage == Usage(input_tokens=3000, output_tokens=200)
    assert entry.context_tokens is None


def test_an_advisor_is_billed_apart() -> None:
    """1,128 and 1,262 make the top level's 2,390; the advisor's 2,518 have another model's price."""
    advisor = {"type": "advisor_message", "model": "wise", "input_tokens": 2518, "output_tokens": 300}
    first, second = message(input_tokens=1128, output_tokens=40), message(input_tokens=1262, output_tokens=60)
    entry = entry_of({"input_tokens": 2390, "output_tokens": 100, "iterations": [first, advisor, second]})
    assert entry.usage == Usage(input_tokens=2390 + 2518, output_tokens=400)
    assert entry.billed == (
        Billed("message", None, Usage(input_tokens=2390, output_tokens=100)),
        Billed("advisor_message", "wise", Usage(input_tokens=2518, output_tokens=300)),
    )
    assert entry.context_tokens == 1262 + 60


def test_a_fallback_is_billed_beside_the_attempt_that_declined() -> None:
    """The top level covers the attempt that served, and so does the context."""
    declined = message(model="first", input_tokens=500, output_tokens=3)
    served = {"type": "fallback_message", "model": "second", "input_tokens": 510, "cache_read_input_tokens": 4}
    entry = entry_of({"input_tokens": 510, "cache_read_input_tokens": 4, "iterations": [declined, served]})
    assert entry.usage == Usage(input_tokens=1010, output_tokens=3, cache_read_input_tokens=4)
    assert [(part.type, part.model) for part in entry.billed] == [("message", "first"), ("fallback_message", "second")]
    assert entry.context_tokens == 514


def test_a_reply_that_goes_on_with_code_may_cost_nothing() -> None:
    """Zeros, no word of the cache, and counts of the server's tools: nobody can say how long the context is."""
    entry = entry_of({"input_tokens": 0, "output_tokens": 0, "server_tool_use": {"web_search_requests": 0}})
    assert entry.usage == Usage()
    assert entry.context_tokens is None


@pytest.mark.parametrize(
    ("blocks", "server"),
    [
        ([m.server_call("s")], None),
        ([m.server_result("s")], None),
        ([{"type": "mcp_tool_use", "id": "s", "name": "n", "input": {}}], None),
        ([], {"web_search_requests": 0, "web_fetch_requests": 0}),
    ],
)
def test_passes_of_the_servers_tools_say_nothing_of_the_context(blocks: list[Any], server: Any) -> None:
    """A stream began with 2,479 tokens and ended with 404,500: they are the sum of the passes."""
    told = {"input_tokens": 404_500, "output_tokens": 10, "server_tool_use": server}
    entry = entry_of(told, *blocks)
    assert entry.usage.input_tokens == 404_500
    assert entry.context_tokens is None
    last = message(input_tokens=31_000, output_tokens=9, cache_read_input_tokens=1)
    assert entry_of(told | {"iterations": [message(input_tokens=2479), last]}, *blocks).context_tokens == 31_010


# --- the log ---


def test_labels_are_kept_with_the_request() -> None:
    """They have no sum. What is no word is none."""
    told = {
        "service_tier": "priority",
        "speed": "fast",
        "inference_geo": "eu",
        "fallback_credit": {"status": {"type": "redeemed"}},
    }
    entry = entry_of(told)
    assert (entry.service_tier, entry.speed, entry.inference_geo) == ("priority", "fast", "eu")
    assert entry.fallback_credit == "redeemed"
    assert entry_of({"service_tier": 1, "speed": None, "fallback_credit": {"status": "redeemed"}}) == entry_of({})


def test_a_plain_reply_leaves_everything_else_out() -> None:
    """So what is stored of such a loop is what it always was; the context is the sum."""
    entry = entry_of({"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5}, m.text("hi"))
    assert entry == IterationUsage(1, "m", usage=Usage(3, 4, 0, 5), seconds=0.5)
    assert entry.context_tokens == 12
    assert entry_of(None).context_tokens is None


def test_a_stride_writes_the_same_line_as_the_steps() -> None:
    """The line is made in one place; labels and breakdown are in both."""
    told = {"service_tier": "batch", "iterations": [message(input_tokens=7, output_tokens=1)]}
    turn = (
        ev.Requested(at=1.0),
        m.replied("tool_use", m.call("a", "pure"), usage=told),
        ev.Started("a"),
        m.ended("a"),
        ev.TurnEnded(),
        ev.Continued(),
    )
    quick = stride(m.after(), turn)
    assert quick is not None
    (line,) = quick.ledger.usage_log
    assert (line.service_tier, line.context_tokens, len(line.billed)) == ("batch", 8, 1)
    assert list(m.go(m.after(), *turn).ledger.usage_log) == [line]


def test_the_size_of_a_context_is_not_known_after_a_pause() -> None:
    """The reply was one of several passes; its counts are their sum."""
    paused = IterationUsage(1, stop_reason="pause_turn", usage=Usage(input_tokens=9, output_tokens=1))
    assert paused.context_tokens is None
    assert IterationUsage(1, stop_reason="end_turn", usage=paused.usage).context_tokens == 10
