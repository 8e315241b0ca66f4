"""The values that programs have, as JSON: every kind, and what is said of those that are none."""

from __future__ import annotations

import array
import ipaddress
import json
from collections import Counter, OrderedDict, UserDict, UserList, UserString, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pytest
from anthropic.types import TextBlock, Usage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel

from tests.tools.answering import png, said
from toolloop.responses import AnthropicMessagesToolResponseAdapter, JsonResponse

ANY_TEXT = st.text(st.characters(codec=None) | st.characters(categories=["Cs"]))


class Colour(Enum):
    RED = "red"
    SHADES = ("light", "dark")


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


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


class Own:
    """An object that says itself what it is as a dict."""

    def to_dict(self) -> dict[str, Any]:
        return {"own": date(2024, 1, 1)}


class Series:
    """A list of another library."""

    def tolist(self) -> list[int]:
        return [1, 2]


class Big(int):
    def __repr__(self) -> str:
        return "BIG"


class Loose(float):
    def __repr__(self) -> str:
        return "LOOSE"


class Loud(str):
    """A string that would shout."""

    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"


def numbers(end: int) -> Iterator[int]:
    yield from range(end)


Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - the kind without types
ROWS = np.array([(1, 0.5, "a")], dtype=[("id", "i4"), ("score", "f8"), ("name", "U5")])
MASKED: Any = np.ma.masked_array([(1, 0.5), (3, 0.5)], dtype=[("id", "i4"), ("score", "f8")])
MASKED["score"][1] = np.ma.masked

KINDS: dict[str, tuple[Any, Any]] = {
    "none": ([None], [None]),
    "bool": ([True], [True]),
    "int": (10**30, 10**30),
    "float": (1.5, 1.5),
    "a subclass of float": ([Loose(1.5)], [1.5]),
    "text": (["é\n"], ["é\n"]),
    "a subclass of int": ([Big(5)], [5]),
    "a subclass of str": ([Loud("quiet")], ["quiet"]),
    "user string": ([UserString("a"), {UserString("b"): 1}], ["a", {"b": 1}]),
    "enum": (Colour.RED, "red"),
    "enum of a tuple": (Colour.SHADES, ["light", "dark"]),
    "int enum": (Level.LOW, 1),
    "str enum inside": ([Word.YES], ["yes"]),
    "tuple": ((1, (2,)), [1, [2]]),
    "namedtuple": (Pair(1, 2), [1, 2]),
    "set": ({3, 1, 2}, [1, 2, 3]),
    "frozenset": (frozenset("ba"), ["a", "b"]),
    "set of anything": ({("b",), ("a",)}, [["a"], ["b"]]),
    "deque": (deque([1, 2]), [1, 2]),
    "range": (range(3), [0, 1, 2]),
    "keys": ({"b": 1, "a": 2}.keys(), ["b", "a"]),
    "items": ({"b": 1}.items(), [["b", 1]]),
    "values": ({"b": 1}.values(), [1]),
    "user list": (UserList([1]), [1]),
    "generator": (numbers(3), [0, 1, 2]),
    "generator inside": ({"rows": numbers(2)}, {"rows": [0, 1]}),
    "zip": (zip("ab", [1, 2], strict=True), [["a", 1], ["b", 2]]),
    "array": (array.array("i", [1, 2]), [1, 2]),
    "dict in its order": ({"b": 1, "a": 2}, {"b": 1, "a": 2}),
    "ordered dict": (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    "counter": (Counter("aab"), {"a": 2, "b": 1}),
    "user dict": (UserDict({"a": 1}), {"a": 1}),
    "mapping proxy": (MappingProxyType({Colour.RED: 1}), {"red": 1}),
    "bytes that are text": ({"a": b"\xc3\xa9"}, {"a": "é"}),
    "bytes that are none": ({"a": b"\xff"}, {"a": "data:application/octet-stream;base64,/w=="}),
    "an image inside data": (
        {"a": png()[:16] + b"\xff"},
        {"a": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUv8="},
    ),
    "bytearray": ([bytearray(b"a")], ["a"]),
    "memoryview": ([memoryview(b"a")], ["a"]),
    "path": ([Path("a") / "b"], ["a/b"]),
    "pure path": (PurePosixPath("/a"), "/a"),
    "date": (date(2024, 2, 29), "2024-02-29"),
    "datetime": (datetime(2024, 2, 29, 1, 2, 3, 4), "2024-02-29T01:02:03.000004"),  # noqa: DTZ001 - a naive one too
    "datetime in UTC": (datetime(2024, 2, 29, tzinfo=UTC), "2024-02-29T00:00:00Z"),
    "datetime elsewhere": (
        datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=2))),
        "2024-02-29T00:00:00+02:00",
    ),
    "datetime of an old local time": (
        datetime(1800, 1, 1, tzinfo=timezone(timedelta(minutes=19, seconds=32))),
        "1800-01-01T00:00:00+00:19:32",
    ),
    "time": (time(1, 2), "01:02:00"),
    "time in UTC": (time(1, 2, 3, 4, UTC), "01:02:03.000004Z"),
    "timedelta": (timedelta(days=1, seconds=2), "P1DT2S"),
    "timedelta of more than a year": (timedelta(days=366, hours=2), "P366DT2H"),
    "timedelta of nothing": (timedelta(0), "PT0S"),
    "timedelta back": (timedelta(seconds=-61.5), "-PT1M1.5S"),
    "the longest timedelta": (timedelta.min, "-P999999999D"),
    "decimal": (Decimal("1.10"), "1.10"),
    "uuid": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "address": (ipaddress.ip_address("::1"), "::1"),
    "fraction": (Fraction(1, 2), "1/2"),
    "dataclass": (Point(1, ("a",)), {"x": 1, "tags": ["a"]}),
    "attrs": (Box(Point(1)), {"point": {"x": 1, "tags": []}, "_made": "2024-02-29"}),
    "pydantic": (Person(name="Ana"), {"name": "Ana", "born": None, "photo": ""}),
    "pydantic root": (
        People([Person(name="Ana", born=date(2000, 1, 1))]),
        [{"name": "Ana", "born": "2000-01-01", "photo": ""}],
    ),
    "an object with to_dict": (Own(), {"own": "2024-01-01"}),
    "an object with tolist": (Series(), [1, 2]),
    "SDK object": (
        {"usage": Usage(input_tokens=1, output_tokens=2)},
        {"usage": {"input_tokens": 1, "output_tokens": 2}},
    ),
    "keys of all kinds": (
        {Colour.RED: 1, 5: 2, True: 3, None: 4, date(2024, 1, 1): 5, Decimal("2.50"): 6, UUID(int=0): 7, 1.5: 8},
        {
            "red": 1,
            "5": 2,
            "true": 3,
            "null": 4,
            "2024-01-01": 5,
            "2.50": 6,
            "00000000-0000-0000-0000-000000000000": 7,
            "1.5": 8,
        },
    ),
    "NumPy bool": (np.True_, True),
    "NumPy int": (np.int64(5), 5),
    "NumPy key": ({np.int64(5): 1}, {"5": 1}),
    "NumPy half": (np.float16(0.5), 0.5),
    "NumPy double": (np.float64(0.5), 0.5),
    "NumPy long double": (np.longdouble(0.5), 0.5),
    "NumPy text": (np.array(["a"]), ["a"]),
    "NumPy bytes": (np.array([b"a"]), ["a"]),
    "NumPy matrix": (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
    "NumPy array of nothing": (np.array([]), []),
    "NumPy array without dimensions": (np.array(5), 5),
    "NumPy objects": (np.array([1, "a", None], dtype=object), [1, "a", None]),
    "NumPy rows": (ROWS, [{"id": 1, "score": 0.5, "name": "a"}]),
    "NumPy row": (ROWS[0], {"id": 1, "score": 0.5, "name": "a"}),
    "NumPy void": (np.void(b"ab"), "ab"),
    "NumPy day": (np.datetime64("2024-02-29"), "2024-02-29"),
    "NumPy days": (np.array(["2024-02-29"], dtype="M8[D]"), ["2024-02-29"]),
    "NumPy nanosecond": (np.datetime64(1, "ns"), "1970-01-01T00:00:00.000000001"),
    "NumPy hours": (np.timedelta64(5, "h"), "PT5H"),
    "NumPy nanoseconds": (np.timedelta64(1, "ns"), "1 nanoseconds"),
    "NumPy months": (np.timedelta64(5, "M"), "5 months"),
    "NumPy rows with a mask": (MASKED, [{"id": 1, "score": 0.5}, {"id": 3, "score": None}]),
    "NumPy row with a mask": (MASKED[1], {"id": 3, "score": None}),
    "NumPy row without dimensions": (np.array((1, 0.5), dtype=MASKED.dtype), {"id": 1, "score": 0.5}),
    "NumPy matrix of days": (np.array([["2024-02-29"]], dtype="M8[D]").view(np.matrix), [["2024-02-29"]]),
    "NumPy mask": (np.ma.masked_array([1, 2], [False, True]), [1, None]),
}


