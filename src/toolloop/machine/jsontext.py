"""JSON as text: how a message is kept.

A message is encoded once, at the door, and lives as that text ever after; the decoded form is a view made on demand.
So numbers keep their size, keys their order, and a request its bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

# Any JSON value. A recursive alias makes every read of a message a fight with the type checker, for no gain in safety.
JSON = Any


def _writer(*, ascii_only: bool, sort_keys: bool = False) -> Callable[[JSON], str]:
    encoder = json.JSONEncoder(ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False, sort_keys=sort_keys)
    return encoder.encode


_COMPACT = _writer(ascii_only=False)
_ASCII = _writer(ascii_only=True)
_CANONICAL = _writer(ascii_only=True, sort_keys=True)


def encode(value: JSON) -> str:
    """The compact JSON text of a value, always encodable as UTF-8.

    Raises:
        TypeError: the value is not JSON.
        ValueError: it holds NaN or an infinity, or refers to itself.

    """
    text = _COMPACT(value)
    # A lone surrogate in the model's own words: only an escape can carry it.
    return text if text.isascii() or _utf8(text) else _ASCII(value)


def decode(text: str | bytes) -> JSON:
    """The value of a JSON text; integers of any size are kept.

    Raises:
        ValueError: the text is not JSON, or holds NaN or an infinity.

    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:  # is it, but for white space before it?
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


def typed(text: str) -> JSON:
    """The value of a JSON text that a person typed.

    Raises:
        ValueError: the text is not JSON, or no request can carry its value.

    """
    try:
        return plain(decode(text))
    except (RecursionError, TypeError) as error:
        raise ValueError(f"it cannot be sent: {error}") from error


def canonical(value: JSON) -> str:
    """The text by which two values are compared: sorted keys, ASCII."""
    return _CANONICAL(value)


def fingerprint(value: JSON) -> str:
    """A short digest by which two values are compared where only one of them is at hand."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def with_integers(value: JSON) -> JSON:
    """A copy of a value with 5 for 5.0: JSON Schema and some JSON libraries do not tell them apart."""
    match value:
        case dict():
            return {key: with_integers(item) for key, item in value.items()}
        case list():
            return [with_integers(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    return value


def well_formed(text: str) -> str:
    """A text that any request can carry: two halves of a surrogate pair become their character, a lone one U+FFFD."""
    if text.isascii() or _utf8(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def plain(value: JSON, where: str = "value") -> JSON:
    """A copy of a value with every mapping a dict and every sequence a list.

    SDK objects (anything with `to_dict`) become the JSON that the SDK would send for them: fields that were never set
    stay out (source: anthropic-sdk 2.11, `BaseModel.to_dict`).

    Raises:
        TypeError: something in it is not JSON; the message says where.

    """
    try:
        return _plain(value, where)
    except RecursionError:
        raise TypeError(f"{where} contains itself, or is nested too deep to be JSON") from None


def _plain(value: JSON, where: str) -> JSON:
    match value:
        case float() if not isfinite(value):
            raise TypeError(f"{where} is {value}, which is not JSON")
        case str() if not (value.isascii() or _utf8(value)):
            raise TypeError(f"{where} holds a lone surrogate, which no request can carry")
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {_key(key, where): _plain(item, f"{where}.{key}") for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    to_dict = getattr(value, "to_dict", None)
    if callable(to_dict):
        return _plain(_sdk_dict(value, to_dict), where)
    raise TypeError(f"{where} is {a_type(value)}, which is not JSON: give a dict, list, str, number, bool or None")


def a_type(value: object) -> str:
    """What a value is, for an error: its type with the article, `None`, or the name of a class."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _key(key: object, where: str) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"{where} has the key {key!r}; the keys of a JSON object are strings")


def _sdk_dict(value: object, to_dict: Any) -> JSON:
    # A model of the SDK: `mode` and `warnings` keep unknown blocks verbatim and quiet. Its tools take no arguments.
    return to_dict(mode="json", warnings=False) if hasattr(value, "model_dump") else to_dict()


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _refuse_constant(name: str) -> JSON:
    raise ValueError(f"{name} is not JSON")


# One for all: `json.loads` would make a decoder for each call. Its `decode` takes twice as long as `raw_decode` for the
# short texts of a journal, for it looks for white space.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
