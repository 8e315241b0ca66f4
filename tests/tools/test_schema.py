"""Schemas and validation: what fits reaches the function, what does not never does."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, ValidationError
from typing_extensions import TypedDict

from toolloop.core.errors import BadTool
from toolloop.tools import InvalidInput, Tool, ToolContext, tool

CONTEXT = ToolContext(call_id="c", loop_id="l", iteration=1, depth=0, idempotency_key="k")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


class Unknown:
    """Nothing that a call could give."""


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict):
    deep: bool
    note: NotRequired[str]


class Person(BaseModel):
    name: str
    friends: list[Person] = []


def problems(made: Tool[..., Any], given: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        made.prepare(given)
    problems: tuple[str, ...] = caught.value.problems
    return problems


@tool
def paint(  # noqa: PLR0917 - one parameter of each kind
    at: Point,
    colour: Colour = Colour.RED,
    mode: Literal["fast", "slow"] = "fast",
    who: Person | None = None,
    options: Optional[Options] = None,  # noqa: UP045 - the old spelling works too
    size: int | str = 1,
    more: Annotated[list[Point], "further points"] = [],  # noqa: B006 - never changed, as the test below shows
) -> Any:
    return at, colour, mode, who, options, size, more


def test_values_are_structured_by_their_annotations() -> None:
    prepared = paint.prepare(
        {
            "at": {"x": 5.0},
            "colour": "blue",
            "who": {"name": "Ana", "friends": [{"name": "Bo"}]},
            "options": {"deep": True},
            "size": "big",
            "more": [{"x": 1, "y": 2}],
        }
    )
    assert paint.run(prepared, CONTEXT) == (
        *(Point(5), Colour.BLUE, "fast", Person(name="Ana", friends=[Person(name="Bo")])),
        *({"deep": True}, "big", [Point(1, 2)]),
    )


def test_a_default_is_not_shared_between_calls() -> None:
    paint.prepare({"at": {"x": 1}})["more"].append(1)
    assert paint.prepare({"at": {"x": 1}})["more"] == []


def test_the_schema_says_what_the_annotations_say() -> None:
    schema = paint.input_schema
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["at"]
    assert schema["properties"]["mode"] == {"type": "string", "enum": ["fast", "slow"], "default": "fast"}
    assert schema["properties"]["at"] == {"$ref": "#/$defs/Point"}
    assert schema["properties"]["more"]["description"] == "further points"
    assert set(schema["$defs"]) == {"Point", "Colour", "Person", "Options"}


def test_each_problem_names_its_field_what_was_expected_and_what_was_got() -> None:
    wrong = {
        "at": {"y": "q"},
        "colour": "green",
        "who": {"name": "Ana", "friends": [{"name": "Bo"}, {"name": 3}]},
        "size": [1],
        "zoom": "x" * 200,
    }
    assert problems(paint, wrong) == (
        "at.x: required, but it is missing",
        'at.y: expected an integer, got "q"',
        "colour: expected 'red' or 'blue', got \"green\"",
        "who.friends[1].name: expected a string, got 3",
        "size: expected an integer or a string, got [1]",
        f'zoom: no such field, got "{"x" * 78}…',
    )


def test_the_text_for_the_model_is_short_and_holds_no_traceback_and_no_links() -> None:
    with pytest.raises(InvalidInput) as caught:
        paint.prepare({"at": {"x": 1}, "more": [{"x": "q"}] * 1000})
    text = str(caught.value)
    assert text.startswith("Invalid input for paint; the tool did not run:\n- more[0].x: ")
    assert len(caught.value.problems) == 1000
    assert len(text) == 4096
    assert "http" not in text
    assert "Traceback" not in text
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.problems, again.tool) == (text, caught.value.problems, "paint")


def test_half_a_surrogate_pair_in_a_name_can_be_told() -> None:
    @tool
    def counts(by_name: dict[str, dict[str, int]]) -> None: ...

    assert problems(counts, {"by_name": {"a\ud800": {"b": "\ud800"}}})[0].encode()


def test_a_value_that_is_not_json_is_named_by_its_type() -> None:
    assert problems(paint, {"at": {"x": object()}}) == ("at.x: expected JSON, got object",)


@pytest.mark.parametrize("given", [None, [], "text", 3])
def test_input_that_is_no_object_is_invalid(given: Any) -> None:
    (problem,) = problems(paint, given)
    assert problem.startswith("input: expected an object, got ")


def test_names_that_a_model_class_would_keep_for_itself_are_parameters_like_others() -> None:
    @tool
    def odd(model_config: str, _private: int, json: bool, given: str, self_: int = 1) -> Any:
        return model_config, _private, json, given, self_

    input_ = {"model_config": "a", "_private": 1, "json": True, "given": "g"}
    assert odd.run(odd.prepare(input_), CONTEXT) == ("a", 1, True, "g", 1)


@given(number=st.integers(min_value=-(10**40), max_value=10**40), text=st.text(), extra=JSON)
def test_what_the_schema_accepts_the_function_gets(number: int, text: str, extra: Any) -> None:
    @tool
    def echo(number: int, text: str, extra: Any, maybe: int | None = None) -> Any:
        return number, text, extra, maybe

    prepared = echo.prepare({"number": number, "text": text, "extra": extra})
    assert echo.run(prepared, CONTEXT) == (number, text, extra, None)


@given(given=st.dictionaries(st.sampled_from(["n", "names", "other"]), JSON) | JSON)
def test_what_does_not_fit_never_reaches_the_function(given: Any) -> None:
    seen: list[Any] = []

    @tool
    def strict(n: Annotated[int, Field(strict=True)], names: Annotated[list[str], Field(strict=True)]) -> None:
        seen.append((n, names))

    fits = (
        isinstance(given, dict)
        and given.keys() == {"n", "names"}
        and (type(given["n"]) is int or (type(given["n"]) is float and given["n"].is_integer()))
        and type(given["names"]) is list
        and all(isinstance(name, str) and not re.search("[\ud800-\udfff]", name) for name in given["names"])
    )
    if fits:
        strict.run(strict.prepare(given), CONTEXT)
    else:
        with pytest.raises(InvalidInput) as caught:
            strict.run(strict.prepare(given), CONTEXT)
        assert caught.value.problems
        assert str(caught.value).encode()
    assert seen == ([(given["n"], given["names"])] if fits else [])


def test_a_function_s_own_errors_are_not_invalid_input() -> None:
    @tool
    def fails(kind: str) -> None:
        if kind == "value":
            raise ValueError(kind)
        Person.model_validate({})

    for kind, error in (("value", ValueError), ("validation", ValidationError)):
        prepared = fails.prepare({"kind": kind})
        with pytest.raises(error):
            fails.run(prepared, CONTEXT)


def test_a_validator_that_raises_anything_means_invalid_input() -> None:
    def check(value: str) -> str:
        return {"known": value}[value]

    @tool
    def checked(key: Annotated[str, AfterValidator(check)]) -> str:
        return key

    assert problems(checked, {"key": "x"}) == ('key: expected a value that its validator accepts, got "x"',)
    assert checked.prepare({"key": "known"}) == {"key": "known"}


def test_classes_local_to_a_function_resolve() -> None:
    @dataclass
    class Inner:
        n: int

    @dataclass
    class Outer:
        inner: Inner

    Level = Literal[1, 2]  # noqa: N806 - a type

    @tool
    def local(outer: Outer, level: Level) -> Any:
        return outer, level

    assert local.prepare({"outer": {"inner": {"n": 3}}, "level": 2}) == {"outer": Outer(Inner(3)), "level": 2}


@tool
def early(later: Later, many: list[Later]) -> Any:
    return later, many


@dataclass
class Later:
    n: int


def test_a_class_defined_after_the_function_resolves() -> None:
    assert early.prepare({"later": {"n": 1}, "many": [{"n": 2}]}) == {"later": Later(1), "many": [Later(2)]}


def test_a_name_that_nobody_defines_is_refused_when_the_schema_is_used() -> None:
    @tool
    def lost(thing: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821 - that is the point
        ...

    for use in (lost.definition, lambda: lost.prepare({"thing": 1})):
        with pytest.raises(BadTool, match=r"'thing' of lost is annotated .*Nowhere"):
            use()


def test_a_class_that_has_no_schema_is_refused_when_the_schema_is_used() -> None:
    @tool
    def takes(first: int, thing: Unknown) -> None: ...

    @tool
    def calls(first: int, back: st.SearchStrategy[int]) -> None: ...

    @tool
    def reads(first: int, each: Iterator[int]) -> None: ...

    for made, name in ((takes, "thing"), (calls, "back"), (reads, "each")):
        for use in (made.definition, lambda made=made: made.prepare({})):
            with pytest.raises(BadTool, match=rf"no schema of its parameter '{name}': .*attrs classes, dataclasses"):
                use()


def test_a_type_that_validates_but_cannot_be_described_is_refused() -> None:
    from collections.abc import Callable  # noqa: PLC0415 - only this test's annotation needs it

    @tool
    def calls(back: Callable[[], int]) -> None: ...

    with pytest.raises(BadTool, match="calls cannot be a tool"):
        calls.definition()


def test_a_default_that_is_not_json_stays_out_of_the_schema() -> None:
    marker = object()

    @tool
    def marked(n: Any = marker) -> Any:
        return n

    assert marked.input_schema["properties"] == {"n": {}}
    assert marked.run(marked.prepare({}), CONTEXT) is marker
