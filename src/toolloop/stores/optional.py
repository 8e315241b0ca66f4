"""Optional members of a store, beside the methods of `Store`.

- `lease_seconds`: how long a lease lasts if it is not renewed, in seconds.
- `now() -> float`: the clock of the loops, in seconds since the epoch: of leases, events, deadlines, links, grants and
  retries. A store that several machines share has one clock for all of them, so that a machine with a wrong clock does
  not take the lease of a live driver, or let calls expire. It is called often, also in event loops. So it must not wait
  for a network each time: read the clock with what is read anyway, and count on with a clock of this machine.
- `watch(on_change) -> AbstractContextManager`: while the block runs, calls `on_change` soon after a loop began to wait
  for a driver or a person, or ended, and after a decision or command of a person. The store may call it in any thread,
  without a cause, or not at all: callers also poll the store every second.
- `list_due(now, metadata=None) -> tuple[list[StoredLoop], float | None]`: the loops whose `due_at` is at most `now`,
  and the least `due_at` after that. `metadata`: only of loops whose metadata contains all of these. Without this
  method, a worker reads all loops that have not ended, at each poll.
- `list_unnotified(metadata=None) -> list[StoredLoop]` and `mark_notified(loops)`, both or neither: the loops with
  waiting calls, but for those that were marked and are still at that revision. `metadata`: as for `list_due`.
- `list_reminders(now, metadata=None, since=-inf) -> list[StoredLoop]`: the loops with waiting calls whose last mark has
  a `remind_at` from `since` to `now`. With this method, `mark_notified(loops, remind_at)` also gets for each loop when
  its next reminder is due, in seconds since the epoch; infinite if there is none. The number is negative if a worker
  without `remind_after` made the mark: then one that has it must look at the loop, whatever the time. Without this
  method, a worker does not mark loops with further reminders, and reads them at each poll.
- `count(now, metadata=None) -> tuple[dict[str, int], int]`: how many loops have each status, and how many calls of
  loops with the status `needs_decision` or `failed` wait and have not expired by `now`. `metadata`: as for `list_due`.
  Without it, an inbox reads all loops.
- `mark_left(loop, left)`: keeps a `Left` as the `left` of a row, until its lease is acquired. Nothing happens if the
  revision or the lease differs from that row. If the same tools were missing before, for the same reason, the earlier
  `since` stays. Without it, other processes do not see why workers leave a loop to others.
- `keep_progress(lease, text)` and `progress(loop_id) -> str | None`, both or neither: a text by which the driver of a
  loop shows other processes what it does. The store returns it as long as that lease is the loop's. It is not part of
  the journal. `keep_progress` does nothing if the lease is not the loop's, or the loop does not exist, and None removes
  the text; `progress` returns None then. Without them, other processes do not see the progress of a loop.
- `takes_alternatives`: True if `metadata`, of `list` and the methods here, may also be a list of mappings. Then a loop
  fits if its metadata contains all of one of them; none fits an empty list. Without it, the inbox of a person
  (`Inbox.as_`) reads more rows than it returns.
- `tallies(metadata=None) -> list[tuple[str, str | None]]`: the ids of the loops, each with its `Head.tally`.
  `metadata`: as for `list_due`. A store with this method keeps the tally of a head as it keeps `notified`. Without it,
  nothing is tallied, and `Inbox.statistics` reads all journals.
- `keep_checkpoint(lease, body, *, rev, meaning)` and `checkpoint(loop_id, *, meaning) -> bytes | None`, both or none:
  the state of a loop at a revision, as bytes, so that the events before it need not be read. A store keeps one for each
  loop and meaning: the last one, unless one with a greater revision is kept that the journal still has.
  `keep_checkpoint` does nothing if the lease is not the loop's, or the loop does not exist. Deleting a loop deletes its
  checkpoints. Without them, and of a store whose revisions have no digests, a journal is read from its beginning.
- `vacuum() -> bool`: removes what is left of the text of deleted loops in the files of the store, and returns whether
  nothing is left.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf, isinf
from typing import Any, Final

from toolloop.stores.arguments import check_seconds
from toolloop.stores.protocol import Lease, Left, StoredLoop

LEASE_SECONDS: Final = 60.0
NO_LIMIT: Final = 2**62  # of `Store.list`: more loops than a store holds
_MAY_BE_DUE = ("runnable", "running", "stopping", "needs_decision", "failed")
_CHECKPOINT_AFTER: Final = 100_000  # bytes
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


def read_lease_seconds(store: Any) -> float:
    """Return how long a lease in this store lasts if it is not renewed."""
    return float(getattr(store, "lease_seconds", LEASE_SECONDS))


def clock_of(store: Any, clock: Callable[[], float] = time.time) -> Callable[[], float]:
    """Return the clock of a store. `clock`: the one to use if it has none."""
    its: Callable[[], float] = getattr(store, "now", clock)
    return its


def read_time(store: Any) -> float:
    """Return the time by the clock of a store if it has one, or else by that of this machine."""
    return clock_of(store)()


def watch_store(store: Any, on_change: Callable[[], object]) -> AbstractContextManager[object]:
    """While the block runs, let a store call a function soon after a change, if it supports that."""
    watch: Callable[[Callable[[], object]], AbstractContextManager[object]] | None = getattr(store, "watch", None)
    return nullcontext() if watch is None else watch(on_change)


def list_due_loops(
    store: Any, now: float, metadata: Mapping[str, str] | None = None
) -> tuple[list[StoredLoop], float | None]:
    """Return the loops with this metadata whose `due_at` is not after `now`, and the next later `due_at`, or None."""
    if hasattr(store, "list_due"):
        found: tuple[list[StoredLoop], float | None] = store.list_due(now, metadata=metadata)
        return found
    moments = [(row.due_at, row) for row in store.list(_MAY_BE_DUE, metadata=metadata, limit=NO_LIMIT)]
    due = [row for at, row in moments if at is not None and at <= now]
    return due, min((at for at, _ in moments if at is not None and at > now), default=None)


def list_unnotified_loops(
    store: Any, now: float, metadata: Mapping[str, str] | None = None, *, reminds: bool, all_of_them: bool
) -> list[StoredLoop]:
    """Return the loops with waiting calls, without those that the store knows to be marked.

    Args:
        store: the store.
        now: reminders that are due by then are returned, in seconds since the epoch.
        metadata: only of loops whose metadata contains all of these.
        reminds: whether the worker has times of its own for reminders, so that marks of others do not count for it.
        all_of_them: return marked loops, too.

    """
    if hasattr(store, "list_unnotified") and not all_of_them:
        found: list[StoredLoop] = store.list_unnotified(metadata=metadata)
        since = -inf if reminds else -now
        has_reminders = hasattr(store, "list_reminders")
        reminders = store.list_reminders(now, metadata=metadata, since=since) if has_reminders else []
        known = {row.cursor for row in found}
        return [*found, *(row for row in reminders if row.cursor not in known)]
    return [row for row in store.list(_MAY_BE_DUE, metadata=metadata, limit=NO_LIMIT) if row.pending]


def count_by_status(store: Any, now: float, metadata: Mapping[str, str] | None = None) -> tuple[dict[str, int], int]:
    """Return how many loops have each status, and how many of their calls wait for a person."""
    if hasattr(store, "count"):
        found: tuple[dict[str, int], int] = store.count(now, metadata=metadata)
        return found
    loops = store.list(metadata=metadata, limit=NO_LIMIT)
    calls = [call for row in loops if row.status in ("needs_decision", "failed") for call in row.pending]
    return dict(Counter(row.status for row in loops)), sum(
        call.expires_at is None or call.expires_at > now for call in calls
    )


def mark_left(store: Any, loop: StoredLoop, left: Left) -> None:
    """Keep why a worker left a loop to others, if the store supports that."""
    if hasattr(store, "mark_left"):
        store.mark_left(loop, left)


def mark_notified(store: Any, loops: Sequence[tuple[StoredLoop, float]]) -> None:
    """Mark loops of whose waiting calls all notifications so far were sent, if the store supports that.

    Each loop has its `remind_at`; see `list_reminders`.
    """
    if hasattr(store, "list_reminders"):
        if loops:
            store.mark_notified([loop for loop, _ in loops], [at for _, at in loops])
    elif hasattr(store, "mark_notified") and (done := [loop for loop, at in loops if isinf(at)]):
        store.mark_notified(done)


def keeps_tallies(store: Any) -> bool:
    """Return whether a store keeps the tallies of loops."""
    return hasattr(store, "tallies")


def keeps_progress(store: Any) -> bool:
    """Return whether a store keeps the progress of drivers."""
    return hasattr(store, "keep_progress")


def keep_progress(store: Any, lease: Lease, text: str | None) -> None:
    """Keep a text beside a lease, if the store supports that."""
    if keeps_progress(store):
        store.keep_progress(lease, text)


def find_kept_progress(store: Any, loop_id: str) -> str | None:
    """Return the text that the driver of a loop keeps beside its lease, or None."""
    return store.progress(loop_id) if keeps_progress(store) else None


def find_whole_store(store: Any) -> Any:
    """Return the store of which this one shows a part, or else this one."""
    return getattr(store, "whole_store", store)


def keeps_checkpoints(store: Any) -> bool:
    """Return whether a store keeps checkpoints."""
    return hasattr(store, "keep_checkpoint")


def count_bytes_to_checkpoint(store: Any) -> int:
    """Return after how many bytes of events a checkpoint is due. Fewer are read in milliseconds."""
    found: int = getattr(store, "checkpoint_after", _CHECKPOINT_AFTER)
    return found


def find_kept_checkpoint(store: Any, loop_id: str, meaning: int) -> bytes | None:
    """Return the checkpoint of a loop with a meaning, or None."""
    return store.checkpoint(loop_id, meaning=meaning) if keeps_checkpoints(store) else None


def vacuum(store: Any) -> bool | None:
    """Remove what is left of the text of deleted loops. Return whether nothing is left; None if the store cannot."""
    return store.vacuum() if hasattr(store, "vacuum") else None
