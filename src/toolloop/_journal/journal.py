"""The journal of a tree of loops: the only place where its state changes.

Append first, then act. Records wait in one order until `commit` has stored them, and no action that an event allows is
performed before that. If other events were stored first, the pending records are rebased on them, by their kind:

- a fact (something that happened) is recorded again, if the machine still accepts it;
- a command of the caller is evaluated again on the new state, or refused;
- a step (an intention of the engine) is dropped; the engine polls again.

A `LocalJournal` has no store, and records at once. `shared_journal` has the journal with a store.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from typing_extensions import override

from toolloop._forks import keep_to_parent
from toolloop._interface.call_names import join_path
from toolloop._journal.event_bus import EventBus, ObserversOf, find_no_observers
from toolloop._journal.records import Kind, MakeEvent, PendingRecord, is_new_turn, read_kind
from toolloop._journal.reporting import watch
from toolloop._journal.store_access import call_store
from toolloop.errors import AlreadyDecided, Conflict, IllegalCommand
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Path, Round, State, find_round_at
from toolloop.machine.rules.calls import LATEST
from toolloop.machine.rules.deciding import make_already_decided_error
from toolloop.machine.tree import step
from toolloop.machine.values.calls import Call, Outcome
from toolloop.stores.protocol import Store

LOG = logging.getLogger("toolloop")


class Journal(Protocol):
    """The journal of a tree of loops. Any thread may call its methods.

    Attributes:
        lock: protects the state; hold it for a state that does not change.
        state: the state of the tree of loops, after all records.
        turn: a counter that grows when a wait of the caller or a result may be over, because the phase of the outermost
            loop changed. Other events (decisions, time, late ends, edits) belong to the current wait.
        bus: delivers the watch events.
        is_stored: whether it has a store.
        is_handed_over: whether each turn is returned to the caller; see `status_of`.
        lost: the reason why this driver cannot continue, if another one took the loop over.
        remote_drives: the number of events that only another driver can have stored.

    """

    lock: AbstractContextManager[object]
    state: State
    turn: int
    bus: EventBus
    is_stored: bool
    is_handed_over: bool
    lost: Conflict | None
    remote_drives: int

    @property
    def is_behind(self) -> bool:
        """Whether records or a renewal of the lease wait for `commit`, or a refusal waits to be raised."""
        ...

    @property
    def may_be_lost(self) -> bool:
        """Whether another driver may have taken the loop over by now, unless `commit` renews the lease."""
        ...

    def now(self) -> float:
        """Return the time in seconds since the epoch. If the clock fails, return the time of the last event."""
        ...

    def record(self, event: ev.Event, kind: Kind | None = None) -> PendingRecord:
        """Record an event.

        Args:
            event: the event.
            kind: how to handle it on a conflict (see the module); None means by its class.

        Raises:
            CallerError: the state does not accept the event; nothing has changed.

        """
        ...

    def issue(self, command: MakeEvent, *, firm: bool = True) -> None:
        """Record a command of the caller.

        Args:
            command: the command.
            firm: whether it depends on the state that was shown. False for a command that stays valid when the loop
                continues elsewhere, such as a decision on a call.

        Raises:
            CallerError: the command is not allowed now.
            Conflict: the loop has continued elsewhere meanwhile, and the command is firm.
            StoreError: the store failed, and nothing has changed.

        """

    def explain(self, error: AlreadyDecided) -> AlreadyDecided:
        """Return the error with the decision on its call, if the round of the call was closed here."""
        ...

    def commit(self) -> None:
        """Renew a lease that may be over, and store the pending records. On a conflict, rebase them first.

        Blocks while the store works. Without a store, do nothing.

        Raises:
            StoreError: the store failed. Steps are dropped, and the caller's commands that are not deferred.

        """

    def refresh(self) -> bool:
        """Read the events that others stored. Return whether there were any. Blocks while the store works.

        Raises:
            StoreError: the store failed.

        """
        ...

    def drop_steps(self, error: Exception | None = None) -> None:
        """Drop the steps. After an error of the store, drop the caller's commands too, unless they are deferred."""

    def tell(self) -> None:
        """Deliver the watch events of the events stored since the last time. Call it without the lock.

        Raises:
            CallerError: a deferred command is no longer allowed; each one is raised once.
            Conflict: the loop has continued elsewhere since a deferred command; each one is raised once.

        """

    def find_lease_end(self) -> float | None:
        """Return the end of the lease, in seconds since the epoch; None without a lease."""


