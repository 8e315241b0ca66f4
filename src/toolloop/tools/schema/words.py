"""What is wrong with an input, in words for the model: path, what was expected, what was got.

A text says what the schema says and what is in the call's input, and nothing else. Of pydantic's own errors the type
and the bounds are used; of a validator's exception nothing, for its text may hold anything (`guarding` sees to that).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolloop.core.jsontext import JSON, encode
from toolloop.tools.failures import shortened

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# The type of error for a value that a class, a converter or a validator does not take. `field` says which field.
REFUSED = "toolloop_refused"

# How much of a wrong value, of a key and of a list of choices the model is shown.
_SHOWN = 80
_KEY = 40
_CHOICES = 400
# How deep an input may be nested: what pydantic's JSON parser reads (source: pydantic-core 2.50, jiter).
_DEEPEST = 200
_DIGITS = 4300
_MISSING = object()
_PLAIN_KEY = re.compile(r"[^\W\d][\w-]*")
_TAG = re.compile(r"'([^']*)'")
_SURROGATE = re.compile(r"[\ud800-\udfff]")

# What pydantic expected, by the beginning of its type of error; the first that fits. Bounds come from the schema.
_EXPECTED = {
    "int_parsing_size": "an integer of fewer digits",
    "int": "an integer",
    "float": "a number",
    "finite_number": "a number that is not too large",
    "decimal_max": "a number of fewer digits",
    "decimal_whole": "a number of fewer digits",
    "decimal": "a number",
    "complex": "a complex number",
    "bool": "true or false",
    "none_required": "null",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "string_unicode": "a text without half a surrogate pair",
    "string": "a string",
    "bytes_too_short": "at least {min_length} bytes",
    "bytes_too_long": "at most {max_length} bytes",
    "bytes": "a string",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "multiple_of": "a multiple of {multiple_of}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "json": "a text that is JSON",
    "list": "an array",
    "tuple": "an array",
    "set_item_not_hashable": "a string, a number, true, false or null",
    "set": "an array",
    "frozen_set": "an array",
    "iterable": "an array",
    "dict": "an object",
    "mapping": "an object",
    "model": "an object",
    "dataclass": "an object",
    "datetime": "a date and time such as 2026-01-31T12:00:00Z",
    "timezone_naive": "a date and time without a time zone",
    "timezone": "a date and time with a time zone",
    "date": "a date such as 2026-01-31",
    "time_delta": "a duration such as PT1H30M",
    "time": "a time such as 12:00:00",
    "uuid": "a UUID",
    "url": "a URL",
    "pattern": "a regular expression",
    "recursion_loop": "a value that is nested less deep",
}
_ELSE = "a value that its validator accepts"


def problems(errors: Iterable[ErrorDetails], given: JSON) -> list[str]:
    """One text per field, in pydantic's order; what the branches of a union expect is joined."""
    expected: dict[str, list[str]] = {}
    whole: dict[str, str] = {}
    got: dict[str, object] = {}
    for error in errors:
        kind, loc, bounds = error["type"], error["loc"], error.get("ctx", {})
        if kind == "json_invalid" and not loc:
            return [unreadable(given)]
        path, value = follow(loc, given)
        if kind.startswith("union_tag") and (tag := _TAG.fullmatch(bounds["discriminator"])):
            kind = kind if kind == "union_tag_invalid" else "missing"
            loc = (*loc, tag[1])
            path, value = follow(loc, given)
        elif kind == "union_tag_invalid":  # a function tells the kinds apart, and names them as it likes
            kind = "other"
        if "missing" in kind:
            where = joined([*path, loc[-1]])
            whole[where] = "required, but it is missing"
        elif kind in {"unexpected_keyword_argument", "extra_forbidden"}:
            where = joined(path)
            whole[where] = f"no such field, got {shown(value)}"
        elif loc[-1:] == ("[key]",) and path:
            where = f"{joined(path)} (the name)"
            got[where] = path[-1]
        else:
            if kind == REFUSED and (field := bounds.get("field")):
                path = [*path, field]
                value = value.get(field, _MISSING) if isinstance(value, dict) else _MISSING
            where = joined(path)
            got[where] = value
        expected.setdefault(where, []).append(_expectation(kind, bounds))
    return [f"{path}: " + (whole.get(path) or _expected(path, phrases, got)) for path, phrases in expected.items()]


