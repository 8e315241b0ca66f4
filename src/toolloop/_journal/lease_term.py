"""For how long a driver may use its lease, by a clock that goes on while the host is suspended.

A host may be suspended between any two instructions. When it continues, another driver may have the loop. So nothing is
launched under a lease that may be over: it is renewed first, and a renewal fails if the loop was taken over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from toolloop._journal.store_access import call_store
from toolloop.stores.optional import read_lease_seconds, read_time
from toolloop.stores.process import read_boot_clock
from toolloop.stores.protocol import Lease, Store

_RENEWALS = 3  # in the time of a lease
_MARGIN = 0.1  # of a lease: two clocks do not count alike, and a launch takes time


class LeaseTerm:
    """The time of the lease that a driver has, or asks for.

    Attributes:
        until: the end of the lease, by the clock of the store; None before the first one.
        clock: returns seconds. It never goes back, and counts the time for which the host was suspended.

    """

    def __init__(self, store: Store, loop_id: str) -> None:
        """Start without a lease."""
        self.until: float | None = None
        self.clock: Callable[[], float] = read_boot_clock
        self._store = store
        self._loop_id = loop_id
        self._renew_at = self._over_at = float("-inf")
        # Reentrant, because a signal handler may close a handle in the thread that holds it.
        self._asking = threading.RLock()

    def now(self) -> float:
        """Return the time by the clock of the store. Raises `StoreError` if the store fails."""
        return call_store(self._loop_id, partial(read_time, self._store))

    def ask(self, ask: Callable[[float], Lease]) -> Lease:
        """Take or renew a lease. `ask`: asks the store for a lease until a time, and may raise.

        Its time counts from before the question: the host may be suspended until the answer comes.
        """
        with self._asking:  # so that the last end that the store keeps is the last one that is kept here
            asked_at, seconds = self.clock(), read_lease_seconds(self._store)
            until = self.now() + seconds
            lease = call_store(self._loop_id, partial(ask, until))
            self._renew_at, self._over_at = asked_at + seconds / _RENEWALS, asked_at + seconds * (1 - _MARGIN)
            self.until = until
            return lease

    def renew(self, lease: Lease) -> None:
        """Renew the lease.

        Raises:
            Conflict: another driver has the loop.
            StoreError: the store failed.

        """
        self.ask(lambda until: self._store.renew(lease, until=until))

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew the lease."""
        return self.clock() >= self._renew_at

    @property
    def may_be_over(self) -> bool:
        """Whether another driver may have the loop now."""
        return self.clock() >= self._over_at
