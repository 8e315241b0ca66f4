"""Shapes of JSON values, for the table in `blocks`.

A shape is a function. It gets a value and its path, and yields a `Flaw` for each error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from attrs import frozen

from toolloop.machine.values.jsontext import JSON, describe_type

_LONGEST_QUOTE = 40


@frozen
class Flaw:
    """An error in a block.

    Attributes:
        path: the path of the object in the block, such as `source` or `content[1]`; empty for the block itself.
        key: the member of that object that is invalid, missing or unknown.
        rule: the id of the broken rule in `toolloop.history`.
        text: a description of the error.

    """

    path: str
    key: str
    rule: str
    text: str


Shape = Callable[[str, str, JSON], Iterator[Flaw]]  # the path of an object, a key in it, and the value of that key
Members = Mapping[str, Shape]


def name_type(value: JSON) -> str:
    """Return the name of a value's JSON type."""
    if value is None:
        return "null"
    return next((name for kind, name in _NAMES if isinstance(value, kind)), f"{describe_type(value)}")


_NAMES = (
    (bool, "true or false"),
    (str, "a string"),
    (int | float, "a number"),
    (dict, "an object"),
    (list, "a list"),
)


def quote_short(value: str) -> str:
    """Quote a string, shortened."""
    return repr(value if len(value) <= _LONGEST_QUOTE else f"{value[:_LONGEST_QUOTE]}…")


def join_key(path: str, key: str) -> str:
    """Return the path of a member."""
    return f"{path}.{key}" if path and key else path or key


def _make_type_flaw(path: str, key: str, value: JSON, wanted: str) -> Flaw:
    return Flaw(path, key, "block-fields", f"{repr(key) if key else 'the block'} is {name_type(value)}, not {wanted}")


def _accept_type(kind: type, name: str) -> Shape:
    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, kind):
            yield _make_type_flaw(path, key, value, name)

    return check


STRING = _accept_type(str, "a string")
BOOLEAN = _accept_type(bool, "true or false")
OBJECT = _accept_type(dict, "an object")


def accept_any(_path: str, _key: str, _value: JSON) -> Iterator[Flaw]:
    """Accept any value."""
    return iter(())


def accept_one_of(*values: str) -> Shape:
    """Accept one of these strings."""

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, str):
            yield _make_type_flaw(path, key, value, "a string")
        elif value not in values:
            yield Flaw(path, key, "block-fields", f"{key!r} is {quote_short(value)}; it may be {', '.join(values)}")

    return check


def accept_matching(pattern: str) -> Shape:
    """Accept a string that fully matches a pattern."""
    compiled = re.compile(pattern)

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, str):
            yield _make_type_flaw(path, key, value, "a string")
        elif not compiled.fullmatch(value):
            yield Flaw(path, key, "block-fields", f"the {key} {quote_short(value)} does not match {pattern}")

    return check


def accept_list_of(inner: Shape) -> Shape:
    """Accept a list of values of one shape."""

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, list):
            yield _make_type_flaw(path, key, value, "a list")
            return
        for index, item in enumerate(value):
            yield from inner(path, f"{key}[{index}]", item)

    return check


def accept_string_or(inner: Shape) -> Shape:
    """Accept a string, or a value of another shape."""

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        return iter(()) if isinstance(value, str) else inner(path, key, value)

    return check


def accept_members(required: Members, optional: Members | None = None, *, name: str | None = None) -> Shape:
    """Accept an object with only these members. An optional member may be null.

    Args:
        required: the shapes of the required members.
        optional: the shapes of the optional members.
        name: the name of the object in error texts, such as `a text block`; its key if left out.

    """
    known = {**required, **(optional or {})}

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, dict):
            yield _make_type_flaw(path, key, value, "an object")
            return
        inside, owner = join_key(path, key), repr(key) if key else "the block"
        for missing in (member for member in required if member not in value):
            yield Flaw(inside, missing, "block-fields", f"{owner} has no {missing!r}")
        for member, item in value.items():
            if member not in known:
                yield Flaw(inside, member, "unknown-key", f"{name or owner} has no key {quote_short(member)}")
            elif item is not None or member in required:
                yield from known[member](inside, member, item)

    return check


def accept_tagged(shapes: Mapping[str, Shape], *, unknown: str = "block-fields") -> Shape:
    """Accept an object whose `type` determines its shape.

    Args:
        shapes: the shapes, by type.
        unknown: the rule that other types break.

    """

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, dict):
            yield _make_type_flaw(path, key, value, "an object")
            return
        kind = value.get("type")
        if isinstance(kind, str) and kind in shapes:
            yield from shapes[kind](path, key, value)
            return
        owner, options = repr(key) if key else "the block", ", ".join(shapes)
        if isinstance(kind, str):
            yield Flaw(
                join_key(path, key), "type", unknown, f"{owner} has the type {quote_short(kind)}; it may be {options}"
            )
        else:
            yield Flaw(join_key(path, key), "type", "block-fields", f"{owner} has no type; it may be {options}")

    return check
