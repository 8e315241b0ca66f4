"""A journal in a store, which other processes may append to as well.

An append names the revision that it follows. If other events were stored first, they are read, and the pending records
are rebased on them. After an error or an interrupt, it is unknown whether an append was stored. So it is repeated with
the same ids: the store ignores those that it has, and returns a revision that shows whether there is something to read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from toolloop._interface.heads import head_of
from toolloop._journal.event_bus import EventBus
from toolloop._journal.journal import Journal, Kind, MakeEvent, PendingRecord, id_of, is_new_turn, new_id, record_kind
from toolloop._journal.rebasing import (
    Rebase,
    follow,
    is_record_of,
    outlives_lease,
    superseded,
    taken_over,
    without_repeats,
)
from toolloop._journal.reporting import watch
from toolloop._journal.store_access import safely
from toolloop.errors import CallerError, Conflict, StaleRevision, StoreError, UnreadableSnapshot
from toolloop.events import WatchEvent
from toolloop.machine.queries import implied, status_of, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.state import State
from toolloop.machine.tree import step
from toolloop.stores.protocol import Entry, Head, Lease, Store


class SharedJournal(Journal):
    """A journal in a store.

    `io` is taken before `lock`, and held while the store works. An event loop must never wait for a store, so an async
    handle calls `commit` and `refresh` in a thread, and takes only `lock` itself.

    Attributes:
        store: the store.
        loop_id: the id of the loop.
        rev: the number of its events that are known here; 0 if it does not exist yet.
        first_id: the id of its first event. A journal with another first id is another loop.
        lease: the lease under which this process drives the loop.
        io: held by the thread that reads or writes.

    """

    is_stored = True
    store: Store
    io: AbstractContextManager[object]
    # Of any journal, and assigned here too: a type checker would else infer them again.
    state: State
    turn: int
    is_failing: bool
    is_handed_over: bool
    remote_drives: int

    def __init__(  # noqa: PLR0913 - the parts of a stored journal
        self,
        state: State,
        clock: Callable[[], float],
        bus: EventBus,
        *,
        store: Store,
        rev: int = 0,
        first_id: str | None = None,
        first: ev.Opened | ev.Adopted | None = None,
        metadata: Mapping[str, str] | None = None,
        defers: bool = False,
    ) -> None:
        """Start from a state.

        Args:
            state: the state of the loops.
            clock: as for any journal.
            bus: as for any journal.
            store: the store of the journal.
            rev: the revision of the state.
            first_id: the id of its first event, if it exists.
            first: its first event, if it does not exist yet.
            metadata: stored with it, if it does not exist yet.
            defers: whether the caller's commands wait for the next `commit`, as in async handles.

        """
        self._defers = defers
        super().__init__(state, clock, bus)
        self.io = threading.RLock() if defers else self.lock  # one lock if all callers wait while the store works
        self.store = store
        self.loop_id: str = state.root.setup.loop_id
        self.rev: int = rev
        self.first_id = first_id
        self.is_handed_over = False
        self.lease: Lease | None = None
        self._metadata = metadata
        self.lost = None
        self._key: str | None = None
        self._confirmed = state  # the state at `rev`
        self._written: tuple[int, Head | None] = 0, None  # the last head that was stored here, and its revision
        self._buffer: tuple[PendingRecord, ...] = ()
        self._unsure: dict[str, PendingRecord] = {}  # dropped, but perhaps stored
        self._refused: tuple[Exception, ...] = ()
        if first is not None:
            record = PendingRecord(first, "fact", new_id())
            record.after = state
            record.encode()
            self._buffer, self.first_id = (record,), record.id

    def close(self) -> None:
        """See `Journal.close`."""
        super().close()
        self.io = self.lock

    # --- records ---

    def record(self, event: ev.Event, kind: Kind | None = None, *, id: str | None = None) -> PendingRecord:  # noqa: A002 - what it is
        """Record an event, for the next `commit` to store. See `Journal.record`.

        After another driver took the loop over, only ends of runs are kept. All other events are rejected.
        """
        with self.lock:
            item = PendingRecord(event, kind or record_kind(event), id or "", lease=self.lease)
            if self.lost is None or outlives_lease(event):
                return self._add(item)
            item.rejection = self.lost
            return item

    def say(self, command: MakeEvent, *, firm: bool = True, then: MakeEvent | None = None) -> None:
        """Record a command of the caller. See `Journal.say`. If commands are deferred, `tell` raises a conflict.

        `then`: a second command that follows and is stored with it. It may return None, and is never refused.
        """
        if self._defers:
            with self.lock:
                self._ask(command, firm=firm)
            return
        with self.io:
            rev, turn = self.rev, self.turn
            try:
                item = self._ask(command, firm=firm)
            except CallerError:
                if not self.refresh():
                    raise
                rev, turn = self.rev, self.turn
                item = self._ask(command, firm=firm)
            if item is None:
                return
            if then is not None:
                self._ask(then, firm=False)
            try:
                self.commit()
            finally:
                if item.rejection is not None and self.rev == rev:
                    self.turn = turn  # the command had no effect, so the wait is the same
            if item.rejection is not None:
                raise item.rejection
            if then is not None and self._ask(then, firm=False):  # only after others' events
                self.commit()

    def _ask(self, command: MakeEvent, *, firm: bool) -> PendingRecord | None:
        event = command(self.state)
        if event is None:
            return None
        return self._add(PendingRecord(event, "command", command=command, firm=firm))

    def _add(self, item: PendingRecord) -> PendingRecord:
        before, event = self.state, item.event
        after = step(before, event)
        item.id = item.id or self._id_of_dropped_start(event) or id_of(event, before, after)
        item.sent = item.id in self._unsure
        item.encode()
        item.after, item.seen = after, watch(before, event, after)
        buffer = self._buffer
        if buffer and not buffer[-1].sent and implied(buffer[-1].event, event):
            item.seen = [*buffer[-1].seen, *item.seen]
            buffer = buffer[:-1]
        self._buffer, self.state, self.turn = (*buffer, item), after, self.turn + is_new_turn(before, after)
        return item

    def _id_of_dropped_start(self, event: ev.Event) -> str:
        """Return the id of an earlier record of this start, which may be stored, so that it is not stored twice."""
        if not isinstance(event, ev.Started):
            return ""
        starts = [item for item in self._unsure.values() if isinstance(item.event, ev.Started)]
        return next((item.id for item in starts if is_record_of(item, event)), "")

    # --- the store ---

    @property
    def is_behind(self) -> bool:
        """Whether records wait for `commit`, or a refusal waits to be raised."""
        return bool(self._buffer or self._refused)

    def commit(self) -> None:
        """Store the pending records. On a conflict, rebase them first. Blocks while the store works.

        Raises:
            StoreError: the store failed. Facts and deferred commands are kept. Steps and the caller's other commands
                are dropped.

        """
        with self.io:
            while self._buffer:
                try:
                    self._store()
                except StoreError as error:
                    self.is_failing = True
                    self.drop_steps(error)
                    raise
            self.is_failing = False

    def refresh(self) -> bool:
        """Read the events that others stored. Return whether there were any. Blocks while the store works.

        Raises:
            StoreError: the store failed.

        """
        with self.io:
            return self.rev > 0 and self._read_on()

    def tell(self) -> None:
        """Deliver the watch events of the events stored since the last time.

        Raises:
            CallerError: a deferred command is no longer allowed; each one is raised once.
            Conflict: the loop has continued elsewhere since a deferred command; each one is raised once.

        """
        self.bus.tell()
        with self.lock:
            if self._refused:
                error, self._refused = self._refused[0], self._refused[1:]
                raise error

    def drive_with(self, lease: Lease) -> None:
        """Record under this lease from now on."""
        with self.lock:
            self.lease, self.lost = lease, None

    def drop_steps(self, error: Exception | None = None) -> None:
        """Drop the steps. After an error of the store, drop the caller's commands too, unless they are deferred."""
        with self.lock:
            for item in self._buffer:
                is_refused = item.kind == "command" and error is not None and not self._defers
                if item.kind == "step" or is_refused:
                    item.rejection = error or RuntimeError("it was interrupted before it was stored")
            self._drop_rejected()

    def _drop_rejected(self) -> None:
        if any(item.rejection for item in self._buffer):
            self._rebase(self.rev, self._confirmed)

    def _store(self) -> None:
        """Try to store the pending records. If that fails, read the store, so that the next try can succeed."""
        with self.lock:  # other threads may rebase the records from here on
            self._drop_rejected()  # an interrupt may have left some records
            if not (batch := self._buffer):
                return
            is_sure = not self._unsure and not any(item.sent for item in batch)
            entries, after = [item.entry for item in batch], batch[-1].after
            lease = next((item.lease for item in batch if item.lease is not None), None)
            for item in batch:
                item.sent = True
        try:
            head = self._head(batch, after)
            rev = self._append(entries, head, lease)
            if is_sure and rev == self.rev + len(batch):
                self._confirm(rev, batch, after)
                self._written = rev, head
            else:
                self._read_on(batch)
        except Conflict as conflict:
            self._resolve(conflict, lease)
        except StoreError:
            if not self._was_stored(batch):
                raise

    def _resolve(self, conflict: Conflict, lease: Lease | None) -> None:
        """Handle a conflict: read the events that others stored, so that the next try can succeed."""
        if lease is not None and not isinstance(conflict, StaleRevision):
            with self.lock:
                self._forget_lease(conflict)
            self._read_on()
        elif not self._read_on():
            raise conflict

    def _append(self, entries: Sequence[Entry], head: Head, lease: Lease | None) -> int:
        store, loop_id = self.store, self.loop_id
        if self.rev == 0:
            return safely(loop_id, partial(store.create, loop_id, entries, head=head, metadata=self._metadata))
        known: dict[str, Any] = {"expected_rev": self.rev, "first_id": self.first_id}
        return safely(loop_id, partial(store.append, loop_id, entries, head=head, lease=lease, **known))

    def _head(self, batch: Sequence[PendingRecord], after: State) -> Head:
        """Return the head after a batch. `attempts` is 0 after an answered request."""
        is_handed_over = self.is_handed_over
        if not is_handed_over and self.rev and status_of(self._confirmed) == status_of(after) == "needs_command":
            row = safely(self.loop_id, partial(self.store.head, self.loop_id))
            is_handed_over = row.status == "needs_command"  # it is still the turn of another driver's caller
        attempts = 0 if any(isinstance(item.event, ev.Replied) for item in batch) else None
        earlier = self._earlier_head(after)
        parts: dict[str, Any] = {"is_handed_over": is_handed_over, "attempts": attempts, "earlier": earlier}
        return head_of(after, self.now(), **parts, key=self._secret_key)

    def _earlier_head(self, after: State) -> Head | None:
        """Return the stored head if its calls may still wait: only a head has the time since when."""
        if not self.rev or not waiting(after) or not waiting(self._confirmed):
            return None
        rev, head = self._written
        return head if rev == self.rev else safely(self.loop_id, partial(self.store.head, self.loop_id)).head

    def _secret_key(self) -> str:
        """Return the secret of the store, which it is asked for once."""
        if self._key is None:
            self._key = safely(self.loop_id, self.store.secret)
        return self._key

    def _confirm(self, rev: int, batch: Sequence[PendingRecord], after: State) -> None:
        with self.lock:
            for item in batch:
                item.stored = True
            rest = self._buffer[len(batch) :]
            if self._buffer[: len(batch)] == batch and batch[-1].after is after:
                self.rev, self._confirmed, self._buffer = rev, after, rest
            else:  # it was rebased while it was being stored
                self._rebase(rev, after, stored=batch)
            self.bus.note(event for item in batch for event in item.seen)

    def _was_stored(self, batch: Sequence[PendingRecord]) -> bool:
        """Return whether a batch was stored although the append failed, if the store can be read now."""
        try:
            self._read_on()
        except StoreError:
            return False
        return all(item.stored for item in batch)

    def _read_on(self, stored: Sequence[PendingRecord] = ()) -> bool:
        """Read the events that others stored, and rebase the pending records. Return whether there were any.

        Args:
            stored: the records that the store is known to have.

        Raises:
            StoreError: it cannot be read.
            UnreadableSnapshot: it is damaged.

        """
        from toolloop.stores.codec import decode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

        first_id = self.first_id if self.rev else None
        found = safely(self.loop_id, partial(self.store.load, self.loop_id, after=self.rev, first_id=first_id))
        if found.rev < self.rev:
            raise UnreadableSnapshot(
                f"the store is damaged: the loop {self.loop_id!r} was at revision {self.rev}, and is at {found.rev} "
                "now. Open it again if it was deleted, or its file replaced, on purpose"
            )
        events = {entry.id: decode_event(entry) for entry in found.entries}
        with self.lock:
            known = [item for item in stored if item.id not in events]
            own = {**self._unsure, **{item.id: item for item in (*self._buffer, *stored)}}
            if self.rev == 0:
                first = next(iter(events), "")
                if not self._buffer or self._buffer[0].id != first:
                    return False  # another loop has this id now
                del events[first], own[first]
                known.append(self._buffer[0])
            state, turns, remote, seen = self._confirmed, 0, list[ev.Event](), list[WatchEvent]()
            for entry_id, event in events.items():
                before, state = state, follow(self.loop_id, state, event)
                seen += watch(before, event, state)
                item = own.pop(entry_id, None)
                if item is None or (item.command is not None and item.rejection is not None):
                    remote.append(event)  # an event of others; or a command that was reported as not recorded
                    turns += is_new_turn(before, state)
                elif item.kind == "step" and not is_record_of(item, event):
                    item.rejection = superseded(self.loop_id)  # an earlier version of its record
                else:
                    known.append(item)
            for item in own.values():
                item.sent = False
            for item in known:
                item.stored = True
            was_read = found.rev != self.rev
            self._rebase(found.rev, state, known, remote, turns)
            self.bus.note(seen)
            return was_read

    def _rebase(
        self,
        rev: int,
        confirmed: State,
        stored: Sequence[PendingRecord] = (),
        remote: Sequence[ev.Event] = (),
        turns: int = 0,
    ) -> None:
        """Rebase the pending records.

        Args:
            rev: the revision of the store.
            confirmed: the state at that revision.
            stored: the records that are no longer pending.
            remote: the events that others stored since the last time.
            turns: the number of turns that those events ended.

        """
        rebase = Rebase(self.loop_id, confirmed, remote)
        if rebase.drives and self.lease is not None:
            self._forget_lease(taken_over(self.loop_id))
        self.is_handed_over &= not rebase.drives  # else it is another driver's turn
        rebase.look_at(item for item in self._buffer if item not in stored)
        unsure = self._unsure if rev == self.rev else {}  # records with an older revision can no longer be stored
        unsure = {**unsure, **{item.id: item for item in rebase.dropped if item.sent}}
        refused = without_repeats((*self._refused, *rebase.refusals)) if self._defers else ()
        turn = self.turn + turns + is_new_turn(self.state, rebase.state)
        self.remote_drives += rebase.drives
        new = rev, confirmed, tuple(rebase.kept), rebase.state, turn, unsure, refused
        # In one statement, so that after an interrupt either all of these are old, or all are new.
        self.rev, self._confirmed, self._buffer, self.state, self.turn, self._unsure, self._refused = new

    def _forget_lease(self, conflict: Conflict) -> None:
        """Drop the records of a lost lease, except the ends of runs."""
        self.lease, self.lost = None, conflict
        for item in self._buffer:
            if item.lease is not None and not outlives_lease(item.event):
                item.rejection = conflict
            item.lease = None
