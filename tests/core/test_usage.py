"""Token counts: how they are read, and how they add up."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import astuple, fields
from hypothesis import given
from hypothesis import strategies as st

from toolloop.core.usage import Usage

NAMES = [part.name for part in fields(Usage)]
usages = st.builds(Usage, **{name: st.integers(0, 10**12) for name in NAMES})
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "iterations"]), inner),
    max_leaves=8,
)


@given(usages, usages, usages)
def test_sums_are_sums_of_every_part(one: Usage, two: Usage, three: Usage) -> None:
    """Part by part, in any order, with nothing as the neutral element."""
    assert astuple(one + two) == tuple(map(sum, zip(astuple(one), astuple(two), strict=True)))
    assert (one + two) + three == one + (three + two)
    assert one + Usage() == one
    assert (one + two).total_tokens == one.total_tokens + two.total_tokens


def test_a_usage_adds_to_nothing_else() -> None:
    """A number is no usage."""
    with pytest.raises(TypeError):
        Usage() + 1  # type: ignore[operator]


def test_totals_count_each_token_once() -> None:
    """What splits or details another count is not added again."""
    usage = Usage(1, 2, 4, 8, 3, 1, 2, 16, 32)
    assert usage.total_input_tokens == 1 + 4 + 8
    assert usage.total_tokens == 1 + 2 + 4 + 8


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
    [None, {}, "much", {"input_tokens": None, "cache_creation": None, "server_tool_use": None}, {"output_tokens": "2"}],
)
def test_what_is_not_told_is_zero(told: Any) -> None:
    """Absent, null, or no count at all."""
    assert Usage.read(told) == Usage()


def test_what_was_billed_is_the_sum_of_the_iterations() -> None:
    """With `iterations`, the top level leaves out what a compaction or an advisor used."""
    told = {
        "input_tokens": 10,
        "output_tokens": 1,
        "iterations": [
            {"type": "compaction", "input_tokens": 100, "output_tokens": 20},
            {"type": "message", "input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 5},
        ],
    }
    assert Usage.read(told) == Usage(input_tokens=110, output_tokens=21, cache_read_input_tokens=5)
    assert Usage.read(told | {"iterations": []}) == Usage(input_tokens=10, output_tokens=1)
    assert Usage.read(told | {"iterations": None}) == Usage(input_tokens=10, output_tokens=1)


@given(anything)
def test_reading_never_fails(told: Any) -> None:
    """Whatever a reply says it used, the loop goes on."""
    assert isinstance(Usage.read(told), Usage)
