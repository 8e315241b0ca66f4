"""Checks of what a store is given, the same for every store, and of the store that a caller gives."""

from __future__ import annotations

from collections.abc import Sequence

from toolloop.machine.values.jsontext import a_type
from toolloop.stores.arguments import check_integer, check_kind, check_metadata, check_seconds, check_text, check_texts
from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import Entry, Head, Lease


def check_create(loop_id: object, entries: object, head: object, metadata: object) -> dict[str, str]:
    """Check the arguments of `Store.create`, and return the metadata. It raises as described in `Store`."""
    check_text("loop_id", loop_id)
    _check_entries(entries)
    _check_head(head)
    return check_metadata(metadata)


def check_append(entries: object, expected_rev: object, head: object, lease: object, instead_of: object) -> None:
    """Check the arguments of `Store.append`, after `check_known`. It raises as described in `Store`."""
    _check_entries(entries)
    if expected_rev is not None:
        check_integer("expected_rev", expected_rev)
    if head is not None:
        _check_head(head)
    check_kind("lease", lease, Lease | None)
    check_kind("instead_of", instead_of, Head | None)


def check_known(loop_id: object, first_id: object) -> None:
    """Check the arguments that identify an existing loop."""
    check_text("loop_id", loop_id)
    if first_id is not None:
        check_text("first_id", first_id)


def _check_head(head: object) -> None:
    """Refuse an invalid head. `Head` does not check itself, so that a long list is fast."""
    if not isinstance(head, Head):
        raise TypeError(f"head is {a_type(head)}; give a Head")
    check_text("Head.status", head.status)
    for name in ("deadline", "retry_at"):
        if (value := getattr(head, name)) is not None:
            check_seconds(f"Head.{name}", value)
    check_seconds("Head.changed", head.changed)
    check_kind("Head.retryable", head.retryable, bool)
    if head.attempts is not None:
        check_integer("Head.attempts", head.attempts)
    if head.notified is not None:
        check_texts("Head.notified", head.notified)
    check_kind("Head.pending", head.pending, tuple)
    for call in head.pending:
        check_kind("a call of Head.pending", call, PendingCall)


def _check_entries(entries: object) -> None:
    """Refuse a value that is not a sequence of `Entry` with distinct ids."""
    if not isinstance(entries, Sequence):
        raise TypeError(f"entries is {a_type(entries)}; give a list of Entry objects")
    ids: set[str] = set()
    for at, entry in enumerate(entries):
        if not isinstance(entry, Entry):
            raise TypeError(f"entries[{at}] is {a_type(entry)}; give an Entry")
        if entry.id in ids:
            raise ValueError(f"entries[{at}] has the id {entry.id!r} of an earlier entry; give each event its own id")
        ids.add(entry.id)


def require_store(store: object) -> None:
    """Refuse an object without the methods of a store, such as a path.

    Raises:
        TypeError: it lacks a method, or is a class.

    """
    if isinstance(store, type) or not all(
        callable(getattr(store, name, None)) for name in ("load", "append", "acquire")
    ):
        raise TypeError(f"store is {a_type(store)}; give a store, such as SqliteStore('loops.db') or MemoryStore()")