def _expected(path: str, phrases: list[str], got: Mapping[str, object]) -> str:
    # Where a union has a branch that takes the value as a whole, what is wrong inside is told too.
    other = any(each.startswith(path) and each[len(path) :][:1] in {".", "["} for each in got)
    return f"{'or else ' * other}expected {' or '.join(dict.fromkeys(phrases))}, {_but(got[path])}"


def follow(loc: Iterable[str | int], value: JSON) -> tuple[list[str | int], JSON]:
    """The part of a pydantic location that is in the input, and what is there; names of union branches are not."""
    path: list[str | int] = []
    for step in loc:
        inside = (
            step in value
            if isinstance(value, dict)
            else isinstance(value, list) and isinstance(step, int) and step < len(value)
        )
        if inside:
            path.append(step)
            value = value[step]
    return path, value


_NESTED = (dict, list)  # a tuple: a union would be made anew for each item


def is_readable(value: dict[Any, JSON] | list[JSON], depth: int = 1) -> bool:
    """Whether pydantic's JSON parser would read it, as far as texts and nesting go. Every call pays for this."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or (not key.isascii() and _SURROGATE.search(key)):
                return False
        items: Iterable[JSON] = value.values()
    else:
        items = value
    for item in items:
        if isinstance(item, str):
            if not item.isascii() and _SURROGATE.search(item):
                return False
        elif isinstance(item, _NESTED) and (depth >= _DEEPEST - 1 or not is_readable(item, depth + 1)):
            return False
    return True


def unreadable(value: JSON) -> str:
    """Why an input cannot be read as JSON: the first thing found that stands in the way."""
    open_: list[tuple[list[str | int], Any]] = [([], value)]
    while open_:
        path, each = open_.pop()
        why = "nested too deep" if len(path) > _DEEPEST - 2 else _unreadable(each)
        if why:
            return f"{joined(path) if len(path) < _DEEPEST // 2 else 'input'}: {why}"
        if isinstance(each, Mapping):
            open_ += [([*path, key], item) for key, item in each.items()]
        elif isinstance(each, list | tuple):
            open_ += [([*path, index], item) for index, item in enumerate(each)]
    return "input: it cannot be read as JSON"


def _unreadable(value: object) -> str | None:
    match value:
        case str() if _SURROGATE.search(value):
            return "expected a text without half a surrogate pair (\\ud800 to \\udfff)"
        case float() if not math.isfinite(value):
            return "expected a number that is not too large"
        case int() if value.bit_length() > _DIGITS * 3:
            return "expected a number of fewer digits"
        case Mapping():
            return next(filter(None, map(_unreadable, value)), None)
        case None | bool() | int() | float() | str() | list() | tuple():
            return None
    return f"expected JSON, got {type(value).__name__}"


def joined(path: Iterable[str | int]) -> str:
    """A path as text: `lines[2].qty`."""
    return "".join(map(_step, path)).removeprefix(".") or "input"


def _step(step: str | int) -> str:
    if isinstance(step, str) and _PLAIN_KEY.fullmatch(step):
        return "." + shortened(step, _KEY)
    return f"[{shortened(json.dumps(step), _KEY)}]"


def shown(value: JSON) -> str:
    """A value of the input, cut short."""
    try:
        return shortened(encode(value), _SHOWN)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__


def _but(value: object) -> str:
    return "but it is missing" if value is _MISSING else f"got {shown(value)}"


def _expectation(kind: str, bounds: Mapping[str, Any]) -> str:
    if kind == REFUSED:
        return _ELSE
    for beginning, phrase in _EXPECTED.items():
        if kind.startswith(beginning):
            try:
                return shortened(phrase.format_map(bounds), _CHOICES)
            except KeyError:  # an error that somebody made under a name of pydantic's, without its bounds
                return _ELSE
    return _ELSE
