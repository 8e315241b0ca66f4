"""The journal of a tree of loops: the only place where its state changes.

Append first, then act. Records wait in one order until `commit` has stored them, and no action that an event allows is
performed before that. If other events were stored first, the pending records are rebased on them, by their kind:

- a fact (something that happened) is recorded again, if the machine still accepts it;
- a command of the caller is evaluated again on the new state, or refused;
- a step (an intention of the engine) is dropped; the engine polls again.

A journal without a store records at once. `shared_journal` has the journal with a store.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from itertools import count
from typing import Literal

from attrs import define, field

from toolloop._journal.event_bus import EventBus
from toolloop._journal.reporting import watch
from toolloop.errors import Conflict, IllegalCommand
from toolloop.events import WatchEvent
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import round_of
from toolloop.machine.record.state import State
from toolloop.machine.rules.calls import LATEST
from toolloop.machine.tree import step
from toolloop.stores.arguments import check_text
from toolloop.stores.protocol import Entry, Lease

LOG = logging.getLogger("toolloop")

Kind = Literal["fact", "command", "step"]
# A command of the caller: a function of the state that returns the event, or None to do nothing. It may raise a
# `CallerError`. It is evaluated again on every state on which it is recorded.
MakeEvent = Callable[[State], "ev.Event | None"]

_STEPS = (ev.Requested, ev.Started, ev.Opened, ev.TurnEnded)
_LENGTH = 8  # characters of the digest in the id of an end, six bits each; short, because a store keeps each id twice


@define(eq=False)
class PendingRecord:
    """An event that is being stored.

    Attributes:
        id: its id in the store.
        command: the caller's command, if it is one. `firm`: it is refused if the loop has changed meanwhile.
        lease: the lease under which a driver recorded it; None for a caller's command.
        stored: whether it is in the store. Without a store, it is always True.
        rejection: the reason why it will never be stored.
        entry: its entry for the store.
        after: the state after it and all earlier pending records.
        seen: its watch events.
        sent: whether it was sent to the store, and it is unknown whether it is stored. A dropped start counts if it
            turns out to be stored.

    """

    event: ev.Event
    kind: Kind
    id: str = ""
    command: MakeEvent | None = None
    firm: bool = False
    lease: Lease | None = None
    stored: bool = False
    rejection: Exception | None = None
    entry: Entry = field(init=False, repr=False)
    after: State = field(init=False, repr=False)
    seen: list[WatchEvent] = field(factory=list)
    sent: bool = False

    def encode(self) -> None:
        """Make the entry. An event that cannot be stored is refused here, before it blocks other records.

        Raises:
            ValueError: a number in the event is NaN or infinite.

        """
        from toolloop.stores.codec import encode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

        self.entry = encode_event(self.id, self.event)


class Journal:
    """A journal without a store: records take effect at once.

    Any thread may call its methods.

    Attributes:
        lock: protects the state; hold it for a state that does not change.
        state: the state of the tree of loops, after all records.
        turn: a counter that grows when a wait of the caller or a result may be over, because the phase of the outermost
            loop changed. Other events (decisions, time, late ends, edits) belong to the current wait.
        bus: delivers the watch events.
        is_stored: whether it has a store.
        is_failing: whether the last commit failed. The error was raised then, so the next one is not logged.
        remote_drives: the number of events that only another driver can have stored.
        lost: the reason why this driver cannot continue, if another one took the loop over.
        is_handed_over: whether each turn is returned to the caller; see `status_of`.

    """

    is_stored: bool = False
    is_failing: bool = False
    remote_drives: int = 0
    is_handed_over: bool = False
    lost: Conflict | None = None
    lock: AbstractContextManager[object]

    def __init__(self, state: State, clock: Callable[[], float], bus: EventBus) -> None:
        """Start from a state. `clock`: returns seconds since the epoch, for the record; limits do not use it."""
        self.state: State = state
        self.turn: int = 0
        self.bus = bus
        self._clock = clock
        self.lock = threading.RLock()
        _JOURNALS.add(self)

    def close(self) -> None:
        """Refuse every use that takes the lock, because this is the copy of a journal in a forked child."""
        self.lock = _INHERITED

    @property
    def is_interrupted(self) -> bool:
        """Whether this thread already holds the lock, because a signal handler has interrupted it."""
        return bool(getattr(self.lock, "_is_owned", bool)())

    def now(self) -> float:
        """Return the time in seconds since the epoch. If the clock fails, return the time of the last event."""
        return read_clock(self._clock, otherwise=self.state.root.now)

    def record(self, event: ev.Event, kind: Kind | None = None, *, id: str | None = None) -> PendingRecord:  # noqa: A002 - what it is
        """Record an event.

        Args:
            event: the event.
            kind: how to handle it on a conflict (see the module); None means by its class.
            id: its id in the store; None means a new one.

        Raises:
            CallerError: the state does not accept the event; nothing has changed.

        """
        with self.lock:
            before = self.state
            after = step(before, event)
            seen = watch(before, event, after)
            self.state, self.turn = after, self.turn + is_new_turn(before, after)
            self.bus.note(seen)
            return PendingRecord(event, kind or record_kind(event), id or "", stored=True)

    def say(self, command: MakeEvent, *, firm: bool = True) -> None:
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
        del firm  # without a store, no other process can change this loop
        with self.lock:
            if (event := command(self.state)) is not None:
                self.record(event, "command")

    def commit(self) -> None:
        """Store the pending records. Without a store, do nothing."""

    def refresh(self) -> bool:
        """Read the events that others stored. Return whether there were any."""
        return False

    def drop_steps(self, error: Exception | None = None) -> None:
        """Drop the steps that are not stored yet."""

    def tell(self) -> None:
        """Deliver the watch events. Call it without the lock."""
        self.bus.tell()

    @property
    def is_behind(self) -> bool:
        """Whether records wait for `commit`, or a refusal waits to be raised."""
        return False


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


def record_kind(event: ev.Event) -> Kind:
    """Return the kind of an event, by its class: how to handle it on a conflict."""
    return "step" if isinstance(event, _STEPS) else "fact"


def is_new_turn(before: State, after: State) -> bool:
    """Return whether a wait of the caller, or a result, may have ended between two states."""
    old, new = before.root.phase, after.root.phase
    return old is not new and old != new


# --- ids -------------------------------------------------------------------------------------------------------------


@cache
def _ids() -> Iterator[str]:
    """Return the ids of this process: a random prefix and a growing number, so that an index grows at its end."""
    prefix = base64.urlsafe_b64encode(os.urandom(6)).decode()[:6]
    return map(f"{prefix}{{:05x}}".format, count(1))


def new_id() -> str:
    """Return a unique id, greater than the earlier ids of this process."""
    return next(_ids())


def said_id(key: str | None) -> str:
    """Return an id for what a person says: a new one, or always the same one for a key.

    Raises:
        TypeError: the key is not a string.
        ValueError: the key is empty.

    """
    if key is None:
        return new_id()
    check_text("key", key)
    return f"key-{base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest()[:18]).decode()}"


def id_of(event: ev.Event, before: State, after: State) -> str:
    """Return an id for an event.

    The end of a run always has the same id, so it is stored once, whichever process stores it. A later end of the same
    run is another event, which changes nothing. What a person says has its id already.
    """
    if isinstance(event, ev.Said):
        return event.id
    if not isinstance(event, ev.Ended) or not event.attempt or event.result is None:
        return new_id()
    if _round_at(before, event.path) is _round_at(after, event.path):
        return new_id()
    name = repr((event.path, event.above, event.iteration, event.call_id, event.attempt))
    digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest())
    return f"end{event.iteration:05x}{digest[:_LENGTH].decode()}"


def _round_at(state: State, path: tuple[str, ...]) -> object:
    loop = state.at(path)
    return None if loop is None else round_of(loop)


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


_JOURNALS: weakref.WeakSet[Journal] = weakref.WeakSet()
_INHERITED = _InheritedLock()


def _after_fork() -> None:
    """Reset in a forked child: use new ids, and refuse the use of the parent's journals."""
    _ids.cache_clear()
    for journal in tuple(_JOURNALS):
        journal.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
