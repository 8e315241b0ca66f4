"""Compare an input with the `match` of a rule: narrowly to allow, widely to ask and to deny."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from toolloop.machine.rules.grants import matches
from toolloop.machine.values.jsontext import JSON, describe_type, to_canonical
from toolloop.rules.texts import WideText

# With one of these, a schema may have more keys than its `properties`.
_COMPOSED = frozenset({"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"})


@frozen
class Range:
    """Bounds of a number: `above` and `below` without, `from` and `to` with the bound itself."""

    bounds: tuple[tuple[str, float], ...]

    def holds(self, number: float) -> bool:
        """Return whether a number is within the bounds."""
        return all(_HOLDS[name](number, bound) for name, bound in self.bounds)

    def __str__(self) -> str:
        return " and ".join(f"{name} {bound}" for name, bound in self.bounds)


_HOLDS = {"above": operator.gt, "below": operator.lt, "from": operator.ge, "to": operator.le}
BOUNDS = tuple(_HOLDS)
Wanted = str | bool | int | float | Range


@frozen
class Finding:
    """Whether something matches, and why."""

    matches: bool
    why: str


def match_narrowly(match: Mapping[str, Wanted], given: Mapping[str, JSON]) -> Finding:
    """Return whether an input is certainly what a rule allows. The patterns are those of a `Grant`."""
    for key, wanted in match.items():
        if key not in given:
            return Finding(matches=False, why=f"{key!r} is not given")
        if not _is_allowed(wanted, given[key]):
            return Finding(matches=False, why=f"{key!r} is not {_describe(wanted)}")
    return Finding(matches=True, why="")


def _is_allowed(wanted: Wanted, value: JSON) -> bool:
    match wanted:
        case Range():
            return _is_number(value) and wanted.holds(value)
        case str() if isinstance(value, str):
            return matches(wanted, value)
    return to_canonical(wanted) == to_canonical(value)


def match_widely(
    match: Mapping[str, Wanted], given: Mapping[str, JSON], schema: Any, widen: Callable[[str], WideText]
) -> Finding:
    """Return whether an input is, or could be, what a rule asks for or denies.

    Args:
        match: what the rule names, by key.
        given: the input.
        schema: the JSON Schema of the tool's input; None if it is unknown.
        widen: makes the forms of a text, once for all rules.

    """
    reasons = []
    for key, wanted in match.items():
        is_given = key in given
        found = _compare(key, wanted, given[key], widen) if is_given else _left_out(key, wanted, given, schema, widen)
        if not found.matches:
            return found
        reasons.append(found.why)
    return Finding(matches=True, why="; ".join(reasons))


def _compare(key: str, wanted: Wanted, value: JSON, widen: Callable[[str], WideText]) -> Finding:
    """Compare a value. One of another type could be what the rule names."""
    if isinstance(wanted, str) and isinstance(value, str):
        why = widen(value).why(wanted)
        return _missed(key, wanted) if why is None else Finding(matches=True, why=f"{key!r}: {why}")
    if isinstance(wanted, str) or isinstance(value, bool) is not isinstance(wanted, bool) or not _is_plain(value):
        return Finding(matches=True, why=f"{key!r} is {describe_type(value)}, so it could match")
    is_it = wanted.holds(value) if isinstance(wanted, Range) else wanted == value
    return Finding(matches=True, why=f"{key!r}: it matches") if is_it else _missed(key, wanted)


def _left_out(
    key: str, wanted: Wanted, given: Mapping[str, JSON], schema: Any, widen: Callable[[str], WideText]
) -> Finding:
    """Compare the default of a key that is not given. One that the tool does not have matches nothing."""
    keys = schema.get("properties", {}) if isinstance(schema, Mapping) else None
    if not isinstance(keys, Mapping):
        return Finding(matches=True, why=f"{key!r} is not given, and the tool's schema is unknown, so it could match")
    if key not in keys:
        if not _COMPOSED.isdisjoint(schema):
            return Finding(matches=True, why=f"{key!r} is not given, and the tool may have it, so it could match")
        return Finding(matches=False, why=f"the tool does not have {key!r}")
    if not isinstance(keys[key], Mapping) or "default" not in keys[key]:
        return Finding(matches=True, why=f"{key!r} is not given, and its default is unknown, so it could match")
    if strange := next((each for each in given if each not in keys), None):  # such as an alias that pydantic accepts
        return Finding(matches=True, why=f"{strange!r} is not in the tool's schema, so it could be {key!r}")
    found = _compare(key, wanted, keys[key]["default"], widen)
    return Finding(found.matches, f"{found.why} (its default, because it is not given)")


def _missed(key: str, wanted: Wanted) -> Finding:
    return Finding(matches=False, why=f"{key!r} is not {_describe(wanted)}")


def _describe(wanted: Wanted) -> str:
    return str(wanted) if isinstance(wanted, Range) else repr(wanted)


def _is_number(value: JSON) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_plain(value: JSON) -> bool:
    return isinstance(value, (bool, int, float))
