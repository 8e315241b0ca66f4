"""JSON as text, the form in which messages are kept.

A message is encoded once, when it enters the loop, and kept as that text. It is decoded on demand. So numbers keep
their precision, keys keep their order, and a request keeps its bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any

# Any JSON value. With a recursive alias, every read of a message would need casts, and no error would be found.
JSON = Any


def _make_writer(*, ascii_only: bool, sort_keys: bool = False) -> Callable[[JSON], str]:
    encoder = json.JSONEncoder(ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False, sort_keys=sort_keys)
    return encoder.encode


_COMPACT = _make_writer(ascii_only=False)
_ASCII = _make_writer(ascii_only=True)
_CANONICAL = _make_writer(ascii_only=True, sort_keys=True)


def encode(value: JSON) -> str:
    """Return the compact JSON text of a value. It can always be encoded as UTF-8.

    Raises:
        TypeError: the value is not JSON.
        ValueError: it contains NaN, an infinity or itself.

    """
    text = _COMPACT(value)
    # A lone surrogate in text of the model must be escaped.
    return text if text.isascii() or _is_utf8(text) else _ASCII(value)


def decode(text: str | bytes) -> JSON:
    """Return the value of a JSON text, with integers of any size.

    Raises:
        ValueError: the text is not JSON, or contains NaN or an infinity.

    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:  # leading white space, or not JSON
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


def decode_all(texts: Iterable[str]) -> list[JSON]:
    """Return the values of JSON texts. One pass over all of them takes half the time of one over each.

    Raises:
        ValueError: as for `decode`.

    """
    values: list[JSON] = decode(f"[{','.join(texts)}]")
    return values


def read_typed(text: str) -> JSON:
    """Return the value of a JSON text that a person typed.

    Raises:
        ValueError: the text is not JSON, or its value cannot be sent.

    """
    try:
        return to_plain(decode(text))
    except (RecursionError, TypeError) as error:
        raise ValueError(f"it cannot be sent: {error}") from error


def to_canonical(value: JSON) -> str:
    """Return the text for comparing two values: sorted keys, ASCII."""
    return _CANONICAL(value)


def fingerprint(value: JSON) -> str:
    """Return a short digest for comparing a value with one that is not available."""
    return hashlib.sha256(to_canonical(value).encode()).hexdigest()[:16]


def unify_numbers(value: JSON) -> JSON:
    """Return a copy of a value with 5 instead of 5.0. JSON Schema and some JSON libraries treat them as equal."""
    match value:
        case dict():
            return {key: unify_numbers(item) for key, item in value.items()}
        case list():
            return [unify_numbers(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    return value


def make_well_formed(text: str) -> str:
    """Return a text as valid Unicode: surrogate pairs become their characters, lone surrogates U+FFFD."""
    if text.isascii() or _is_utf8(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def to_plain(value: JSON, where: str = "value") -> JSON:
    """Return a copy of a value with every mapping as a dict and every sequence as a list.

    SDK objects (anything with `to_dict`) become the JSON that the SDK would send for them, without fields that were
    never set (source: anthropic-sdk 2.11, `BaseModel.to_dict`).

    Raises:
        TypeError: a part of it is not JSON; the message names the part.

    """
    try:
        return _to_plain(value, where)
    except RecursionError:
        raise TypeError(f"{where} contains itself, or is nested too deep to be JSON") from None


def _to_plain(value: JSON, where: str) -> JSON:
    match value:
        case float() if not isfinite(value):
            raise TypeError(f"{where} is {value}, which is not JSON")
        case str() if not (value.isascii() or _is_utf8(value)):
            raise TypeError(f"{where} contains a lone surrogate, which cannot be sent as UTF-8")
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {_check_key(key, where): _to_plain(item, f"{where}.{key}") for key, item in value.items()}
        case list() | tuple():
            return [_to_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    to_dict = getattr(value, "to_dict", None)
    if callable(to_dict):
        return _to_plain(_dump_sdk_object(value, to_dict), where)
    raise TypeError(
        f"{where} is {describe_type(value)}, which is not JSON: give a dict, list, str, number, bool or None"
    )


def describe_type(value: object) -> str:
    """Return a description of a value for an error: its type with the article, `None`, or the name of a class."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_key(key: object, where: str) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"{where} has the key {key!r}; the keys of a JSON object are strings")


def _dump_sdk_object(value: object, to_dict: Any) -> JSON:
    # For models of the SDK, `mode` and `warnings` keep unknown blocks verbatim. The SDK's tools take no arguments.
    return to_dict(mode="json", warnings=False) if hasattr(value, "model_dump") else to_dict()


def _read_finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _refuse_constant(name: str) -> JSON:
    raise ValueError(f"{name} is not JSON")


# One shared decoder: `json.loads` would make one for each call. `decode` also skips white space, so for the short texts
# of a journal it takes twice as long as `raw_decode`.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_read_finite)
