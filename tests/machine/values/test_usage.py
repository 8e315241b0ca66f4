"""Token counts: how they are read, and how they add up."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import astuple, fields
from hypothesis import given, strategies as st

from toolloop._usage import Usage
from toolloop.machine.record.replies import read_reply

NAMES = [part.name for part in fields(Usage) if part.name != "cost"]
PLAIN = NAMES[:4]
usages = st.builds(Usage, **{name: st.integers(0, 10**12) for name in NAMES})
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, "iterations", "cache_creation", "server_tool_use"]), inner)
    ),
    max_leaves=8,
)


# --- adding ---


@given(usages, usages, usages)
def test_sums_are_sums_of_every_part(one: Usage, two: Usage, three: Usage) -> None:
    """Part by part, in any order, with nothing as the neutral element."""
    counts = zip(astuple(one)[: len(NAMES)], astuple(two)[: len(NAMES)], strict=True)
    assert astuple(one + two) == (*map(sum, counts), None)
    assert (one + two) + three == one + (three + two)
    assert one + Usage() == one
    assert (one + two).total_tokens == one.total_tokens + two.total_tokens


def test_a_usage_adds_to_nothing_else() -> None:
    """A number is not a usage."""
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
def test_a_missing_count_is_zero(told: Any) -> None:
    """Absent, null, or no count at all."""
    assert Usage.read(told) == Usage()


SMALL = st.integers(0, 2)
DETAILS = {
    "cache_creation": st.fixed_dictionaries({"ephemeral_5m_input_tokens": SMALL, "ephemeral_1h_input_tokens": SMALL}),
    "output_tokens_details": st.fixed_dictionaries({"thinking_tokens": SMALL}),
}
COUNTS = st.fixed_dictionaries({**dict.fromkeys(PLAIN, SMALL), **DETAILS})


@given(anything)
def test_reading_never_fails(told: Any) -> None:
    """Whatever a reply says it used, the loop goes on."""
    assert isinstance(read_reply({"content": [], "usage": told}).usage, Usage)


# --- replies with iterations ---


@given(st.lists(COUNTS, min_size=1, max_size=6))
def test_iterations_add_up(iterations: list[dict[str, Any]]) -> None:
    """Whatever the top level says: it leaves some of them out."""
    assert Usage.read({"input_tokens": 9, "iterations": iterations}) == sum(map(Usage.read, iterations), Usage())


def test_details_that_only_the_top_level_has_are_kept() -> None:
    """Iterations tell of no thinking; and where they say nothing of the split, the top level may."""
    message = {"type": "message", "output_tokens": 9, "cache_creation_input_tokens": 7, "cache_creation": None}
    top = {"cache_creation": {"ephemeral_1h_input_tokens": 7}, "output_tokens_details": {"thinking_tokens": 4}}
    told = {**message, **top, "iterations": [message, "noise", None], "server_tool_use": {"web_search_requests": 2}}
    usage = Usage.read(told)
    assert (usage.cache_creation_input_tokens, usage.cache_creation_1h_input_tokens) == (7, 7)
    assert (usage.output_tokens, usage.thinking_tokens, usage.web_search_requests) == (9, 4, 2)


# --- the documented cases: the figures are those of the reference, which has them from recordings ---


@pytest.mark.parametrize(
    ("told", "used"),
    [
        pytest.param(
            {
                "input_tokens": 220,
                "output_tokens": 8,
                "iterations": [
                    {"type": "compaction", "input_tokens": 55196, "output_tokens": 125},
                    {"type": "message", "input_tokens": 220, "output_tokens": 8},
                ],
            },
            Usage(input_tokens=55416, output_tokens=133),
            id="the top level leaves out the compaction",
        ),
        pytest.param(
            {
                "input_tokens": 0,
                "output_tokens": 0,
                "iterations": [{"type": "compaction", "input_tokens": 3000, "output_tokens": 200}],
            },
            Usage(input_tokens=3000, output_tokens=200),
            id="a reply that is a compaction only",
        ),
        pytest.param(
            {
                "input_tokens": 2390,
                "output_tokens": 100,
                "iterations": [
                    {"type": "message", "input_tokens": 1128, "output_tokens": 40},
                    {"type": "advisor_message", "model": "wise", "input_tokens": 2518, "output_tokens": 300},
                    {"type": "message", "input_tokens": 1262, "output_tokens": 60},
                ],
            },
            Usage(input_tokens=2390 + 2518, output_tokens=400),
            id="an advisor",
        ),
        pytest.param(
            {
                "input_tokens": 510,
                "cache_read_input_tokens": 4,
                "iterations": [
                    {"type": "message", "model": "first", "input_tokens": 500, "output_tokens": 3},
                    {"type": "fallback_message", "input_tokens": 510, "cache_read_input_tokens": 4},
                ],
            },
            Usage(input_tokens=1010, output_tokens=3, cache_read_input_tokens=4),
            id="another model took over",
        ),
    ],
)
def test_documented_usage(told: dict[str, Any], used: Usage) -> None:
    """Every step of a reply counts."""
    assert Usage.read(told) == used
