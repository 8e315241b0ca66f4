"""The journal of a tree of loops: the one place where its state changes.

Append first, then act. What is recorded waits in one order until `commit` has stored it, and nothing that an event
allows is performed before that. If others were first, what waits is rebased on what they stored, by its kind:

- a fact, what happened in the world, is recorded again where the machine still takes it;
- a command of the caller is asked again of the state as it is now, or refused;
- a step, what the engine was about to do, is dropped: the engine looks again.

A journal without a store has nothing to wait for: what is recorded counts at once. `stored_journal` has the other one.
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

from toolloop.face.watch_events import WatchEvent
from toolloop.loop.event_bus import EventBus
from toolloop.loop.reporting import watch
from toolloop.machine import events as ev
from toolloop.machine.calls import LATEST
from toolloop.machine.errors import Conflict, IllegalCommand
from toolloop.machine.loop import round_of
from toolloop.machine.state import State
from toolloop.machine.tree import step
from toolloop.stores.protocol import Entry, Lease

LOG = logging.getLogger("toolloop")

Kind = Literal["fact", "command", "step"]
# What the caller wants, as a function of the state: the event, or None if nothing is to happen. It may raise a
# `CallerError`. It is asked again of every state on which it is recorded.
Command = Callable[[State], "ev.Event | None"]

_STEPS = (ev.Requested, ev.Started, ev.Opened, ev.TurnEnded)
_LENGTH = 8  # characters of the digest in the id of an end, six bits each; a store keeps each id twice


@define(eq=False)
class PendingRecord:
    """An event on its way into the store.

    Attributes:
        id: identifies it in the store.
        command: what the caller wants, if it is a command. `firm`: it is refused if the loop moved on meanwhile.
        lease: under which a driver recorded it; None of a caller's command.
        stored: it is in the store. Without a store, it always is.
        rejection: why it will never be stored.
        entry: as the store gets it.
        after: the state after it, and after everything that waits before it.
        seen: what it means to those who watch.
        sent: it was given to the store, and whether it is stored is not known yet. A start that was dropped counts if
            it turns out to be stored.

    """

    event: ev.Event
    kind: Kind
    id: str = ""
    command: Command | None = None
    firm: bool = False
    lease: Lease | None = None
    stored: bool = False
    rejection: Exception | None = None
    entry: Entry = field(init=False, repr=False)
    after: State = field(init=False, repr=False)
    seen: list[WatchEvent] = field(factory=list)
    sent: bool = False

    def encode(self) -> None:
        """Make the entry. What no store can keep is refused here, before it is in anybody's way.

        Raises:
            ValueError: a number in the event is NaN or infinite.

        """
        from toolloop.stores.codec import encode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

        self.entry = encode_event(self.id, self.event)


class Journal:
    """A journal without a store: what is recorded counts at once.

    Any thread may call its methods.

    Attributes:
        lock: who holds it sees a state that does not change.
        state: of the tree of loops, after everything that was recorded.
        turn: grows when a wait of the caller or a result may be over, because the phase of the outermost loop changed.
            Whatever happens without that (decisions, time, late ends, edits) belongs to the wait in which it happens.
        bus: tells those who watch.
        is_stored: whether it has a store.
        is_failing: whether the last commit failed. Its caller was told by the error, so the next one is not logged.
        remote_drives: how many events only another driver can have stored.
        lost: why this driver cannot go on, if another one took the loop over.
        is_handed_over: whether each turn is given to the caller; see `status_of`.

    """

    is_stored = False
    is_failing = False
    remote_drives = 0
    is_handed_over = False
    lost: Conflict | None = None
    lock: AbstractContextManager[object]

    def __init__(self, state: State, clock: Callable[[], float], bus: EventBus) -> None:
        """Start from a state. `clock`: seconds since the epoch, for the record; no limit is counted with it."""
        self.state = state
        self.turn = 0
        self.bus = bus
        self._clock = clock
        self.lock = threading.RLock()
        _JOURNALS.add(self)

    def close(self) -> None:
        """Refuse everything that takes a lock from now on: this is the copy of a journal in the child of a fork."""
        self.lock = _INHERITED

    @property
    def is_interrupted(self) -> bool:
        """Whether this thread holds the lock already: then a signal handler has interrupted it."""
        return bool(getattr(self.lock, "_is_owned", bool)())

    def now(self) -> float:
        """Return the time in seconds since the epoch. If the clock fails, the time has not changed."""
        return read_clock(self._clock, otherwise=self.state.root.now)

    def record(self, event: ev.Event, kind: Kind | None = None, *, id: str | None = None) -> PendingRecord:  # noqa: A002 - what it is
        """Let an event happen.

        Args:
            event: what happens.
            kind: what becomes of it if others were first; None goes by its class. See the module.
            id: in the store; None makes one.

        Raises:
            CallerError: the event is not possible now; nothing changed.

        """
        with self.lock:
            before = self.state
            after = step(before, event)
            seen = watch(before, event, after)
            self.state, self.turn = after, self.turn + is_new_turn(before, after)
            self.bus.note(seen)
            return PendingRecord(event, kind or kind_of(event), id or "", stored=True)

    def say(self, command: Command, *, firm: bool = True) -> None:
        """Do what the caller wants.

        Args:
            command: what they want.
            firm: it is about the loop as it was shown. False: about something that stays valid while others move the
                loop, as a decision on a call.

        Raises:
            CallerError: it is not possible now.
            Conflict: the loop moved on elsewhere meanwhile, and the command is firm.
            StoreError: the store failed, and nothing happened.

        """
        del firm  # nobody else can move this loop
        with self.lock:
            if (event := command(self.state)) is not None:
                self.record(event, "command")

    def commit(self) -> None:
        """Store what is recorded. Without a store there is nothing to do."""

    def refresh(self) -> bool:
        """Read what others stored. Return whether there was anything."""
        return False

    def drop_steps(self, error: Exception | None = None) -> None:
        """Do not do what was about to be done and is not stored yet."""

    def tell(self) -> None:
        """Tell those who watch what happened. Call it without the lock."""
        self.bus.tell()

    @property
    def is_behind(self) -> bool:
        """Whether something waits for `commit`, or its caller for a refusal."""
        return False


def read_clock(clock: Callable[[], float], *, otherwise: float) -> float:
    """Return what a clock says, in seconds since the epoch; of a clock that fails, another time."""
    try:
        at = round(float(clock()), 3)  # every event of a journal carries it
    except Exception:
        LOG.exception("the clock failed")
        return otherwise
    if math.isfinite(at) and abs(at) <= LATEST:
        return at
    LOG.error("the clock says %r, which is not a time; it should return seconds since the epoch", at)
    return otherwise


def kind_of(event: ev.Event) -> Kind:
    """Return what becomes of an event if others were first, by its class."""
    return "step" if isinstance(event, _STEPS) else "fact"


def is_new_turn(before: State, after: State) -> bool:
    """Return whether the caller's wait, or the result, may have ended between two states."""
    old, new = before.root.phase, after.root.phase
    return old is not new and old != new


