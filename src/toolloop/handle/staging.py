"""What waits to be stored: in one order, with the state that follows each.

What becomes of a staged event when the store fails depends on who says it. What the outside world did is kept, and
tried first next time. What was only about to be done is not done. What the caller said is refused with the error, and
the loop is as it was; on the async handle, which takes words before they are stored, it is kept.

What a driver says belongs to the lease under which it says so. When that is lost, only the ends of calls still count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from toolloop.core import events as ev
from toolloop.core.errors import CallerError, Conflict
from toolloop.core.machine import implied, step
from toolloop.core.states import State
from toolloop.handle.hearing import watch
from toolloop.handle.recording import LOG, Observer, Path, Recorder
from toolloop.handle.staged import STILL, Kind, Staged, fate_of, id_of, kind_of, new_id, taken_over, went_on
from toolloop.stores.protocol import Lease, Store


class StagingRecorder(Recorder):
    """A recorder whose events wait to be stored."""

    def __init__(  # noqa: PLR0913 - what a journal is made of
        self,
        state: State,
        clock: Callable[[], float],
        audience: Callable[[Path], Sequence[Observer]],
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
            audience: likewise.
            store: where the journal is.
            rev: the revision of the state there; 0 if it is not there yet.
            first: the event that the journal then starts with.
            keeps_words: what the caller says is taken at once, and stored by the next `flush()`.

        """
        super().__init__(state, clock, audience)
        self.store = store
        self.loop_id = state.ledger.setup.loop_id
        self.lease: Lease | None = None
        self._lost: Conflict | None = None  # another driver took the loop over while this one was at work
        self._audience = audience
        self._is_passing = False  # it is `run()` that speaks, and it goes on at once
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

    def drive_with(self, lease: Lease) -> None:
        """Driving starts, under this lease. What was said under an earlier one is no longer for this driver to say."""
        with self.lock:
            self.lease, self._lost = lease, None
            self._give_up(taken_over(self.loop_id), but=lease)
            self._restage(())

    def staged(self, event: ev.Event) -> Staged | None:
        """An event on its way, so that whoever recorded it can see what becomes of it."""
        with self.lock:
            return next((item for item in reversed(self._waiting) if item.event is event), None)

    def record(self, event: ev.Event) -> State:
        """Stage an event: it is stored by the next `flush()`. See `Recorder.record`."""
        with self.lock:
            before = self.state
            kind = self._kind_of(event, before)
            if self.lease is None and kind in ("fact", "intent"):  # it is not for this driver to say any more
                if kind == "fact" and isinstance(event, ev.Ended | ev.Spent):
                    self.record_late(event, by=id_of(event, kind))
                return before
            after = step(before, event)
            seen = watch(before, event, after)
            last = self._waiting[-1] if self._waiting else None
            if last is not None and not last.sent and implied(last.event, event):
                seen = [*self._waiting.pop().seen, *seen]
            lease = self.lease if kind in ("fact", "intent") else None
            self._waiting.append(Staged(id_of(event, kind), event, kind, after, lease, seen))
            self.state = after
            return after

    def _kind_of(self, event: ev.Event, before: State) -> Kind:
        if self._is_passing and isinstance(event, ev.Continued):
            return "onward"
        return "intent" if self._begins_too(event) else kind_of(event, before)

    def _begins_too(self, event: ev.Event) -> bool:
        """Whether it is the end of a call whose start waits beside it: nothing ran, and without that it is no end."""
        if not isinstance(event, ev.Ended):
            return False
        starts = (item.event for item in self._waiting if isinstance(item.event, ev.Started))
        return any((start.path, start.call_id) == (event.path, event.call_id) for start in starts)

    def forget_intents(self) -> None:
        """What was about to be done, and is not on its way yet, is not done: whoever wanted to was interrupted."""
        with self.lock:
            for item in self._waiting:
                if item.kind == "intent" and not item.sent:
                    item.fate = RuntimeError("it was interrupted before it was done")
            self._restage(())

    def record_late(self, event: ev.Ended | ev.Spent, by: str | None = None) -> None:
        """Stage an end that the loop no longer waits for here: the journal keeps it, and knows whether it counts.

        What a tool used up is such an end, too.
        """
        with self.lock:
            self._waiting.append(Staged(by or f"late-{id_of(event, 'fact')}", event, "late", self.state))

    def _mark_lost(self, conflict: Conflict) -> None:
        self.lease, self._lost = None, conflict
        self._give_up(conflict)

    def _give_up(self, conflict: Conflict, *, but: Lease | None = None) -> None:
        """What was said as a driver under another lease does not count; the ends of calls still do."""
        for item in self._waiting:
            if item.lease is None or item.lease is but:
                continue
            if item.kind == "fact" and isinstance(item.event, ev.Ended | ev.Spent):
                item.kind, item.lease = "late", None
            else:
                item.fate = conflict

    def _restage(self, foreign: Iterable[ev.Event]) -> None:
        """Look again at what is staged, on the state that is stored now.

        What was about to be done was made of the loop as it was: a request's bytes, a call's input. If others said
        something meanwhile, or what was said here before it does not count, it is not done. A driver looks anew.
        """
        foreign = tuple(foreign)
        moved, is_stale = any(not isinstance(event, STILL) for event in foreign), bool(foreign)
        state, kept = self._stored, []
        for item in self._waiting:
            if is_stale and item.kind == "intent" and item.fate is None:
                item.fate = went_on(self.loop_id)
            item.sent = False
            if isinstance(item.event, ev.Opened | ev.Adopted) and not item.event.path:  # the journal is yet to be made
                state = item.after
            elif item.kind != "late":
                state = self._replaced(item, state, moved=moved)
            is_stale = is_stale or item.fate is not None
            if item.fate is None:
                kept.append(item)
            elif item.kind in ("word", "firm", "edit"):
                told = isinstance(item.fate, Conflict) and any(isinstance(each, Conflict) for each in self._refused)
                if self._keeps_words and not told:
                    self._refused.append(item.fate)
            else:
                LOG.debug("%s no longer counts", type(item.event).__name__, extra={"loop_id": self.loop_id})
        self._waiting, self.state = kept, state
        if (listener := self.listener()) is not None:
            listener(foreign)

    def _replaced(self, item: Staged, state: State, *, moved: bool) -> State:
        """The state after a staged event, on another state than it was staged on; or its fate."""
        if item.fate is None and item.kind in ("firm", "onward", "edit") and moved:
            item.fate = went_on(self.loop_id)
        if item.fate is not None:
            return state
        try:
            after = step(state, item.event)
        except CallerError as error:
            item.fate = fate_of(item.event, state, error)
            return state
        item.seen, item.after = watch(state, item.event, after), after
        return after
