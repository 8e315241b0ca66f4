"""A store as a process sees it that dies at a given moment: from then on nothing that it does reaches the store."""

from __future__ import annotations

import builtins  # `list` is a method of a store
import json
import threading
from collections.abc import Sequence

from attrs import define, field

from toolloop.core.errors import Conflict, StoreError
from toolloop.stores.protocol import Entry, Head, Lease, Store, StoredJournal, StoredLoop

# The threads of the library itself that outlive a driver; nobody is there to take an exit from them.
_OUR_THREADS = "toolloop-"


class Killed(BaseException):
    """The process was killed here. It is no `Exception`, so that nobody takes it for a failure to be dealt with."""


@define(eq=False)
class Graveyard:
    """What outlives the processes that use one store.

    Attributes:
        owners: which process took leases under which name.
        stored: by loop and entry id, the texts that the store said it had stored.

    """

    owners: dict[str, MortalStore] = field(factory=dict)
    stored: dict[tuple[str, str], str] = field(factory=dict)

    def is_dead(self, owner: str | None) -> bool:
        """Whether a lease of this name is that of a process that is gone."""
        return owner in self.owners and self.owners[owner].is_dead


class MortalStore:
    """A store for one process. It counts the moments at which that may die: before and after each call to the store.

    Its methods are those of `Store`.

    Args:
        store: the store itself.
        graveyard: what it shares with the processes before and after it.
        dies_at: the number of the moment, from 0, at which the process dies; None: it does not.

    """

    def __init__(self, store: Store, graveyard: Graveyard, dies_at: int | None = None) -> None:
        """Live."""
        self.is_dead = False
        self.moments: list[str] = []
        self._store = store
        self._graveyard = graveyard
        self._dies_at = dies_at
        self._lock = threading.Lock()

    def die(self) -> None:
        """The process is over: its leases are those of one that is gone."""
        with self._lock:
            self.is_dead = True

    def _live(self, moment: str) -> None:
        with self._lock:
            if not self.is_dead:
                self.moments.append(moment)
                self.is_dead = self._dies_at == len(self.moments) - 1
            dead = self.is_dead
        if dead and threading.current_thread().name.startswith(_OUR_THREADS):
            raise StoreError("this process is dead: nothing that it does reaches the store")
        if dead:
            raise Killed(moment)

    # --- what changes the store ---

    def create(self, loop_id: str, entries: Sequence[Entry], *, head: Head) -> int:
        """See `Store.create`."""
        what = f"create({_told(entries)})"
        self._live(f"before {what}")
        rev = self._store.create(loop_id, entries, head=head)
        self._keep(loop_id, entries)
        self._live(f"after {what}")
        return rev

    def append(
        self,
        loop_id: str,
        entries: Sequence[Entry],
        *,
        expected_rev: int | None,
        head: Head | None = None,
        lease: Lease | None = None,
    ) -> int:
        """See `Store.append`."""
        what = f"append({_told(entries)})"
        self._live(f"before {what}")
        rev = self._store.append(loop_id, entries, expected_rev=expected_rev, head=head, lease=lease)
        self._keep(loop_id, entries)
        self._live(f"after {what}")
        return rev

    def _keep(self, loop_id: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._graveyard.stored.setdefault((loop_id, entry.id), entry.body)

    def delete(self, loop_id: str) -> None:
        """See `Store.delete`."""
        self._live("before delete()")
        self._store.delete(loop_id)
        for known in [key for key in self._graveyard.stored if key[0] == loop_id]:
            del self._graveyard.stored[known]
        self._live("after delete()")

    # --- leases ---

    def lease(self, loop_id: str) -> Lease | None:
        """See `Store.lease`."""
        self._live("before lease()")
        return self._store.lease(loop_id)

    def acquire(self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None) -> Lease:
        """See `Store.acquire`. A lease of a dead process is taken from it, as `open` does with one that is gone."""
        self._live("before acquire()")
        self._graveyard.owners[owner] = self
        try:
            lease = self._store.acquire(loop_id, owner, until=until, instead_of=instead_of)
        except Conflict as held:
            if held.token is None or not self._graveyard.is_dead(held.owner):
                raise
            lease = self._store.acquire(loop_id, owner, until=until, instead_of=held.token)
        self._live("after acquire()")
        return lease

    def renew(self, lease: Lease, *, until: float) -> Lease:
        """See `Store.renew`. It happens by the clock, so it is no moment to die at."""
        if self.is_dead:
            raise Conflict("this process is dead, and its lease void", loop_id=lease.loop_id)
        return self._store.renew(lease, until=until)

    def release(self, lease: Lease) -> None:
        """See `Store.release`. A dead process gives nothing back; that it tries to is no failure."""
        if self.is_dead:
            return
        self._live("before release()")
        self._store.release(lease)
        self._live("after release()")

    # --- what only looks ---

    def load(self, loop_id: str, *, after: int = 0) -> StoredJournal:
        """See `Store.load`."""
        self._live("before load()")
        return self._store.load(loop_id, after=after)

    def list(
        self, status: str | None = None, *, limit: int = 100, before: str | None = None
    ) -> builtins.list[StoredLoop]:
        """See `Store.list`."""
        self._live("before list()")
        return self._store.list(status, limit=limit, before=before)


def _told(entries: Sequence[Entry]) -> str:
    return ", ".join(_name(entry.body) for entry in entries)


def _name(body: str) -> str:
    """What an entry says, in short."""
    try:
        event = json.loads(body)
        return f"{event['event']} {event['call_id']}" if "call_id" in event else str(event["event"])
    except (ValueError, TypeError, KeyError):
        return "an event"
