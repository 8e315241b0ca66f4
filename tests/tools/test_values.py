"""The values that programs have, as JSON: every kind, and what is said of those that are none."""

from __future__ import annotations

import array
import io
import ipaddress
import json
import math
from collections import Counter, OrderedDict, UserDict, UserList, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pytest
from anthropic.types import TextBlock, Usage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel

from tests.tools.answering import ADAPTER, error, png, said
from toolloop.responses import AnthropicMessagesToolResponseAdapter, JsonResponse, LinkResponse

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


@dataclass
class Later:
    x: int = field(init=False)


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

KINDS: dict[str, tuple[Any, Any]] = {
    "none": ([None], [None]),
    "bool": ([True], [True]),
    "int": (10**30, 10**30),
    "float": (1.5, 1.5),
    "a subclass of float": ([Loose(1.5)], [1.5]),
    "text": (["é\n"], ["é\n"]),
    "a subclass of int": ([Big(5)], [5]),
    "a subclass of str": ([Loud("quiet")], ["quiet"]),
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
    "time": (time(1, 2), "01:02:00"),
    "timedelta": (timedelta(days=1, seconds=2), "P1DT2S"),
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


class Reluctant:
    """A mapping, an object, or nothing, and always a complaint."""

    def __init__(self, **what: Any) -> None:
        self.what = what

    def __getattr__(self, name: str) -> Any:
        raise PermissionError(f"{name} is private")


class Costly(dict[str, Any]):
    def items(self) -> Any:
        raise ConnectionError("the table is locked")


class Winding(dict[str, Any]):
    def items(self) -> Any:
        raise RecursionError


class Masked:
    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            raise RuntimeError("nobody may know")
        return super().__getattribute__(name)


def failing() -> Iterator[int]:
    yield 1
    raise LookupError("row 2 is gone")


def endless() -> Iterator[int]:
    while True:
        yield 0


async def forgotten() -> int:
    return 5


async def stream() -> Any:
    yield 5


def itself() -> list[Any]:
    loop: list[Any] = [1]
    loop.append({"me": loop})
    return loop


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


BAD: dict[str, tuple[Any, str]] = {
    "object": (object, "result is a object, which is not JSON"),
    "complex inside": (lambda: {"a": [1, 2j]}, "result.a[1] is a complex, which is not JSON"),
    "lambda": (lambda: {"a b": len}, 'result["a b"] is a builtin_function_or_method'),
    "class": (lambda: [Point], "result[0] is the class Point"),
    "enum class": (lambda: Colour, "result is the class Colour"),
    "namespace": (lambda: SimpleNamespace(a=1), "result is a SimpleNamespace"),
    "exception inside": (lambda: {"error": ValueError("x")}, "result.error is a ValueError"),
    "open file": (lambda: io.StringIO("a"), "result is an open file"),
    "response inside data": (lambda: {"a": LinkResponse("a", "b")}, "result.a is a LinkResponse, which goes alone"),
    "nan": (lambda: {"a": [math.nan]}, "result.a[0] is nan, which is not JSON"),
    "infinity": (lambda: -math.inf, "result is -inf, which is not JSON"),
    "nan of NumPy": (lambda: np.array([1, np.nan]), "result[1] is nan"),
    "no time of NumPy": (lambda: {"at": np.datetime64("NaT", "s")}, "result.at is nan"),
    "no duration of NumPy": (lambda: np.array([np.timedelta64("NaT", "s")]), "result[0] is nan"),
    "complex of NumPy": (lambda: np.complex64(1), "result is a complex"),
    "too many digits": (lambda: 10**5000, "result cannot be written as JSON"),
    "itself": (itself, "result[1].me contains itself"),
    "deep": (lambda: deep(2000), "levels deep"),
    "a tuple as key": (lambda: {(1, 2): 3}, "result has a key that is a tuple"),
    "two keys that are one": (lambda: {"a": {1: 2, "1": 3}}, "result.a has two keys that are '1' as JSON"),
    "generator that raises": (failing, "result cannot be read: LookupError: row 2 is gone"),
    "generator that raises inside": (lambda: {"rows": failing()}, "result.rows cannot be read: LookupError"),
    "generator without end": (endless, "result has more than 100000 items"),
    "endless inside": (lambda: [endless()], "result[0] has more than 100000 items"),
    "huge range": (lambda: range(10**12), "result has more than 100000 items"),
    "async generator": (stream, "result is a async_generator, which is not JSON"),
    "coroutine": (forgotten, "result is a coroutine that nobody awaited"),
    "coroutine inside": (lambda: [1, forgotten()], "result[1] is a coroutine"),
    "an object that complains": (Reluctant, "is private"),
    "a dict that complains": (
        lambda: {"a": Costly(b=1)},
        "result.a cannot be read: ConnectionError: the table is locked",
    ),
    "a dict that winds": (lambda: [Winding(b=1)], "result[0] is nested too deeply, or contains itself"),
    "an object without a class": (Masked, "nobody may know"),
    "a field that was never set": (Later, "result cannot be read: AttributeError"),
    "a class that is no instance": (lambda: Person, "result is the class Person"),
}


@pytest.mark.parametrize(("make", "says"), BAD.values(), ids=BAD)
def test_what_cannot_be_json_is_named_in_an_error_result(make: Any, says: str) -> None:
    """What is wrong and where; the model is told that the tool did run."""
    told = error(make())
    assert told.startswith("The tool ran, but what it returned cannot be sent: ")
    assert says in told
    assert len(told) < 1500


@pytest.mark.parametrize(("make", "says"), BAD.values(), ids=BAD)
def test_the_plain_text_of_what_cannot_be_json_says_so(make: Any, says: str) -> None:
    """A log does not fail because of what it logs."""
    assert says in ADAPTER.to_plain_text(make())


def test_bytes_of_a_model_that_are_no_text_are_kept() -> None:
    """Pydantic itself would refuse them."""
    assert json.loads(said(Person(name="Ana", photo=b"\xff")))["photo"] == "data:application/octet-stream;base64,/w=="


def test_what_is_there_may_be_of_any_length() -> None:
    """The limit is for what is made while it is read."""
    adapter = AnthropicMessagesToolResponseAdapter(max_chars=None)
    assert len(json.loads(said(deque([0]) * 200_000, adapter=adapter))) == 200_000


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
