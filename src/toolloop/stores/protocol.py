"""What a store is: it keeps the journals of loops, and who may drive which.

A journal is the list of a loop's events, each a text with a name. A store looks into none of them. It has no clock: the
times in leases and deadlines are its callers' numbers, and whether a lease is still good is for them to judge.
`toolloop.testing.check_store` checks any store against what is said here.

Every method is one transaction: it happens as a whole, or raises and changes nothing. A store is safe to use from any
thread.

Every argument that is a text is a `str` that is not empty (a body may be), with no NUL in it and no lone surrogate: not
every store could keep those. Anything else raises `TypeError` or `ValueError` before anything is stored.
"""

from __future__ import annotations

import builtins  # `list` is a method of a store
from collections.abc import Sequence
from typing import Protocol

from attrs import field

from toolloop.core.freezing import frozen


@frozen
class Entry:
    """One event of a journal.

    Attributes:
        id: names it for ever, among the events of its loop.
        body: its JSON text.

    """

    id: str
    body: str


@frozen
class Head:
    """What can be known of a loop without reading its journal.

    Attributes:
        status: what it waits for.
        deadline: when the earliest of its calls expires, in seconds since the epoch, or None.

    """

    status: str
    deadline: float | None = None


@frozen
class Lease:
    """A driver's right to drive a loop, for a time.

    Attributes:
        loop_id: which loop.
        owner: who drives it.
        token: which lease of the loop this is. A later one has a greater token. The token is what counts: a lease that
            was renewed since is still this lease.
        until: until when it runs, in seconds since the epoch.
        rev: of a lease that `acquire` just gave: the revision of the loop, if the store says so. Whoever takes the
            lease need not look then whether there is anything new to read. It makes no other lease of it.

    """

    loop_id: str
    owner: str
    token: int
    until: float
    rev: int | None = field(default=None, eq=False, repr=False)


@frozen
class StoredLoop:
    """A loop as a store lists it.

    Attributes:
        loop_id: its name.
        status: see `Head`.
        deadline: see `Head`.
        rev: how many events its journal has.
        lease: who drives it, or None. It may have run out.

    """

    loop_id: str
    status: str
    deadline: float | None
    rev: int
    lease: Lease | None


@frozen
class StoredJournal:
    """A journal, or what came after a revision of it.

    Attributes:
        rev: how many events the whole journal has.
        entries: the events, oldest first.

    """

    rev: int
    entries: tuple[Entry, ...]


class Store(Protocol):
    """Keeps the journals of loops. Any object with these methods is one.

    The revision of a loop is the number of its events. Besides what each method says, all of them raise `StoreError`
    where the store fails, and `UnreadableSnapshot` where what it keeps is damaged or not its own.
    """

    def create(self, loop_id: str, entries: Sequence[Entry], *, head: Head) -> int:
        """Make a loop, with its first events. The new revision is returned.

        Raises:
            Conflict: there is a loop of this id.
            ValueError: two of the events have one id.

        """
        ...

    def append(
        self,
        loop_id: str,
        entries: Sequence[Entry],
        *,
        expected_rev: int | None,
        head: Head | None = None,
        lease: Lease | None = None,
    ) -> int:
        """Add events at the end of a journal. The new revision is returned.

        An event whose id is known is not added again. If all are known, nothing changes, the head neither, and the
        revision is returned, whatever was expected: so a caller that did not hear the answer may ask again.

        Args:
            loop_id: which loop.
            entries: the events, oldest first.
            expected_rev: the revision that the events follow. None: they follow any.
            head: what can now be known without reading the journal. None: as before.
            lease: only while this is the loop's lease. None: whoever has it.

        Raises:
            LoopNotFound: there is no such loop.
            Conflict: `lease` is not the loop's lease, or no longer. This is looked at before the revision.
            StaleRevision: the journal has another revision than expected.
            ValueError: two of the events have one id.

        """
        ...

    def load(self, loop_id: str, *, after: int = 0) -> StoredJournal:
        """The events of a loop, those after revision `after`.

        Raises:
            LoopNotFound: there is no such loop.

        """
        ...

    def list(
        self, status: str | None = None, *, limit: int = 100, before: str | None = None
    ) -> builtins.list[StoredLoop]:
        """The loops, the newest first.

        Args:
            status: only those of this status. None: all.
            limit: at most so many.
            before: a loop's id: only those that were created before it. So one asks for the next page.

        Raises:
            LoopNotFound: there is no loop `before`.

        """
        ...

    def delete(self, loop_id: str) -> None:
        """Forget a loop: its journal, its head and its lease.

        Raises:
            LoopNotFound: there is no such loop.

        """
        ...

    def lease(self, loop_id: str) -> Lease | None:
        """The lease of a loop, which may have run out. None: nobody has one.

        Raises:
            LoopNotFound: there is no such loop.

        """
        ...

    def acquire(self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None) -> Lease:
        """Take the lease of a loop that has none.

        The token is greater than that of every lease which the loop, or a deleted loop of its id, ever had.

        Args:
            loop_id: which loop.
            owner: who will drive it.
            until: until when the lease runs, in seconds since the epoch.
            instead_of: take it also from the lease of this token, which the caller knows to be void.

        Raises:
            LoopNotFound: there is no such loop.
            Conflict: somebody has a lease; `owner`, `until` and `token` tell of it.

        """
        ...

    def renew(self, lease: Lease, *, until: float) -> Lease:
        """Let a lease run longer.

        Raises:
            LoopNotFound: there is no such loop.
            Conflict: it is no longer the loop's lease.

        """
        ...

    def release(self, lease: Lease) -> None:
        """Give a lease back. If it is not the loop's lease, or there is no such loop, nothing happens."""
        ...
