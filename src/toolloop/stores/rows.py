"""Shared by the stores in a database: the columns of a loop, and the events that an append adds. Pure."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import Any

from toolloop.machine.values.jsontext import decode
from toolloop.stores import arguments, store_errors
from toolloop.stores.pending import named_to_json, pending_from_json, pending_to_json
from toolloop.stores.protocol import Entry, Head, Lease, StoredLoop

# `pending` and `named` are the JSON of `stores/pending.py`; earlier versions leave `named` as it is. `notified` and
# `metadata` are JSON objects. The three columns of a lease are all NULL, or none is.
COLUMNS = (
    "number, loop_id, rev, status, deadline, pending, retryable, retry_at, attempts, changed, notified, created, "
    "metadata, lease_owner, lease_token, lease_until, named"
)

# `StoredLoop.due_at`, for an index: processes of earlier versions keep it up to date, too.
DUE_AT = (
    "(CASE status WHEN 'runnable' THEN 0 WHEN 'running' THEN 0 WHEN 'stopping' THEN 0 WHEN 'failed' THEN retry_at "
    "WHEN 'needs_decision' THEN CASE WHEN lease_token IS NULL THEN deadline ELSE 0 END END)"
)
# Whether calls may wait of which nobody was notified. `notified_rev` is the revision at which that was last untrue. An
# earlier version leaves it as it is, and no event makes a call wait without a new revision.
UNNOTIFIED = "pending <> '[]' AND coalesce(notified_rev, -1) <> rev"


def stored_loop(row: Sequence[Any]) -> StoredLoop:
    """Return the loop of a row with these columns.

    Raises:
        TypeError, ValueError: the row is damaged.

    """
    number, loop_id, rev, status, deadline, pending, retryable, retry_at, attempts, changed, notified, *more = row
    created, metadata, owner, token, until, named = more
    calls = pending_from_json(pending, named)
    head = Head(status, deadline, calls, bool(retryable), retry_at, attempts, changed, decode(notified))
    lease = None if token is None else Lease(loop_id, owner, token, until)
    arguments.check_seconds("created", created)
    kept = arguments.check_texts("metadata", decode(metadata))
    return StoredLoop(loop_id, head, rev, lease, created, kept, cursor=str(number))


def head_columns(head: Head) -> dict[str, Any]:
    """Return the columns of a head. If `attempts` or `notified` is None, its column is left out."""
    columns = {"status": head.status, "deadline": head.deadline, "pending": pending_to_json(head.pending)}
    columns |= {"retryable": head.retryable, "retry_at": head.retry_at, "changed": head.changed}
    columns["named"] = named_to_json(head.pending)
    if head.attempts is not None:
        columns["attempts"] = head.attempts
    return columns if head.notified is None else {**columns, "notified": json.dumps(dict(head.notified))}


def is_current(lease: Lease, loop: StoredLoop) -> bool:
    """Return whether a lease is the loop's current lease."""
    return loop.lease is not None and (lease.loop_id, lease.token) == (loop.loop_id, loop.lease.token)


def added(  # noqa: PLR0913 - what an append is guarded by
    loop: StoredLoop,
    entries: Sequence[Entry],
    known: Container[str],
    *,
    expected_rev: int | None,
    lease: Lease | None,
    instead_of: Head | None,
) -> Sequence[Entry] | None:
    """Return the events that an append adds to a loop; None: all are already stored, and nothing changes.

    Args:
        loop: the current row of the loop.
        entries: the events of the append.
        known: the ids of those that are already stored.
        expected_rev: as for `Store.append`.
        lease: likewise.
        instead_of: likewise.

    Raises:
        Conflict: `lease` is not the loop's current lease.
        StaleRevision: the revision is not `expected_rev`, or the head is not `instead_of`.

    """
    if lease is not None and not is_current(lease, loop):
        raise store_errors.lost(loop.loop_id, loop.lease)
    new = [entry for entry in entries if entry.id not in known]
    if entries and not new:
        return None
    if expected_rev is not None and expected_rev != loop.rev:
        raise store_errors.stale(loop.loop_id, expected_rev, loop.rev)
    if instead_of is not None and instead_of != loop.head:
        raise store_errors.other_head(loop.loop_id, loop.rev)
    return new
