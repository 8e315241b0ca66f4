"""A store for a process that crashes at a chosen moment. After that, its calls do not reach the store."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from toolloop.errors import Conflict, LoopNotFound, StoreError
from toolloop.stores.protocol import Entry, Lease, Store

# The threads of the library that outlive a driver, where nothing would catch a `BaseException`. The second one releases
# leases: it retries after a failure of the store, unless the loop is gone.
_TOOLS, _LEASES = "toolloop-", "leases-of-toolloop"
_READS = ("load", "head", "list", "secret")  # to crash after one of them is to crash before the next moment


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

    def create(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        """See `Store.create`."""
        return self._add("create", loop_id, entries, more)

    def append(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        """See `Store.append`."""
        return self._add("append", loop_id, entries, more)

    def _add(self, method: str, loop_id: str, entries: Sequence[Entry], more: Mapping[str, Any]) -> int:
        with self._around(f"{method}({', '.join(_name(entry.body) for entry in entries)})"):
            rev: int = getattr(self._store, method)(loop_id, entries, **more)
            for entry in entries:
                self._history.stored.setdefault((loop_id, entry.id), entry)
        return rev

    def delete(self, loop_id: str) -> None:
        """See `Store.delete`."""
        with self._around("delete()"):
            self._store.delete(loop_id)
            for key in [key for key in self._history.stored if key[0] == loop_id]:
                del self._history.stored[key]

    def acquire(self, loop_id: str, owner: str, **more: Any) -> Lease:
        """See `Store.acquire`. The lease of a dead process is taken over, as `open` does."""
        with self._around("acquire()"):
            self._history.owners[owner] = self
            try:
                return self._store.acquire(loop_id, owner, **more)
            except Conflict as held:
                if held.token is None or not self._history.is_dead(held.owner):
                    raise
                more["instead_of"] = held.token
                return self._store.acquire(loop_id, owner, **more)

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

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of the store that only reads."""
        if name not in _READS:  # the optional members would make the number of moments depend on the clock
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        read: Callable[..., Any] = getattr(self._store, name)

        def ask(*args: Any, **kwargs: Any) -> Any:
            self._reach(f"before {name}()")
            return read(*args, **kwargs)

        return ask


def _name(body: str) -> str:
    """Return the name of an event, and of its call."""
    try:
        event = json.loads(body)
        return f"{event['event']} {event['call_id']}" if "call_id" in event else str(event["event"])
    except (ValueError, TypeError, KeyError):
        return "an event"
