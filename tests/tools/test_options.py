"""The options of `@tool`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial
from math import inf, nan
from typing import Annotated, Any

import pytest
from pydantic import Field

from toolloop.errors import BadTool
from toolloop.tools import ToolContext, tool


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
        ({"secret": ("token",)}, "names 'token', which is not a parameter. Give the name of one: left, right"),
        ({"secret": (5,)}, "secret of add: expected names of parameters"),
        ({"secret": 5}, "secret of add: expected names of parameters"),
        ({"secret": None}, "secret of add: expected names of parameters"),
        ({"diff": ("left",)}, "diff of add: expected two parameters"),
        ({"diff": ("left", "left")}, "diff of add: expected two parameters"),
        ({"diff": ("left", "old")}, "names 'old', which is not a parameter"),
        ({"diff": ("left", "right"), "path": "file"}, "names 'file', which is not a parameter"),
        ({"diff": ("left", "right"), "path": 5}, "path of add: expected names"),
        ({"path": "left"}, "names the file of a diff. Give diff=, too"),
        ({"diff": ("left", "right"), "secret": ("right",)}, "'right' cannot be secret and shown in the diff"),
    ]
    for options, says in cases:
        with pytest.raises(BadTool, match=says):
            tool(add, **options)


def test_how_the_input_is_shown_is_kept_with_the_facts_of_a_tool() -> None:
    """So that a page without the tool knows it. A text is one name, and an alias is the name that the model uses."""

    def edit(file: str, old: str, new: str, key: Annotated[str, Field(alias="apiKey")]) -> str:
        return file + old + new + key

    made = tool(edit, description="Edit.", diff=["old", "new"], path="file", secret="apiKey")
    facts = made.facts()
    assert (facts.diff, facts.path, facts.secret) == (("old", "new"), "file", ("apiKey",))
    assert (made.diff, made.path, made.secret) == (facts.diff, facts.path, facts.secret)
    with pytest.raises(BadTool, match="names 'key', which is not a parameter"):
        tool(edit, description="Edit.", secret="key").facts()


def test_an_example_that_does_not_fit_is_named_when_the_definition_is_made() -> None:
    made = tool(add, input_examples=[{"left": 1}, {"left": "one"}])
    with pytest.raises(BadTool, match=r"input_examples\[1\] of add is invalid: left: Input should be a valid integer"):
        made.definition()


def book(day: date, seats: int = 1) -> str:
    """Book seats."""
    return f"{day}: {seats}"


class Given:
    """The part of a call that a predicate of `typed=True` reads."""

    effective_input = {"day": "2026-12-24", "seats": 3}  # noqa: RUF012 - read only


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda day: day.year, 2026),
        (lambda seats, day: (seats, day.month), (3, 12)),
        (lambda seats, limit=2: seats > limit, True),
        (lambda **given: sorted(given), ["day", "seats"]),
        (lambda *_, seats: seats, 3),
        (lambda: "always", "always"),
    ],
)
def test_a_typed_predicate_and_preview_take_the_arguments_that_they_name(
    function: Callable[..., Any], value: Any
) -> None:
    made = tool(book, needs_approval=function, preview=function, typed=True)
    assert callable(made.needs_approval)
    assert callable(made.preview)
    asked: Any = made.needs_approval
    assert (asked(Given()), made.preview(Given.effective_input)) == (value, value)
    assert made.facts().approval == "predicate"


def test_what_is_not_a_function_stays_with_typed_options() -> None:
    made = tool(book, needs_approval=True, typed=True)
    assert (made.needs_approval, made.preview) == (True, None)


@pytest.mark.parametrize("option", ["needs_approval", "preview"])
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda dya: dya, r"of book takes 'dya', .* it takes these, by name: day, seats"),
        (lambda day, /: day, "of book takes 'day'"),
        (dict, "of book: its signature cannot be read"),
    ],
)
def test_a_typed_function_that_cannot_be_called_is_refused_at_decoration(option: str, function: Any, says: str) -> None:
    options: dict[str, Any] = {option: function, "typed": True}
    with pytest.raises(BadTool, match=f"{option} {says}"):
        tool(book, **options)


@pytest.mark.parametrize("bound", [partial(book, seats=9), partial(book, date(2026, 12, 24))])
def test_a_typed_function_has_no_default_for_what_the_model_does_not_fill_in(bound: Any) -> None:
    """It would see its own default where the tool gets another value. `**` takes what the model fills in."""
    hidden = "seats" if bound.keywords else "day"
    with pytest.raises(BadTool, match=f"needs_approval of book takes '{hidden}'"):
        tool(bound, needs_approval=lambda day=None, seats=1: bool(day and seats), typed=True)
    assert callable(tool(bound, needs_approval=lambda **given: bool(given), typed=True).needs_approval)

    def send(to: str, context: ToolContext) -> str:
        """Send."""
        return f"{to}: {context.call_id}"

    with pytest.raises(BadTool, match="needs_approval of send takes 'context'"):
        tool(send, needs_approval=lambda to, context=None: to != context, typed=True)
