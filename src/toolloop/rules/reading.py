"""Read rules: from TOML or mappings, with the rule and the key in each error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Literal, get_args

from attrs import field, frozen

from toolloop.machine.values.demands import Ask
from toolloop.machine.values.jsontext import describe_type
from toolloop.machine.values.names import find_name_flaw, to_name_key
from toolloop.rules.matching import BOUNDS, Range, Wanted

RuleAction = Literal["allow", "ask", "deny"]
METADATA = "metadata:"
_ACTIONS = get_args(RuleAction)
_KEYS = ("name", "do", "tool", "match", "reason")
_ASK_KEYS = ("need", "of", "not_by", "fresh", "expires_in", "remind_after")
_LATEST = 10**12  # seconds, as for `Ask`
_LINE = re.compile(r" \(at (line \d+), column \d+\)$")


@frozen
class Rule:
    """A rule.

    Attributes:
        match: what the input must be, by key.
        ask: what an `ask` rule asks for, without the persons of `excluded`.
        excluded: the keys of metadata whose values are names of persons that may not approve.

    """

    name: str
    do: RuleAction
    tool: str | None
    match: Mapping[str, Wanted]
    reason: str | None
    ask: Ask
    excluded: tuple[str, ...] = field(default=())


def read_toml(data: bytes, name: str) -> list[Any]:
    """Return the rules in a TOML file, which may be wrong. `name`: of the file, for errors.

    Raises:
        ValueError: it is not TOML, and the error names the line; or it has something else than rules.

    """
    import tomllib  # noqa: PLC0415 - rules may also be given as mappings

    try:
        content = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{name}: line {line}: it is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        text = str(error)
        if found := _LINE.search(text):
            raise ValueError(f"{name}: {found[1]}: {text[: found.start()]}") from error
        last = 1 + data.count(b"\n")  # of "at end of document"
        raise ValueError(f"{name}: line {last}: {text}") from error
    rules = content.pop("rule", None)
    if content or not isinstance(rules, list):
        names = ", ".join(map(repr, content)) or "no rules"
        raise ValueError(f"{name} has {names}; expected only tables that begin with [[rule]]")
    return rules


def read_rules(given: Iterable[Any], source: str) -> tuple[Rule, ...]:
    """Return the rules of these mappings. `source`: where they are from, for errors.

    Raises:
        ValueError: a rule is not valid; the error names the rule and the key.

    """
    rules: list[Rule] = []
    for number, each in enumerate(given, 1):
        if not isinstance(each, Mapping):
            raise ValueError(f"{source}: rule {number} is {describe_type(each)}; expected a mapping")  # noqa: TRY004 - a value
        name = each.get("name")
        where = f"{source}: rule {name!r}" if isinstance(name, str) and name else f"{source}: rule {number}"
        try:
            rules.append(_read_rule(dict(each)))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if any(rule.name == rules[-1].name for rule in rules[:-1]):
            raise ValueError(f"{where}: name: an earlier rule has this name, too")
    return tuple(rules)


def _read_rule(given: dict[Any, Any]) -> Rule:
    name = _take(given, "name", _name, default=None)
    do = _take(given, "do", _action, default=None)
    if name is None or do is None:
        raise ValueError(f"{'name' if name is None else 'do'}: it is missing")
    tool, reason = _take(given, "tool", _text, default=None), _take(given, "reason", _text, default=None)
    match = _take(given, "match", _match, default={})
    persons = _take(given, "not_by", _names, default=()) if do == "ask" else ()
    parts = _ask_parts(given) if do == "ask" else {}
    if given:
        known = (*_KEYS, *_ASK_KEYS) if do == "ask" else _KEYS
        only = ", which only rules with do = 'ask' have" if set(given) <= set(_ASK_KEYS) else ""
        raise ValueError(f"{', '.join(map(str, given))}: unknown key{only}; the keys are {', '.join(known)}")
    excluded = tuple(each.removeprefix(METADATA) for each in persons if each.startswith(METADATA))
    not_by = tuple(each for each in persons if not each.startswith(METADATA))
    return Rule(name, do, tool, match, reason, Ask(reason, not_by=not_by, rule=name, **parts), excluded)


def _ask_parts(given: dict[Any, Any]) -> dict[str, Any]:
    return {
        "need": _take(given, "need", _whole, default=1),
        "of": _take(given, "of", _names, default=()),
        "fresh": _take(given, "fresh", _bool, default=False),
        "expires_in": _take(given, "expires_in", _seconds, default=None),
        "remind_after": _take(given, "remind_after", _times, default=()),
    }


def _take(given: dict[Any, Any], key: str, read: Callable[[Any], Any], *, default: Any) -> Any:
    """Take a key out of a rule, and return its value as `read` accepts it."""
    if key not in given:
        return default
    try:
        return read(given.pop(key))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def _expect(is_right: object, expected: str, value: Any) -> None:
    if not is_right:
        raise ValueError(f"expected {expected}, got {value!r}")


def _text(value: Any) -> str:
    _expect(isinstance(value, str) and value.strip(), "a text", value)
    return str(value)


def _name(value: Any) -> str:
    if (why := find_name_flaw(_text(value))) is not None:
        raise ValueError(f"{value!r} is refused, because {why}")
    return str(value)


def _action(value: Any) -> RuleAction:
    _expect(value in _ACTIONS, f"one of {', '.join(_ACTIONS)}", value)
    action: RuleAction = value
    return action


def _names(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    is_list = isinstance(names, (list, tuple)) and names
    _expect(is_list and all(isinstance(each, str) for each in names), "a name, or a list of at least one", value)
    _expect(all(to_name_key(each) and each != METADATA for each in names), "names that are not empty", value)
    return tuple(names)


def _bool(value: Any) -> bool:
    _expect(isinstance(value, bool), "true or false", value)
    return bool(value)


def _whole(value: Any) -> int:
    _expect(type(value) is int, "a whole number of at least 1", value)
    Ask(need=value)
    return int(value)


def _number(value: Any) -> Any:
    is_number = type(value) is int or (type(value) is float and isfinite(value))
    _expect(is_number, "a number", value)
    return value


def _seconds(value: Any) -> float:
    _expect(0 < _number(value) <= _LATEST, f"a number of seconds above 0, at most {_LATEST}", value)
    return float(value)


def _times(value: Any) -> tuple[float, ...]:
    _expect(isinstance(value, (list, tuple)), "a list of numbers of seconds", value)
    return tuple(_seconds(each) for each in value)


def _match(value: Any) -> dict[str, Wanted]:
    _expect(isinstance(value, Mapping), "keys of the input with their values", value)
    wanted = {}
    for key, each in value.items():
        _expect(isinstance(key, str), "a text as the key", key)
        wanted[key] = _take({key: each}, key, _wanted, default=None)
    return wanted


def _wanted(value: Any) -> Wanted:
    if isinstance(value, Mapping):
        _expect(value and set(value) <= set(BOUNDS), f"one or more of {', '.join(BOUNDS)}", dict(value))
        return Range(tuple((name, _take({name: each}, name, _number, default=None)) for name, each in value.items()))
    is_plain = isinstance(value, (str, bool, int)) or (isinstance(value, float) and isfinite(value))
    _expect(is_plain, "a text, a number, true, false, or bounds such as {above = 500}", value)
    wanted: Wanted = value
    return wanted
