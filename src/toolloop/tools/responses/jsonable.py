"""The values that a program has, as JSON that can be sent; what cannot be JSON is named with its path."""

from __future__ import annotations

import base64
import dataclasses
import inspect
import io
from collections import UserString
from collections.abc import (
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sized,
    ValuesView,
)
from collections.abc import (
    Set as AbstractSet,
)
from datetime import date, time, timedelta
from enum import Enum
from itertools import islice
from math import isfinite
from pathlib import PurePath
from typing import Any

import attrs

from toolloop.core.blocks import media_type_of
from toolloop.core.jsontext import JSON, canonical, encode
from toolloop.tools.failures import shortened, well_formed
from toolloop.tools.responses import arrays
from toolloop.tools.responses.exceptions import headline
from toolloop.tools.responses.models import dumped, is_dataclass_of_pydantic
from toolloop.tools.responses.moments import duration, moment
from toolloop.tools.responses.types import Response

# A generator may never end, and a range costs nothing until it is read.
_MOST_ITEMS = 100_000
_DEEPEST = 100
_LARGE = 1 << 2000  # an integer below this has fewer digits than Python ever refuses to write
_LONGEST_PATH = 200
_LONGEST_REASON = 600
_WHAT_TO_RETURN = (
    "return text, JSON values, a dataclass, an attrs class, a pydantic model, a response or a list of content blocks"
)


class Unsendable(ValueError):
    """A value that cannot be the content of a result. `str()` is the text for the model: what is wrong, and where."""

    def __init__(self, said: str) -> None:
        """Keep the text."""
        super().__init__(said)


