"""Storing what is recorded: append first, then act.

Everything that happens is staged, in one order, and stored in that order. Nothing is done that an event allows, and no
turn is over, before the event is stored: a request is sent after its `Requested`, a tool runs after its `Started`.

Other processes may append too. Then what they said is folded in, and what is staged here is looked at again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf

from toolloop.core import events as ev
from toolloop.core.errors import CallerError, Conflict, StaleRevision, StoreError, UnreadableSnapshot
from toolloop.core.machine import implied, next_deadline, status_of, step
from toolloop.core.states import Running, State
from toolloop.handle.hearing import watch
from toolloop.handle.leasing import is_held
from toolloop.handle.staged import DRIVING, Staged, safely, taken_over
from toolloop.handle.staging import StagingRecorder
from toolloop.stores.protocol import Entry, Head, Lease

_TRIES = 1000
_ANY_START = ev.Started("", at=inf)


class StoringRecorder(StagingRecorder):
    """A recorder whose events go into a store."""

    @contextmanager
    def saying(self) -> Generator[None, None, None]:
        """What is recorded in here is the caller's word: stored when this is over, or refused.

        Raises:
            StoreError: the store failed, and nothing was said.
            CallerError: somebody else was first, and the loop does not allow it any more.

        """
        if self._keeps_words:
            yield
            return
        with self.lock:
            before = frozenset(self._waiting)
            yield
            said = [item for item in self._waiting if item not in before]
            if self.lags or any(item.kind != "onward" for item in said):
                self.flush()
            for item in said:
                if item.fate is not None:
                    raise item.fate

    @contextmanager
    def in_passing(self) -> Generator[None, None, None]:
        """What is recorded in here is said by `run()`, and may be stored with what it does next."""
        with self.lock:
            before, self._is_passing = self._is_passing, True
            try:
                yield
            finally:
                self._is_passing = before

    @property
    def is_behind(self) -> bool:
        """Whether something waits to be stored, or a word that was taken turned out not to be possible."""
        return bool(self.waits or self._refused)

    @property
    def waits(self) -> bool:
        """Whether something waits to be stored."""
        return bool(self._batch())

    @property
    def lags(self) -> bool:
        """Whether more waits to be stored than the caller's words, which may go with what a driver does next."""
        return self._rev == 0 or any(item.kind not in ("word", "firm", "onward") for item in self._waiting)

    @property
    def rev(self) -> int:
        """How many events of the journal are known here."""
        return self._rev

    @property
    def may_wait(self) -> bool:
        """Whether what waits may be stored with what is done next: nobody is to hear of it before."""
        if self.reader is not None or self._refused:
            return False
        with self.lock:
            return not any(self._audience(event.path) for item in self._waiting for event in item.seen)

    def settle(self) -> None:
        """Store what waits, unless it may wait for what is done next.

        Raises:
            StoreError: the store failed; what happened is kept.

        """
        if self.lags:
            self.flush()

    def flush(self) -> None:
        """Store what waits. Blocks while it does.

        Raises:
            StoreError: the store failed; what happened is kept.

        """
        with self.io:
            for _ in range(_TRIES):
                with self.lock:
                    batch = self._batch()
                    for item in batch:
                        item.sent = True
                if not batch:
                    break
                try:
                    self._store_or_look(batch)
                except StoreError as error:
                    self._drop(error)
                    raise
            else:
                raise StoreError(f"the loop {self.loop_id!r} changed {_TRIES} times while one event was stored")
            if not self._keeps_words:
                self._tell_noted()

    def secure(self) -> None:
        """The driver's flush: what it has recorded is stored, and the loop is still its own.

        Raises:
            Conflict: another driver has the loop. Ends of calls are stored all the same.
            StoreError: the store failed; what happened is kept.

        """
        self.flush()
        self.check()

    def tell_refused(self) -> None:
        """Say of a word that was taken that it is not possible any more; of each one once, by whoever may wait.

        Raises:
            CallerError: somebody else was first.
            Conflict: likewise.

        """
        with self.lock:
            if self._refused:
                raise self._refused.pop(0)

    def check(self) -> None:
        """For the driver: is the loop still its own?

        Raises:
            Conflict: another driver has it.

        """
        if self._lost is not None:
            raise self._lost

    def _store_or_look(self, batch: Sequence[Staged]) -> None:
        """Store a batch, or see what others did meanwhile."""
        try:
            self._store(batch)
        except StaleRevision:
            self.read_on()
        except Conflict as conflict:
            if self._rev == 0 and self._is_there(batch[0]):
                self.read_on()
            elif self._rev == 0 or batch[0].kind == "late":
                raise
            else:
                self._lose(conflict)

    def tell_noted(self) -> None:
        """Tell those who watch what was stored since; an event loop does this itself, not the thread that stored."""
        with self.lock:
            self._tell_noted()

    def refresh(self) -> bool:
        """Read what others stored. An event loop does not wait for that here; it reads on when it drives."""
        if self._keeps_words or self._rev == 0:
            return False
        before = self._rev
        self.read_on()
        self._tell_noted()
        return self._rev != before

    def catch_up(self) -> None:
        """Store what was said here, then read what was said elsewhere. Blocks while it does."""
        self.flush()
        self.read_on()

    def read_on(self) -> None:
        """Fold in what others stored, and look at again what is staged.

        Raises:
            StoreError: it cannot be read.

        """
        from toolloop.stores.events import decode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

        with self.io:
            if self._rev == 0 and not self._waiting:
                return
            journal = safely(self.loop_id, lambda: self.store.load(self.loop_id, after=self._rev))
            entries = journal.entries if self._rev else journal.entries[1:]  # it starts with what this one starts with
            events = [(entry.id, decode_event(entry.body)) for entry in entries]
            with self.lock:
                mine = {item.id for item in self._waiting}
                foreign, state = [], self._stored
                for entry_id, event in events:
                    after = self._told(state, event)
                    self._note(watch(state, event, after))
                    if entry_id not in mine:
                        foreign.append(event)
                    state = after
                known = {entry.id for entry in journal.entries}
                for item in self._waiting:
                    item.stored = item.id in known
                rest = [item for item in self._waiting if not item.stored]
                self._rev, self._stored, self._waiting = journal.rev, state, rest  # at once, as in `_store`
                if self.lease is not None and any(isinstance(event, DRIVING) for event in foreign):
                    self._mark_lost(taken_over(self.loop_id))
                if known:
                    self._restage(foreign)

    def _told(self, state: State, event: ev.Event) -> State:
        """The state after an event of the journal."""
        try:
            return step(state, event)
        except CallerError as error:
            raise UnreadableSnapshot(
                f"the journal of the loop {self.loop_id!r} says {type(event).__name__} at the wrong place: {error}"
            ) from error

    def _is_there(self, first: Staged) -> bool:
        """Whether the journal that is there is this one: its creation was stored, and the store said otherwise."""
        journal = safely(self.loop_id, lambda: self.store.load(self.loop_id))
        return bool(journal.entries) and journal.entries[0].id == first.id

    def _is_in(self, batch: Sequence[Staged]) -> bool:
        """Whether a batch was stored all the same, as far as the store can tell now."""
        try:
            if self._rev == 0 and not self._is_there(batch[0]):
                return False
            self.read_on()
        except StoreError:
            return False
        with self.lock:
            return not any(item in self._waiting for item in batch)

    def _batch(self) -> tuple[Staged, ...]:
        """What is stored next: all in one, but a late end by itself."""
        waiting = self._waiting
        if waiting and implied(waiting[-1].event, _ANY_START) and isinstance(waiting[-1].after, Running):
            waiting = waiting[:-1]  # the first start will say it too
        if waiting and waiting[0].kind == "late":
            return (waiting[0],)
        cut = next((at for at, item in enumerate(waiting) if item.kind == "late"), len(waiting))
        return tuple(waiting[:cut])

    def _store(self, batch: Sequence[Staged]) -> None:
        from toolloop.stores.events import encode_event  # noqa: PLC0415 - likewise

        entries = [Entry(item.id, encode_event(item.event)) for item in batch]
        late = batch[0].kind == "late"
        last = step(self._stored, batch[0].event) if late else batch[-1].after
        lease = next((item.lease for item in batch if item.lease is not None), None)
        head = Head(status_of(last), next_deadline(last))
        try:
            rev = safely(self.loop_id, partial(self._append, entries, head=head, lease=lease, late=late))
        except Conflict:
            raise
        except StoreError:
            if self._is_in(batch):  # it was stored, and then the store failed: what was said is said
                return
            raise
        if late or rev != self._rev + len(batch):
            self.read_on()  # it is in, but others may have been there before
            return
        with self.lock:
            for item in batch:
                item.stored = True
            rest = [item for item in self._waiting if item not in batch]
            self._rev, self._stored, self._waiting = rev, last, rest  # at once: no Ctrl-C comes between
            for item in batch:
                self._note(item.seen)

    def _append(self, entries: Sequence[Entry], *, head: Head, lease: Lease | None, late: bool) -> int:
        if self._rev == 0:
            return self.store.create(self.loop_id, entries, head=head)
        if lease is not None and not is_held(lease):  # a child of a fork holds nothing that its parent does
            raise taken_over(self.loop_id)
        try:
            return self.store.append(self.loop_id, entries, expected_rev=self._rev, head=head, lease=lease)
        except StaleRevision:
            if not late:
                raise
        return self.store.append(self.loop_id, entries, expected_rev=None)  # a finished result always gets in

    def _drop(self, error: Exception) -> None:
        """The store failed: what was about to be done is not done; what the caller said was not said."""
        with self.lock:
            for item in self._waiting:
                if item.kind == "intent" or (item.kind in ("word", "firm", "onward") and not self._keeps_words):
                    item.fate = error
            self._restage(())

    def _lose(self, conflict: Conflict) -> None:
        """Another driver has the loop: of what was done here, the ends of calls still count."""
        with self.lock:
            self._mark_lost(conflict)
        self.read_on()
        with self.lock:
            self._restage(())
