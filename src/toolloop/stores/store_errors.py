"""The errors of a store: every store raises the same texts and attributes."""

from __future__ import annotations

from datetime import UTC, datetime

from toolloop.errors import Conflict, LoopNotFound, StaleRevision, UnreadableSnapshot
from toolloop.stores.process import describe_owner
from toolloop.stores.protocol import Lease


def make_missing_error(loop_id: str) -> LoopNotFound:
    """Return the error for a loop that does not exist."""
    return LoopNotFound(
        f"loop {loop_id!r} is not in this store: it was deleted or never created, or it is in another store",
        loop_id=loop_id,
    )


def make_replaced_error(loop_id: str) -> LoopNotFound:
    """Return the error for a loop that was deleted and created again under its id."""
    return LoopNotFound(
        f"loop {loop_id!r} was deleted, and another loop was created under its id: open it again to use the new one",
        loop_id=loop_id,
    )


def make_taken_error(loop_id: str) -> Conflict:
    """Return the error for a loop id that is in use."""
    return Conflict(
        f"loop {loop_id!r} is already in this store: open it, or choose another id for the new one", loop_id=loop_id
    )


def make_stale_error(loop_id: str, expected: int, rev: int) -> StaleRevision:
    """Return the error for an append to a journal that has changed."""
    is_another = int(expected) == int(rev)  # then the digests tell them apart
    found, wanted = (rev, expected) if is_another else (int(rev), int(expected))
    return StaleRevision(
        f"the journal of loop {loop_id!r} is at revision {found}, but revision {wanted} was expected: load the new "
        "events, and try again",
        loop_id=loop_id,
        rev=rev,
    )


def make_missing_revision_error(loop_id: str, expected: int, rev: int) -> StaleRevision:
    """Return the error for a revision that the journal does not have any more."""
    return StaleRevision(
        f"the journal of loop {loop_id!r} does not contain revision {expected}: the store was restored from a "
        "backup. Load the loop again",
        loop_id=loop_id,
        rev=rev,
    )


def make_other_head_error(loop_id: str, rev: int) -> StaleRevision:
    """Return the error for an append that was to replace a head which has changed."""
    return StaleRevision(
        f"the head of loop {loop_id!r} has changed: read it again, and try again with the new head",
        loop_id=loop_id,
        rev=rev,
    )


def make_damaged_error(loop_id: str, seq: int) -> UnreadableSnapshot:
    """Return the error for a journal with a changed or moved event. `seq`: its number, counted from 1."""
    return UnreadableSnapshot(
        f"the store is damaged: event {seq} of loop {loop_id!r} is not the one that was stored there. Nothing was "
        "changed. Restore the loop from a backup",
        entry=seq,
    )


def make_leased_error(loop_id: str, lease: Lease) -> Conflict:
    """Return the error for a lease that another driver holds."""
    return _make_conflict(
        f"loop {loop_id!r} is leased to {_describe_holder(lease)}: only that driver may drive it", loop_id, lease
    )


def make_lost_error(loop_id: str, lease: Lease | None) -> Conflict:
    """Return the error for a lease that is no longer current. `lease`: the current one."""
    now = "the loop is not leased now" if lease is None else f"the loop is now leased to {_describe_holder(lease)}"
    return _make_conflict(
        f"this lease of loop {loop_id!r} is no longer valid, and {now}: load it again", loop_id, lease
    )


def _describe_holder(lease: Lease) -> str:
    return f"{describe_owner(lease.owner)} until {_describe_time(lease.until)}"


def _describe_time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):  # a year outside of the calendar
        return f"{seconds:.0f} seconds since 1970"


def _make_conflict(message: str, loop_id: str, lease: Lease | None) -> Conflict:
    if lease is None:
        return Conflict(message, loop_id=loop_id)
    return Conflict(message, loop_id=loop_id, owner=lease.owner, until=lease.until, token=lease.token)
