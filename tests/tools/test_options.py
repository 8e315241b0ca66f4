"""The options of `@tool`: what the API would refuse is refused where it is given."""

from __future__ import annotations

import contextlib
from math import inf, nan
from typing import Any

import pytest

from toolloop.core.errors import BadTool
from toolloop.tools import tool


def add(left: int, right: int = 0) -> int:
    """Add."""
    return left + right


@pytest.mark.parametrize(
    "options",
    [
        {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"defer_loading": True, "strict": True, "eager_input_streaming": False},
        {"defer_loading": False, "cache_control": {"type": "ephemeral"}},
        {"allowed_callers": ("direct", "code_execution_20250825")},
        {"input_examples": ({"left": 1}, {"left": 1.0, "right": 2})},
    ],
)
def test_what_the_api_takes_is_sent(options: dict[str, Any]) -> None:
    sent = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    definition = tool(add, **options).definition()
    assert {key: definition[key] for key in sent} == sent


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cache_control": {"type": "forever"}}, "cache_control of add"),
        ({"cache_control": {"type": "ephemeral", "ttl": "2h"}}, "cache_control of add"),
        ({"cache_control": {"type": "ephemeral", "ttl": []}}, "cache_control of add"),
        ({"cache_control": {"type": "ephemeral", "scope": 1}}, "cache_control of add"),
        ({"cache_control": "ephemeral"}, "cache_control of add"),
        ({"allowed_callers": "direct"}, "allowed_callers of add"),
        ({"allowed_callers": ["anybody"]}, "allowed_callers of add"),
        ({"allowed_callers": [1]}, "allowed_callers of add"),
        ({"allowed_callers": []}, "allowed_callers of add"),
        ({"allowed_callers": {"direct", 3}}, "allowed_callers of add"),
        ({"allowed_callers": 3}, "allowed_callers of add"),
        ({"input_examples": {"left": 1}}, "input_examples of add"),
        ({"input_examples": [1]}, "input_examples of add"),
        ({"input_examples": [{"left": object()}]}, "left is a object"),
        ({"strict": "yes"}, "strict of add"),
        ({"defer_loading": 1}, "defer_loading of add"),
        ({"eager_input_streaming": 0}, "eager_input_streaming of add"),
        ({"defer_loading": True, "cache_control": {"type": "ephemeral"}}, "refuses both together"),
        ({"description": 3}, "description of add"),
        ({"effect": "twice"}, '"pure", "keyed" or "once"'),
        ({"timeout": 0}, "timeout of add"),
        ({"timeout": -1.0}, "timeout of add"),
        ({"timeout": nan}, "timeout of add"),
        ({"timeout": inf}, "timeout of add"),
        ({"timeout": True}, "timeout of add"),
        ({"timeout": "3"}, "timeout of add"),
        ({"opens": object()}, "opens of add"),
        ({"opens": contextlib.nullcontext}, "opens of add"),
    ],
)
def test_what_makes_no_sense_is_refused_at_decoration(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadTool, match=says):
        tool(add, **options)


def test_an_example_that_does_not_fit_is_named_when_the_definition_is_made() -> None:
    made = tool(add, input_examples=[{"left": 1}, {"left": "one"}])
    with pytest.raises(BadTool, match=r'input_examples\[1\] of add does not fit: left: expected an integer, got "one"'):
        made.definition()


def test_a_tool_keeps_how_long_it_may_take_and_what_it_opens() -> None:
    class Counter(contextlib.AbstractContextManager[None]):
        def __call__(self, by: int) -> int:
            """Count."""
            return by

        def __exit__(self, *_: object) -> None: ...

    class Later:
        async def __aenter__(self) -> None: ...
        async def __aexit__(self, *_: object) -> None: ...

    counter, later = Counter(), Later()
    assert (tool(add).timeout, tool(add).opens) == (None, None)
    assert (tool(add, timeout=2.5).timeout, tool(add, opens=later).opens) == (2.5, later)
    assert tool(counter, name="count").opens is counter
    assert tool(counter, name="count", opens=later).opens is later
