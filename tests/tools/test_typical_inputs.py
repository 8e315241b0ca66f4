"""Typical pairs of an annotation and an input: whether the input fits, and which value the function gets."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest
from pydantic import BaseModel, Field

from toolloop.tools import InvalidInput, Tool, tool


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@attrs.frozen
class Line:
    article: str
    count: int = 1


@dataclass
class Point:
    x: int
    y: int = 0


class Person(BaseModel):
    name: str
    friends: list[Person] = []


REFUSED: Any = object()
ABSENT: Any = object()
ID = "00000000-0000-0000-0000-000000000001"
NOON = "2026-01-31T12:00:00Z"

# The annotation of a parameter, the input, and the value that the function gets: what `kinds` leaves out.
PAIRS: dict[str, tuple[Any, Any, Any]] = {
    "int: a float without a fraction": (int, 5.0, 5),
    "int: text": (int, "5", REFUSED),
    "int: true": (int, True, REFUSED),
    "default": (Annotated[int, "with a default"], ABSENT, 7),
    # Pydantic looks the value up, and `True == 1`.
    "literal: true for 1": (Literal[1, 2], True, 1),
    "enum: a number": (Level, 2, Level.HIGH),
    "dict: integer keys": (dict[int, str], {"1": "a"}, {1: "a"}),
    "set": (set[str], ["a", "b", "a"], {"a", "b"}),
    "frozenset": (frozenset[int], [1], frozenset({1})),
    "model": (Person, {"name": "Ana", "friends": [{"name": "Bo"}]}, Person(name="Ana", friends=[Person(name="Bo")])),
    "datetime": (datetime, NOON, datetime(2026, 1, 31, 12, tzinfo=UTC)),
    "datetime: a number": (datetime, 1_700_000_000, REFUSED),
    "Path": (Path, "a/b", Path("a/b")),
    "Decimal": (Decimal, "1.10", Decimal("1.10")),
    "bytes": (bytes, "abc", b"abc"),
    "constraint: broken": (Annotated[int, Field(ge=1, le=9)], 0, REFUSED),
    "union of classes": (Line | Point, {"x": 1}, Point(1)),
    "anything": (Any, {"a": [1, None]}, {"a": [1, None]}),
    "a parameter that does not exist": (int, {"x": 1, "y": 2}, REFUSED),
}


def make_taking(annotation: Any) -> Tool[..., Any]:
    """A tool with one parameter `x`."""

    def take(**given: Any) -> Any:
        """Return the input."""
        return given

    default = 7 if "with a default" in getattr(annotation, "__metadata__", ()) else inspect.Parameter.empty
    x = inspect.Parameter("x", inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
    take.__dict__["__signature__"] = inspect.Signature([x])
    return tool(take)


def test_an_input_becomes_the_value_of_its_annotation_or_is_refused() -> None:
    """Validated as JSON: `"5"` and `true` are not integers, 5.0 is one."""
    for annotation, given, value in PAIRS.values():
        made = make_taking(annotation)
        whole = {} if given is ABSENT else given if "y" in (given if isinstance(given, dict) else ()) else {"x": given}
        if value is REFUSED:
            with pytest.raises(InvalidInput):
                made.prepare(whole)
        else:
            (became,) = made.prepare(whole).values()
            assert (became, type(became)) == (value, type(value))
