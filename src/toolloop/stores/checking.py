"""Whether the arguments of a store are of the kind it takes, before it does anything with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from toolloop.core.freezing import frozen
from toolloop.stores.protocol import Entry, Head, Lease

_GREATEST = 2**63 - 1  # the integers of SQLite


def a_text(what: str, value: object, *, may_be_empty: bool = False) -> None:
    """Refuse what is no text, and a text that not every store could give back as it was."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a {type(value).__name__}; give a string")
    if not value and not may_be_empty:
        raise ValueError(f"{what} is empty")
    if "\0" in value:
        raise ValueError(f"{what} has a NUL in it, at {value.index(chr(0))}; a store keeps text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{what} has a lone surrogate in it, at {error.start}; a store keeps text") from None


def a_number(what: str, value: object, least: int = 0) -> None:
    """Refuse what is no whole number from `least` up."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is a {type(value).__name__}; give a whole number")
    if not least <= value <= _GREATEST:
        raise ValueError(f"{what} is {value}; give a whole number from {least} to {_GREATEST}")


def a_moment(what: str, value: object) -> float:
    """A moment, in seconds since the epoch."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a {type(value).__name__}; give seconds since the epoch")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise ValueError(f"{what} is no moment; give seconds since the epoch")
    return seconds


def a_head(value: object) -> Head:
    """A head of which every part is of its kind."""
    if not isinstance(value, Head):
        raise TypeError(f"head is a {type(value).__name__}; give a Head")
    a_text("head.status", value.status)
    return value if value.deadline is None else Head(value.status, a_moment("head.deadline", value.deadline))


def a_lease(value: object) -> None:
    """Refuse what is no lease."""
    if not isinstance(value, Lease):
        raise TypeError(f"lease is a {type(value).__name__}; give the Lease that acquire() or renew() returned")
    a_text("lease.loop_id", value.loop_id)
    a_number("lease.token", value.token)


def new_entries(value: Sequence[Entry]) -> tuple[Entry, ...]:
    """Entries of which every part is a text, no two of one id."""
    if not isinstance(value, Sequence):
        raise TypeError(f"entries is a {type(value).__name__}; give a list of Entry")
    entries, ids = tuple(value), set[str]()
    for at, entry in enumerate(entries):
        if not isinstance(entry, Entry):
            raise TypeError(f"entries[{at}] is a {type(entry).__name__}; give an Entry")
        a_text(f"entries[{at}].id", entry.id)
        a_text(f"entries[{at}].body", entry.body, may_be_empty=True)
        if entry.id in ids:
            raise ValueError(f"entries[{at}] has the id {entry.id!r}, and so has one before it; an id names one event")
        ids.add(entry.id)
    return entries


@frozen
class Append:
    """What is asked of `append`, where its parts may need to be made good."""

    entries: tuple[Entry, ...]
    head: Head | None


def an_append(loop_id: object, entries: Sequence[Entry], expected_rev: object, head: object, lease: object) -> Append:
    """The arguments of `append`."""
    a_text("loop_id", loop_id)
    if expected_rev is not None:
        a_number("expected_rev", expected_rev)
    if lease is not None:
        a_lease(lease)
    return Append(new_entries(entries), None if head is None else a_head(head))


def an_acquisition(loop_id: object, owner: object, until: object, instead_of: object) -> float:
    """The arguments of `acquire`; its `until` is returned."""
    a_text("loop_id", loop_id)
    a_text("owner", owner)
    if instead_of is not None:
        a_number("instead_of", instead_of)
    return a_moment("until", until)


def a_page(status: object, limit: object, before: object) -> None:
    """The arguments of `list`."""
    if status is not None:
        a_text("status", status)
    a_number("limit", limit, least=1)
    if before is not None:
        a_text("before", before)
