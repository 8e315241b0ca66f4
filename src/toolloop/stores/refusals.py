"""How a store says no: the same words and the same parts, wherever the loops are kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from toolloop.core.errors import Conflict, LoopNotFound, StaleRevision
from toolloop.stores.owners import describe

if TYPE_CHECKING:
    from toolloop.stores.protocol import Lease


def missing(loop_id: str) -> LoopNotFound:
    """There is no such loop."""
    return LoopNotFound(
        f"no loop {loop_id!r} is in this store: it was deleted, or never made, or is in another one", loop_id=loop_id
    )


def taken(loop_id: str) -> Conflict:
    """There is such a loop already."""
    return Conflict(
        f"there is a loop {loop_id!r} in this store already: open it, or give the new one another id", loop_id=loop_id
    )


def stale(loop_id: str, expected: int, rev: int) -> StaleRevision:
    """The journal has gone on since its caller looked."""
    return StaleRevision(
        f"the journal of loop {loop_id!r} is at revision {rev}, and not at {expected} as expected: load what came "
        "since, and try again",
        loop_id=loop_id,
        rev=rev,
    )


def leased(loop_id: str, lease: Lease) -> Conflict:
    """Somebody has the lease that is asked for."""
    return _conflict(
        f"loop {loop_id!r} is leased to {_whose(lease)}: nobody else may drive it meanwhile", loop_id, lease
    )


def lost(loop_id: str, lease: Lease | None) -> Conflict:
    """The lease that is shown is not the loop's. `lease`: the one that is."""
    now = "nobody has one now" if lease is None else f"it has gone to {_whose(lease)}"
    return _conflict(f"this lease of loop {loop_id!r} has ended, and {now}: load the loop again", loop_id, lease)


def _whose(lease: Lease) -> str:
    return f"{describe(lease.owner)} until {_moment(lease.until)}"


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):  # a year that no calendar has
        return f"{seconds:.0f} seconds since 1970"


def _conflict(message: str, loop_id: str, lease: Lease | None) -> Conflict:
    if lease is None:
        return Conflict(message, loop_id=loop_id)
    return Conflict(message, loop_id=loop_id, owner=lease.owner, until=lease.until, token=lease.token)
