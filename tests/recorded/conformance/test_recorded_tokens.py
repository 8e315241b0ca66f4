"""How far the estimate of tokens is from the API's own counts, in every recorded request.

Only recordings have real counts, so this file runs where they lie beside the repository (see `conftest.py`).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest

from tests.recorded.conformance.replaying import reply_of
from tests.recorded.conformance.traffic import RECORDINGS, Exchange, load, names
from toolloop._messages.reading import is_server_result
from toolloop.history import estimate_tokens
from toolloop.machine.record.replies import read_reply

MOST = Fraction(25, 100)
MOST_OF_SEARCHES = Fraction(15, 100)

# The server ran tools in these: the count is the sum over its passes.
SERVER = {
    "code_execution_tool_stream",
    "pause_turn_web_search",
    "sdk_web_search_only",
    "web_search_tool_stream",
}
# Its text is capitals and hexadecimal digits, and its model drops thinking of closed turns, which newer ones keep.
UNUSUAL = {"redacted_thinking"}


def answered(name: str) -> list[Exchange]:
    return load(RECORDINGS, name).answered


def counted(exchange: Exchange) -> int:
    """The API's count of the input, cached or not."""
    usage = read_reply(reply_of(exchange)).entry(1, 0.0).usage
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def estimated(exchange: Exchange) -> int:
    body = exchange.request
    return estimate_tokens(body["messages"], system=body.get("system"), tools=body.get("tools"))


def off(estimate: int, count: int) -> Fraction:
    return Fraction(estimate - count, count)


def shown(errors: list[Fraction]) -> str:
    return ", ".join(f"{float(error):+.0%}" for error in errors)


PLAIN = [name for name in names(RECORDINGS) if name not in SERVER | UNUSUAL]


@pytest.mark.parametrize("name", PLAIN)
def test_a_request_is_estimated_within_a_quarter(name: str) -> None:
    errors = [off(estimated(exchange), counted(exchange)) for exchange in answered(name)]
    assert all(abs(error) <= MOST for error in errors), shown(errors)


@pytest.mark.parametrize("name", PLAIN)
def test_the_growth_of_a_round_is_estimated_within_a_quarter(name: str) -> None:
    """A reply and the results: what stays the same in both requests cancels out."""
    errors = [
        off(estimated(later) - estimated(earlier), counted(later) - counted(earlier))
        for earlier, later in pairwise(answered(name))
    ]
    assert all(abs(error) <= MOST for error in errors), shown(errors)


def test_on_average_the_error_is_smaller() -> None:
    """A sixth of a request, either way; they are not all too low, and not all too high."""
    errors = [off(estimated(exchange), counted(exchange)) for name in PLAIN for exchange in answered(name)]
    assert len(errors) >= 13
    assert sum(map(abs, errors)) / len(errors) <= Fraction(1, 6), shown(errors)
    assert min(errors) < 0 < max(errors)


@pytest.mark.parametrize("name", sorted(SERVER - {"code_execution_tool_stream"}))
def test_search_results_are_estimated_within_15_percent(name: str) -> None:
    """Summed over the passes of the server: one reads the request, and one more after each result."""
    for exchange in answered(name):
        passes = _passes(exchange)
        error = off(sum(passes), counted(exchange))
        assert abs(error) <= MOST_OF_SEARCHES, (len(passes), shown([error]))


def _passes(exchange: Exchange) -> list[int]:
    request, reply = exchange.request, reply_of(exchange)["content"]
    ends = [0, *(at + 1 for at, block in enumerate(reply) if is_server_result(block["type"]))]
    if request["messages"][-1]["role"] == "assistant":
        del ends[0]  # a resumed reply begins with the result it waited for
    return [
        estimate_tokens(
            [*request["messages"], {"role": "assistant", "content": reply[:end]}],
            system=request.get("system"),
            tools=request.get("tools"),
        )
        for end in ends
    ]


def test_the_first_pass_before_code_is_estimated_within_a_quarter() -> None:
    """The start of a stream has the count of the first pass."""
    (exchange,) = answered("code_execution_tool_stream")
    count = exchange.streamed[0]["message"]["usage"]["input_tokens"]
    assert abs(off(estimated(exchange), count)) <= MOST
