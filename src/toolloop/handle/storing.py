"""Storing what is recorded: append first, then act.

Everything that happens is staged, in one order, and stored in that order. Nothing is done that an event allows, and no
turn is over, before the event is stored: a request is sent after its `Requested`, a tool runs after its `Started`.

What becomes of a staged event when the store fails depends on who says it. What the outside world did is kept, and
tried first next time. What was only about to be done is not done. What the caller said is refused with the error, and
the loop is as it was; on the async handle, which takes words before they are stored, it is kept.

Other processes may append too. Then what they said is folded in, and what is staged here is looked at again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from toolloop.core import events as ev
from toolloop.core.errors import CallerError, Conflict, StaleRevision, StoreError, UnreadableSnapshot
from toolloop.core.machine import implied, next_deadline, status_of, step
from toolloop.core.states import State
from toolloop.handle.recording import LOG, Recorder
from toolloop.handle.staged import STILL, Staged, fate_of, id_of, kind_of, new_id, safely
from toolloop.handle.watching import WatchEvent, watch
from toolloop.stores.protocol import Entry, Head, Lease, Store

_TRIES = 1000
_ANY_START = ev.Started("", at=inf)


class StoringRecorder(Recorder):
    """A recorder whose events go into a store."""

    def __init__(  # noqa: PLR0913 - what a journal is made of
        self,
        state: State,
        clock: Callable[[], float],
        observers: Sequence[Callable[[WatchEvent], Any]],
        *,
        store: Store,
        rev: int,
        first: ev.Event | None = None,
        keeps_words: bool = False,
    ) -> None:
        """Start from a state.

        Args:
            state: of the loop.
            clock: as for any recorder.
            observers: likewise.
            store: where the journal is.
            rev: the revision of the state there; 0 if it is not there yet.
            first: the event that the journal then starts with.
            keeps_words: what the caller says is taken at once, and stored by the next `flush()`.

        """
        super().__init__(state, clock, observers)
        self.store = store
        self.loop_id = state.ledger.setup.loop_id
        self.lease: Lease | None = None
        self._lost: Conflict | None = None  # another driver took the loop over while this one was at work
        self.listener: Callable[[], Callable[[Sequence[ev.Event]], None] | None] = lambda: None
        # One writer at a time. It is the lock itself where words are stored at once; an event loop must never wait
        # for a store, so there the lock is free while somebody writes.
        self.io = threading.RLock() if keeps_words else self.lock
        self._keeps_words = keeps_words
        self._stored = state
        self._rev = rev
        self._waiting: list[Staged] = []
        self._refused: list[Exception] = []
        if first is not None:
            self._waiting.append(Staged(new_id(), first, "fact", state))

    # --- staging ---

    def drive_with(self, lease: Lease) -> None:
        """Driving starts, under this lease."""
        self.lease, self._lost = lease, None

    def record(self, event: ev.Event) -> State:
        """Stage an event: it is stored by the next `flush()`. See `Recorder.record`."""
        with self.lock:
            before = self.state
            kind = kind_of(event, before)
            if self._lost is not None and kind in ("fact", "intent"):  # it is not for this driver to say any more
                if isinstance(event, ev.Ended):
                    self.record_late(event, by=id_of(event, kind))
                return before
            after = step(before, event)
            seen = watch(before, event, after)
            last = self._waiting[-1] if self._waiting else None
            if last is not None and not last.sent and implied(last.event, event):
                seen = [*self._waiting.pop().seen, *seen]
            self._waiting.append(Staged(id_of(event, kind), event, kind, after, seen))
            self.state = after
            return after

    def record_late(self, event: ev.Ended, by: str | None = None) -> None:
        """Stage an end that the loop no longer waits for here: the journal keeps it, and knows whether it counts."""
        with self.lock:
            self._waiting.append(Staged(by or f"late-{id_of(event, 'fact')}", event, "late", self.state))

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
            self.flush()
            for item in said:
                if item.fate is not None:
                    raise item.fate

    # --- storing ---

    @property
    def is_behind(self) -> bool:
        """Whether something waits to be stored, or a word that was taken turned out not to be possible."""
        return bool(self._batch() or self._refused)

    def flush(self) -> None:
        """Store what waits. Blocks while it does.

        Raises:
            StoreError: the store failed; what happened is kept.
            Conflict: another driver has the loop. Ends of calls are stored all the same.
            CallerError: a word that was taken is not possible any more, because somebody else was first.

        """
        lost: Conflict | None = None
        with self.io:
            for _ in range(_TRIES):
                with self.lock:
                    batch = self._batch()
                    for item in batch:
                        item.sent = True
                if not batch:
                    break
                try:
                    lost = self._store_or_look(batch) or lost
                except StoreError as error:
                    self._drop(error)
                    raise
            else:
                raise StoreError(f"the loop {self.loop_id!r} changed {_TRIES} times while one event was stored")
            if not self._keeps_words:
                self._tell_noted()
        if lost is not None:
            raise lost
        with self.lock:
            refused, self._refused = self._refused, []
        if refused:
            raise refused[0]

    def _store_or_look(self, batch: Sequence[Staged]) -> Conflict | None:
        """Store a batch, or see what others did meanwhile. What is returned: another driver has the loop."""
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
                return conflict
        return None

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
                self._waiting = [item for item in self._waiting if item.id not in known]
                self._stored, self._rev = state, journal.rev
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
        if len(waiting) == 1 and implied(waiting[0].event, _ANY_START):
            return ()  # the first start will say it too
        if waiting and waiting[0].kind == "late":
            return (waiting[0],)
        cut = next((at for at, item in enumerate(waiting) if item.kind == "late"), len(waiting))
        return tuple(waiting[:cut])

    def _store(self, batch: Sequence[Staged]) -> None:
        from toolloop.stores.events import encode_event  # noqa: PLC0415 - likewise

        entries = [Entry(item.id, encode_event(item.event)) for item in batch]
        late = batch[0].kind == "late"
        last = step(self._stored, batch[0].event) if late else batch[-1].after
        head = Head(status_of(last), next_deadline(last))
        driven = any(item.kind in ("fact", "intent") for item in batch)

        def store() -> int:
            if self._rev == 0:
                return self.store.create(self.loop_id, entries, head=head)
            lease = self.lease if driven else None
            try:
                return self.store.append(self.loop_id, entries, expected_rev=self._rev, head=head, lease=lease)
            except StaleRevision:
                if not late:
                    raise
            return self.store.append(self.loop_id, entries, expected_rev=None)  # a finished result always gets in

        try:
            rev = safely(self.loop_id, store)
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
            self._rev, self._stored = rev, last
            self._waiting = [item for item in self._waiting if item not in batch]
            for item in batch:
                self._note(item.seen)

    def _drop(self, error: Exception) -> None:
        """The store failed: what was about to be done is not done; what the caller said was not said."""
        with self.lock:
            for item in self._waiting:
                if item.kind == "intent" or (item.kind in ("word", "firm") and not self._keeps_words):
                    item.fate = error
            self._restage(())

    def _lose(self, conflict: Conflict) -> None:
        """Another driver has the loop: of what was done here, the ends of calls still count."""
        with self.lock:
            self.lease, self._lost = None, conflict
            for item in self._waiting:
                if isinstance(item.event, ev.Ended):
                    item.kind = "late"
                elif item.kind in ("fact", "intent"):
                    item.fate = conflict
        self.read_on()
        with self.lock:
            self._restage(())

    def _restage(self, foreign: Iterable[ev.Event]) -> None:
        """Look again at what is staged, on the state that is stored now."""
        foreign = tuple(foreign)
        moved = any(not isinstance(event, STILL) for event in foreign)
        state, kept = self._stored, []
        for item in self._waiting:
            item.sent = False
            if item.fate is None and item.kind in ("firm", "edit") and moved:
                item.fate = Conflict(
                    f"the loop {self.loop_id!r} went on elsewhere meanwhile, so this was not done: "
                    "look at handle.pending_turn and handle.messages, and say what is to be done now",
                    loop_id=self.loop_id,
                )
            if item.fate is None and item.kind != "late":
                try:
                    after = step(state, item.event)
                except CallerError as error:
                    item.fate = fate_of(item.event, state, error)
                else:
                    item.seen = watch(state, item.event, after)
                    state = item.after = after
            if item.fate is None:
                kept.append(item)
            elif item.kind in ("word", "firm", "edit"):
                if self._keeps_words:
                    self._refused.append(item.fate)
            else:
                LOG.debug("%s no longer counts", type(item.event).__name__, extra={"loop_id": self.loop_id})
        self._waiting, self.state = kept, state
        if (listener := self.listener()) is not None:
            listener(foreign)
