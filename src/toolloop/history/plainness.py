"""What of a value is JSON: only that can be sent, and only that is safe to look at."""

from __future__ import annotations

from math import isfinite
from typing import Any

from toolloop.core.jsontext import encode, well_formed

_AROUND = 20
HALF_A_PAIR = "half of a surrogate pair"


def readable(value: Any) -> tuple[Any, str | None]:
    """A copy of a value that every check may read, whatever the value is.

    Subclasses of the JSON types become these types; what is no JSON becomes an object of the same name that does
    nothing, null, or is left out.

    Returns:
        The copy, and what of the value no request can carry; None: it can carry all of it.

    """
    flaws: list[str] = []
    try:
        copy = _copy(value, flaws)
    except RecursionError:
        return _deep(value)
    return copy, flaws[0] if flaws else None


def _deep(value: Any) -> tuple[Any, str | None]:
    """A value too deep for a copy: as it is, if it can be written."""
    try:
        encode(value)
    except Exception:  # noqa: BLE001 - it may be anything
        return None, "it contains itself, or is nested too deep to be JSON"
    return value, None


def _copy(value: Any, flaws: list[str]) -> Any:
    kind = type(value)  # not `isinstance`, which asks the value
    if issubclass(kind, dict):
        # As everywhere here: the methods of the type itself, for those of a subclass may do anything.
        return {_text(key, flaws): _copy(item, flaws) for key, item in dict.items(value) if _is_key(type(key), flaws)}
    if issubclass(kind, list):
        return [_copy(item, flaws) for item in list.__iter__(value)]
    if issubclass(kind, tuple):
        return tuple([_copy(item, flaws) for item in tuple.__iter__(value)])
    if issubclass(kind, str):
        return _text(value, flaws)
    return value if value is None or kind is bool else _number_or_other(value, kind, flaws)


def _is_key(kind: type, flaws: list[str]) -> bool:
    if not (is_text := issubclass(kind, str)):
        flaws.append(f"a key of an object is a {kind.__name__}, and no string")
    return is_text


def _text(value: str, flaws: list[str]) -> str:
    text = str.__str__(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        part = text[max(error.start - _AROUND, 0) : error.start + _AROUND]
        flaws.append(f"the text {part!r} has {HALF_A_PAIR}")
        return well_formed(text)
    return text


def _number_or_other(value: Any, kind: type, flaws: list[str]) -> Any:
    if issubclass(kind, int):
        number = int.__add__(value, 0)
        try:
            str(number)
        except ValueError:  # Python does not write them
            flaws.append("a whole number has thousands of digits")
            return None
        return number
    if issubclass(kind, float):
        if isfinite(size := float.__add__(value, 0.0)):
            return size
        flaws.append(f"a number is {size}")
        return None
    flaws.append(f"there is a {kind.__name__} in it, which is not JSON")
    return type(kind.__name__, (), {})()
