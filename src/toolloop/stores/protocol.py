"""The store protocol: a store keeps the journals of loops, and records which driver holds which loop.

A journal is the list of a loop's events. A store does not look into an event, and it has no clock: times in leases and
deadlines are numbers of its callers, and the callers judge whether a lease is over. `toolloop.testing.check_store`
checks any store against this page.

Each method is one transaction: it happens as a whole, or it raises and changes nothing. A store is safe to use from any
thread.

Each text is a `str` without NUL and without lone surrogates, because some stores cannot keep those. Ids, owners and
statuses are not empty. Other arguments raise `TypeError` or `ValueError` before anything is stored.
"""

from __future__ import annotations

import builtins  # `list` is a method of a store
from collections.abc import Callable, Sequence
from functools import partial
from types import UnionType
from typing import Any, Protocol

from attrs import Attribute, field, frozen
from attrs.validators import optional

from toolloop.machine.jsontext import a_type

_INTEGERS = 2**63  # SQLite and PostgreSQL keep 64 bits


def check_text(name: str, value: object, *, may_be_empty: bool = False) -> None:
    """Refuse a value that is not a text, or that a store could not give back unchanged.

    Args:
        name: of the argument, for the error.
        value: the argument.
        may_be_empty: whether `""` is allowed.

    Raises:
        TypeError: it is not a string.
        ValueError: it is empty, or has a NUL or a lone surrogate in it.

    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is {a_type(value)}; give a string")
    if not value and not may_be_empty:
        raise ValueError(f"{name} is empty")
    if "\0" in value:
        raise ValueError(f"{name} has a NUL at {value.index(chr(0))}; a store keeps text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{name} has a lone surrogate at {error.start}; a store keeps text") from None


def check_integer(name: str, value: object, least: int = 0) -> None:
    """Refuse a value that is not an integer from `least` up."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {a_type(value)}; give an integer")
    if not least <= value < _INTEGERS:
        raise ValueError(f"{name} is {value}; give an integer from {least} to {_INTEGERS - 1}")


def check_seconds(name: str, value: object) -> None:
    """Refuse a value that is not a finite number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {a_type(value)}; give seconds as a number")
    if not -_INTEGERS < value < _INTEGERS:
        raise ValueError(f"{name} is {value}; give a finite number of seconds")


def check_page(status: object, limit: object, before: object) -> int | None:
    """Check the arguments of `Store.list`, and return the number in the cursor.

    Stores of this library count their loops, and a cursor is such a number.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument has a wrong value, or `before` is not from a row of `list`.

    """
    if status is not None:
        check_text("status", status)
    check_integer("limit", limit, least=1)
    if before is None:
        return None
    check_text("before", before)
    number = str(before)
    if not (number.isascii() and number.isdecimal() and int(number) < _INTEGERS):
        raise ValueError(f"before is {before!r}; give the `cursor` of a row that list() returned")
    return int(number)


def _checked(check: Callable[[str, object], None]) -> Callable[[object, Attribute[Any], object], None]:
    """Return the validator of an attribute that is checked like an argument."""
    return lambda of, attribute, value: check(f"{type(of).__name__}.{attribute.name}", value)


_text = _checked(check_text)
_long_text = _checked(partial(check_text, may_be_empty=True))
_integer = _checked(check_integer)
_seconds = _checked(check_seconds)


@frozen
class Entry:
    """One event of a journal.

    Attributes:
        id: identifies the event among the events of its loop.
        body: the event as JSON, without its long text.
        text: the long text of the event as JSON (the message of a reply, the content of a result), or None.

    """

    id: str = field(validator=_text)
    body: str = field(validator=_long_text)
    text: str | None = field(default=None, validator=optional(_long_text))


@frozen
class Head:
    """The summary of a loop that a store shows without reading the journal.

    Attributes:
        status: what the loop waits for.
        deadline: when the earliest of its calls expires, in seconds since the epoch, or None.

    """

    status: str = field(validator=_text)
    deadline: float | None = field(default=None, validator=optional(_seconds))


@frozen
class Lease:
    """A driver's right to drive a loop, for a time.

    Attributes:
        loop_id: the loop.
        owner: the driver.
        token: which lease of the loop this is. A later lease has a greater token. The token identifies the lease: it
            stays the same when the lease is renewed.
        until: when the lease ends, in seconds since the epoch.
        rev: of a lease that `acquire` just returned: the revision of the loop, if the store gives it. Then the holder
            knows whether there are new events to read. It is not part of the lease's identity.

    """

    loop_id: str = field(validator=_text)
    owner: str = field(validator=_text)
    token: int = field(validator=_integer)
    until: float = field(validator=_seconds)
    rev: int | None = field(default=None, eq=False, repr=False)


@frozen
class StoredLoop:
    """A row of `Store.list`.

    Attributes:
        loop_id: the loop.
        status: see `Head`.
        deadline: see `Head`.
        rev: the number of events in the journal.
        lease: the current lease, or None. It may be over.
        cursor: the position of this row. `list(before=cursor)` goes on after it, also when the loop was deleted.

    """

    loop_id: str = field(validator=_text)
    status: str = field(validator=_text)
    deadline: float | None = field(validator=optional(_seconds))
    rev: int = field(validator=_integer)
    lease: Lease | None
    cursor: str = field(default="", eq=False, repr=False)


@frozen
class StoredJournal:
    """A journal, or the part of it after a revision.

    Attributes:
        rev: the number of events in the whole journal.
        entries: the events, oldest first.

    """

    rev: int
    entries: tuple[Entry, ...]


def check_create(loop_id: object, entries: object, head: object) -> None:
    """Check the arguments of `Store.create`. See `Store` for what is raised."""
    check_text("loop_id", loop_id)
    _check_entries(entries)
    check_kind("head", head, Head)


def check_append(loop_id: object, entries: object, expected_rev: object, head: object, lease: object) -> None:
    """Check the arguments of `Store.append`. See `Store` for what is raised."""
    check_text("loop_id", loop_id)
    _check_entries(entries)
    if expected_rev is not None:
        check_integer("expected_rev", expected_rev)
    check_kind("head", head, Head | None)
    check_kind("lease", lease, Lease | None)


def _check_entries(entries: object) -> None:
    """Refuse anything that is not a sequence of `Entry` with distinct ids."""
    if not isinstance(entries, Sequence):
        raise TypeError(f"entries is {a_type(entries)}; give a list of Entry")
    ids: set[str] = set()
    for at, entry in enumerate(entries):
        if not isinstance(entry, Entry):
            raise TypeError(f"entries[{at}] is {a_type(entry)}; give an Entry")
        if entry.id in ids:
            raise ValueError(f"entries[{at}] has the id {entry.id!r} of an earlier entry; an id names one event")
        ids.add(entry.id)


def check_kind(name: str, value: object, kind: type | UnionType) -> None:
    """Refuse a value of another class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {a_type(value)}; give a {getattr(kind, '__name__', kind)}")


