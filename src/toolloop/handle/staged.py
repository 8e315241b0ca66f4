"""An event on its way into a store, and what becomes of it when that fails."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from typing import Literal, TypeVar

from attrs import define, field

from toolloop.core import events as ev
from toolloop.core.errors import CallerError, Conflict, StoreError
from toolloop.core.states import Deciding, Executed, Judging, Paused, Requesting, Running, State
from toolloop.core.tree import loop_at, round_of
from toolloop.handle.decisions import nothing_waits
from toolloop.handle.watching import WatchEvent
from toolloop.stores.protocol import Lease

# fact: what happened. late: an end that counts only if nobody was first; it merges into the journal, whatever the
# revision. intent: what is about to be done, and an end that only follows from what may not be stored yet. word: what
# the caller says. firm: a word about the loop as it stands. onward: such a word of `run()` itself, which may wait for
# what is done next; where somebody else had a better one, nobody is told. edit: another history, which is a firm word,
# too, but is kept where the store fails, for it may be long work.
Kind = Literal["fact", "late", "intent", "word", "firm", "onward", "edit"]

T = TypeVar("T")

# Of an id, in characters of six bits: one loop has thousands of events, and each id stands in its store twice.
_LENGTH = 10

_INTENTS = (ev.Requested, ev.Started, ev.Opened, ev.TurnEnded)
_WORDS = (ev.Decided, ev.Stopped, ev.Ticked, ev.GrantRevoked)
_FIRM = (ev.Continued, ev.ParamsChanged, ev.FollowedUp, ev.Extended, ev.Retried)
_WAITING = (Deciding, Executed, Paused)
# What only a driver says.
DRIVING = (ev.Woken, ev.Opened, ev.Requested, ev.Replied, ev.Started, ev.Judged, ev.TurnEnded)
# What somebody else may have said without the loop having moved on.
STILL = (ev.Decided, ev.Ticked, ev.GrantRevoked, ev.Ended, ev.Spent, ev.Cancelled)


@define(eq=False)
class Staged:
    """An event on its way into the store.

    Attributes:
        lease: under which a driver said it; None of a caller's word.
        after: the state after it and all that is staged before it.
        seen: what it means to those who watch.
        sent: it is on its way, so it stays as it is.
        stored: it is in the store.
        fate: why it will never be stored.

    """

    id: str
    event: ev.Event
    kind: Kind
    after: State
    lease: Lease | None = None
    seen: list[WatchEvent] = field(factory=list)
    sent: bool = False
    stored: bool = False
    fate: Exception | None = None


def kind_of(event: ev.Event, before: State) -> Kind:
    """What becomes of an event, recorded in that state, if it cannot be stored."""
    if isinstance(event, _INTENTS) or _is_derived(event, before):
        return "intent"
    if isinstance(event, ev.HistoryEdited):
        return "edit"
    if isinstance(event, ev.Compacted):
        return _kind_of_compaction(event, before)
    if isinstance(event, _FIRM) or (isinstance(event, ev.Injected) and isinstance(before, _WAITING)):
        return "firm"
    if isinstance(event, ev.Ticked) and event.seconds:  # a driver says so, whose time it was
        return "fact"
    return "word" if isinstance(event, (*_WORDS, ev.Injected)) else "fact"


def _kind_of_compaction(event: ev.Compacted, before: State) -> Kind:
    if event.by_hand:
        return "edit" if event.splices else "word"
    # What a summary came to was paid for. All else the driver makes again.
    return "fact" if isinstance(loop_at(before, event.path), Requesting) else "intent"


def _is_derived(event: ev.Event, before: State) -> bool:
    """Whether it is the end of a call with a loop inside: no tool told it, and it can be made of that loop again."""
    loop = loop_at(before, event.path) if isinstance(event, ev.Ended) else None
    round_ = None if loop is None else round_of(loop)
    call = round_.find(event.call_id) if isinstance(event, ev.Ended) and round_ is not None else None
    return call is not None and call.child is not None


def fate_of(event: ev.Event, state: State, error: CallerError) -> CallerError:
    """What to say of an event that is not possible any more: of a decision, that its call has its result."""
    if isinstance(event, ev.Decided) and not isinstance(state, Judging | Deciding | Running):
        return nothing_waits(event.rulings[0][0], state)
    return error


def id_of(event: ev.Event, kind: Kind) -> str:
    """A name for an event: the end of a call has its own, so that it gets in once."""
    if isinstance(event, ev.Ended) and kind == "fact":
        above = [f"{call_id}/{number}/{run}" for call_id, (number, run) in zip(event.path, event.above, strict=True)]
        name = "/".join((*above, f"{event.iteration}/{event.call_id}/{event.attempt}"))
        return f"end-{_short(hashlib.sha256(name.encode()).digest())}"
    return new_id()


def new_id() -> str:
    """A name that nothing else has."""
    return _short(os.urandom(8))


def _short(name: bytes) -> str:
    return base64.urlsafe_b64encode(name)[:_LENGTH].decode()


def safely(loop_id: str, ask: Callable[[], T]) -> T:
    """Ask a store. Whatever it raises is a `StoreError`."""
    try:
        return ask()
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"the store failed for the loop {loop_id!r}: {type(error).__name__}: {error}") from error


def went_on(loop_id: str) -> Conflict:
    """The error for a word about a loop that is no longer as it was shown."""
    return Conflict(
        f"the loop {loop_id!r} went on elsewhere meanwhile, so this was not done: look at handle.pending_turn and "
        "handle.messages, and say what is to be done now",
        loop_id=loop_id,
    )


def taken_over(loop_id: str) -> Conflict:
    """The error for a driver that is not the one any more."""
    return Conflict(
        f"another driver has taken the loop {loop_id!r} over: what was begun here is for it to say; ends of calls are "
        "stored all the same. Drive the loop again when that one is done",
        loop_id=loop_id,
    )
