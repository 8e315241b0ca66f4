"""A journal in a store, which other processes may append to as well.

An append names the revision that it follows. If other events were stored first, they are read, and the pending records
are rebased on them. After an error or an interrupt, it is unknown whether an append was stored. So it is repeated with
the same ids: the store ignores those that it has, and returns a revision that shows whether there is something to read.

A store without the revision that is known here was restored from a backup. Then this journal records which of its calls
may have run, and is over: every use raises `Conflict`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import NoReturn

from attrs import evolve
from typing_extensions import override

from toolloop._forks import keep_to_parent
from toolloop._journal.batch_writer import Batch, BatchWriter
from toolloop._journal.event_bus import EventBus, ObserversOf, find_no_observers
from toolloop._journal.journal import INHERITED, Journal, PastCalls, read_clock, read_past_calls
from toolloop._journal.lease_term import LeaseTerm
from toolloop._journal.rebasing import Reading, Rebase, drop_repeats, find_dropped_start, make_loss, outlives_lease
from toolloop._journal.records import Kind, MakeEvent, OwnStarts, PendingRecord, is_new_turn, make_event_id, read_kind
from toolloop._journal.restoring import add_restored, make_set_back_error
from toolloop._journal.store_access import Place, call_store, load_after
from toolloop.errors import AlreadyDecided, CallerError, Conflict, StaleRevision, StoreError
from toolloop.machine.queries import implied
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.tree import begin
from toolloop.stores.optional import clock_of
from toolloop.stores.protocol import Lease, Store


class SharedJournal(Journal):
    """A journal in a store.

    `io` is taken before `lock`, and held while the store works. An event loop must never wait for a store, so an async
    handle calls `commit` and `refresh` in a thread, and takes only `lock` itself.

    Attributes:
        store: the store. `loop_id`: the id of the loop.
        rev: the revision that is known here; 0 if it does not exist yet.
        first_id: the id of its first event. A journal with another first id is another loop.
        lease: the lease under which this process drives the loop. `term`: for how long.
        is_failing: whether the last commit failed. The error was raised then, so the next one is not logged.
        is_set_back: whether the store was restored from a backup that lacks events which are known here.
        io: held by the thread that reads or writes.

    """

    is_stored = True

    def __init__(
        self,
        state: State,
        clock: Callable[[], float],
        place: Place,
        observers: ObserversOf = find_no_observers,
        *,
        defers: bool = False,
    ) -> None:
        """Start from a state.

        Args:
            state: the state of the loops.
            clock: as for any journal; it counts only if the store has no clock.
            place: where it is stored; the state is that at its revision, or after its first event.
            observers: as for any journal.
            defers: whether the caller's commands wait for the next `commit`, as in async handles.

        """
        self.state: State = state
        self.turn: int = 0
        self.loop_id: str = state.root.setup.loop_id
        self.bus: EventBus = EventBus(self.loop_id, self, observers)
        self.lock: AbstractContextManager[object] = threading.RLock()
        # One lock if all callers wait while the store works.
        self.io: AbstractContextManager[object] = threading.RLock() if defers else self.lock
        self.store: Store = place.store
        self.rev: int = place.rev
        self.first_id = place.first_id
        self.is_handed_over: bool = False
        self.is_failing: bool = False
        self.remote_drives: int = 0
        self.lease: Lease | None = None
        self.term: LeaseTerm = LeaseTerm(place.store, self.loop_id)
        store_clock = clock_of(place.store, clock)
        # The construction of a handle does no I/O, so a new loop is dated by the clock of the store later.
        self._is_undated = place.rev == 0 and store_clock is not clock
        self._clock = clock if self._is_undated else store_clock
        self._defers = defers
        self.lost: Conflict | None = None
        self.is_set_back: bool = False
        self._confirmed = state  # the state at `rev`
        self._writer = BatchWriter(place, self.loop_id)
        self._past = PastCalls()
        self._starts = OwnStarts()
        self._buffer: tuple[PendingRecord, ...] = ()
        self._unsure: dict[str, PendingRecord] = {}  # dropped, but perhaps stored
        self._refused: tuple[Exception, ...] = ()
        if place.first is not None:
            self._buffer = (PendingRecord.make_first(place.first, state),)
            self.first_id = self._buffer[0].id
        keep_to_parent(self)

    def refuse_use(self) -> None:
        """Refuse every use that takes a lock. See `Inherited`."""
        self.lock = self.io = INHERITED

    @override
    def now(self) -> float:
        return read_clock(self._clock, otherwise=self.state.root.now)

    # --- records ---

    @override
    def record(self, event: ev.Event, kind: Kind | None = None, *, id: str | None = None) -> PendingRecord:
        # After another driver took the loop over, only ends of runs are kept. All other events are rejected.
        with self.lock:
            item = PendingRecord(event, kind or read_kind(event), id or "", lease=self.lease)
            if self.lost is None or (outlives_lease(event) and not self.is_set_back):
                return self._add(item)
            item.rejection = self.lost
            return item

    @override
    def issue(self, command: MakeEvent, *, firm: bool = True, then: MakeEvent | None = None) -> None:
        """Record a command of the caller. See `Journal.issue`. If commands are deferred, `tell` raises a conflict.

        `then`: a second command that follows and is stored with it. It may return None, and is never refused.
        """
        if self._defers:
            with self.lock:
                if self.is_set_back:
                    raise make_set_back_error(self.loop_id)
                self._issue(command, firm=firm)
            return
        with self.io:
            self.leave_if_set_back()
            rev, turn = self.rev, self.turn
            try:
                item = self._issue(command, firm=firm)
            except CallerError:
                if not self.refresh():
                    raise
                rev, turn = self.rev, self.turn
                item = self._issue(command, firm=firm)
            if item is None:
                return
            if then is not None:
                self._issue(then, firm=False)
            try:
                self.commit()
            finally:
                if item.rejection is not None and self.rev == rev:
                    self.turn = turn  # the command had no effect, so the wait is the same
            if item.rejection is not None:
                raise item.rejection
            if then is not None and self._issue(then, firm=False):  # only after others' events
                self.commit()

    def _issue(self, command: MakeEvent, *, firm: bool) -> PendingRecord | None:
        event = command(self.state)
        return None if event is None else self._add(PendingRecord(event, "command", command=command, firm=firm))

    def _add(self, item: PendingRecord) -> PendingRecord:
        before, event = self.state, item.event
        after = item.follow(before)
        dropped = find_dropped_start(event, self._unsure.values()) if self._unsure else ""
        item.id = item.id or dropped or make_event_id(event, before, after)
        item.sent = item.id in self._unsure
        item.encode()
        buffer = self._buffer
        if buffer and not buffer[-1].sent and implied(buffer[-1].event, event):
            item.seen = [*buffer[-1].seen, *item.seen]
            buffer = buffer[:-1]
        self._buffer, self.state, self.turn = (*buffer, item), after, self.turn + is_new_turn(before, after)
        self._past.note(before, after)
        return item

    @override
    def explain(self, error: AlreadyDecided) -> AlreadyDecided:
        error = self._past.explain(error)
        if error.decision is None and not self._defers:  # an async handle knows only rounds that closed here
            with suppress(StoreError):  # the decision is refused in any case
                return read_past_calls(self.store, self.loop_id).explain(error)
        return error

    # --- the store ---

    @property
    @override
    def is_behind(self) -> bool:
        return bool(self._buffer or self._refused) or self.may_be_lost

    @property
    @override
    def may_be_lost(self) -> bool:
        return self.lease is not None and self.term.may_be_over

    @override
    def find_lease_end(self) -> float | None:
        return None if self.lease is None else self.term.until

    @override
    def commit(self) -> None:
        with self.io:
            while self._buffer or self.may_be_lost:
                try:
                    if self._is_undated:
                        self._date()
                    if (lease := self.lease) is not None and self.term.may_be_over:
                        self._renew(lease)
                    self._store()
                except StoreError as error:
                    self.is_failing = True
                    self.drop_steps(error)
                    raise
            self.is_failing = False
            self._writer.leave(self._confirmed, self.rev, self.first_id, self.lease)

    @override
    def refresh(self) -> bool:
        with self.io:
            self.leave_if_set_back()
            return self.rev > 0 and self._read_on()

    def leave_if_set_back(self) -> None:
        """Raise `Conflict` if the store was restored from a backup that lacks events which are known here."""
        if self.is_set_back:
            self._leave()  # it may have been restored again

    @override
    def tell(self) -> None:
        self.bus.tell()
        with self.lock:
            if self._refused:
                error, self._refused = self._refused[0], self._refused[1:]
                raise error

    @override
    def drop_steps(self, error: Exception | None = None) -> None:
        with self.lock:
            for item in self._buffer:
                is_refused = item.kind == "command" and error is not None and not self._defers
                if item.kind == "step" or is_refused:
                    item.rejection = error or RuntimeError("it was interrupted before it was stored")
            self._drop_rejected()

    def _drop_rejected(self) -> None:
        if any(item.rejection for item in self._buffer):
            self._rebase(self.rev, Reading(self.loop_id, self._confirmed))

    def _store(self) -> None:
        """Try to store the pending records. If that fails, read the store, so that the next try can succeed."""
        with self.lock:  # other threads may rebase the records from here on
            self._drop_rejected()  # an interrupt may have left some records
            if not self._buffer:
                return
            is_sure = not self._unsure and not any(item.sent for item in self._buffer)
            batch = Batch(self._buffer, self._confirmed, self.rev, self.first_id, self.is_handed_over, is_sure)
            for item in batch.records:
                item.sent = True
        try:
            rev = self._writer.write(batch, self.now())
            if rev is None:
                self._read_on(batch.records)
            else:
                self._confirm(rev, batch)
        except Conflict as conflict:
            self._resolve(conflict, batch.lease)
        except StoreError:
            if not self._read_whether_stored(batch.records):
                raise

    def _date(self) -> None:
        """Date a new loop by the clock of the store, if it has one. The caller's commands are evaluated again."""
        clock = clock_of(self.store)
        at = round(call_store(self.loop_id, clock), 3)
        with self.lock:
            self._clock, self._is_undated, first = clock, False, self._buffer[0]
            if isinstance(first.event, ev.Opened):
                first.event = evolve(first.event, at=at)
                first.encode()
                first.after = begin(first.event)
            self._rebase(self.rev, Reading(self.loop_id, first.after))

    def _renew(self, lease: Lease) -> None:
        """Renew a lease that may be over. If another driver has the loop, read what it stored."""
        try:
            self.term.renew(lease)
        except Conflict as conflict:
            self._resolve(conflict, lease)

    def _resolve(self, conflict: Conflict, lease: Lease | None) -> None:
        """Handle a conflict: read the events that others stored, so that the next try can succeed."""
        if is_lost := lease is not None and not isinstance(conflict, StaleRevision):
            with self.lock:
                self._forget_lease(conflict)
        if not self._read_on() and not is_lost:
            raise conflict

    def _confirm(self, rev: int, batch: Batch) -> None:
        records, after = batch.records, batch.after
        with self.lock:
            self._starts.add(records)  # before they may be launched
            for item in records:
                item.stored = True
            if self._buffer[: len(records)] == records and records[-1].after is after:
                self.rev, self._confirmed, self._buffer = rev, after, self._buffer[len(records) :]
            else:  # it was rebased while it was being stored
                self._rebase(rev, Reading(self.loop_id, after, list(records)))
            self.bus.note(event for item in records for event in item.seen)

    def _read_whether_stored(self, batch: Sequence[PendingRecord]) -> bool:
        """Return whether a batch was stored although the append failed, as far as the store can be read."""
        with suppress(StoreError):
            self._read_on()
            return all(item.stored for item in batch)
        return False

    def _read_on(self, stored: Sequence[PendingRecord] = ()) -> bool:
        """Read the events that others stored, and rebase the pending records. Return whether there were any.

        Args:
            stored: the records that the store is known to have.

        Raises:
            StoreError: it cannot be read, or is damaged.
            Conflict: it was restored from a backup, and lacks events that are known here.

        """
        first_id = self.first_id if self.rev else None
        try:
            found_rev, events = load_after(self.store, self.loop_id, self.rev, first_id, self._writer.count)
        except StaleRevision:
            self._leave()
        with self.lock:
            read = Reading(self.loop_id, self._confirmed, [item for item in stored if item.id not in events])
            own = {**self._unsure, **{item.id: item for item in (*self._buffer, *stored)}}
            if self.rev == 0:
                first = next(iter(events), "")
                if not self._buffer or self._buffer[0].id != first:
                    return False  # another loop has this id now
                del events[first], own[first]
                read.known.append(self._buffer[0])
            read.follow(events, own, self._past.note)
            self._starts.add(read.known)
            was_read = found_rev != self.rev
            self._rebase(found_rev, read)
            self.bus.note(read.seen)
            return was_read

    def _leave(self) -> NoReturn:
        """End the use of a restored store, once it has what only this process knows; repeated after a `StoreError`."""
        if runs := self._starts.runs:
            entry_id, at = self._starts.report_id, self.now()
            add_restored(self.store, self.loop_id, runs, first_id=self.first_id, at=at, entry_id=entry_id)
        with self.lock:
            if not self.is_set_back:
                self.is_set_back = True
                self._forget_lease(conflict := make_set_back_error(self.loop_id))
                for item in self._buffer:
                    item.rejection = conflict
                self._drop_rejected()
        raise self.lost or make_set_back_error(self.loop_id)

    def _rebase(self, rev: int, read: Reading) -> None:
        """Rebase the pending records on what was read. `rev`: the revision after it."""
        rebase = Rebase(self.loop_id, read.state, read.remote)
        if rebase.drives and self.lease is not None:
            self._forget_lease(make_loss(self.loop_id))
        self.is_handed_over &= not rebase.drives  # else it is another driver's turn
        rebase.look_at(item for item in self._buffer if item not in read.known)
        unsure = self._unsure if rev == self.rev else {}  # records with an older revision can no longer be stored
        unsure = {**unsure, **{item.id: item for item in rebase.dropped if item.sent}}
        refused = drop_repeats((*self._refused, *rebase.refusals)) if self._defers else ()
        turn = self.turn + read.turns + is_new_turn(self.state, rebase.state)
        self.remote_drives += rebase.drives
        new = rev, read.state, tuple(rebase.kept), rebase.state, turn, unsure, refused
        # In one statement, so that after an interrupt either all of these are old, or all are new.
        self.rev, self._confirmed, self._buffer, self.state, self.turn, self._unsure, self._refused = new

    def _forget_lease(self, conflict: Conflict) -> None:
        """Drop the records of a lost lease, except the ends of runs."""
        self.lease, self.lost = None, conflict
        for item in self._buffer:
            if item.lease is not None and not outlives_lease(item.event):
                item.rejection = conflict
            item.lease = None
