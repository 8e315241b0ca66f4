"""Strategies for annotations of every kind, with valid inputs and a check of the validated value."""

from __future__ import annotations

import dataclasses
import datetime as dt
import typing
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, Optional, Union

import attrs
from hypothesis import strategies as st
from pydantic import ConfigDict, Field, create_model

# What a JSON value is to become. `given` is JSON, `value` what the function got.
Judge = Callable[[Any, Any], bool]
# Makes a class of fields, each with whether it is required: its annotation, its type, and what reads an instance.
Make = Callable[[dict[str, Any]], tuple[Any, type, Callable[[Any], Any]]]


@attrs.frozen
class Kind:
    """An annotation, valid JSON for it, and a check that a value is the right one for a JSON value."""

    annotation: Any
    fitting: st.SearchStrategy[Any]
    became: Judge
    hashable: bool = False


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def same(value: Any, given: Any) -> bool:
    """Compare as JSON does: 1 equals 1.0, but not true."""
    return isinstance(value, bool) is isinstance(given, bool) and bool(value == given)


def leaf(annotation: Any, fitting: st.SearchStrategy[Any], *types: type) -> Kind:
    return Kind(annotation, fitting, lambda value, given: type(value) in types and same(value, given), hashable=True)


def parsed(annotation: Any, fitting: st.SearchStrategy[Any], text: Callable[[Any], Any]) -> Kind:
    return Kind(
        annotation,
        fitting,
        lambda value, given: isinstance(value, annotation) and same(text(value), given),
        hashable=True,
    )


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
INTEGERS = st.integers() | st.integers(-5, 5).map(float)
LEAVES = [
    leaf(int, INTEGERS, int),
    leaf(float, st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53), float),
    leaf(str, TEXT, str),
    leaf(bool, st.booleans(), bool),
    leaf(None, st.none(), type(None)),
    leaf(Literal["a", "b"], st.sampled_from(["a", "b"]), str),
    leaf(Annotated[int, Field(ge=0, lt=9), "small"], st.integers(0, 8), int),
    leaf(Annotated[str, Field(min_length=1, max_length=3)], st.sampled_from(["a", "äöü"]), str),
    parsed(Colour, st.sampled_from(["red", "blue"]), lambda member: member.value),
    parsed(dt.date, st.dates().map(str), str),
    parsed(uuid.UUID, st.uuids().map(str), str),
]


def json_values() -> st.SearchStrategy[Any]:
    """Generate any JSON, with some small numbers and short field names."""
    scalars = st.none() | st.booleans() | st.integers(-2, 9) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
    more = scalars | st.sampled_from([1.0, "a", "red", "2020-01-01", "f0"])
    return st.recursive(
        more, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXT, inner, max_size=3), max_leaves=6
    )


NAMES = st.sampled_from(["f0", "f1", "f2"])


def kinds() -> st.SearchStrategy[Kind]:
    return st.recursive(st.sampled_from(LEAVES), nested, max_leaves=5)


def nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    return containers(inner) | classes(inner)


