"""A store in memory, for tests and for loops that need not outlive their process."""

from __future__ import annotations

import builtins  # `list` is a method of a store
import os
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import count, islice

from attrs import define, evolve, field

from toolloop._public import set_module
from toolloop.errors import StoreError
from toolloop.stores import arguments, checks, store_errors
from toolloop.stores.protocol import Entry, Head, Lease, StoredJournal, StoredLoop
from toolloop.stores.rows import added

# One lock for all stores: it is held for microseconds, and a fork waits for one lock only.
_LOCK = threading.RLock()
_TRANSACTION = threading.Lock()  # also held, so that a signal handler during a transaction is detected

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def _transaction() -> threading.Lock:
    """Return the lock of a transaction, unless this thread is already in one."""
    if _TRANSACTION.locked():
        raise StoreError("the store is in use by this thread: do not use a store in a signal handler")
    return _TRANSACTION


@define
class _Loop:
    number: int
    head: Head
    metadata: dict[str, str]
    created: float
    entries: dict[str, Entry] = field(factory=dict)  # by id, in their order
    lease: Lease | None = None
    progress: tuple[int, str | None] = (0, None)  # the token of its lease, and the text

    def add(self, entries: Sequence[Entry]) -> int:
        self.entries |= {entry.id: entry for entry in entries}  # in one step, so that an interrupt cannot split it
        return len(self.entries)

    def row(self, loop_id: str) -> StoredLoop:
        metadata = dict(self.metadata)
        return StoredLoop(
            loop_id, self.head, len(self.entries), self.lease, self.created, metadata, cursor=str(self.number)
        )

    def is_leased_by(self, lease: Lease) -> bool:
        return self.lease is not None and self.lease.token == lease.token


@set_module("toolloop")
class MemoryStore:
    """A store in the memory of this process. Other processes cannot use it; a forked child gets a copy.

    It has the methods of `Store`.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._loops: dict[str, _Loop] = {}  # in the order of creation
        self._numbers = count(1)
        self._tokens = count(1)
        self._secret = secrets.token_urlsafe()

    def create(
        self, loop_id: str, entries: Sequence[Entry], *, head: Head, metadata: Mapping[str, str] | None = None
    ) -> int:
        """See `Store.create`."""
        kept = checks.check_create(loop_id, entries, head, metadata)
        with _LOCK, _transaction():
            if loop_id in self._loops:
                raise store_errors.taken(loop_id)
            loop = _Loop(next(self._numbers), head.behind(head), kept, head.changed)
            rev = loop.add(entries)
            self._loops[loop_id] = loop
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
        checks.check_known(loop_id, first_id)
        checks.check_append(entries, expected_rev, head, lease, instead_of)
        with _LOCK, _transaction():
            loop = self._find(loop_id, first_id)
            row, known = loop.row(loop_id), loop.entries
            new = added(row, entries, known, expected_rev=expected_rev, lease=lease, instead_of=instead_of)
            if new is None:
                return row.rev
            loop.head = loop.head if head is None else head.behind(loop.head)
            return loop.add(new)

    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:
        """See `Store.load`."""
        checks.check_known(loop_id, first_id)
        arguments.check_integer("after", after)
        with _LOCK, _transaction():
            entries = self._find(loop_id, first_id).entries
            return StoredJournal(len(entries), tuple(entries.values())[after:])

    def head(self, loop_id: str) -> StoredLoop:
        """See `Store.head`."""
        arguments.check_text("loop_id", loop_id)
        with _LOCK, _transaction():
            return self._find(loop_id).row(loop_id)

    def list(
        self,
        status: str | Collection[str] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> builtins.list[StoredLoop]:
        """See `Store.list`."""
        statuses, end = arguments.check_page(status, limit, before)
        wanted = arguments.check_metadata(metadata).items()
        with _LOCK, _transaction():
            found = (
                loop.row(loop_id)
                for loop_id, loop in reversed(self._loops.items())
                if (statuses is None or loop.head.status in statuses)
                and wanted <= loop.metadata.items()
                and (end is None or loop.number < end)
            )
            return builtins.list(islice(found, limit))

    def delete(self, loop_id: str) -> None:
        """See `Store.delete`."""
        arguments.check_text("loop_id", loop_id)
        with _LOCK, _transaction():
            self._find(loop_id)
            del self._loops[loop_id]

    def lease(self, loop_id: str) -> Lease | None:
        """See `Store.lease`."""
        arguments.check_text("loop_id", loop_id)
        with _LOCK, _transaction():
            return self._find(loop_id).lease

    def acquire(
        self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None, first_id: str | None = None
    ) -> Lease:
        """See `Store.acquire`."""
        checks.check_known(loop_id, first_id)
        lease = Lease(loop_id, owner, 0, until)
        if instead_of is not None:
            arguments.check_integer("instead_of", instead_of)
        with _LOCK, _transaction():
            loop = self._find(loop_id, first_id)
            if loop.lease is not None and loop.lease.token != instead_of:
                raise store_errors.leased(loop_id, loop.lease)
            loop.lease = evolve(lease, token=next(self._tokens))
            return evolve(loop.lease, rev=len(loop.entries))

    def renew(self, lease: Lease, *, until: float) -> Lease:
        """See `Store.renew`."""
        arguments.check_kind("lease", lease, Lease)
        arguments.check_seconds("until", until)
        with _LOCK, _transaction():
            loop = self._find(lease.loop_id)
            if loop.lease is None or not loop.is_leased_by(lease):
                raise store_errors.lost(lease.loop_id, loop.lease)
            loop.lease = evolve(loop.lease, until=until)
            return loop.lease

    def release(self, lease: Lease) -> None:
        """See `Store.release`."""
        arguments.check_kind("lease", lease, Lease)
        with _LOCK, _transaction():
            loop = self._loops.get(lease.loop_id)
            if loop is not None and loop.is_leased_by(lease):
                loop.lease = None

    def keep_progress(self, lease: Lease, text: str | None) -> None:
        """Keep a text beside a lease, or remove it. Nothing happens if it is not the loop's lease."""
        with _LOCK, _transaction():
            loop = self._loops.get(lease.loop_id)
            if loop is not None and loop.is_leased_by(lease):
                loop.progress = (lease.token, text)

    def progress(self, loop_id: str) -> str | None:
        """Return the text beside the lease of a loop, or None."""
        with _LOCK, _transaction():
            loop = self._loops.get(loop_id)
            if loop is None or loop.lease is None or loop.lease.token != loop.progress[0]:
                return None
            return loop.progress[1]

    def secret(self) -> str:
        """See `Store.secret`."""
        return self._secret

    def _find(self, loop_id: str, first_id: str | None = None) -> _Loop:
        loop = self._loops.get(loop_id)
        if loop is None:
            raise store_errors.missing(loop_id)
        if first_id is not None and first_id != next(iter(loop.entries), None):
            raise store_errors.replaced(loop_id)
        return loop
