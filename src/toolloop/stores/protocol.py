"""The store protocol: a store keeps the journals of loops, and records which driver holds the lease of each loop.

A journal is the list of a loop's events. A store does not look into an event, and does not need a clock: its callers
pass the times of leases and deadlines, and decide whether a lease has expired. `toolloop.testing.check_store` checks
any store against this protocol.

Each method is one transaction: it succeeds as a whole, or it raises and changes nothing. A store is thread-safe.

Each text is a `str` without NUL and without lone surrogates, because some stores cannot keep those. Ids, owners and
statuses are not empty, and the events of one append have different ids. The callers see to that: a handle, an inbox
and a worker check what users give them.
"""

from __future__ import annotations

import builtins  # `list` is a method of a store
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import Attribute, evolve, field, frozen
from attrs.validators import optional

from toolloop._public import set_module
from toolloop.stores.arguments import check_integer, check_seconds, check_text
from toolloop.stores.pending import PendingCall


def _make_validator(check: Callable[[str, object], None]) -> Callable[[object, Attribute[Any], object], None]:
    """Return the validator of an attribute that is checked like an argument."""
    return lambda of, attribute, value: check(f"{type(of).__name__}.{attribute.name}", value)


_text = _make_validator(check_text)
_long_text = _make_validator(partial(check_text, may_be_empty=True))
_integer = _make_validator(check_integer)
_seconds = _make_validator(check_seconds)


@set_module("toolloop.stores")
@frozen
class Entry:
    """One event of a journal.

    Attributes:
        id: identifies the event among the events of its loop.
        body: the event as JSON, without its long text.
        text: the long part of the event as JSON (the message of a reply, the content of a result), or None.

    """

    id: str = field(validator=_text)
    body: str = field(validator=_long_text)
    text: str | None = field(default=None, validator=optional(_long_text))


@set_module("toolloop.stores")
@frozen
class Head:
    """The summary of a loop, which a store returns without reading the journal.

    Attributes:
        status: what the loop waits for: `needs_decision`, `needs_command`, `runnable`, `running`, `stopping`, `failed`
            or `ended`.
        deadline: when the earliest of its calls expires, in seconds since the epoch, or None.
        pending: the calls that wait for a decision.
        retryable: for a failed loop: whether the same request may succeed.
        retry_at: for a failed loop: when to retry it, in seconds since the epoch. None: a person must decide.
        attempts: the number of requests that failed since the last reply, as counted by the program that retries. None
            in the head of an append keeps the stored number.
        changed: when this head was written, in seconds since the epoch.
        notified: for each waiting call, by its `notification_id`: the worker that sends the notification; an empty text
            once it is sent. None in the head of an append keeps the stored value.
        tally: how its calls were settled, how long they waited, and what it cost, as JSON text; see `tallies` of
            `SqliteStore`. None in the head of an append keeps the stored value.
        forked_from: the id of the loop that it is a fork of. None in the head of an append keeps the stored value.
        metadata: in an append, the new metadata of the loop; None keeps the stored one. Else None: see `StoredLoop`.

    """

    status: str
    deadline: float | None = None
    pending: tuple[PendingCall, ...] = ()
    retryable: bool = False
    retry_at: float | None = None
    attempts: int | None = None
    changed: float = 0.0
    notified: Mapping[str, str] | None = None
    tally: str | None = field(default=None, eq=False, repr=False)
    forked_from: str | None = field(default=None, eq=False)
    metadata: Mapping[str, str] | None = field(default=None, eq=False, repr=False)

    def behind(self, earlier: Head) -> Head:
        """Return the head that a store keeps when this one replaces an earlier one."""
        attempts = earlier.attempts or 0 if self.attempts is None else self.attempts
        notified = earlier.notified or {} if self.notified is None else dict(self.notified)
        tally = earlier.tally if self.tally is None else self.tally
        forked_from = earlier.forked_from if self.forked_from is None else self.forked_from
        head = evolve(self, attempts=attempts, notified=notified, tally=tally)
        return evolve(head, forked_from=forked_from, metadata=None)


