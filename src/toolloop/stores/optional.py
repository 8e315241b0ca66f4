"""Optional members of a store, beside the methods of `Store`.

- `lease_seconds`: how long a lease lasts if it is not renewed, in seconds.
- `now() -> float`: the clock of the leases, in seconds since the epoch. A store that several machines share has one
  clock for all of them, so that a machine with a wrong clock does not take the lease of a live driver.
- `watch(on_change) -> AbstractContextManager`: while the block runs, calls `on_change` soon after a loop began to wait
  for a driver or a person, or ended, and after a decision or command of a person. The store may call it in any thread,
  without a cause, or not at all: callers also poll the store every second.
- `list_due(now) -> tuple[list[StoredLoop], float | None]`: the loops whose `due_at` is at most `now`, and the least
  `due_at` after that. Without it, a worker reads all loops that have not ended, at each poll.
- `list_unnotified() -> list[StoredLoop]` and `mark_notified(loops)`, both or neither: the loops with waiting calls, but
  for those that were marked and are still at that revision.
- `keep_progress(lease, text)` and `progress(loop_id) -> str | None`, both or neither: a text by which the driver of a
  loop shows other processes what it does. The store returns it as long as that lease is the loop's. It is not part of
  the journal. `keep_progress` does nothing if the lease is not the loop's, or the loop does not exist, and None removes
  the text; `progress` returns None then. Without them, other processes do not see the progress of a loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from toolloop.stores.arguments import check_seconds
from toolloop.stores.protocol import Lease, StoredLoop

LEASE_SECONDS: Final = 60.0
_MAY_BE_DUE = ("runnable", "running", "stopping", "needs_decision", "failed")
_ALL = 2**62
_LEAST_LEASE: Final = 10.0  # a thread that checks every two seconds renews a lease three times before it expires


def check_lease_seconds(value: float) -> float:
    """Check the duration of leases.

    Raises:
        TypeError: it is not a number.
        ValueError: it is too short to renew a lease in time.

    """
    check_seconds("lease_seconds", value)
    if value < _LEAST_LEASE:
        raise ValueError(f"lease_seconds is {value}; give at least {_LEAST_LEASE:g} seconds")
    return value


def lease_seconds(store: Any) -> float:
    """Return how long a lease in this store lasts if it is not renewed."""
    return float(getattr(store, "lease_seconds", LEASE_SECONDS))


def now_at(store: Any) -> float:
    """Return the time for the leases of a store: by its clock if it has one, or else by that of this machine."""
    clock: Callable[[], float] = getattr(store, "now", time.time)
    return clock()


def watching(store: Any, on_change: Callable[[], object]) -> AbstractContextManager[object]:
    """While the block runs, let a store call a function soon after a change, if it supports that."""
    watch: Callable[[Callable[[], object]], AbstractContextManager[object]] | None = getattr(store, "watch", None)
    return nullcontext() if watch is None else watch(on_change)


def due_loops(store: Any, now: float) -> tuple[list[StoredLoop], float | None]:
    """Return the loops whose `due_at` is not after `now`, and the next later `due_at`, or None."""
    if hasattr(store, "list_due"):
        found: tuple[list[StoredLoop], float | None] = store.list_due(now)
        return found
    moments = [(row.due_at, row) for row in store.list(_MAY_BE_DUE, limit=_ALL)]
    due = [row for at, row in moments if at is not None and at <= now]
    return due, min((at for at, _ in moments if at is not None and at > now), default=None)


def unnotified_loops(store: Any) -> list[StoredLoop]:
    """Return the loops with waiting calls, without those that the store knows to be marked."""
    if hasattr(store, "list_unnotified"):
        found: list[StoredLoop] = store.list_unnotified()
        return found
    return [row for row in store.list(_MAY_BE_DUE, limit=_ALL) if row.pending]


def mark_notified(store: Any, loops: Sequence[StoredLoop]) -> None:
    """Mark loops of whose waiting calls all notifications were sent, if the store supports that."""
    if loops and hasattr(store, "mark_notified"):
        store.mark_notified(loops)


def keeps_progress(store: Any) -> bool:
    """Return whether a store keeps the progress of drivers."""
    return hasattr(store, "keep_progress")


def keep_progress(store: Any, lease: Lease, text: str | None) -> None:
    """Keep a text beside a lease, if the store supports that."""
    if keeps_progress(store):
        store.keep_progress(lease, text)


def kept_progress(store: Any, loop_id: str) -> str | None:
    """Return the text that the driver of a loop keeps beside its lease, or None."""
    return store.progress(loop_id) if keeps_progress(store) else None
