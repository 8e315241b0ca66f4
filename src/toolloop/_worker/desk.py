"""The store access of both kinds of workers. Every method here may block on the store."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import Any

from attrs import evolve, frozen

from toolloop._engine.pace import WorkerStopped
from toolloop._handles.handle import HandleBase
from toolloop._interface.results import Error, Yielded
from toolloop._journal.lease import has_ended
from toolloop._journal.store_access import call_store
from toolloop._worker.due_loops import after_failure, due_at, seconds_after
from toolloop.errors import (
    BadTool,
    Conflict,
    Drift,
    IllegalCommand,
    LoopNotFound,
    StaleRevision,
    StoreError,
    ToolLoopError,
    UnreadableSnapshot,
)
from toolloop.inbox.items import InboxCall, notification_id, reminders_of
from toolloop.machine.record.loop import Failed
from toolloop.stores.optional import (
    NO_LIMIT,
    clock_of,
    list_due_loops,
    list_unnotified_loops,
    mark_left,
    mark_notified,
    read_time,
    watch_store,
)
from toolloop.stores.pending import PendingCall
from toolloop.stores.process import find_standing, name_this_process
from toolloop.stores.protocol import Head, Left, Store, StoredLoop

LOG = logging.getLogger("toolloop.worker")
POLL = 1.0  # seconds between two polls of the store, unless a loop is due earlier
NOTIFY_SECONDS = 60.0  # after which a call of `notify` is given up
_OTHERS = 32  # reminders that are kept for each call, by any worker
_REST = 1.0  # seconds for which a loop is left alone after it was driven, unless that changed it
_DRIVEN = ("runnable", "running", "stopping")  # the statuses of loops with a driver
_SHARE = 10  # polls take at most this fraction (1/10) of the time
_ALWAYS = 2.0**62  # in seconds since the epoch, later than any time
_CLAIM = 60.0  # seconds after which a notification is repeated if it is unknown whether its worker lives


class NotifyHangs(Exception):
    """A call of `notify` took longer than `NOTIFY_SECONDS`."""


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

    def __init__(  # noqa: PLR0913 - what concerns the store, of the arguments of `Worker`
        self,
        store: Store,
        clock: Callable[[], float],
        max_attempts: int,
        wait: Callable[[int], float] = seconds_after,
        *,
        notifies: bool,
        metadata: Mapping[str, str] | None = None,
        adopt_after: float | None = None,
        remind_after: Sequence[float] = (),
    ) -> None:
        """See `Worker`. `wait`: takes the number of failures in a row, and returns the seconds to the next attempt."""
        self._store = store
        self._clock = clock_of(store, clock)
        self._max_attempts = max_attempts
        self._wait = wait
        self._notifies = notifies
        self._metadata = metadata or {}
        self._adopt_after = inf if adopt_after is None else adopt_after
        # Why this worker leaves a loop to others, as it logged, and at which revision.
        self._left: dict[tuple[str, float], tuple[int, Left]] = {}
        self._remind_after = tuple(remind_after)
        self._looks_at_all = bool(remind_after)  # until all are marked, for earlier marks go by other times
        self._id = uuid.uuid4().hex[:12]
        self._rests_until = 0.0  # by `time.monotonic`
        self._resting: dict[object, float] = {}  # until when to leave a loop at a revision, or a call, alone

    def watching(self, on_change: Callable[[], object]) -> AbstractContextManager[object]:
        """While the block runs, let the store call a function when a loop may be due, if it supports that."""
        return watch_store(self._store, on_change)

    def look_again(self, busy: Collection[str]) -> Agenda:
        """Poll the store like `look`, after a rest if the last poll took long, for polls should not fill the time."""
        time.sleep(max(0.0, self._rests_until - time.monotonic()))
        return self.look(busy)

    def look(self, busy: Collection[str] = ()) -> Agenda:
        """Poll the store, and return the work to do. `busy`: the loops that this worker already drives."""
        begun, now = time.monotonic(), self._clock()
        rows, later = list_due_loops(self._store, now, self._metadata)
        self._resting = {each: until for each, until in self._resting.copy().items() if until > now}
        leases_at = read_time(self._store) if any(row.lease for row in rows) else 0.0
        moments = [(self._begins_at(row, leases_at), row) for row in rows if row.loop_id not in busy]
        due = sorted((row for at, row in moments if at <= now), key=lambda row: row.head.changed)
        ends = [at for at, _ in moments if at > now] + ([] if later is None else [later])
        unnotified = self.unnotified() if self._notifies else ()
        end = time.monotonic()
        self._rests_until = end + min(POLL, (_SHARE - 1) * (end - begun))
        return Agenda(tuple(due), unnotified, min([POLL, *(at - now for at in ends)]))

    def unnotified(self) -> tuple[tuple[str, str], ...]:
        """Return the calls whose newest notification is missing: the first one, or a reminder.

        Mark the loops that have none, so that they are not read again before the next reminder.
        """
        found, done, now = list[tuple[str, str]](), list[tuple[StoredLoop, float]](), self._clock()
        how = {"reminds": bool(self._remind_after), "all_of_them": self._looks_at_all}
        rows = list_unnotified_loops(self._store, now, self._metadata, **how)
        for row in rows:
            waits = [wait for wait, _ in self._due(row)]
            if all((row.head.notified or {}).get(wait) == "" for wait in waits):
                done.append((row, self._remind_at(row, now)))
            found += [
                (row.loop_id, wait) for wait in waits if self._is_unnotified(row, wait) and wait not in self._resting
            ]
        mark_notified(self._store, done)
        self._looks_at_all = self._looks_at_all and len(done) < len(rows)
        return tuple(found)

    def _remind_at(self, row: StoredLoop, now: float) -> float:
        """Return when the next reminder of a loop is due, as `mark_notified` takes it."""
        later = [at for call in row.pending for at in reminders_of(call, self._remind_after) if at > now]
        is_known = self._remind_after or all(call.named.get("remind_after") for call in row.pending)
        return min(later, default=inf) if is_known else -min(later, default=inf)

    def _due(self, row: StoredLoop) -> list[tuple[str, PendingCall]]:
        """Return the calls of which a person may be notified now, each with the id of its newest notification."""
        now = self._clock()
        calls = [call for call in row.pending if call.expires_at is None or call.expires_at > now]
        return [(notification_id(row, call, self._reminder(call)), call) for call in calls]

    def is_idle(self) -> bool:
        """Return whether no loop of this worker is due, driven, or to be retried, but for those left to others."""
        rows, _ = list_due_loops(self._store, _ALWAYS, self._metadata)
        waiting = [row for row in rows if row.status != "needs_decision" or due_at(row) <= self._clock()]
        return all(self._resting.get(_version(row)) == inf for row in waiting)

    def _begins_at(self, row: StoredLoop, leases_at: float) -> float:
        """Return when this worker is to drive a loop. `leases_at`: the time by the clock of the leases."""
        return max(_free_at(row, leases_at), self._resting.get(_version(row), 0.0))

    # --- a loop that is driven -----------------------------------------------------------------------------------

    def list_driven(self) -> set[str]:
        """Return the ids of the loops that a live driver has."""
        now = read_time(self._store)
        return {row.loop_id for row in self._store.list(_DRIVEN, limit=NO_LIMIT) if _is_driven(row, now)}

    def is_driven(self, loop: StoredLoop) -> bool:
        """Return whether a loop has a driver that is not known to be gone."""
        return _is_driven(loop, read_time(self._store))

    def is_due(self, loop: StoredLoop) -> bool:
        """Return whether a loop is one of this worker, and due to be driven unless a driver has it."""
        return self._metadata.items() <= loop.metadata.items() and due_at(loop) <= self._clock()

    def admits(self, handle: HandleBase[Any, Any]) -> bool:
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
                    call_store(before.loop_id, partial(self._store.release, before.lease))
                case Drift() | BadTool() | UnreadableSnapshot(is_newer=True):
                    self._leave(before, outcome)
                case UnreadableSnapshot():
                    self._refuse(before.loop_id, outcome)
                case StoreError() | IllegalCommand() | WorkerStopped():  # among them: another driver was faster
                    self._log(before.loop_id, outcome)
                case Exception():
                    self._refuse(before.loop_id, outcome)
                case Error() if (row := self.head(before.loop_id)).status == "failed":
                    self._fail(row, row.head)
        except StoreError as error:
            self._log(before.loop_id, error)

    def drift_mode(self, row: StoredLoop) -> str:
        """Return the `on_drift` with which to open a loop: whether this worker leaves one whose tools it lacks."""
        rev, left = self._left.get((row.loop_id, row.created), (0, None))
        is_left = rev == row.rev  # otherwise another worker may have driven it meanwhile
        may_adopt = is_left and left is not None and left.missing and left.since + self._adopt_after <= self._clock()
        return "raise" if may_adopt else "leave"

    def _leave(self, before: StoredLoop, error: ToolLoopError) -> None:
        """Leave a loop at its revision to the other workers. Its row and the log say why."""
        row, key, missing = self.head(before.loop_id), (before.loop_id, before.created), getattr(error, "missing", ())
        if row.rev != before.rev or self.is_driven(row):
            return
        tools = ", ".join(map(repr, missing))
        left = Left(f"no worker has the tools {tools}" if missing else str(error), missing, self._clock())
        mark_left(self._store, row, left)
        (_, earlier), left = self._left.get(key, (0, None)), self.head(before.loop_id).left or left
        self._left[key] = row.rev, left
        can_adopt = bool(missing) and self.drift_mode(row) == "leave"
        self._resting[_version(row)] = left.since + self._adopt_after if can_adopt else inf
        if earlier is None or earlier.why != left.why:
            what = "the loop %r is left to other workers: %s"
            LOG.warning(what, before.loop_id, error, extra={"loop_id": before.loop_id})

    def _refuse(self, loop_id: str, error: Exception) -> None:
        """Mark a loop that cannot be driven as failed. An error in the caller's code or a request is retried."""
        row, is_retryable = self.head(loop_id), not isinstance(error, ToolLoopError)
        trace, extra = error if is_retryable else None, {"loop_id": loop_id}
        LOG.error("the loop %r cannot be driven: %s", loop_id, error, exc_info=trace, extra=extra)
        if _free_at(row, read_time(self._store)) <= self._clock():  # otherwise another driver has it now
            self._fail(row, evolve(row.head, status="failed", retryable=is_retryable, retry_at=None))

    def _fail(self, row: StoredLoop, head: Head) -> None:
        self._replace(row, after_failure(head, self._clock(), max_attempts=self._max_attempts, wait=self._wait))

    # --- notifications of waiting calls --------------------------------------------------------------------------

    def _is_unnotified(self, row: StoredLoop, wait: str) -> bool:
        """Return whether a call needs a notification: none was sent, and no other live worker is about to send one."""
        who = (row.head.notified or {}).get(wait)
        if not who:
            return who is None
        found = "gone" if who == self._name else find_standing(who)  # this worker checks again only after it gave up
        return found == "gone" or (found == "unknown" and row.head.changed + _CLAIM <= self._clock())

    @property
    def _name(self) -> str:
        return f"{name_this_process()} {self._id}"

    def claim(self, loop_id: str, wait: str) -> InboxCall | None:
        """Return a call for which this worker must now notify a person; None: another worker does, or it is decided."""
        try:
            row = self.head(loop_id)
            calls = [call for each, call in self._due(row) if each == wait]
            if not calls or not self._is_unnotified(row, wait):
                return None
            self._note(row, wait, self._name)
        except StoreError as error:
            self._resting[wait] = self._clock() + _REST
            self._log(loop_id, error)
            return None
        return InboxCall.of(row, calls[0], self._reminder(calls[0]))

    def _reminder(self, call: PendingCall) -> int:
        """Return the number of the reminder of a call that is due last; 0 for its first notification."""
        return sum(at <= self._clock() for at in reminders_of(call, self._remind_after))

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
        # Workers with other times may have sent more reminders than this one.
        sent = [(call, number) for call in row.pending for number in range(max(self._reminder(call), _OTHERS) + 1)]
        waits = {notification_id(row, call, number) for call, number in sent}
        noted = {**(row.head.notified or {}), wait: who}
        self._replace(row, evolve(row.head, notified={each: noted[each] for each in noted.keys() & waits}))

    # --- the store -----------------------------------------------------------------------------------------------

    def head(self, loop_id: str) -> StoredLoop:
        """See `Store.head`."""
        return call_store(loop_id, partial(self._store.head, loop_id))

    def _replace(self, row: StoredLoop, head: Head) -> None:
        head = evolve(head, changed=self._clock())
        write = partial(self._store.append, row.loop_id, [], expected_rev=row.rev, head=head, instead_of=row.head)
        call_store(row.loop_id, write)

    def _log(self, loop_id: str, error: ToolLoopError) -> None:
        """Log why a loop is skipped for now. It is normal that another driver or a person was faster, or a stop."""
        level = (
            logging.DEBUG
            if isinstance(error, (IllegalCommand, Conflict, LoopNotFound, WorkerStopped))
            else logging.WARNING
        )
        LOG.log(level, "the loop %r is skipped for now: %s", loop_id, error, extra={"loop_id": loop_id})


def _version(row: StoredLoop) -> tuple[str, float, int]:
    return row.loop_id, row.created, row.rev


def _free_at(row: StoredLoop, leases_at: float) -> float:
    """Return when a loop without a driver is due; `inf` if it has one."""
    return inf if _is_driven(row, leases_at) else due_at(row)


def _is_driven(row: StoredLoop, leases_at: float) -> bool:
    return row.lease is not None and not has_ended(row.lease.owner, row.lease.until, leases_at)
