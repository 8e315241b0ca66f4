"""A store for a process that crashes at a chosen moment. After that, its calls do not reach the store."""

from __future__ import annotations

import builtins  # `list` is a method of a store
import json
import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from toolloop.errors import Conflict, LoopNotFound, StoreError
from toolloop.stores.protocol import Entry, Head, Lease, Store, StoredJournal, StoredLoop

# The threads of the library that outlive a driver, where nothing would catch a `BaseException`. The second one releases
# leases: it retries after a failure of the store, unless the loop is gone.
_TOOLS, _LEASES = "toolloop-", "leases-of-toolloop"


class SimulatedCrash(BaseException):
    """The process crashes here. It is not an `Exception`, so that no code handles it as a failure."""


@define(eq=False)
class CrashHistory:
    """Facts that outlive the processes of one store.

    Attributes:
        owners: for each owner of a lease, its process.
        stored: the entries that the store accepted, by loop and entry id.

    """

    owners: dict[str, CrashingStore] = field(factory=dict)
    stored: dict[tuple[str, str], Entry] = field(factory=dict)

    def is_dead(self, owner: str | None) -> bool:
        """Return whether a lease belongs to a process that has crashed or ended."""
        return owner in self.owners and self.owners[owner].is_dead


class CrashingStore:
    """A store for one process. It counts the moments before and after each call, and crashes at one of them.

    It has the methods of `Store`.

    Args:
        store: the real store.
        history: shared with the processes before and after this one.
        crash_at: the number of the moment, from 0, at which the process crashes. None: it does not.

    """

    def __init__(self, store: Store, history: CrashHistory, crash_at: int | None = None) -> None:
        """Start a process."""
        self.is_dead: bool = False
        self.moments: list[str] = []
        self._store = store
        self._history = history
        self._crash_at = crash_at
        self._lock = threading.Lock()

    def die(self) -> None:
        """End the process. Its leases now belong to a dead process."""
        with self._lock:
            self.is_dead = True

    def _reach(self, moment: str) -> None:
        with self._lock:
            if not self.is_dead:
                self.moments.append(moment)
                self.is_dead = self._crash_at == len(self.moments) - 1
            dead = self.is_dead
        if not dead:
            return
        thread = threading.current_thread().name
        if thread == _LEASES:
            raise LoopNotFound("this process has crashed: there is no loop for it")
        if thread.startswith(_TOOLS):
            raise StoreError("this process has crashed: its calls do not reach the store")
        raise SimulatedCrash(moment)

    @contextmanager
    def _around(self, what: str) -> Generator[None]:
        self._reach(f"before {what}")
        yield
        self._reach(f"after {what}")

    def create(
        self, loop_id: str, entries: Sequence[Entry], *, head: Head, metadata: Mapping[str, str] | None = None
    ) -> int:
        """See `Store.create`."""
        with self._around(f"create({_names(entries)})"):
            rev = self._store.create(loop_id, entries, head=head, metadata=metadata)
            self._keep(loop_id, entries)
        return rev

    def append(  # noqa: PLR0913 - what an append is guarded by
        self,
        loop_id: str,
        entries: Sequence[Entry],
        *,
        expected_rev: int | None,
        head: Head | None = None,
        lease: Lease | None = None,
        first_id: str | None = None,
        instead_of: Head | None = None,
    ) -> int:
        """See `Store.append`."""
        with self._around(f"append({_names(entries)})"):
            given: dict[str, Any] = {"head": head, "lease": lease, "first_id": first_id, "instead_of": instead_of}
            rev = self._store.append(loop_id, entries, expected_rev=expected_rev, **given)
            self._keep(loop_id, entries)
        return rev

    def _keep(self, loop_id: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._history.stored.setdefault((loop_id, entry.id), entry)

    def delete(self, loop_id: str) -> None:
        """See `Store.delete`."""
        with self._around("delete()"):
            self._store.delete(loop_id)
            for key in [key for key in self._history.stored if key[0] == loop_id]:
                del self._history.stored[key]

    def acquire(
        self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None, first_id: str | None = None
    ) -> Lease:
        """See `Store.acquire`. The lease of a dead process is taken over, as `open` does."""
        with self._around("acquire()"):
            self._history.owners[owner] = self
            try:
                return self._store.acquire(loop_id, owner, until=until, instead_of=instead_of, first_id=first_id)
            except Conflict as held:
                if held.token is None or not self._history.is_dead(held.owner):
                    raise
                return self._store.acquire(loop_id, owner, until=until, instead_of=held.token, first_id=first_id)

    def renew(self, lease: Lease, *, until: float) -> Lease:
        """See `Store.renew`. It depends on the clock, so it is not a moment to crash at."""
        if self.is_dead:
            raise Conflict("this process has crashed, and its lease is void", loop_id=lease.loop_id)
        return self._store.renew(lease, until=until)

    def release(self, lease: Lease) -> None:
        """See `Store.release`. A dead process does not release its lease."""
        if not self.is_dead:
            with self._around("release()"):
                self._store.release(lease)

    def secret(self) -> str:
        """See `Store.secret`."""
        self._reach("before secret()")
        return self._store.secret()

    def lease(self, loop_id: str) -> Lease | None:
        """See `Store.lease`."""
        self._reach("before lease()")
        return self._store.lease(loop_id)

    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:
        """See `Store.load`."""
        self._reach("before load()")
        return self._store.load(loop_id, after=after, first_id=first_id)

    def head(self, loop_id: str) -> StoredLoop:
        """See `Store.head`."""
        self._reach("before head()")
        return self._store.head(loop_id)

    def list(
        self,
        status: str | Collection[str] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> builtins.list[StoredLoop]:
        """See `Store.list`."""
        self._reach("before list()")
        return self._store.list(status, metadata=metadata, limit=limit, before=before)


def _names(entries: Sequence[Entry]) -> str:
    return ", ".join(_name(entry.body) for entry in entries)


def _name(body: str) -> str:
    """Return the name of an event, and of its call."""
    try:
        event = json.loads(body)
        return f"{event['event']} {event['call_id']}" if "call_id" in event else str(event["event"])
    except (ValueError, TypeError, KeyError):
        return "an event"
