"""What a store may have beside the methods of `Store`. A store without them works, too.

- `lease_seconds`: how long a lease lasts if it is not renewed, in seconds.
- `now() -> float`: the clock by which leases count, in seconds since the epoch. A store that several machines share
  gives one clock for all of them, so that a machine whose clock is wrong takes no lease of a driver that lives.
- `watch(on_change) -> AbstractContextManager`: while the block runs, calls `on_change` soon after a loop began to wait
  for a driver or a person, or ended. It is called in any thread, sometimes without a cause, and possibly not at all:
  callers also look at the store every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from toolloop.stores.arguments import check_seconds

LEASE_SECONDS: Final = 60.0
SLOW_POLL: Final = 5.0  # seconds between two looks at a store that tells of changes
_LEAST_LEASE: Final = 10.0  # leases are renewed three times in their time, by a thread that looks every two seconds


def check_lease_seconds(value: float) -> float:
    """Check how long leases are to last.

    Raises:
        TypeError: it is not a number.
        ValueError: it is too short to be renewed in time.

    """
    check_seconds("lease_seconds", value)
    if value < _LEAST_LEASE:
        raise ValueError(f"lease_seconds is {value}; give seconds from {_LEAST_LEASE:g} up")
    return value


def lease_seconds(store: Any) -> float:
    """Return how long a lease in this store lasts if it is not renewed."""
    return float(getattr(store, "lease_seconds", LEASE_SECONDS))


def now_at(store: Any) -> float:
    """Return the time by which leases in this store count: that of the store, or else that of this machine."""
    clock: Callable[[], float] = getattr(store, "now", time.time)
    return clock()


def tells_of_changes(store: Any) -> bool:
    """Return whether a store tells when something changed, so that a slow poll is enough."""
    return hasattr(store, "watch")


def watching(store: Any, on_change: Callable[[], object]) -> AbstractContextManager[object]:
    """Let a store call a function soon after something changed, while the block runs; if it can."""
    watch: Callable[[Callable[[], object]], AbstractContextManager[object]] | None = getattr(store, "watch", None)
    return nullcontext() if watch is None else watch(on_change)
