"""Shared by the stores in a database: the columns of a loop, and the events that an append adds. Pure."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import Any

from toolloop.machine.values.jsontext import decode
from toolloop.stores import arguments, store_errors
from toolloop.stores.pending import named_to_json, pending_from_json, pending_to_json
from toolloop.stores.protocol import Entry, Head, Lease, Left, StoredLoop
from toolloop.stores.revisions import Revision
from toolloop.stores.row_checks import is_time

# `pending` and `named` are the JSON of `stores/pending.py`; earlier versions leave `named` as it is. `notified` and
# `metadata` are JSON objects. The three columns of a lease are all NULL, or none is.
COLUMNS = (
    "number, loop_id, rev, status, deadline, pending, retryable, retry_at, attempts, changed, notified, created, "
    "metadata, lease_owner, lease_token, lease_until, named, left_rev, left_why, left_since, tally, forked_from"
)
# Keeps the time of an earlier mark for the same reason: the loop may have got further events from persons meanwhile.
MARK_LEFT = (
    "left_since = CASE WHEN left_why = {0} THEN left_since ELSE {0} END, left_why = {0}, left_rev = {0} "
    "WHERE number = {0} AND rev = {0}"
)
# The loops whose waiting calls a person sees. The seventh position of a call is its deadline.
WAITING = "status IN ('needs_decision', 'failed')"

# `StoredLoop.due_at`, for an index: processes of earlier versions keep it up to date, too.
DUE_AT = (
    "(CASE status WHEN 'runnable' THEN 0 WHEN 'running' THEN 0 WHEN 'stopping' THEN 0 WHEN 'failed' THEN retry_at "
    "WHEN 'needs_decision' THEN CASE WHEN lease_token IS NULL THEN deadline ELSE 0 END END)"
)
# Whether calls may wait for which no notification was sent. `notified_rev` is the revision at which that was last
# untrue. An earlier version leaves it as it is, and no event makes a call wait without a new revision.
UNNOTIFIED = "pending <> '[]' AND coalesce(notified_rev, -1) <> rev"
TO_REMIND = "pending <> '[]' AND remind_at BETWEEN {0} AND {0}"


def read_stored_loop(row: Sequence[Any]) -> StoredLoop:
    """Return the loop of a row with these columns, and the digest of its revision, or None.

    Raises:
        TypeError, ValueError: the row is damaged.

    """
    number, loop_id, rev, status, deadline, pending, retryable, retry_at, attempts, changed, notified, *more = row
    created, metadata, owner, token, until, named, left_rev, left_why, left_since, tally, forked_from, digest = more
    calls = pending_from_json(pending, named)
    head = Head(
        status, deadline, calls, bool(retryable), retry_at, attempts, changed, decode(notified), tally, forked_from
    )
    lease = None if token is None else Lease(loop_id, owner, token, until)
    for name, time in {"created": created, "changed": changed, "deadline": deadline, "retry_at": retry_at}.items():
        if not is_time(time) or (time is None and name in ("created", "changed")):
            raise ValueError(f"{name} of the loop {loop_id!r} is not a time")
    if head.notified is not None:
        arguments.check_texts("notified", head.notified)
    kept = arguments.check_texts("metadata", decode(metadata))
    left = None if left_why is None or left_rev != rev else left_from_json(left_why, left_since)
    digest = digest.hex() if isinstance(digest, bytes) else digest
    return StoredLoop(loop_id, head, Revision(rev, digest), lease, created, kept, cursor=str(number), left=left)


def left_from_json(text: str, since: float | None) -> Left:
    """Return why workers left a loop, from a text that `left_to_json` returned."""
    why, *missing = decode(text)
    if since is None or not is_time(since):
        raise ValueError("left_since is not a time")
    return Left(str(why), tuple(map(str, missing)), since)


def left_to_json(left: Left) -> str:
    """Return the reason of workers that left a loop, and the tools that they lack, as ASCII JSON."""
    return json.dumps([left.why, *left.missing])


def to_head_columns(head: Head) -> dict[str, Any]:
    """Return the columns of a head, without those that an append keeps because they are None."""
    columns = {"status": head.status, "deadline": head.deadline, "pending": pending_to_json(head.pending)}
    columns |= {"retryable": head.retryable, "retry_at": head.retry_at, "changed": head.changed}
    columns["named"] = named_to_json(head.pending)
    columns |= {
        name: value for name in ("attempts", "tally", "forked_from") if (value := getattr(head, name)) is not None
    }
    columns |= {} if head.metadata is None else {"metadata": json.dumps(dict(head.metadata))}
    return columns if head.notified is None else {**columns, "notified": json.dumps(dict(head.notified))}


def is_current(lease: Lease, loop: StoredLoop) -> bool:
    """Return whether a lease is the loop's current lease."""
    held = loop.lease
    # With the owner: after the store was restored from a backup, another driver may get the same token.
    return held is not None and (lease.loop_id, lease.token, lease.owner) == (loop.loop_id, held.token, held.owner)


def list_added(  # noqa: PLR0913 - what an append is guarded by
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
        raise store_errors.make_lost_error(loop.loop_id, loop.lease)
    new = [entry for entry in entries if entry.id not in known]
    if entries and not new:
        return None
    if expected_rev is not None and expected_rev != loop.rev:
        raise store_errors.make_stale_error(loop.loop_id, expected_rev, loop.rev)
    if instead_of is not None and instead_of != loop.head:
        raise store_errors.make_other_head_error(loop.loop_id, loop.rev)
    return new
