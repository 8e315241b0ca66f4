"""What the model is told of an input that does not fit: what the schema says and what the input holds, nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    Json,
    NaiveDatetime,
    field_validator,
)
from pydantic_core import PydanticCustomError

from tests.tools.kinds import json_values
from toolloop.core.jsontext import encode
from toolloop.tools import InvalidInput, Tool, ToolContext, tool

CONTEXT = ToolContext(call_id="c", loop_id="l", iteration=1, depth=0, idempotency_key="k")
SECRET = "sk-secret"


class Mood(enum.Enum):
    """How it goes."""

    GOOD = (1, "good")
    BAD = (0, "bad")


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2

    @classmethod
    def _missing_(cls, value: object) -> Size:
        return cls.SMALL


def problems(made: Tool[..., Any], given: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        made.prepare(given)
    told: tuple[str, ...] = caught.value.problems
    return told


def taking(annotation: Any) -> Tool[..., Any]:
    """A tool with the one parameter `it`."""

    def take(it: Any) -> Any:
        return it

    take.__annotations__["it"] = annotation
    return tool(take)


@pytest.mark.parametrize(
    ("annotation", "given", "says"),
    [
        (int, "two", 'expected an integer, got "two"'),
        (int, 2.5, "expected an integer, got 2.5"),
        (int, True, "expected an integer, got true"),
        (float, "1", 'expected a number, got "1"'),
        (bool, 1, "expected true or false, got 1"),
        (None, 0, "expected null, got 0"),
        (list[int], {}, "expected an array, got {}"),
        (set[int], "ab", 'expected an array, got "ab"'),
        (dict[str, int], [], "expected an object, got []"),
        (Mapping[str, int], 1, "expected an object, got 1"),
        (Iterable[int], 1, "expected an array, got 1"),
        (Collection[int], None, "expected an array, got null"),
        (int | None, "x", 'expected an integer, got "x"'),
        (Literal[1, "a"], True, 'expected 1 or "a", got true'),
        (Size, 3, "expected 1 or 2, got 3"),
        (Mood, "good", 'expected "GOOD" or "BAD", got "good"'),
        (Mood, [1, "good"], 'expected "GOOD" or "BAD", got [1,"good"]'),
        (dt.date, "5", 'expected a date such as 2026-01-31, got "5"'),
        (dt.datetime, "5", 'expected a date and time such as 2026-01-31T12:00:00Z, got "5"'),
        (dt.datetime, "then", 'expected a date and time such as 2026-01-31T12:00:00Z, got "then"'),
        (dt.time, "36000", 'expected a time such as 12:00:00, got "36000"'),
        (dt.timedelta, "5", 'expected a duration such as PT1H30M, got "5"'),
        (NaiveDatetime, "2026-01-31T12:00:00Z", "expected a date and time without a time zone, got …"),
        (AwareDatetime, "2026-01-31T12:00:00", "expected a date and time with a time zone, got …"),
        (Json, "{", 'expected a text that is JSON, got "{"'),
        (uuid.UUID, "5", 'expected a UUID, got "5"'),
        (decimal.Decimal, "x", 'expected a number, got "x"'),
        (Annotated[int, Field(ge=1)], 0, "expected at least 1, got 0"),
        (Annotated[int, Field(gt=1, multiple_of=2)], 3, "expected a multiple of 2, got 3"),
        (Annotated[str, Field(pattern="^a+$")], "b", 'expected a text that matches ^a+$, got "b"'),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "expected at most 1 items, got [1,2]"),
        (float, 10**400, "expected a number, got 1" + "0" * 78 + "…"),
        (str, "\ud800", "expected a text without half a surrogate pair (\\ud800 to \\udfff)"),
    ],
)
def test_what_was_expected_is_said_in_the_words_of_json(annotation: Any, given: Any, says: str) -> None:
    says = says.replace("…", encode(given)) if says.endswith("got …") else says
    assert problems(taking(annotation), {"it": given}) == (f"it: {says}",)


@pytest.mark.parametrize(
    ("annotation", "given", "expected"),
    [
        (int, 2.0, 2),
        (int, -0.0, 0),
        (list[int | str], [1e20, "a"], [10**20, "a"]),
        (float, 2, 2.0),
        (Literal[1, "a"], 1.0, 1),
        (Size, 2, Size.LARGE),
        (Mood, "GOOD", Mood.GOOD),
        (dict[int, str], {"-3": "x"}, {-3: "x"}),
        (set[int], [1, 1], {1}),
        (Iterable[int], [1, 2], [1, 2]),
        (dt.date, "2026-01-31", dt.date(2026, 1, 31)),
        (dt.datetime, "2026-01-31T12:00:00Z", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        (dt.timedelta, "PT1H30M", dt.timedelta(hours=1, minutes=30)),
        (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
    ],
)
def test_what_fits_becomes_what_the_annotation_says(annotation: Any, given: Any, expected: Any) -> None:
    prepared = taking(annotation).prepare({"it": given})["it"]
    assert (prepared, type(prepared)) == (expected, type(expected))


def test_the_path_leads_to_the_field() -> None:
    @attrs.define
    class Line:
        qty: int

    made = taking(dict[str, list[Line]])
    given = {"it": {"a b": [{"qty": 1}, {"qty": "two"}], "x" * 50: [{"qty": None}], "ok": [{}]}}
    assert problems(made, given) == (
        'it["a b"][1].qty: expected an integer, got "two"',
        f"it.{'x' * 39}…[0].qty: expected an integer, got null",
        "it.ok[0].qty: required, but it is missing",
    )


def refuse(value: Any) -> Any:
    raise ValueError(f"{SECRET} {value}")


def refuse_by_assertion(value: Any) -> Any:
    raise AssertionError(SECRET)


def refuse_in_pydantic_s_name(value: Any) -> Any:
    raise PydanticCustomError("greater_than", SECRET)


def refuse_in_its_own_name(value: Any) -> Any:
    raise PydanticCustomError("mine", "not {what}", {"what": SECRET})


def refuse_with_something_else(value: Any) -> Any:
    raise LookupError(SECRET)


class Guarded(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def check(cls, n: int) -> int:
        raise ValueError(SECRET)


@pytest.mark.parametrize(
    "annotation",
    [
        *(Annotated[int, AfterValidator(each)] for each in (refuse, refuse_by_assertion, refuse_in_pydantic_s_name)),
        *(Annotated[int, AfterValidator(each)] for each in (refuse_in_its_own_name, refuse_with_something_else)),
        Annotated[int, BeforeValidator(refuse)],
        Guarded,
    ],
)
def test_the_text_of_a_validator_s_exception_is_not_told(annotation: Any) -> None:
    made = taking(annotation)
    (problem,) = problems(made, {"it": {"n": 1} if annotation is Guarded else 1})
    assert "validator" in problem
    assert SECRET not in problem


@given(st.data(), json_values())
def test_no_value_is_told_that_is_not_in_the_input(data: st.DataObject, value: Any) -> None:
    made = taking(Annotated[Any, AfterValidator(data.draw(st.sampled_from([refuse, refuse_with_something_else])))])
    with pytest.raises(InvalidInput) as caught:
        made.prepare({"it": value})
    assert SECRET not in str(caught.value)


def nested_in(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"when": "x", "it": nested_in(900)}, "input: nested too deep"),
        ({"when": "x", "it": nested_in(100_000)}, "input: nested too deep"),
        ({"when": "x", "it": ["\udc00"]}, "it[0]: expected a text without half a surrogate pair (\\ud800 to \\udfff)"),
        ({"when": "x", "it": {"\udc00": 1}}, "it: expected a text without half a surrogate pair (\\ud800 to \\udfff)"),
    ],
)
def test_what_cannot_be_read_is_said(given: dict[str, Any], says: str) -> None:
    @tool
    def take(when: Any, it: Any) -> None: ...

    @tool
    def take_as_json(when: set[str], it: Any) -> None: ...

    assert problems(take, given) == problems(take_as_json, given) == (says,)


def test_what_could_not_have_come_as_json_is_said() -> None:
    for value, says in (
        (10**6000, "a number of fewer digits"),
        (float("inf"), "a number that is not too large"),
        (object(), "JSON, got object"),
    ):
        assert problems(taking(set[str]), {"it": value}) == (f"it: expected {says}",)
    assert problems(taking(float), {"it": float("inf")}) == ("it: expected a number that is not too large, got float",)


@given(st.dictionaries(st.text(st.characters(codec=None)), json_values() | st.text(st.characters(codec=None))))
def test_whatever_the_input_the_text_can_be_sent(given: dict[str, Any]) -> None:
    for annotation in (dict[str, set[int]], dict[str, int]):
        with pytest.raises(InvalidInput) as caught:
            taking(annotation).prepare({"it": given, "more": given})
        assert len(str(caught.value).encode()) < 4 * 4096
