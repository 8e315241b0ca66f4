"""The records of a journal: events, how to handle each on a conflict, and their ids in the store."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Literal

from attrs import asdict, define, field

from toolloop._forks import ProcessState
from toolloop._journal.reporting import watch
from toolloop._public import set_module
from toolloop.events import WatchEvent
from toolloop.machine.queries import find_run
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State, find_round_at
from toolloop.machine.tree import step
from toolloop.stores.arguments import check_text
from toolloop.stores.protocol import Entry, Lease

Kind = Literal["fact", "command", "step"]
# A command of the caller: a function of the state that returns the event, or None to do nothing. It may raise a
# `CallerError`. It is evaluated again on every state on which it is recorded.
MakeEvent = Callable[[State], "ev.Event | None"]
Run = tuple[str, int, int]  # the path of its call, joined with slashes; its iteration and its attempt

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

    @classmethod
    def make_first(cls, event: ev.Opened | ev.Adopted, state: State) -> PendingRecord:
        """Return the record with which a journal begins. `state`: the state after it."""
        record = cls(event, "fact", make_id())
        record.after = state
        record.encode()
        return record

    def follow(self, before: State) -> State:
        """Apply the event to a state, and return the state after it.

        Raises:
            CallerError: the state does not accept the event.

        """
        after = step(before, self.event)
        self.after, self.seen = after, watch(before, self.event, after)
        return after

    def encode(self) -> None:
        """Make the entry. An event that cannot be stored is refused here, before it blocks other records.

        Raises:
            ValueError: a number in the event is NaN or infinite.

        """
        from toolloop.stores.codec import encode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

        self.entry = encode_event(self.id, self.event)


def read_kind(event: ev.Event) -> Kind:
    """Return the kind of an event, by its class: how to handle it on a conflict."""
    return "step" if isinstance(event, _STEPS) else "fact"


def is_new_turn(before: State, after: State) -> bool:
    """Return whether a wait of the caller, or a result, may have ended between two states."""
    old, new = before.root.phase, after.root.phase
    if old is new:
        return False
    if type(old) is not type(new):
        return True
    was, now = [asdict(each, recurse=False, filter=lambda part, _: part.name != "round") for each in (old, new)]
    return was != now


# --- ids -------------------------------------------------------------------------------------------------------------


def _make_ids() -> Iterator[str]:
    """Return the ids of a process: a random prefix and a growing number, so that an index grows at its end."""
    prefix = base64.urlsafe_b64encode(os.urandom(6)).decode()[:6]
    return map(f"{prefix}{{:05x}}".format, count(1))


_IDS = ProcessState(_make_ids)


def make_id() -> str:
    """Return a unique id, greater than the earlier ids of this process."""
    return next(_IDS.value)


def make_said_id(key: str | None) -> str:
    """Return an id for what a person says: a new one, or always the same one for a key.

    Raises:
        TypeError: the key is not a string.
        ValueError: the key is empty.

    """
    return make_id() if key is None else derive_message_id(key)


@set_module("toolloop.inbox")
def derive_message_id(key: str) -> str:
    """Return the id that `say(key=key)` gives to a message, in each loop.

    A front end that says each message of its client with a key finds it again with this, and keeps no table: in the
    messages, in `kept` and in `said` of `Inbox.show`.

    Raises:
        TypeError: the key is not a string.
        ValueError: the key is empty.

    """
    check_text("key", key)
    return f"key-{base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest()[:18]).decode()}"


def make_event_id(event: ev.Event, before: State, after: State) -> str:
    """Return an id for an event.

    The end of a run always has the same id, so it is stored once, whichever process stores it. A later end of the same
    run is another event, which changes nothing. What a person says has its id already.
    """
    if isinstance(event, ev.Said):
        return event.id
    if not isinstance(event, ev.Ended) or not event.attempt or event.result is None:
        return make_id()
    if find_round_at(before, event.path) is find_round_at(after, event.path):
        return make_id()
    name = repr((event.path, event.above, event.iteration, event.call_id, event.attempt))
    digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest())
    return f"end{event.iteration:05x}{digest[:_LENGTH].decode()}"


# --- starts ----------------------------------------------------------------------------------------------------------


class OwnStarts:
    """The starts of calls that this process has stored. After a restore, the journal may lack some of them.

    Attributes:
        runs: by the id of the entry.
        report_id: the id of the entry that reports those which are lost, so that they are reported once.

    """

    def __init__(self) -> None:
        """Begin without a start."""
        self.runs: dict[str, Run] = {}
        self.report_id = make_id()

    def add(self, items: Iterable[PendingRecord]) -> None:
        """Remember the starts among stored records."""
        for item in items:
            if isinstance(event := item.event, (ev.Started, ev.Opened)) and (event.path or hasattr(event, "call_id")):
                call = (*event.path, event.call_id) if isinstance(event, ev.Started) else event.path
                loop = item.after.at(call[:-1])
                iteration, attempt = (0, 0) if loop is None else find_run(loop, call[-1])
                self.runs[item.id] = "/".join(call), iteration, attempt
