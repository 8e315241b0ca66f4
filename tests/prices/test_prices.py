"""Prices: your own by pattern, those that genai-prices knows, and what a request costs by them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from toolloop import Cost, LoopConfig, ModelUsage, Usage
from toolloop.prices import Price, Prices, known_prices

NOW = datetime(2026, 11, 20, tzinfo=UTC)
OPUS = Price(input=4, output=20, cache_read=0.2, cache_write=5, cache_write_1h=8)
COUNTS = st.integers(0, 10**12)


def million(name: str, model: str = "claude-opus-5-5", **labels: Any) -> ModelUsage:
    """A million tokens of one kind."""
    counts: dict[str, Any] = {name: 1_000_000}
    return ModelUsage(model, Usage(**counts), **labels)


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_each_token_costs_its_price_once(plain: int, out: int, read: int, written: int, for_an_hour: int) -> None:
    """What is written for an hour is a part of what is written."""
    usage = Usage(plain, out, written + for_an_hour, read, written, for_an_hour)
    dollars = plain * 4 + out * 20 + Decimal("0.2") * read + written * 5 + for_an_hour * 8
    assert OPUS.cost(usage) == Cost(dollars / 1_000_000)


@pytest.mark.parametrize(
    "usage", [Usage(cache_read_input_tokens=1), Usage(cache_creation_input_tokens=1), Usage(web_search_requests=1)]
)
def test_what_has_no_price_makes_the_cost_partial(usage: Usage) -> None:
    """It is not in the sum."""
    assert Price(input=4, output=20).cost(usage) == Cost(is_partial=True)


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "much", None, True])
def test_a_price_is_a_number(price: Any) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=r"output is .* give dollars for a million tokens"):
        Price(input=1, output=price)


@pytest.mark.parametrize("prices", [{"m": 3}, {3: OPUS}, [OPUS]])
def test_prices_are_a_mapping(prices: Any) -> None:
    """Of models to prices."""
    with pytest.raises(TypeError, match="give a mapping of models to prices"):
        LoopConfig(prices=prices)


# --- which price ---

OWN = Prices(
    {
        "claude-opus-5-5 fast": Price(input=8, output=40),
        "claude-opus-5-5": Price(input=4, output=20),
        "claude-*": Price(input=1, output=2),
        "claude-* us": Price(input=3, output=6),
    }
)


@pytest.mark.parametrize(
    ("part", "cost"),
    [
        (million("input_tokens"), Cost(Decimal(4))),
        (million("input_tokens", "claude-new"), Cost(Decimal(1))),
        (million("input_tokens", "claude-opus-5-5-20261001"), Cost(Decimal(4))),
        (million("input_tokens", "claude-opus-5-5-20261001", speed="fast"), Cost(Decimal(8))),
        (million("input_tokens", speed="fast"), Cost(Decimal(8))),
        (million("input_tokens", speed="fast", inference_geo="us"), Cost(Decimal(8), is_partial=True)),
        (million("input_tokens", service_tier="priority"), Cost(Decimal(4), is_partial=True)),
        (million("input_tokens", "claude-new", inference_geo="us"), Cost(Decimal(3))),
        (million("input_tokens", "other"), Cost(is_partial=True, unpriced=("other",))),
        (ModelUsage("other"), Cost()),
    ],
)
def test_the_first_name_that_matches_counts(part: ModelUsage, cost: Cost) -> None:
    """With its speed, tier or region, where there is such a name; else the cost is partial."""
    assert OWN.cost(part, NOW) == cost


def test_a_model_has_a_price_or_not() -> None:
    """Of your own, or a known one."""
    assert [OWN.has(model) for model in ("claude-new", "other")] == [True, False]
    assert [known_prices({"mine": OPUS}).has(model) for model in ("claude-opus-5-5", "mine", "other")] == [1, 1, 0]


# --- known prices ---


@pytest.mark.parametrize(
    ("part", "cost"),
    [
        (million("input_tokens"), Cost(Decimal(4))),
        (million("output_tokens"), Cost(Decimal(20))),
        (million("cache_read_input_tokens"), Cost(Decimal("0.2"))),
        (million("cache_creation_input_tokens"), Cost(Decimal(5))),
        (
            ModelUsage(
                "claude-opus-5-5",
                Usage(cache_creation_input_tokens=1_000_000, cache_creation_1h_input_tokens=1_000_000),
            ),
            Cost(Decimal(8)),
        ),
        (ModelUsage("claude-opus-5-5", Usage(web_search_requests=1000)), Cost(Decimal(10))),
        (million("output_tokens", speed="fast"), Cost(Decimal(40))),
        (million("output_tokens", service_tier="priority"), Cost(Decimal(20), is_partial=True)),
        (million("output_tokens", speed="fast", inference_geo="us"), Cost(Decimal(40), is_partial=True)),
        (million("input_tokens", "claude-haiku-5-5"), Cost(Decimal("0.5"))),  # a long prompt costs more
        (ModelUsage("claude-haiku-5-5", Usage(1000)), Cost(Decimal("0.0001"))),
        (million("input_tokens", "mine"), Cost(Decimal(4))),
        (million("input_tokens", "gpt-4o"), Cost(is_partial=True, unpriced=("gpt-4o",))),
        (ModelUsage(None, Usage(1)), Cost(is_partial=True, unpriced=("unknown",))),
    ],
)
def test_known_prices(part: ModelUsage, cost: Cost) -> None:
    """Both lifetimes of the cache, searches, speeds and long prompts. Your own prices come first."""
    assert known_prices({"mine": OPUS}).cost(part, NOW) == cost


def test_known_prices_need_their_extra() -> None:
    """The error says how to install it."""
    program = """
import sys
sys.modules["genai_prices"] = sys.modules["genai_prices.data_snapshot"] = None
from toolloop.prices import known_prices
known_prices()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'toolloop[prices]'" in ran.stderr
