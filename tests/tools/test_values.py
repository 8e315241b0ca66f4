"""Values of each kind become JSON; values that cannot are error results."""

from __future__ import annotations

import array
import ipaddress
import json
import math
import re
from collections import Counter, UserDict, UserList, UserString, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pydantic.dataclasses
import pytest
from pydantic import BaseModel, Field, RootModel, field_serializer

from tests.tools.answering import ADAPTER, error, read_said
from toolloop.responses import JsonResponse


class Colour(Enum):
    RED = "red"
    SHADES = ("light", "dark")


class Level(IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int
    tags: tuple[str, ...] = ()


@attrs.frozen
class Box:
    point: Point
    _made: date = date(2024, 2, 29)


class Person(BaseModel):
    name: str = Field(serialization_alias="fullName")
    born: date | None = None
    photo: bytes = b""


class People(RootModel[list[Person]]):
    pass


class Account(BaseModel):
    name: str = "Ana"
    password: str = "hunter2"

    @field_serializer("password", when_used="json")
    def hide(self, _: str) -> str:
        return "***"


@pydantic.dataclasses.dataclass
class Login:
    name: str
    token: str = Field(exclude=True)


class Own:
    """An object with `to_dict`."""

    def to_dict(self) -> dict[str, Any]:
        return {"own": date(2024, 1, 1)}


class Series:
    """A list-like class of another library."""

    def tolist(self) -> list[int]:
        return [1, 2]


def numbers(end: int) -> Iterator[int]:
    yield from range(end)


Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - the kind without types

KINDS: dict[str, tuple[Any, Any]] = {
    "none": ([None], [None]),
    "bool": ([True], [True]),
    "int": (10**30, 10**30),
    "float": (1.5, 1.5),
    "NaN": ({"a": [math.nan]}, {"a": [None]}),
    "infinity": ([-math.inf], [None]),
    "text": (["é\n"], ["é\n"]),
    "user string": ([UserString("a")], ["a"]),
    "enum": (Colour.RED, "red"),
    "enum of a tuple": (Colour.SHADES, ["light", "dark"]),
    "int enum": (Level.LOW, 1),
    "tuple": ((1, (2,)), [1, [2]]),
    "namedtuple": (Pair(1, 2), [1, 2]),
    "set": ({1}, [1]),
    "frozenset": (frozenset("a"), ["a"]),
    "deque": (deque([1, 2]), [1, 2]),
    "range": (range(3), [0, 1, 2]),
    "keys": ({"b": 1, "a": 2}.keys(), ["b", "a"]),
    "items": ({"b": 1}.items(), [["b", 1]]),
    "user list": (UserList([1]), [1]),
    "generator": (numbers(3), [0, 1, 2]),
    "generator inside": ({"rows": numbers(2)}, {"rows": [0, 1]}),
    "zip": (zip("ab", [1, 2], strict=True), [["a", 1], ["b", 2]]),
    "array": (array.array("i", [1, 2]), [1, 2]),
    "dict in its order": ({"b": 1, "a": 2}, {"b": 1, "a": 2}),
    "counter": (Counter("aab"), {"a": 2, "b": 1}),
    "user dict": (UserDict({"a": 1}), {"a": 1}),
    "mapping proxy": (MappingProxyType({"a": Colour.RED}), {"a": "red"}),
    "bytes": ({"a": b"\xc3\xa9"}, {"a": "é"}),
    "bytearray": ([bytearray(b"a")], ["a"]),
    "memoryview": ([memoryview(b"a")], ["a"]),
    "path": ([Path("a") / "b"], ["a/b"]),
    "pure path": (PurePosixPath("/a"), "/a"),
    "date": (date(2024, 2, 29), "2024-02-29"),
    "datetime": (datetime(2024, 2, 29, 1, 2, 3, 4), "2024-02-29T01:02:03.000004"),  # noqa: DTZ001 - a naive one too
    "datetime in UTC": (datetime(2024, 2, 29, tzinfo=UTC), "2024-02-29T00:00:00Z"),
    "time": (time(1, 2), "01:02:00"),
    "timedelta": (timedelta(days=1, seconds=2), "P1DT2S"),
    "decimal": (Decimal("1.10"), "1.10"),
    "uuid": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "address": (ipaddress.ip_address("::1"), "::1"),
    "fraction": (Fraction(1, 2), "1/2"),
    "dataclass": (Point(1, ("a",)), {"x": 1, "tags": ["a"]}),
    "attrs": (Box(Point(1)), {"point": {"x": 1, "tags": []}, "_made": "2024-02-29"}),
    "pydantic": (Person(name="Ana"), {"fullName": "Ana", "born": None, "photo": ""}),
    "pydantic root": (
        People([Person(name="Ana", born=date(2000, 1, 1))]),
        [{"fullName": "Ana", "born": "2000-01-01", "photo": ""}],
    ),
    "a model with a field that is hidden in JSON": ([Account()], [{"name": "Ana", "password": "***"}]),
    "a dataclass of pydantic with a field that is left out": (Login("Ana", "hunter2"), {"name": "Ana"}),
    "an object with to_dict": (Own(), {"own": "2024-01-01"}),
    "an object with tolist": (Series(), [1, 2]),
    "keys of several kinds": (
        {Colour.RED: 1, 5: 2, True: 3, date(2024, 1, 1): 5, UUID(int=0): 7, 1.5: 8},
        {"red": 1, "5": 2, "true": 3, "2024-01-01": 5, "00000000-0000-0000-0000-000000000000": 7, "1.5": 8},
    ),
    "NumPy bool": (np.True_, True),
    "NumPy int": (np.int64(5), 5),
    "NumPy key": ({np.int64(5): 1}, {"5": 1}),
    "NumPy half": (np.float16(0.5), 0.5),
    "NumPy double": (np.float64(0.5), 0.5),
    "NumPy NaN": (np.array([1.5, np.nan]), [1.5, None]),
    "NumPy text": (np.array(["a"]), ["a"]),
    "NumPy matrix": (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
    "NumPy array of nothing": (np.array([]), []),
    "NumPy objects": (np.array([1, "a", None], dtype=object), [1, "a", None]),
    "NumPy day": (np.datetime64("2024-02-29"), "2024-02-29"),
    "NumPy nanoseconds": (np.array([1], dtype="M8[ns]"), ["1970-01-01T00:00:00.000000001"]),
    "NumPy mask": (np.ma.masked_array([1, 2], [False, True]), [1, None]),
}


def test_a_value_becomes_its_json() -> None:
    """Keys stay in order, integers keep their digits."""
    for value, plain in KINDS.values():
        text = read_said(value)
        assert json.loads(text) == plain
        assert text == json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def test_a_json_response_is_data_even_if_it_is_text_or_blocks() -> None:
    """A str is quoted, and a list of blocks stays a list."""
    assert read_said(JsonResponse("text")) == '"text"'
    assert read_said(JsonResponse(None)) == "null"
    assert read_said(JsonResponse([{"type": "text", "text": "a"}])) == '[{"type":"text","text":"a"}]'


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    """A request cannot carry it."""
    assert read_said(["\udc00", {"a": "\ud800"}]) == '["\N{REPLACEMENT CHARACTER}",{"a":"\N{REPLACEMENT CHARACTER}"}]'
    assert read_said({"\ud800": 1}) == '{"\N{REPLACEMENT CHARACTER}":1}'


def test_a_set_is_a_sorted_list() -> None:
    """So a run that is repeated in another process sends the same bytes."""
    assert read_said({"a": frozenset("fbdace")}) == '{"a":["a","b","c","d","e","f"]}'


def failing() -> Iterator[int]:
    yield 1
    raise LookupError("row 2 is gone")


async def forgotten() -> int:
    return 5


def itself() -> list[Any]:
    loop: list[Any] = [1]
    loop.append({"me": loop})
    return loop


def nest(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


class Reluctant(UserDict[str, Any]):
    def __iter__(self) -> Iterator[str]:
        raise ConnectionError("the table is locked")


BAD: dict[str, tuple[Any, str]] = {
    "object": (object, "a value of type object cannot be converted to JSON: return text, JSON values"),
    "object inside": (lambda: {"a": [1, SimpleNamespace()]}, "a value of type SimpleNamespace cannot be converted"),
    "function": (lambda: {"a b": len}, "a value of type builtin_function_or_method cannot be converted"),
    "class": (lambda: [Point], "a value of type type cannot be converted"),
    "exception inside": (lambda: {"error": ValueError("x")}, "a value of type ValueError cannot be converted"),
    "bytes that are not text": (lambda: {"a": b"\xff"}, "bytes that are not UTF-8 text; return them as a FileResponse"),
    "too many digits": (lambda: {"a": 10**5000}, "cannot be converted to JSON: ValueError"),
    "itself": (itself, "it contains itself, or is nested too deeply for JSON"),
    "deep": (lambda: nest(2000), "it contains itself, or is nested too deeply for JSON"),
    "two keys of one text": (lambda: {1: "a", "1": "b"}, "two of its keys are the same text in JSON"),
    "generator that raises": (failing, "it cannot be read: LookupError: row 2 is gone"),
    "generator that raises inside": (lambda: {"rows": failing()}, "LookupError: row 2 is gone"),
    "a mapping that raises": (lambda: [Reluctant(a=1)], "locked"),
    "coroutine": (forgotten, "it is a coroutine; await it in the tool"),
    "coroutine inside": (lambda: [1, forgotten()], "it is a coroutine"),
}


def test_a_value_that_is_not_json_is_an_error_result() -> None:
    """The model learns that the tool ran; `to_plain_text` raises the same."""
    for make, says in BAD.values():
        told = error(make())
        assert told.startswith("The tool ran, but its result cannot be sent: ")
        assert says in told
        with pytest.raises(Exception, match=re.escape(says)):
            ADAPTER.to_plain_text(make())
