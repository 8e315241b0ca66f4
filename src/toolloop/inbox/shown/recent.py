"""The newest events of a stored loop, each with the state after it: all that asks about its newest calls needs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from attrs import frozen

from toolloop._forks import ProcessState
from toolloop._journal.store_access import (
    KNOWN,
    Known,
    KnownStates,
    Weight,
    call_store,
    check_owner,
    read_newest,
)
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Path, State
from toolloop.stores.codec import replay
from toolloop.stores.protocol import Store

_KEPT = 150  # steps that are remembered, and those up to the next moment without an open round

Step = tuple[ev.Event, State]


@frozen
class Recent:
    """The newest events of a loop.

    Attributes:
        before: the state before them. No round of the loop is open in it, so that they have all that happened to each
            call that they make. None: they are all events.
        steps: the events, oldest first, each with the state after it.
        rev, first_id, weight: see `Known`.

    """

    before: State | None
    steps: tuple[Step, ...]
    rev: int
    first_id: str
    weight: Weight

    @property
    def state(self) -> State:
        """The state after them."""
        return self.steps[-1][1] if self.steps or self.before is None else self.before

    @property
    def first_state(self) -> State:
        """The state before them; that after the first one, if they are all events."""
        return self.steps[0][1] if self.before is None else self.before

    def has_all_of(self, path: Path) -> bool:
        """Return whether they have all that happened to a call."""
        return self.before is None or any(
            isinstance(event, ev.Replied) and not event.path and any(call.id == path[0] for call in event.reply.calls())
            for event, _ in reversed(self.steps)
        )

    def shorten(self, count: int) -> Recent:
        """Return it without its older events: the newest stay, and those back to a state without an open round."""
        last = len(self.steps) - count
        at = next((at for at in range(last, 0, -1) if self.steps[at - 1][1].root.phase.round is None), 0)
        if not at:
            return self
        return Recent(self.steps[at - 1][1], self.steps[at:], self.rev, self.first_id, self.weight)


_RECENT: ProcessState[KnownStates[Recent]] = ProcessState(KnownStates)


def read_recent(store: Store, loop_id: str, paths: Iterable[Path], count: int = 0) -> Recent:
    """Return the newest events of a loop: at least all that happened to some calls.

    Only what is new is read if this process knows the loop, and else what follows its checkpoint.

    Args:
        store: the store.
        loop_id: the loop.
        paths: the calls.
        count: how many events there are at least, if the loop has so many.

    Raises:
        LoopNotFound: the loop does not exist.
        StoreError: the store failed, or the journal is damaged.

    """

    def follow(known: Recent) -> Recent:
        journal = call_store(loop_id, partial(store.load, loop_id, after=known.rev, first_id=known.first_id))
        steps = (*known.steps, *replay(journal.entries, known.state, known.rev))
        return Recent(known.before, steps, journal.rev, known.first_id, known.weight.plus(journal.entries))

    def begin(kept: Known) -> Recent | None:
        if kept.state.root.phase.round is not None:
            return None
        return follow(Recent(kept.state, (), kept.rev, kept.first_id, kept.weight))

    read_all = partial(read_whole, store, loop_id)
    found = read_newest(store, loop_id, _RECENT.value.find(store, loop_id), follow, begin, read_all)
    if (found.before is not None and len(found.steps) < count) or not all(map(found.has_all_of, paths)):
        found = read_all()
    _RECENT.value.keep(store, found.shorten(max(count, _KEPT)))
    KNOWN.value.keep(store, Known(found.state, found.rev, found.first_id, found.weight))
    return found


def read_whole(store: Store, loop_id: str) -> Recent:
    """Return all events of a loop. It raises as `read_recent`."""
    journal = call_store(loop_id, partial(store.load, loop_id))
    steps = tuple(replay(journal.entries))
    check_owner(steps[-1][1], loop_id)
    return Recent(None, steps, journal.rev, journal.entries[0].id, Weight().plus(journal.entries))
