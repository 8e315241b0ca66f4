"""Values that cannot be JSON: what is said of each."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from tests.tools.answering import ADAPTER, error
from toolloop.responses import LinkResponse


class Colour(Enum):
    RED = "red"


@dataclass
class Later:
    x: int = field(init=False)


class Person(BaseModel):
    name: str


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


class Endless(list[int]):
    def __iter__(self) -> Iterator[int]:
        return repeat(0)


class EndlessSet(set[str]):
    def __iter__(self) -> Iterator[str]:
        return repeat("a")


class Doubled(dict[str, Any]):
    def items(self) -> Any:
        return repeat(("a", 1))


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
    "class": (lambda: [Later], "result[0] is the class Later"),
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
    "too many digits": (lambda: {"a": 10**5000}, "result.a cannot be written as JSON"),
    "a list that says less than it has": (lambda: Endless([1]), "result has more items than its length of 1"),
    "a dict that says less than it has": (lambda: [Doubled(a=1)], "result[0] has more items than its length of 1"),
    "a set that says less than it has": (lambda: EndlessSet("a"), "result has more items than its length of 1"),
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