@set_module("toolloop.stores")
@frozen
class Lease:
    """A driver's right to drive a loop, for a limited time.

    Attributes:
        loop_id: the loop.
        owner: the driver.
        token: identifies the lease, with the owner. A later lease of the loop has a greater token; a renewed lease
            keeps its token. After the store was restored from a backup, tokens occur again, with other owners.
        until: when the lease expires, in seconds since the epoch.
        rev: the revision of the loop, if the store's `acquire` returns it. Then the holder knows whether there are new
            events to read, or the store was restored. It is not part of the lease's identity.

    """

    loop_id: str = field(validator=_text)
    owner: str = field(validator=_text)
    token: int = field(validator=_integer)
    until: float = field(validator=_seconds)
    rev: int | None = field(default=None, eq=False, repr=False)


@set_module("toolloop.stores")
@frozen
class Left:
    """Why workers have left a loop to others.

    Attributes:
        why: the reason, in one sentence.
        missing: the names of the tools that no worker so far had; for a tool of a nested loop, the names of the outer
            tools precede it, as in `research/search`.
        since: when the first of them left it, in seconds since the epoch.

    """

    why: str
    missing: tuple[str, ...] = ()
    since: float = 0.0


@set_module("toolloop.stores")
@frozen
class StoredLoop:
    """A loop as `Store.list` and `Store.head` return it.

    Attributes:
        loop_id: the loop.
        head: its summary. `attempts` and `notified` are never None in it.
        rev: the revision of the journal: the number of its events, and a digest if the store has it.
        lease: the current lease, or None. It may have expired.
        created: when it was created: `changed` of its first head.
        metadata: a copy of the metadata that `create` or the last `Head.metadata` gave.
        cursor: the position of this row. `list(before=cursor)` continues after it, even if the loop was deleted.
        left: why workers have left the loop to others; None if one drives it, or none has looked at this revision.

    """

    loop_id: str
    head: Head
    rev: int
    lease: Lease | None = None
    created: float = 0.0
    metadata: Mapping[str, str] = field(factory=dict)
    cursor: str = field(default="", eq=False, repr=False)
    left: Left | None = None

    @property
    def status(self) -> str:
        """See `Head`."""
        return self.head.status

    @property
    def deadline(self) -> float | None:
        """See `Head`."""
        return self.head.deadline

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """See `Head`."""
        return self.head.pending

    @property
    def due_at(self) -> float | None:
        """When the loop is due to be driven, in seconds since the epoch. None: not until another program changes it.

        Use it only for a loop without a live driver. A lease on such a loop was left by a driver that is gone.
        """
        match self.status:
            case "runnable" | "running" | "stopping":
                return 0.0
            case "needs_decision":
                return self.deadline if self.lease is None else 0.0
            case "failed":
                return self.head.retry_at
        return None


@set_module("toolloop.stores")
@frozen
class StoredJournal:
    """A journal, or the part of it after a revision.

    Attributes:
        rev: the revision of the whole journal.
        entries: the events, oldest first.

    """

    rev: int
    entries: tuple[Entry, ...]