@pytest.mark.parametrize(("value", "plain"), KINDS.values(), ids=KINDS)
def test_a_value_becomes_its_json(value: Any, plain: Any) -> None:
    """Of whatever kind it is, alone or as `JsonResponse`; keys stay in order, numbers keep their digits."""
    text = said(value)
    assert json.loads(text) == plain
    assert text == json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def test_a_json_response_is_data_be_it_text_or_blocks() -> None:
    """What looks like a text or like content is not taken for it."""
    assert said(JsonResponse("text")) == '"text"'
    assert said(JsonResponse(None)) == "null"
    assert said(JsonResponse([{"type": "text", "text": "a"}])) == '[{"type":"text","text":"a"}]'


@pytest.mark.parametrize(
    "value", [[TextBlock.construct(type="text", text="a"), 1], {"a": TextBlock.construct(type="text", text="a")}]
)
def test_blocks_of_the_sdk_inside_data_are_data_without_what_was_never_set(value: Any) -> None:
    """As the SDK would send them."""
    assert '{"text":"a","type":"text"}' in said(value).replace(
        '{"type":"text","text":"a"}', '{"text":"a","type":"text"}'
    )


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    """In texts and in keys: no request can carry it."""
    assert said("half \ud800 pair") == "half \N{REPLACEMENT CHARACTER} pair"
    assert said(["\udc00", {"\ud800": 1}]) == '["\N{REPLACEMENT CHARACTER}",{"\N{REPLACEMENT CHARACTER}":1}]'


def test_what_is_there_may_be_of_any_length() -> None:
    """The limit is for what is made while it is read."""
    adapter = AnthropicMessagesToolResponseAdapter(max_chars=None)
    assert len(json.loads(said(deque([0]) * 200_000, adapter=adapter))) == 200_000


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def test_a_hundred_levels_are_not_too_deep() -> None:
    """Data nests as far as anybody has a use for."""
    assert json.loads(said(deep(100))) == deep(100)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).filter(lambda value: not isinstance(value, str))
)
def test_json_values_come_back_equal(value: Any) -> None:
    """What is JSON already is sent as it is."""
    assert json.loads(said(JsonResponse(value))) == value
