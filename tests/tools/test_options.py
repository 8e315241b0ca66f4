"""The options of `@tool`."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from toolloop.errors import BadTool
from toolloop.tools import tool


def add(left: int, right: int = 0) -> int:
    """Add."""
    return left + right


def test_an_invalid_option_is_refused_at_decoration() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"allowed_callers": {"direct"}}, "allowed_callers is a set"),
        ({"input_examples": [{"left": object()}]}, "left is an object"),
        ({"defer_loading": True, "cache_control": {"type": "ephemeral"}}, "refuses them together"),
        ({"cache_control": object()}, "cache_control is an object"),
        ({"effect": "twice"}, '"pure", "keyed" or "once"'),
        ({"timeout": 0}, "timeout of add"),
        ({"timeout": -1.0}, "timeout of add"),
        ({"timeout": nan}, "timeout of add"),
        ({"timeout": inf}, "timeout of add"),
        ({"timeout": True}, "timeout of add"),
        ({"timeout": "3"}, "timeout of add"),
    ]
    for options, says in cases:
        with pytest.raises(BadTool, match=says):
            tool(add, **options)


def test_an_example_that_does_not_fit_is_named_when_the_definition_is_made() -> None:
    made = tool(add, input_examples=[{"left": 1}, {"left": "one"}])
    with pytest.raises(BadTool, match=r"input_examples\[1\] of add is invalid: left: Input should be a valid integer"):
        made.definition()