def check_store(store: object) -> None:
    """Refuse what is not a store, such as the path of one: only the methods are looked for.

    Raises:
        TypeError: says what to give.

    """
    if isinstance(store, type) or not all(
        callable(getattr(store, name, None)) for name in ("load", "append", "acquire")
    ):
        raise TypeError(f"store is {a_type(store)}; give a store, such as SqliteStore('loops.db') or MemoryStore()")


class Store(Protocol):
    """Keep the journals of loops. Any object with these methods is a store.

    The revision of a loop is the number of its events. Each method may also raise `StoreError` when the store fails,
    and `UnreadableSnapshot` when the stored content is damaged or foreign. `load` must not return other events than
    were stored: the calls of a damaged journal might run twice.
    """

    def create(self, loop_id: str, entries: Sequence[Entry], *, head: Head) -> int:
        """Create a loop with its first events, and return the new revision.

        Raises:
            Conflict: a loop with this id exists.
            ValueError: two of the events have the same id.

        """
        ...

    def append(
        self,
        loop_id: str,
        entries: Sequence[Entry],
        *,
        expected_rev: int | None,
        head: Head | None = None,
        lease: Lease | None = None,
    ) -> int:
        """Add events at the end of a journal, and return the new revision.

        An event whose id is stored already is not added again. If all are stored already, nothing changes, the head
        neither, and the revision is returned, whatever was expected. So a caller that lost the answer can ask again.

        Args:
            loop_id: the loop.
            entries: the events, oldest first.
            expected_rev: the revision that the events follow. None: any.
            head: the new summary. None: as before.
            lease: append only while this is the loop's lease. None: under any lease, or none.

        Raises:
            LoopNotFound: the loop does not exist.
            Conflict: `lease` is not the loop's current lease. This is checked before the revision.
            StaleRevision: the journal has another revision than expected.
            ValueError: two of the events have the same id.

        """
        ...

    def load(self, loop_id: str, *, after: int = 0) -> StoredJournal:
        """Return the events of a loop after the revision `after`.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        ...

    def list(
        self, status: str | None = None, *, limit: int = 100, before: str | None = None
    ) -> builtins.list[StoredLoop]:
        """List the loops, the last created first.

        Args:
            status: only loops with this status. None: all.
            limit: the maximum number of rows.
            before: the `cursor` of a row: only loops that were created before that one. The cursor stays valid when
                that loop is deleted. Use the last row's cursor to get the next page.

        Raises:
            ValueError: `before` is not a cursor of this store.

        """
        ...

    def delete(self, loop_id: str) -> None:
        """Delete a loop: its journal, its head and its lease.

        Raises:
            LoopNotFound: the loop does not exist.

        """

    def lease(self, loop_id: str) -> Lease | None:
        """Return the lease of a loop, which may be over, or None.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        ...

    def acquire(self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None) -> Lease:
        """Take the lease of a loop that has none.

        The token is greater than the token of each earlier lease of the loop, and of a deleted loop with the same id.

        Args:
            loop_id: the loop.
            owner: the driver.
            until: when the lease ends, in seconds since the epoch.
            instead_of: the token of a lease that the caller knows to be void: take its place.

        Raises:
            LoopNotFound: the loop does not exist.
            Conflict: another lease is current; `owner`, `until` and `token` describe it.

        """
        ...

    def renew(self, lease: Lease, *, until: float) -> Lease:
        """Extend a lease, and return it.

        Raises:
            LoopNotFound: the loop does not exist.
            Conflict: it is no longer the loop's lease.

        """
        ...

    def release(self, lease: Lease) -> None:
        """Give a lease back. Nothing happens if it is not the loop's lease, or the loop does not exist."""
