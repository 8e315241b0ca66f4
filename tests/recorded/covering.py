"""Which values the recorded journals have: the classes of the machine, and their optional fields with another value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.record.round_calls import RoundCalls
from toolloop.machine.values.calls import Call
from toolloop.machine.values.chain import Chain
from toolloop.stores.codec import EVENTS

Fields = Mapping[type, set[str]]


@cache
def _own(kind: type) -> dict[str, Any]:
    """The optional fields that a class itself defines, with their defaults."""
    if attrs.has(kind):
        return {
            field.name: field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]  # it is a class
            for field in attrs.fields(kind)
            if field.init and not field.inherited and field.default is not attrs.NOTHING
        }
    return dict(getattr(kind, "_field_defaults", {}))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """All fields of a class."""
    return tuple(get_type_hints(kind))


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (attrs.has(kind) or hasattr(kind, "_field_defaults"))


def machine_fields() -> Fields:
    """All classes of events, and of what they and a state consist of, each with its optional fields."""
    found: dict[type, set[str]] = {}
    rest: list[Any] = [ev.Event, *EVENTS.values(), State]
    while rest:
        kind = rest.pop()
        if get_origin(kind) in (Union, UnionType) or get_args(kind):
            rest += get_args(kind)
        elif kind is RoundCalls:
            rest.append(Call)
        elif _is_record(kind) and kind not in found:
            found[kind] = {*_own(kind)}
            rest += get_type_hints(kind).values()
    return found


def recorded_fields(values: Iterable[Any]) -> Fields:
    """The classes of these values and of all in them, each with the optional fields that have not their defaults."""
    found: defaultdict[type, set[str]] = defaultdict(set)
    seen, rest = dict[int, Any](), [*values]
    while rest:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # kept alive, so that no other value gets its id
        kind_of_it: Any = type(value)
        if _is_record(kind_of_it):
            for kind in kind_of_it.__mro__:
                if _is_record(kind):
                    found[kind] |= {name for name, usual in _own(kind).items() if getattr(value, name) != usual}
            rest += [getattr(value, name) for name in _names(kind_of_it) if hasattr(value, name)]
        elif isinstance(value, Mapping):
            rest += value.values()
        elif isinstance(value, (Chain, RoundCalls, tuple, list, frozenset)):
            rest += value
    return found
