"""Optional members of a store, beside the methods of `Store`.

- `lease_seconds`: how long a lease lasts if it is not renewed, in seconds.
- `now() -> float`: the clock of the leases, in seconds since the epoch. A store that several machines share has one
  clock for all of them, so that a machine with a wrong clock does not take the lease of a live driver.
- `watch(on_change) -> AbstractContextManager`: while the block runs, calls `on_change` soon after a loop began to wait
  for a driver or a person, or ended, and after a decision or command of a person. The store may call it in any thread,
  without a cause, or not at all: callers also poll the store every second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from toolloop.stores.arguments import check_seconds

LEASE_SECONDS: Final = 60.0
SLOW_POLL: Final = 5.0  # seconds between two polls of a store that reports changes
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


def tells_of_changes(store: Any) -> bool:
    """Return whether a store reports changes, so that a slow poll is enough."""
    return hasattr(store, "watch")


def watching(store: Any, on_change: Callable[[], object]) -> AbstractContextManager[object]:
    """While the block runs, let a store call a function soon after a change, if it supports that."""
    watch: Callable[[Callable[[], object]], AbstractContextManager[object]] | None = getattr(store, "watch", None)
    return nullcontext() if watch is None else watch(on_change)