@set_module("toolloop.stores")
class Store(Protocol):
    """Keep the journals of loops. Any object with these methods is a store.

    The revision of a loop is the number of its events. A store should return a `Revision`, which also has a digest of
    these events. Then a process that remembers a revision notices that the store was restored from a backup and has
    continued differently since. With a plain `int`, it notices only a smaller number. A revision that the store is
    given is compared with its digest, if both have one.

    Each method may also raise `StoreError` when the store fails, and `UnreadableSnapshot` when the stored content is
    damaged or was written by another program. `load` must return exactly the stored events, or raise: the calls of a
    damaged journal might run twice.

    `first_id` is the id of the first event of a journal. It identifies the loop: a loop that was deleted and created
    again under the same id has another first event. Methods with this parameter then raise `LoopNotFound`.

    A store may also have `lease_seconds`, `now()`, `watch()`, `list_due()`, both `list_unnotified()` and
    `mark_notified()`, `count()`, `mark_left()`, `tallies()`, both `keep_progress()` and `progress()`, and both
    `keep_checkpoint()` and `checkpoint()`: see `PostgresStore`; and `vacuum()`: see `SqliteStore`. Without
    `list_due()`, a worker reads all loops that have not ended. With `checkpoint_after`, an `int`, a checkpoint is due
    after so many bytes of events; without it, after 100,000.
    """

    def create(
        self, loop_id: str, entries: Sequence[Entry], *, head: Head, metadata: Mapping[str, str] | None = None
    ) -> int:
        """Create a loop with its first events, and return the new revision.

        Args:
            loop_id: the loop.
            entries: the events, oldest first.
            head: its summary.
            metadata: your own strings, such as an owner or a title; at most 4,096 bytes.

        Raises:
            Conflict: a loop with this id exists.

        """
        ...

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
        """Add events at the end of a journal, and return the new revision.

        An event whose id is already stored is not added again. If all are already stored, the method changes nothing,
        not even the head, and returns the revision, whatever was expected. So a caller that lost the answer can repeat
        the call. Without events, only the head is replaced.

        Args:
            loop_id: the loop.
            entries: the events, oldest first.
            expected_rev: the revision that the events follow. None: any.
            head: the new summary. None keeps the stored one.
            lease: append only while this is the loop's lease. None: with any lease, or none.
            first_id: append only to the journal that begins with this event. None: to any.
            instead_of: append only if `head()` returns this head. None: any head.

        Raises:
            LoopNotFound: the loop does not exist, or its first event has another id.
            Conflict: `lease` is not the loop's current lease. This is checked before the revision.
            StaleRevision: the revision is not `expected_rev`, by its number or its digest, or the head is not
                `instead_of`.

        """
        ...

    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:
        """Return the events of a loop after the revision `after`.

        Raises:
            LoopNotFound: the loop does not exist, or its first event has another id.
            StaleRevision: `after` has a digest, and the journal has no such revision: the store was restored.

        """
        ...

    def head(self, loop_id: str) -> StoredLoop:
        """Return a loop as a row of `list`.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        ...

    def list(
        self,
        status: str | Collection[str] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> builtins.list[StoredLoop]:
        """List the loops, newest first.

        Args:
            status: only loops with this status, or with one of several. None: all.
            metadata: only loops whose metadata contains all of these.
            limit: the maximum number of rows.
            before: the `cursor` of a row: only loops that were created before that one. The cursor stays valid when
                that loop is deleted. Use the last row's cursor to get the next page.

        Raises:
            ValueError: `before` is not a cursor of this store.

        """
        ...

    def delete(self, loop_id: str) -> None:
        """Delete a loop: its journal, its head and its lease.

        Raises:
            LoopNotFound: the loop does not exist.

        """

    def acquire(
        self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None, first_id: str | None = None
    ) -> Lease:
        """Acquire the lease of a loop that has none.

        The token is greater than the token of each earlier lease of the loop, and of a deleted loop with the same id.

        Args:
            loop_id: the loop.
            owner: the driver.
            until: when the lease expires, in seconds since the epoch.
            instead_of: the token of a lease to replace. The caller must know that its driver is gone.
            first_id: as for `append`.

        Raises:
            LoopNotFound: the loop does not exist, or its first event has another id.
            Conflict: another lease is current; `owner`, `until` and `token` describe it.

        """
        ...

    def renew(self, lease: Lease, *, until: float) -> Lease:
        """Extend a lease, and return it.

        Raises:
            LoopNotFound: the loop does not exist.
            Conflict: it is no longer the loop's lease.

        """
        ...

    def secret(self) -> str:
        """Return a random text. The first call makes it, and every user of the store gets the same one."""
        ...

    def release(self, lease: Lease) -> None:
        """Release a lease. Nothing happens if it is not the loop's lease, or the loop does not exist."""
