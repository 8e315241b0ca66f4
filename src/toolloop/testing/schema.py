"""Shapes of JSON, and what the API says of a value that has another.

A shape is a function of a value, its path and the context; it yields what is wrong. The API reports wrong types before
unknown keys, wherever they stand (messages-api.md, rule 7), so each finding carries which of the two it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolloop.core.freezing import frozen
from toolloop.testing.refusals import Context

Found = Iterator[tuple[bool, str]]  # whether it is an unknown key, and the message
Shape = Callable[[Any, str, Context], Found]

EXTRA = "Extra inputs are not permitted"


def anything(_value: Any, _path: str, _context: Context) -> Found:
    """Any JSON value."""
    return iter(())


def instance(kind: type | tuple[type, ...], name: str) -> Shape:
    """A value of a Python type; a bool is no number."""

    def shape(value: Any, path: str, _context: Context) -> Found:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            yield False, f"{path}: Input should be {name}"

    return shape


string = instance(str, "a valid string")
boolean = instance(bool, "a valid boolean")
integer = instance(int, "a valid integer")
number = instance((int, float), "a valid number")
mapping = instance(dict, "an object")


def pattern(expression: str) -> Shape:
    """A string that matches from end to end."""
    compiled = re.compile(expression)

    def shape(value: Any, path: str, context: Context) -> Found:
        yield from string(value, path, context)
        if isinstance(value, str) and not compiled.fullmatch(value):
            yield False, f"{path}: String should match pattern '{expression}'"

    return shape


def one_of(*values: str) -> Shape:
    """One of some strings."""
    wording = ", ".join(f"'{value}'" for value in values[:-1]) + (" or " if values[1:] else "") + f"'{values[-1]}'"

    def shape(value: Any, path: str, _context: Context) -> Found:
        if value not in values:
            yield False, f"{path}: Input should be {wording}"

    return shape


def at_least(least: int) -> Shape:
    """A whole number with a lower bound."""

    def shape(value: Any, path: str, context: Context) -> Found:
        yield from integer(value, path, context)
        if isinstance(value, int) and value < least:
            yield False, f"{path}: Input should be greater than or equal to {least}"

    return shape


def optional(inner: Shape) -> Shape:
    """The shape, or null."""

    def shape(value: Any, path: str, context: Context) -> Found:
        return iter(()) if value is None else inner(value, path, context)

    return shape


def array(inner: Shape) -> Shape:
    """A list of one shape."""

    def shape(value: Any, path: str, context: Context) -> Found:
        if not isinstance(value, list):
            yield False, f"{path}: Input should be a valid array"
            return
        for index, item in enumerate(value):
            yield from inner(item, f"{path}.{index}", context)

    return shape


def text_or(inner: Shape) -> Shape:
    """A string, or the shape."""

    def shape(value: Any, path: str, context: Context) -> Found:
        return iter(()) if isinstance(value, str) else inner(value, path, context)

    return shape


@frozen
class Key:
    """One key of an object.

    Args:
        shape: the shape of its value.
        required: whether it must be there.
        beta: the start of the beta's name that switches it on, or of several; `""` is any beta.

    """

    shape: Shape
    required: bool = False
    beta: str | tuple[str, ...] | None = None


def need(shape: Shape) -> Key:
    """A required key."""
    return Key(shape, required=True)


def _is_on(key: Key, context: Context) -> bool:
    return key.beta is None or context.has_beta(key.beta)


def fields(keys: Mapping[str, Key | Shape]) -> Shape:
    """An object with these keys and no others."""
    known = {name: key if isinstance(key, Key) else Key(key) for name, key in keys.items()}

    def shape(value: Any, path: str, context: Context) -> Found:
        if not isinstance(value, dict):
            yield False, f"{path}: Input should be an object"
            return
        dot = f"{path}." if path else ""
        for name, key in known.items():
            if key.required and name not in value:
                yield False, f"{dot}{name}: Field required"
        for name, item in value.items():
            entry = known.get(name)
            if entry is None or not _is_on(entry, context):
                yield True, f"{dot}{name}: {EXTRA}"
            else:
                yield from entry.shape(item, f"{dot}{name}", context)

    return shape


def tagged(shapes: Mapping[str, Shape], *, in_path: bool = True) -> Shape:
    """An object whose `type` chooses its shape.

    Args:
        shapes: the shape for each tag.
        in_path: whether the tag becomes a part of the path, as it does for content blocks.

    """
    expected = ", ".join(f"'{tag}'" for tag in shapes)

    def shape(value: Any, path: str, context: Context) -> Found:
        if not isinstance(value, dict):
            yield False, f"{path}: Input should be an object"
        elif "type" not in value:
            yield False, f"{path}.type: Field required"
        elif (chosen := shapes.get(value["type"]) if isinstance(value["type"], str) else None) is None:
            mismatch = f"Input tag '{value['type']}' found using 'type' does not match any of the expected tags"
            yield False, f"{path}: {mismatch}: {expected}"
        else:
            yield from chosen(value, f"{path}.{value['type']}" if in_path else path, context)

    return shape