# --- ids -------------------------------------------------------------------------------------------------------------


@cache
def _ids() -> Iterator[str]:
    """Return the ids of this process: a random prefix and a growing number, so that an index grows at its end."""
    prefix = base64.urlsafe_b64encode(os.urandom(6)).decode()[:6]
    return map(f"{prefix}{{:05x}}".format, count(1))


def new_id() -> str:
    """Return an id that no other event has, greater than the ids that this process returned before."""
    return next(_ids())


def id_of(event: ev.Event, before: State, after: State) -> str:
    """Return an id for an event.

    The end of a run always has the same one, so that it is stored once, whichever process stores it. A later end of
    that run, which changes nothing any more, is another event.
    """
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
    """The lock of a journal in the child of a fork.

    Only the parent records: a loop has one history, and what its threads had begun is not here.
    """

    def __enter__(self) -> None:
        raise IllegalCommand(
            "this handle was opened in another process, which forked this one, and can be used only there. Open the "
            "loop again here: from its store, or with restore() from a snapshot that was taken before the fork",
            state="inherited",
            asked="a handle of the parent process",
            allowed=("state", "messages", "pending", "view()"),
        )

    def __exit__(self, *error: object) -> None:
        """Do nothing: it is never entered."""


_JOURNALS: weakref.WeakSet[Journal] = weakref.WeakSet()
_INHERITED = _InheritedLock()


def _after_fork() -> None:
    """In a child: ids of its own, and no use of what the parent opened."""
    _ids.cache_clear()
    for journal in tuple(_JOURNALS):
        journal.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
