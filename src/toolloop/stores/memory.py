"""A store in memory, for tests and for loops that need not outlive their process."""

from __future__ import annotations

import builtins  # `list` is a method of a store
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import count, islice

from attrs import define, evolve, field
from typing_extensions import override

from toolloop._forks import hold_at_fork
from toolloop._public import set_module
from toolloop.errors import StoreError
from toolloop.stores import arguments, store_errors
from toolloop.stores.digests import make_first_digest, make_next_digest
from toolloop.stores.protocol import Entry, Head, Lease, Left, Store, StoredJournal, StoredLoop
from toolloop.stores.revisions import Revision
from toolloop.stores.rows import is_current, list_added

# One lock for all stores: it is held for microseconds, and a fork waits for one lock only.
_LOCK = threading.RLock()
_TRANSACTION = threading.Lock()  # also held, so that a signal handler during a transaction is detected

hold_at_fork(_LOCK)


def _get_lock() -> threading.Lock:
    """Return the lock of a transaction, unless this thread is already in one."""
    if _TRANSACTION.locked():
        raise StoreError("the store is in use by this thread: do not use a store in a signal handler")
    return _TRANSACTION


@define
class _Loop:
    number: int
    first: bytes  # the start of its chain of digests
    head: Head
    metadata: dict[str, str]
    created: float
    entries: dict[str, tuple[Entry, bytes]] = field(factory=dict)  # by id, in their order, with their digests
    lease: Lease | None = None
    progress: tuple[int, str | None] = (0, None)  # the token of its lease, and the text
    left: tuple[int, Left] | None = None  # the revision, and why workers left it then

    def add(self, entries: Sequence[Entry]) -> Revision:
        digest, new = self.digest, dict[str, tuple[Entry, bytes]]()
        for entry in entries:  # an id occurs once, so that the ids are enough to tell two histories apart
            digest = make_next_digest(digest, (entry.id.encode(),))
            new[entry.id] = (entry, digest)
        self.entries |= new  # in one step, so that an interrupt cannot split it
        return self.rev

    @property
    def digest(self) -> bytes:
        return next(reversed(self.entries.values()))[1] if self.entries else self.first

    @property
    def rev(self) -> Revision:
        return Revision(len(self.entries), self.digest.hex())

    def make_row(self, loop_id: str) -> StoredLoop:
        metadata, rev, cursor = dict(self.metadata), self.rev, str(self.number)
        left = self.left[1] if self.left is not None and self.left[0] == rev else None
        return StoredLoop(loop_id, self.head, rev, self.lease, self.created, metadata, cursor=cursor, left=left)