class PastCalls:
    """The decided and expired calls of rounds that were closed, by name. Of calls with the same name, the last."""

    def __init__(self) -> None:
        """Start without calls."""
        self._calls: dict[str, Call] = {}

    @classmethod
    def of(cls, states: Iterable[State]) -> PastCalls:
        """Return the calls of a journal, also of open rounds. `states`: those after each of its events."""
        past, last = cls(), State({})
        for state in states:
            past.note(last, state)
            last = state
        for path, loop in last.loops.items():
            past._add(path, loop.phase.round)
        return past

    def note(self, before: State, after: State) -> None:
        """Note the calls of the rounds that an event has closed."""
        for path, loop in before.loops.items():
            if after.loops.get(path) is loop or (old := loop.phase.round) is None:
                continue
            new = find_round_at(after, path)
            if new is None or new.iteration != old.iteration:
                self._add(path, old)

    def _add(self, path: Path, round_: Round | None) -> None:
        for call in () if round_ is None else round_.calls:
            if call.decision is not None or (call.result is not None and call.result.outcome is Outcome.EXPIRED):
                self._calls[join_path((*path, call.id))] = call

    def explain(self, error: AlreadyDecided) -> AlreadyDecided:
        """Return the error with the decision on its call, if it is known here."""
        call = None if error.decision is not None or error.call is None else self._calls.get(error.call)
        return error if call is None else make_already_decided_error(str(error.call), call, type(error))


def read_past_calls(store: Store, loop_id: str) -> PastCalls:
    """Return the decided calls of the closed rounds of a stored loop.

    Raises:
        StoreError: the store failed, or the journal cannot be read.

    """
    from toolloop.stores.codec import replay  # noqa: PLC0415 - cattrs is loaded when it is first needed

    return PastCalls.of(state for _, state in replay(call_store(loop_id, partial(store.load, loop_id)).entries))


class LocalJournal(Journal):
    """A journal without a store: records take effect at once, and only this process drives its loops."""

    lost = None
    remote_drives = 0
    is_stored = False

    def __init__(self, state: State, clock: Callable[[], float], observers: ObserversOf = find_no_observers) -> None:
        """Start from a state.

        Args:
            state: the state of the loops.
            clock: returns seconds since the epoch, for the record; limits do not use it.
            observers: returns the observers of the loop at a path.

        """
        self.state: State = state
        self.turn: int = 0
        self.bus: EventBus = EventBus(state.root.setup.loop_id, self, observers)
        self.lock: AbstractContextManager[object] = threading.RLock()
        self.is_handed_over: bool = False
        self._clock = clock
        self._past = PastCalls()
        keep_to_parent(self)

    @property
    @override
    def is_behind(self) -> bool:
        return False

    @property
    @override
    def may_be_lost(self) -> bool:
        return False

    def refuse_use(self) -> None:
        """Refuse every use that takes the lock. See `Inherited`."""
        self.lock = INHERITED

    @override
    def now(self) -> float:
        return read_clock(self._clock, otherwise=self.state.root.now)

    @override
    def record(self, event: ev.Event, kind: Kind | None = None) -> PendingRecord:
        with self.lock:
            before = self.state
            after = step(before, event)
            seen = watch(before, event, after)
            self.state, self.turn = after, self.turn + is_new_turn(before, after)
            self._past.note(before, after)
            self.bus.note(seen)
            return PendingRecord(event, kind or read_kind(event), stored=True)

    @override
    def issue(self, command: MakeEvent, *, firm: bool = True) -> None:
        with self.lock:  # no other process can change this loop, so a command is as good as firm
            if (event := command(self.state)) is not None:
                self.record(event, "command")

    @override
    def explain(self, error: AlreadyDecided) -> AlreadyDecided:
        return self._past.explain(error)

    @override
    def commit(self) -> None:
        pass

    @override
    def refresh(self) -> bool:
        return False

    @override
    def drop_steps(self, error: Exception | None = None) -> None:
        pass

    @override
    def tell(self) -> None:
        self.bus.tell()

    @override
    def find_lease_end(self) -> float | None:
        return None


def is_interrupted(journal: Journal) -> bool:
    """Return whether this thread already holds the lock, because a signal handler has interrupted it."""
    return bool(getattr(journal.lock, "_is_owned", bool)())


def read_clock(clock: Callable[[], float], *, otherwise: float) -> float:
    """Return the time of a clock, in seconds since the epoch, or another time if the clock fails."""
    try:
        at = round(float(clock()), 3)  # every event of a journal carries it
    except Exception:
        LOG.exception("the clock failed")
        return otherwise
    if math.isfinite(at) and abs(at) <= LATEST:
        return at
    LOG.error("the clock returned %r, which is not a time; it must return seconds since the epoch", at)
    return otherwise


# --- fork ------------------------------------------------------------------------------------------------------------


class _InheritedLock:
    """The lock of a journal in a forked child.

    Only the parent records, because a loop has one history, and the parent's threads do not exist in the child.
    """

    def __enter__(self) -> None:
        raise IllegalCommand(
            "this handle belongs to the parent process and cannot be used after a fork. Open the loop again here: from "
            "its store, or with restore() from a snapshot that was taken before the fork",
            state="inherited",
            asked="a handle of the parent process",
            allowed=("state", "messages", "pending", "view()"),
        )

    def __exit__(self, *error: object) -> None:
        """Do nothing, because it is never entered."""


INHERITED = _InheritedLock()
