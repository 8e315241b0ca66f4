"""The store access of both kinds of workers. Every method here may block on the store."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import Any

from attrs import evolve, frozen

from toolloop._handles.handle import HandleBase
from toolloop._interface.results import Error, Yielded
from toolloop._journal.lease import has_ended
from toolloop._journal.store_access import safely
from toolloop._worker.due_loops import after_failure, due_at
from toolloop.errors import (
    Conflict,
    IllegalCommand,
    LoopNotFound,
    StaleRevision,
    StoreError,
    ToolLoopError,
    UnreadableSnapshot,
)
from toolloop.inbox.items import InboxCall, notification_id
from toolloop.machine.record.loop import Failed
from toolloop.stores.optional import due_loops, mark_notified, now_at, unnotified_loops, watching
from toolloop.stores.process import standing, this_process
from toolloop.stores.protocol import Head, Store, StoredLoop

LOG = logging.getLogger("toolloop.worker")
POLL = 1.0  # seconds between two polls of the store, unless a loop is due earlier
_REST = 1.0  # seconds for which a loop is left alone after it was driven, unless that changed it
_SHARE = 10  # polls take at most this fraction (1/10) of the time
_CLAIM = 60.0  # seconds after which a notification is repeated if it is unknown whether its worker lives


@frozen
class Agenda:
    """The result of a poll of the store.

    Attributes:
        due: the loops to drive, in order of their waiting time, longest first.
        unnotified: the calls without a notification: the loop and the `notification_id` of each.
        seconds: the time until the next poll.

    """

    due: tuple[StoredLoop, ...] = ()
    unnotified: tuple[tuple[str, str], ...] = ()
    seconds: float = POLL


class Desk:
    """Keeps the plan of one worker in the store: when to try each loop, and which notifications were sent."""

    def __init__(self, store: Store, clock: Callable[[], float], max_attempts: int, *, notifies: bool) -> None:
        """See `Worker`."""
        self._store = store
        self._clock = clock
        self._max_attempts = max_attempts
        self._notifies = notifies
        self._id = uuid.uuid4().hex[:12]
        self._rests_until = 0.0  # by `time.monotonic`
        self._resting: dict[object, float] = {}  # until when to leave a loop at a revision, or a call, alone

    def watching(self, on_change: Callable[[], object]) -> AbstractContextManager[object]:
        """While the block runs, let the store call a function when a loop may be due, if it supports that."""
        return watching(self._store, on_change)

    def look_again(self, busy: Collection[str]) -> Agenda:
        """Poll the store like `look`, after a rest if the last poll took long, for polls should not fill the time."""
        time.sleep(max(0.0, self._rests_until - time.monotonic()))
        return self.look(busy)

    def look(self, busy: Collection[str] = ()) -> Agenda:
        """Poll the store, and return the work to do. `busy`: the loops that this worker already drives."""
        begun, now = time.monotonic(), self._clock()
        rows, later = due_loops(self._store, now)
        self._resting = {each: until for each, until in self._resting.copy().items() if until > now}
        leases_at = now_at(self._store) if any(row.lease for row in rows) else 0.0
        moments = [(self._begins_at(row, leases_at), row) for row in rows if row.loop_id not in busy]
        due = sorted((row for at, row in moments if at <= now), key=lambda row: row.head.changed)
        ends = [at for at, _ in moments if at > now] + ([] if later is None else [later])
        unnotified = self._unnotified(now) if self._notifies else ()
        end = time.monotonic()
        self._rests_until = end + min(POLL, (_SHARE - 1) * (end - begun))
        return Agenda(tuple(due), unnotified, min([POLL, *(at - now for at in ends)]))

    def _unnotified(self, now: float) -> tuple[tuple[str, str], ...]:
        """Return the calls without a notification. Mark the loops that have none, so that they are not read again."""
        found, done = list[tuple[str, str]](), list[StoredLoop]()
        for row in unnotified_loops(self._store):
            waits = [(notification_id(row, call), call) for call in row.pending]
            if all((row.head.notified or {}).get(wait) == "" for wait, _ in waits):
                done.append(row)
            found += [
                (row.loop_id, wait)
                for wait, call in waits
                if call.expires_at is None or call.expires_at > now
                if self._is_unnotified(row, wait) and wait not in self._resting
            ]
        mark_notified(self._store, done)
        return tuple(found)

    def _begins_at(self, row: StoredLoop, leases_at: float) -> float:
        """Return when this worker is to drive a loop. `leases_at`: the time by the clock of the leases."""
        return max(_free_at(row, leases_at), self._resting.get(_version(row), 0.0))

    # --- a loop that is driven -----------------------------------------------------------------------------------

    def is_driven(self, loop: StoredLoop) -> bool:
        """Return whether a loop has a driver that is not known to be gone."""
        return _is_driven(loop, now_at(self._store))

    def is_due(self, loop: StoredLoop) -> bool:
        """Return whether a loop is due to be driven, unless a driver has it."""
        return due_at(loop) <= self._clock()

    def admits(self, handle: HandleBase[Any]) -> bool:
        """Return whether a loop that was just opened is still due. If its request failed, retry it."""
        if isinstance(handle.state.root.phase, Failed):
            # The head is read after the journal: if another worker retries now, this retry is refused.
            if not self.is_due(self.head(handle.loop_id)):
                return False
            handle.retry()
        return True

    def ended(self, before: StoredLoop, outcome: object) -> None:
        """Plan the next attempt. `before`: the row before the loop was driven; `outcome`: the result or exception."""
        self._resting[_version(before)] = self._clock() + _REST
        self.record(before, outcome)

    def record(self, before: StoredLoop, outcome: object) -> None:
        """Store the next attempt, or a failure. The arguments are those of `ended`."""
        try:
            match outcome:
                case Yielded() if before.lease is not None and not self.is_driven(before):
                    # The lease is all that the dead driver left, or it is already void.
                    safely(before.loop_id, partial(self._store.release, before.lease))
                case UnreadableSnapshot():
                    self._refuse(before.loop_id, outcome)
                case StoreError() | IllegalCommand():  # the store failed, or another driver was faster
                    self._log(before.loop_id, outcome)
                case Exception():
                    self._refuse(before.loop_id, outcome)
                case Error() if (row := self.head(before.loop_id)).status == "failed":
                    self._fail(row, row.head)
        except StoreError as error:
            self._log(before.loop_id, error)

    def _refuse(self, loop_id: str, error: Exception) -> None:
        """Mark a loop that cannot be driven as failed. An error in the caller's code or a request is retried."""
        row, is_retryable = self.head(loop_id), not isinstance(error, ToolLoopError)
        trace, extra = error if is_retryable else None, {"loop_id": loop_id}
        LOG.error("the loop %r cannot be driven: %s", loop_id, error, exc_info=trace, extra=extra)
        if _free_at(row, now_at(self._store)) <= self._clock():  # otherwise another driver has it now
            self._fail(row, evolve(row.head, status="failed", retryable=is_retryable, retry_at=None))

    def _fail(self, row: StoredLoop, head: Head) -> None:
        share = random.random()  # noqa: S311 - no secret
        self._replace(row, after_failure(head, self._clock(), max_attempts=self._max_attempts, share=share))

    # --- notifications of waiting calls --------------------------------------------------------------------------

    def _is_unnotified(self, row: StoredLoop, wait: str) -> bool:
        """Return whether a call needs a notification: none was sent, and no other live worker is about to send one."""
        who = (row.head.notified or {}).get(wait)
        if not who:
            return who is None
        found = "gone" if who == self._name else standing(who)  # this worker checks again only after it gave up
        return found == "gone" or (found == "unknown" and row.head.changed + _CLAIM <= self._clock())

    @property
    def _name(self) -> str:
        return f"{this_process()} {self._id}"

    def claim(self, loop_id: str, wait: str) -> InboxCall | None:
        """Return a call for which this worker must now notify a person; None: another worker does, or it is decided."""
        try:
            row = self.head(loop_id)
            calls = [call for call in row.pending if notification_id(row, call) == wait]
            if not calls or not self._is_unnotified(row, wait):
                return None
            self._note(row, wait, self._name)
        except StoreError as error:
            self._resting[wait] = self._clock() + _REST
            self._log(loop_id, error)
            return None
        return InboxCall.of(row, calls[0])

    def notified(self, call: InboxCall) -> None:
        """Record that the notification of a call was sent."""
        while True:
            try:
                return self._note(self.head(call.loop_id), call.notification_id, "")
            except StaleRevision:
                continue  # another program changed the loop meanwhile
            except StoreError as error:
                return self._log(call.loop_id, error)

    def _note(self, row: StoredLoop, wait: str, who: str) -> None:
        """Record the worker that sends the notification of a call. Calls that no longer wait are removed."""
        waits = {notification_id(row, call) for call in row.pending}
        noted = {**(row.head.notified or {}), wait: who}
        self._replace(row, evolve(row.head, notified={each: noted[each] for each in noted.keys() & waits}))

    # --- the store -----------------------------------------------------------------------------------------------

    def head(self, loop_id: str) -> StoredLoop:
        """See `Store.head`."""
        return safely(loop_id, partial(self._store.head, loop_id))

    def _replace(self, row: StoredLoop, head: Head) -> None:
        head = evolve(head, changed=self._clock())
        write = partial(self._store.append, row.loop_id, [], expected_rev=row.rev, head=head, instead_of=row.head)
        safely(row.loop_id, write)

    def _log(self, loop_id: str, error: ToolLoopError) -> None:
        """Log why a loop is skipped for now. It is normal that another driver or a person was faster."""
        level = logging.DEBUG if isinstance(error, (IllegalCommand, Conflict, LoopNotFound)) else logging.WARNING
        LOG.log(level, "the loop %r is skipped for now: %s", loop_id, error, extra={"loop_id": loop_id})


def _version(row: StoredLoop) -> tuple[str, float, int]:
    return row.loop_id, row.created, row.rev


def _free_at(row: StoredLoop, leases_at: float) -> float:
    """Return when a loop without a driver is due; `inf` if it has one."""
    return inf if _is_driven(row, leases_at) else due_at(row)


def _is_driven(row: StoredLoop, leases_at: float) -> bool:
    return row.lease is not None and not has_ended(row.lease.owner, row.lease.until, leases_at)