@set_module("toolloop")
class MemoryStore(Store):
    """A store in the memory of this process. Other processes cannot use it; a forked child gets a copy."""

    takes_alternatives: bool = True

    def __init__(self) -> None:
        """Start empty."""
        self._loops: dict[str, _Loop] = {}  # in the order of creation
        self._numbers = count(1)
        self._tokens = count(1)
        self._secret = secrets.token_urlsafe()

    @override
    def create(
        self, loop_id: str, entries: Sequence[Entry], *, head: Head, metadata: Mapping[str, str] | None = None
    ) -> int:
        kept = dict(metadata or {})
        with _LOCK, _get_lock():
            if loop_id in self._loops:
                raise store_errors.make_taken_error(loop_id)
            loop = _Loop(next(self._numbers), make_first_digest(loop_id), head.behind(head), kept, head.changed)
            rev = loop.add(entries)
            self._loops[loop_id] = loop
            return rev

    @override
    def append(
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
        with _LOCK, _get_lock():
            loop = self._find(loop_id, first_id)
            row, known = loop.make_row(loop_id), loop.entries
            new = list_added(row, entries, known, expected_rev=expected_rev, lease=lease, instead_of=instead_of)
            if new is None:
                return row.rev
            if head is not None:
                loop.metadata = loop.metadata if head.metadata is None else dict(head.metadata)
                loop.head = head.behind(loop.head)
            return loop.add(new)

    @override
    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:
        with _LOCK, _get_lock():
            loop = self._find(loop_id, first_id)
            entries, rev = tuple(loop.entries.values()), loop.rev
            known = entries[after - 1][1] if 0 < after <= rev else loop.first
            if Revision.of(after).digest is not None and (after > rev or Revision(after, known.hex()) != after):
                raise store_errors.make_missing_revision_error(loop_id, after, rev)
            return StoredJournal(rev, tuple(entry for entry, _ in entries[after:]))

    @override
    def head(self, loop_id: str) -> StoredLoop:
        with _LOCK, _get_lock():
            return self._find(loop_id).make_row(loop_id)

    @override
    def list(
        self,
        status: str | Collection[str] | None = None,
        *,
        metadata: arguments.MetadataFilter = None,
        limit: int = 100,
        before: str | None = None,
    ) -> builtins.list[StoredLoop]:
        statuses, end = arguments.check_page(status, limit, before)
        wanted = [each.items() for each in arguments.check_alternatives(metadata)]
        with _LOCK, _get_lock():
            found = (
                loop.make_row(loop_id)
                for loop_id, loop in reversed(self._loops.items())
                if (statuses is None or loop.head.status in statuses)
                and any(each <= loop.metadata.items() for each in wanted)
                and (end is None or loop.number < end)
            )
            return builtins.list(islice(found, limit))

    @override
    def delete(self, loop_id: str) -> None:
        with _LOCK, _get_lock():
            self._find(loop_id)
            del self._loops[loop_id]

    @override
    def acquire(
        self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None, first_id: str | None = None
    ) -> Lease:
        lease = Lease(loop_id, owner, 0, until)
        with _LOCK, _get_lock():
            loop = self._find(loop_id, first_id)
            if loop.lease is not None and loop.lease.token != instead_of:
                raise store_errors.make_leased_error(loop_id, loop.lease)
            loop.lease, loop.left = evolve(lease, token=next(self._tokens)), None
            return evolve(loop.lease, rev=loop.rev)

    @override
    def renew(self, lease: Lease, *, until: float) -> Lease:
        with _LOCK, _get_lock():
            loop = self._find(lease.loop_id)
            if loop.lease is None or not is_current(lease, loop.make_row(lease.loop_id)):
                raise store_errors.make_lost_error(lease.loop_id, loop.lease)
            loop.lease = evolve(loop.lease, until=until)
            return loop.lease

    @override
    def release(self, lease: Lease) -> None:
        with _LOCK, _get_lock():
            loop = self._loops.get(lease.loop_id)
            if loop is not None and is_current(lease, loop.make_row(lease.loop_id)):
                loop.lease = None

    def keep_progress(self, lease: Lease, text: str | None) -> None:
        """Keep a text beside a lease, or remove it. Nothing happens if it is not the loop's lease."""
        with _LOCK, _get_lock():
            loop = self._loops.get(lease.loop_id)
            if loop is not None and is_current(lease, loop.make_row(lease.loop_id)):
                loop.progress = (lease.token, text)

    def progress(self, loop_id: str) -> str | None:
        """Return the text beside the lease of a loop, or None."""
        with _LOCK, _get_lock():
            loop = self._loops.get(loop_id)
            if loop is None or loop.lease is None or loop.lease.token != loop.progress[0]:
                return None
            return loop.progress[1]

    def tallies(self, metadata: arguments.MetadataFilter = None) -> builtins.list[tuple[str, str | None]]:
        """Return each loop with its tally as JSON text, None if it has none; see `SqliteStore.tallies`."""
        rows = self.list(metadata=metadata, limit=max(1, len(self._loops)))
        return [(row.loop_id, row.head.tally) for row in rows]

    def mark_left(self, loop: StoredLoop, left: Left) -> None:
        """Keep why a worker left a loop to others, as long as the row of the loop is as given."""
        with _LOCK, _get_lock():
            found = self._loops.get(loop.loop_id)
            if found is None or (str(found.number), len(found.entries), found.lease) != (
                loop.cursor,
                loop.rev,
                loop.lease,
            ):
                return
            if found.left is not None and (found.left[1].why, found.left[1].missing) == (left.why, left.missing):
                left = found.left[1]
            found.left = (loop.rev, left)

    @override
    def secret(self) -> str:
        return self._secret

    def _find(self, loop_id: str, first_id: str | None = None) -> _Loop:
        loop = self._loops.get(loop_id)
        if loop is None:
            raise store_errors.make_missing_error(loop_id)
        if first_id is not None and first_id != next(iter(loop.entries), None):
            raise store_errors.make_replaced_error(loop_id)
        return loop
