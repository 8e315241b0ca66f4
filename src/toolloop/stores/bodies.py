"""The text of an event: its members, and the one long text that stands in it as it is.

A text is never cut by eye. What stands before a long text, with `null` in its place, must be JSON, and so must the long
text: then the whole is JSON, and the cut is where the value is, whatever marks are inside of it.

A member that is there twice is refused: readers differ in which of the two they take. Inside of a long text it is the
model's own, and stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode

#: The member that holds the one long text of an event, its name there, and what stands before it. Both come last.
LONG: Final = {"Replied": ("reply", "message", '"message":'), "Ended": ("result", "content", '"content":')}
#: What stands after it.
END: Final = "}}"

_SPACE = " \t\n\r"  # what JSON takes for white space


@frozen
class Cut:
    """A long text that was taken out of an event, and its value."""

    text: str
    value: JSON


# --- quickly: what the writer wrote; what raises is to be read carefully ---------------------------------------------


def quick_members(text: str) -> dict[str, JSON]:
    """The members of an event without a long text."""
    fields = _reader()(text)
    # Each member has a colon of its own. With one in a string, or an object inside, there are more than members.
    return fields if text.count(":") == len(fields) else read_members(text)


def quick_cut(text: str, mark: str, member: str) -> tuple[dict[str, JSON], str, JSON]:
    """The members of an event with a long text, `null` in its place; that text, and its value."""
    start = text.index(mark) + len(mark)
    if not text.endswith(END):
        raise ValueError(text[-2:])
    quickly = _reader()
    head = f"{text[:start]}null{END}"
    fields = quickly(head)
    if head.count(":") != len(fields) + len(fields[member]):
        fields = read_members(head)
    taken = text[start : -len(END)]
    value = quickly(taken)
    if value.__class__ is not str and not _is_finite(value):
        raise ValueError(taken)
    return fields, taken, value


@cache
def _reader() -> Callable[[str], Any]:
    """A function that reads a JSON text.

    Pydantic takes a third of the time of the standard library, and keeps integers of any size too. It refuses escapes
    of lone surrogates, which are then looked at once more; and it takes 1e999 for an infinity.
    """
    from pydantic_core import from_json  # noqa: PLC0415 - pydantic is loaded when it is first needed

    return partial(from_json, allow_inf_nan=False, cache_strings="keys")


def _is_finite(value: JSON) -> bool:
    """Whether no number in a list or an object is infinite."""
    inside = [value]
    for each in inside:  # it grows while it is looked at
        for item in each.values() if each.__class__ is dict else each:
            kind = item.__class__
            if kind is dict or kind is list:
                inside.append(item)
            elif kind is float and item - item:  # not 0 but NaN
                return False
    return True


# --- carefully: any JSON --------------------------------------------------------------------------------------------


def read_body(text: str) -> tuple[dict[str, JSON], Cut | None]:
    """The members of any event, and the long text that it ends with, if it does.

    Raises:
        ValueError: it is no JSON object, or no UTF-8, or a member is there twice.
        RecursionError, TypeError, AttributeError: it is no text, or nested too deep.

    """
    text = text.strip(_SPACE)
    text.encode()  # a lone surrogate may come as an escape only
    for _, _, mark in LONG.values():
        try:
            return _careful_cut(text, mark)
        except (ValueError, RecursionError):
            continue
    return read_members(text), None


def _careful_cut(text: str, mark: str) -> tuple[dict[str, JSON], Cut]:
    start = text.index(mark) + len(mark)
    if not text.endswith(END):
        raise ValueError(text[-2:])
    fields = read_members(f"{text[:start]}null{END}")
    cut = Cut(text[start : -len(END)], decode(text[start : -len(END)]))
    around = fields[next(reversed(fields))]  # the member that was open at the cut: only objects are closed there
    around[next(reversed(around))] = cut.value
    return fields, cut


def read_members(text: str) -> dict[str, JSON]:
    """The members of a JSON object.

    Raises:
        ValueError: it is none, or a member is there twice, however deep.
        RecursionError, TypeError, AttributeError: it is no text, or nested too deep.

    """
    decode(text)  # what is JSON is said there
    fields = _ONCE.decode(text)
    if not isinstance(fields, dict):
        raise ValueError(f"no object, but {type(fields).__name__}")  # noqa: TRY004 - it is of a text
    return fields


def _once(members: list[tuple[str, JSON]]) -> dict[str, JSON]:
    fields = dict(members)
    if len(fields) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the member {twice!r} is there twice")
    return fields


_ONCE = json.JSONDecoder(object_pairs_hook=_once)
