"""An exception in words: what the model is told of it. No traceback, no addresses, never empty."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from toolloop.tools.failures import shortened, well_formed

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MOST_LEAVES = 20
_MOST_COUNTED = 1000  # a group may hold one exception many times over, level for level
_DEEPEST = 8
_LONGEST_LEAF = 1000


def name_of(value: object) -> str:
    """The name of its type, which a metaclass may hide."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return name


def headline(exc: BaseException) -> str:
    """Its type and what it says, in one piece: `ValueError: no such file`; the type alone where it says nothing."""
    name = name_of(exc).strip() or "Exception"
    said = _said(exc)
    return f"{name}: {said}" if said.strip() else name


def told(exc: BaseException) -> str:
    """Its headline, its notes, and of a group what is in it, as an indented list; at most 4096 characters."""
    return shortened(well_formed("\n".join([headline(exc), *_members(exc), *notes_of(exc)])))


def notes_of(exc: BaseException) -> list[str]:
    """The notes that were added to it, as far as they are texts."""
    notes = getattr(exc, "__notes__", ())
    kinds: tuple[Any, ...] = (list, tuple)
    for kind in kinds:
        if isinstance(notes, kind):  # read as such, for a subclass may read otherwise, and never end
            return [well_formed(note) for note in kind.__iter__(notes) if isinstance(note, str)]
    return []


def _said(exc: BaseException) -> str:
    try:
        if isinstance(exc, BaseExceptionGroup):
            text: str = exc.message  # its `str` counts the members, which are listed
        elif type(exc).__str__ is KeyError.__str__ and len(exc.args) == 1 and _is_sentence(exc.args[0]):
            text = exc.args[0]  # its `str` is made for keys: it would put the sentence in quotes
        else:
            text = str(exc)
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is still gets its result
        return ""
    return well_formed(_ADDRESS.sub("", text))


def _is_sentence(key: object) -> bool:
    return isinstance(key, str) and " " in key.strip()


def _members(exc: BaseException) -> list[str]:
    lines = _tree(exc, "")
    shown = list(islice(lines, _MOST_LEAVES))
    rest = sum(1 for _ in islice(lines, _MOST_COUNTED + 1))
    many = f"more than {_MOST_COUNTED}" if rest > _MOST_COUNTED else rest
    return [*shown, f"- and {many} more"] if rest else shown


def _tree(exc: BaseException, indent: str) -> Iterator[str]:
    if not isinstance(exc, BaseExceptionGroup) or len(indent) > _DEEPEST * 2:
        return
    for each in exc.exceptions:
        text = "\n".join([headline(each), *notes_of(each)])
        yield f"{indent}- " + shortened(text, _LONGEST_LEAF).replace("\n", f"\n{indent}  ")
        yield from _tree(each, indent + "  ")