def containers(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    hashable = st.sampled_from([kind for kind in LEAVES if kind.hashable])
    return st.one_of(
        inner.map(list_of),
        inner.map(dict_of),
        hashable.map(set_of),
        st.tuples(inner, inner).map(tuple_of),
        inner.map(tuple_of_any_length),
        st.lists(inner, min_size=2, max_size=3).map(union_of),
        inner.map(optional),
        inner.map(lambda kind: attrs.evolve(kind, annotation=Annotated[kind.annotation, "told"])),
    )


def classes(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    """Generate classes of every kind, each equally often.

    A pydantic model judges the classes that it holds by pydantic's own rules, which leave unknown fields alone, and
    holds no attrs class. So it holds no class here; all else agrees inside of it too.
    """
    without = st.recursive(st.sampled_from(LEAVES), containers, max_leaves=3)
    return st.sampled_from([_attrs_class, _dataclass, _typed_dict, _model]).flatmap(
        lambda make: st.lists(
            st.tuples(without if make is _model else inner, st.booleans()), min_size=1, max_size=3
        ).map(lambda fields: class_of(make, fields))
    )


def list_of(kind: Kind) -> Kind:
    return Kind(
        list[kind.annotation],  # type: ignore[name-defined]
        st.lists(kind.fitting, max_size=3),
        lambda value, given: type(value) is list and all_became(kind, value, given),
    )


def all_became(kind: Kind, value: Any, given: Any) -> bool:
    return isinstance(given, list) and len(value) == len(given) and all(map(kind.became, value, given))


def dict_of(kind: Kind) -> Kind:
    def became(value: Any, given: Any) -> bool:
        if not (type(value) is dict and isinstance(given, dict) and value.keys() == given.keys()):
            return False
        return all(kind.became(value[key], given[key]) for key in given)

    return Kind(dict[str, kind.annotation], st.dictionaries(TEXT, kind.fitting, max_size=2), became)  # type: ignore[name-defined]


def set_of(kind: Kind) -> Kind:
    def became(value: Any, given: Any) -> bool:
        held = type(value) is set and isinstance(given, list) and len(value) <= len(given)
        return held and all(any(kind.became(item, each) for item in value) for each in given)

    return Kind(set[kind.annotation], st.lists(kind.fitting, max_size=3), became)  # type: ignore[name-defined]


def tuple_of(two: tuple[Kind, Kind]) -> Kind:
    def became(value: Any, given: Any) -> bool:
        held = type(value) is tuple and isinstance(given, list) and len(value) == len(given) == len(two)
        return held and all(kind.became(*pair) for kind, *pair in zip(two, value, given, strict=True))

    return Kind(
        tuple[two[0].annotation, two[1].annotation],  # type: ignore[misc]
        st.tuples(two[0].fitting, two[1].fitting).map(list),
        became,
    )


def tuple_of_any_length(kind: Kind) -> Kind:
    return Kind(
        tuple[kind.annotation, ...],  # type: ignore[name-defined]
        st.lists(kind.fitting, max_size=3),
        lambda value, given: type(value) is tuple and all_became(kind, value, given),
    )


def union_of(some: list[Kind]) -> Kind:
    return Kind(
        Union[tuple(kind.annotation for kind in some)],  # noqa: UP007 - made at run time
        st.one_of([kind.fitting for kind in some]),
        lambda value, given: any(kind.became(value, given) for kind in some),
    )


def optional(kind: Kind) -> Kind:
    return Kind(
        Optional[kind.annotation],  # noqa: UP045 - made at run time
        st.none() | kind.fitting,
        lambda value, given: value is None if given is None else kind.became(value, given),
    )


def class_of(make: Make, fields: list[tuple[Kind, bool]]) -> Kind:
    """Make a class with these fields, each required or with the default None."""
    named = {f"f{index}": field for index, field in enumerate(sorted(fields, key=lambda field: not field[1]))}
    needed = {name: kind.fitting for name, (kind, required) in named.items() if required}
    free = {name: kind.fitting for name, (kind, required) in named.items() if not required}
    fitting = st.fixed_dictionaries(needed, optional=free)

    def became(kind: type, read: Callable[[Any], dict[str, Any]]) -> Judge:
        def judge(value: Any, given: Any) -> bool:
            if type(value) is not kind or not isinstance(given, dict) or not given.keys() <= named.keys():
                return False
            values = read(value)
            return all(
                (given[name] is None and values[name] is None and not needed) or field.became(values[name], given[name])
                if name in given
                else values.get(name) is None
                for name, (field, needed) in named.items()
            )

        return judge

    annotation, runtime, read = make(named)
    return Kind(annotation, fitting, became(runtime, read))


def _with_default(kind: Kind) -> Any:
    return Optional[kind.annotation]  # noqa: UP045 - made at run time


def _attrs_class(named: dict[str, tuple[Kind, bool]]) -> tuple[Any, type, Callable[[Any], Any]]:
    # Private names, which the constructor takes without their underscore.
    fields: dict[str, Any] = {
        f"_{name}": attrs.field(type=kind.annotation) if needed else attrs.field(type=_with_default(kind), default=None)
        for name, (kind, needed) in named.items()
    }
    made = attrs.make_class("Made", fields, frozen=True)
    return made, made, lambda value: {name: getattr(value, f"_{name}") for name in named}


def _dataclass(named: dict[str, tuple[Kind, bool]]) -> tuple[Any, type, Callable[[Any], Any]]:
    fields: list[Any] = [
        (name, kind.annotation)
        if needed
        else (name, _with_default(kind), dataclasses.field(default=None, kw_only=True))
        for name, (kind, needed) in named.items()
    ]
    made = dataclasses.make_dataclass("Made", fields)
    return made, made, vars


def _typed_dict(named: dict[str, tuple[Kind, bool]]) -> tuple[Any, type, Callable[[Any], Any]]:
    fields = {
        name: kind.annotation if needed else typing.NotRequired[_with_default(kind)]
        for name, (kind, needed) in named.items()
    }
    make: Any = typing.TypedDict
    return make("Made", fields), dict, dict


def _model(named: dict[str, tuple[Kind, bool]]) -> tuple[Any, type, Callable[[Any], Any]]:
    # Closed, so that the judge needs to know no more.
    fields: dict[str, Any] = {
        name: (kind.annotation, ...) if needed else (_with_default(kind), None)
        for name, (kind, needed) in named.items()
    }
    made = create_model("Made", __config__=ConfigDict(extra="forbid"), **fields)
    return made, made, vars
