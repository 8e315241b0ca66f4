"""A journal in a store, to which others may append, too.

An append states the revision that it follows. If others were first, what they stored is read, and what waits here is
rebased on it. After an error or an interrupt it is unknown whether an append was stored. So it is repeated with the
same ids: the store ignores what it has, and the revision that it returns shows that there is something to read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from toolloop.face.heads import head_of
from toolloop.face.watch_events import WatchEvent
from toolloop.loop.event_bus import EventBus
from toolloop.loop.journal import Command, Journal, Kind, PendingRecord, id_of, is_new_turn, kind_of, new_id
from toolloop.loop.rebasing import Rebase, follow, is_record_of, outlives_lease, superseded, taken_over, without_repeats
from toolloop.loop.reporting import watch
from toolloop.loop.store_access import safely
from toolloop.machine import events as ev
from toolloop.machine.errors import CallerError, Conflict, StaleRevision, StoreError, UnreadableSnapshot
from toolloop.machine.queries import implied, status_of
from toolloop.machine.state import State
from toolloop.machine.tree import step
from toolloop.stores.protocol import Entry, Head, Lease, Store


class StoredJournal(Journal):
    """A journal in a store.

    `io` is taken before `lock`, and is held while the store works. An event loop must never wait for a store, so an
    async handle calls `commit` and `refresh` in a thread, and takes nothing but `lock` itself.

    Attributes:
        store: where it is.
        loop_id: by which name.
        rev: how many of its events are known here; 0 if it is not there yet.
        first_id: the id of the event that it begins with. Another journal by this name is another loop.
        lease: under which this process drives the loop.
        io: held by the one thread that reads or writes.

    """

    is_stored = True
    store: Store
    io: AbstractContextManager[object]

    def __init__(  # noqa: PLR0913 - what a stored journal is made of
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
            state: of the loops.
            clock: as for any journal.
            bus: likewise.
            store: where the journal is.
            rev: the revision of the state there.
            first_id: the id of the event that it begins with, if it is there.
            first: the event that it begins with, if it is not there yet.
            metadata: is stored with it, if it is not there yet.
            defers: the caller's commands wait for the next `commit`. It is for async handles.

        """
        self._defers = defers
        super().__init__(state, clock, bus)
        self.io = threading.RLock() if defers else self.lock  # one lock where all callers wait while the store works
        self.store = store
        self.loop_id = state.root.setup.loop_id
        self.rev = rev
        self.first_id = first_id
        self.is_handed_over = False
        self.lease: Lease | None = None
        self._metadata = metadata
        self.lost = None
        self._confirmed = state  # the state at `rev`
        self._buffer: tuple[PendingRecord, ...] = ()
        self._unsure: dict[str, PendingRecord] = {}  # dropped, and perhaps stored all the same
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

    # --- what is recorded ---

    def record(self, event: ev.Event, kind: Kind | None = None, *, id: str | None = None) -> PendingRecord:  # noqa: A002 - what it is
        """Record an event, for the next `commit` to store. See `Journal.record`.

        After another driver took the loop over, only ends of runs still count. Everything else is rejected.
        """
        with self.lock:
            item = PendingRecord(event, kind or kind_of(event), id or "", lease=self.lease)
            if self.lost is None or outlives_lease(event):
                return self._add(item)
            item.rejection = self.lost
            return item

    def say(self, command: Command, *, firm: bool = True, then: Command | None = None) -> None:
        """Do what the caller wants. See `Journal.say`. If commands are deferred, a conflict is raised by `tell`.

        `then`: what follows from it, stored together with it; a command that may give nothing, and is not refused.
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
                    self.turn = turn  # the command was never seen: the wait is the same one
            if item.rejection is not None:
                raise item.rejection
            if then is not None and self._ask(then, firm=False):  # it follows only with what others stored meanwhile
                self.commit()

    def _ask(self, command: Command, *, firm: bool) -> PendingRecord | None:
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
        """Return the id of an earlier record of this start, which may be stored; so that it is not stored twice."""
        if not isinstance(event, ev.Started):
            return ""
        starts = [item for item in self._unsure.values() if isinstance(item.event, ev.Started)]
        return next((item.id for item in starts if is_record_of(item, event)), "")

    # --- what is stored ---

    @property
    def is_behind(self) -> bool:
        """Whether something waits for `commit`, or its caller for a refusal."""
        return bool(self._buffer or self._refused)

    def commit(self) -> None:
        """Store what is recorded. If others were first, rebase it, and store the rest. Blocks while the store works.

        Raises:
            StoreError: the store failed. What happened is kept, and so are deferred commands. Steps are dropped, and
                so are the caller's other commands.

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
        """Read what others stored. Return whether there was anything. Blocks while the store works.

        Raises:
            StoreError: the store failed.

        """
        with self.io:
            return self.rev > 0 and self._read_on()

    def tell(self) -> None:
        """Tell those who watch what was stored since.

        Raises:
            CallerError: a deferred command is not possible any more; each one is raised once.
            Conflict: likewise.

        """
        self.bus.tell()
        with self.lock:
            if self._refused:
                error, self._refused = self._refused[0], self._refused[1:]
                raise error

    def drive_with(self, lease: Lease) -> None:
        """Drive under a lease from now on."""
        with self.lock:
            self.lease, self.lost = lease, None

    def drop_steps(self, error: Exception | None = None) -> None:
        """Do not do what was about to be done. With an error of the store, what the caller said was not said either."""
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
        """Store what is recorded; or find out what keeps it from being stored, so that the next try can be better."""
        with self.lock:  # other threads may rebase the records from here on
            self._drop_rejected()  # an interrupt may have left some
            if not (batch := self._buffer):
                return
            is_sure = not self._unsure and not any(item.sent for item in batch)
            entries, after = [item.entry for item in batch], batch[-1].after
            lease = next((item.lease for item in batch if item.lease is not None), None)
            for item in batch:
                item.sent = True
        try:
            rev = self._append(entries, self._head(batch, after), lease)
            if is_sure and rev == self.rev + len(batch):
                self._confirm(rev, batch, after)
            else:
                self._read_on(batch)
        except Conflict as conflict:
            self._resolve(conflict, lease)
        except StoreError:
            if not self._was_stored(batch):
                raise

    def _resolve(self, conflict: Conflict, lease: Lease | None) -> None:
        """Others were first: read what they stored, so that the next try can be better."""
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
        """Return the head after a batch. `attempts` is 0 once a request is answered."""
        is_handed_over = self.is_handed_over
        if not is_handed_over and self.rev and status_of(self._confirmed) == status_of(after) == "needs_command":
            row = safely(self.loop_id, partial(self.store.head, self.loop_id))
            is_handed_over = row.status == "needs_command"  # another driver's caller still has the turn
        attempts = 0 if any(isinstance(item.event, ev.Replied) for item in batch) else None
        return head_of(after, self.now(), is_handed_over=is_handed_over, attempts=attempts)

    def _confirm(self, rev: int, batch: Sequence[PendingRecord], after: State) -> None:
        with self.lock:
            for item in batch:
                item.stored = True
            rest = self._buffer[len(batch) :]
            if self._buffer[: len(batch)] == batch and batch[-1].after is after:
                self.rev, self._confirmed, self._buffer = rev, after, rest
            else:  # it was rebased while it was on its way
                self._rebase(rev, after, stored=batch)
            self.bus.note(event for item in batch for event in item.seen)

    def _was_stored(self, batch: Sequence[PendingRecord]) -> bool:
        """Return whether a batch was stored although the store failed, as far as the store can tell now."""
        try:
            self._read_on()
        except StoreError:
            return False
        return all(item.stored for item in batch)

    def _read_on(self, stored: Sequence[PendingRecord] = ()) -> bool:
        """Read what others stored, and rebase what waits. Return whether there was anything.

        Args:
            stored: what the store is known to have.

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
                    return False  # another loop has the name
                del events[first], own[first]
                known.append(self._buffer[0])
            state, turns, remote, seen = self._confirmed, 0, list[ev.Event](), list[WatchEvent]()
            for entry_id, event in events.items():
                before, state = state, follow(self.loop_id, state, event)
                seen += watch(before, event, state)
                item = own.pop(entry_id, None)
                if item is None or (item.command is not None and item.rejection is not None):
                    remote.append(event)  # of others; or a command that the caller believes was not done
                    turns += is_new_turn(before, state)
                elif item.kind == "step" and not is_record_of(item, event):
                    item.rejection = superseded(self.loop_id)  # an earlier record of it, when it was another
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
        """Look again at what waits.

        Args:
            rev: of the store.
            confirmed: the state there.
            stored: what does not wait any more.
            remote: what others stored since the last time.
            turns: how many turns ended by that.

        """
        rebase = Rebase(self.loop_id, confirmed, remote)
        if rebase.drives and self.lease is not None:
            self._forget_lease(taken_over(self.loop_id))
        self.is_handed_over &= not rebase.drives  # else it is another driver's turn
        rebase.look_at(item for item in self._buffer if item not in stored)
        unsure = self._unsure if rev == self.rev else {}  # what names an older revision cannot be stored any more
        unsure = {**unsure, **{item.id: item for item in rebase.dropped if item.sent}}
        refused = without_repeats((*self._refused, *rebase.refusals)) if self._defers else ()
        turn = self.turn + turns + is_new_turn(self.state, rebase.state)
        self.remote_drives += rebase.drives
        new = rev, confirmed, tuple(rebase.kept), rebase.state, turn, unsure, refused
        # In one line: wherever an interrupt strikes, all of these are the old ones, or all are the new ones.
        self.rev, self._confirmed, self._buffer, self.state, self.turn, self._unsure, self._refused = new

    def _forget_lease(self, conflict: Conflict) -> None:
        """Of what was recorded under the lease, only the ends of runs still count."""
        self.lease, self.lost = None, conflict
        for item in self._buffer:
            if item.lease is not None and not outlives_lease(item.event):
                item.rejection = conflict
            item.lease = None