class _Flaw(Exception):
    """What is wrong with a value; the steps that lead there are added on the way up."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said
        self.steps: list[str] = []


def to_json(value: object, where: str = "result") -> JSON:
    """A value as JSON, text made sendable.

    Half a surrogate pair becomes U+FFFD. Dates, times and durations are ISO 8601; UUIDs, decimals (as strings, to the
    last digit) and the like become what pydantic makes of them; bytes are UTF-8 text if they decode, else a `data:`
    URL; a set is sorted; a generator is read to its end. Models and dataclasses of pydantic become what their own
    serializers make of them for JSON.

    Args:
        value: anything.
        where: what it is called in an error.

    Raises:
        Unsendable: something in it is not JSON, NaN, an infinity, contains itself, has two keys that are one as JSON,
            or raises while it is read.

    """
    try:
        return _Reader().read(value)
    except _Flaw as flaw:
        path = shortened(where + "".join(reversed(flaw.steps)), _LONGEST_PATH)
        raise Unsendable(well_formed(f"{path} {shortened(flaw.said, _LONGEST_REASON)}")) from flaw


class _Reader:
    """Reads one value; it knows what it is inside of."""

    def __init__(self) -> None:
        self._above: set[int] = set()

    def read(self, value: Any) -> JSON:
        """The JSON of a value or of a part of it."""
        kind = type(value)
        if value is None or kind is bool or (kind is float and isfinite(value)):
            return value
        if kind is int and -_LARGE < value < _LARGE:
            return value
        if kind is str:
            return well_formed(value)
        if id(value) in self._above:
            raise _Flaw("contains itself, which JSON cannot")
        if len(self._above) >= _DEEPEST:
            raise _Flaw(f"is nested more than {_DEEPEST} levels deep, or contains itself")
        self._above.add(id(value))
        try:
            return self._whole(value)
        except _Flaw:
            raise
        except RecursionError:
            raise _Flaw("is nested too deeply, or contains itself") from None
        except Exception as error:
            raise _Flaw(f"cannot be read: {headline(error)}") from error
        finally:
            self._above.discard(id(value))

    def _whole(self, value: Any) -> JSON:  # noqa: C901, PLR0911 - one row per kind of value
        match value:
            case Enum():
                return self.read(value.value)
            case float():
                if isfinite(value):
                    return float.__float__(value)
                raise _Flaw(f"is {float.__repr__(value)}, which is not JSON")
            case str():
                return well_formed(str.__str__(value))
            case int():
                return _writable(int.__index__(value))
            case bytes() | bytearray() | memoryview():
                return _from_bytes(bytes(value))
            case Mapping():
                return self._object(_no_more_than(len(value), value.items()))
            case list() | tuple() | KeysView() | ItemsView() | ValuesView():
                return self._array(_capped(value))
            case AbstractSet():
                return sorted(self._array(_capped(value)), key=canonical)  # its order differs from run to run
            case Response():
                raise _Flaw(f"is a {type(value).__name__}, which goes alone or in a list, not into data")
        if (text := _as_text(value)) is not None:
            return well_formed(text)
        return self._thing(value)

    def _thing(self, value: Any) -> JSON:  # noqa: PLR0911 - likewise
        """The JSON of an object that is no plain value."""
        kind = type(value)
        if dataclasses.is_dataclass(kind):
            if is_dataclass_of_pydantic(kind):
                return self.read(dumped(value))
            return self._object((each.name, getattr(value, each.name)) for each in dataclasses.fields(kind))
        if attrs.has(kind):
            return self._object((each.name, getattr(value, each.name)) for each in attrs.fields(kind))
        if isinstance(value, type):
            raise _Flaw(f"is the class {value.__name__}, which is not JSON: {_WHAT_TO_RETURN}")
        if kind.__module__.partition(".")[0] == "anthropic" and hasattr(value, "to_dict"):
            # Fields that were never set stay out, as the SDK would leave them out.
            return self.read(value.to_dict(mode="json", warnings=False))
        if hasattr(kind, "model_dump"):
            return self.read(dumped(value))
        if (simpler := arrays.simpler(value)) is not None:
            return self.read(simpler[0])
        if callable(getattr(value, "to_dict", None)):
            return self.read(value.to_dict())
        if callable(getattr(value, "tolist", None)):  # tensors, series, arrays of other libraries
            return self.read(value.tolist())
        return self._other(value)

    def _other(self, value: Any) -> JSON:
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited
            raise _Flaw("is a coroutine that nobody awaited: await it in the tool, and declare the tool with async def")
        if isinstance(value, io.IOBase):
            raise _Flaw("is an open file: return what was read from it, or its Path")
        if isinstance(value, Iterator | Collection):
            return self._array(_capped(value))
        return self._leaf(value)

    def _leaf(self, value: Any) -> JSON:
        from pydantic_core import (  # noqa: PLC0415 - import toolloop stays light
            PydanticSerializationError,
            to_jsonable_python,
        )

        name = type(value).__name__
        if not isinstance(value, complex):
            try:
                plain = to_jsonable_python(value)
            except PydanticSerializationError:
                plain = None
            if isinstance(plain, str):
                return well_formed(plain)
        raise _Flaw(f"is a {name}, which is not JSON: {_WHAT_TO_RETURN}")

    def _array(self, items: Iterable[Any]) -> list[JSON]:
        array = []
        for index, item in enumerate(items):
            try:
                array.append(self.read(item))
            except _Flaw as flaw:
                flaw.steps.append(f"[{index}]")
                raise
        return array

    def _object(self, pairs: Iterable[tuple[Any, Any]]) -> dict[str, JSON]:
        found: dict[str, JSON] = {}
        for key, item in pairs:
            name = self._key(key)
            if name in found:
                raise _Flaw(f"has two keys that are {shortened(name, 40)!r} as JSON")
            try:
                found[name] = self.read(item)
            except _Flaw as flaw:
                flaw.steps.append(f".{name}" if name.isidentifier() else f"[{encode(shortened(name, 40))}]")
                raise
        return found

    def _key(self, key: Any) -> str:
        """A key as the text that JSON has for it."""
        plain = self.read(key)
        if isinstance(plain, str):
            return plain
        if isinstance(plain, list | dict):
            raise _Flaw(f"has a key that is a {type(key).__name__}; the keys of a JSON object are strings")
        return encode(plain)


def capped(items: Iterable[Any], where: str) -> list[Any]:
    """The items of an iterator, which is read to its end, or of a list.

    Raises:
        Unsendable: there are too many, more than it says, or it raises on the way.

    """
    try:
        return _capped(items)
    except _Flaw as flaw:
        raise Unsendable(f"{where} {flaw.said}") from flaw
    except Exception as error:
        raise Unsendable(f"{where} cannot be read: {headline(error)}") from error


def _capped(items: Iterable[Any]) -> list[Any]:
    if isinstance(items, Sized) and not isinstance(items, range):
        return _no_more_than(len(items), items)
    kept = list(islice(items, _MOST_ITEMS + 1))
    if len(kept) > _MOST_ITEMS:
        raise _Flaw(f"has more than {_MOST_ITEMS} items")
    return kept


def _no_more_than(length: int, items: Iterable[Any]) -> list[Any]:
    """The items of what is at hand: as many as it says it has, for it may say so and never end."""
    kept = list(islice(items, length + 1))
    if len(kept) > length:
        raise _Flaw(f"has more items than its length of {length}")
    return kept


def _writable(number: int) -> int:
    try:
        str(number)
    except ValueError as error:
        raise _Flaw(f"cannot be written as JSON: {error}") from error
    return number


def _as_text(value: Any) -> str | None:
    """The text of what has one of its own."""
    match value:
        case UserString() | PurePath():
            return str(value)
        case date() | time():
            return moment(value)
        case timedelta():
            return duration(value)
    return None


def _from_bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        kind = media_type_of(data) or "application/octet-stream"
        return f"data:{kind};base64,{base64.b64encode(data).decode()}"
