"""Which transitions a handle takes: counted where its state changes, or in the journal that it stores."""

from __future__ import annotations

from collections import Counter

from toolloop import ToolLoopHandle
from toolloop.core import events as ev
from toolloop.core.machine import TRANSITIONS, begin, fold, next_deadline, status_of, step
from toolloop.core.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Paused,
    Proposed,
    Ready,
    Requesting,
    Running,
    State,
)
from toolloop.handle.recording import Recorder
from toolloop.handle.storing import StoringRecorder
from toolloop.stores.events import decode_event
from toolloop.stores.protocol import Store

Way = tuple[type[State], type[ev.Event], type[State]]
Pair = tuple[type[State], type[ev.Event]]

_LATE = "test_take_overs.test_a_late_end_is_kept_and_counts_only_if_its_call_is_open"
_UNHEARD = "test_unheard_words.test_a_tick_of_one_who_has_not_heard_does_nothing"

#: What takes another thread or driver at the right moment, and where it is shown.
AT_THE_RIGHT_MOMENT: dict[Pair, str] = {
    (Requesting, ev.Ended): "test_right_moments.test_a_late_end_comes_while_another_driver_asks_the_model",
    **{(state, ev.Ended): _LATE for state in (Ready, Judging, Deciding, Executed, Paused, Finished, Failed)},
    **{(state, ev.Ticked): _UNHEARD for state in (Ready, Requesting, Executed, Paused, Finished, Failed)},
}

#: What only a runner brings about: its caller takes the history into their own hands.
BY_A_RUNNER = (ev.ReplyDiscarded, ev.RoundAdopted, ev.CallsReopened)

#: The pairs of the table that the caller, the tools and the network can bring about through handles, in one thread.
BY_A_HANDLE = {
    (state, event)
    for state, row in TRANSITIONS.items()
    for event in row
    if event is not ev.Spent  # of loops in loops: see `test_trees` and `test_tree_handles`
    if state is not Proposed and event not in BY_A_RUNNER  # see `test_runner_random`
} - AT_THE_RIGHT_MOMENT.keys()

#: How often each way was taken in this run.
TAKEN: Counter[Way] = Counter()


class CountingRecorder(Recorder):
    """Records like any other, and counts. The journal it keeps says the same as the state."""

    def __init__(self, other: Recorder, taken: Counter[Way]) -> None:
        """Take the place of a recorder that a handle was made with."""
        super().__init__(other.state, other.clock, other._observers._audience)
        self._taken = taken
        self.journal: list[ev.Event] = [ev.Adopted(other.state)]
        self.compacted: set[str] = set()  # the strategies that changed the history

    def record(self, event: ev.Event) -> State:
        """Record, and count the way that was taken."""
        with self.lock:
            before = self.state
            after = super().record(event)
            self._taken[type(before), type(event), type(after)] += 1
            self.journal.append(event)
            self.compacted |= _compacting(event)
            return after

    def compare(self, handle: ToolLoopHandle) -> State:
        """Check that the journal says the same as the handle. What it says is returned."""
        assert fold(self.journal) == handle.state
        return handle.state

    def is_ahead_of(self, handle: ToolLoopHandle) -> bool:
        """Whether others said what the handle has not heard."""
        return False


class StoredJournal:
    """The journal of a stored loop, read as it grows.

    Args:
        store: where it is.
        loop_id: of which loop.
        taken: where the ways are counted that it tells of.
        counted: how many of its events were counted already, in the store from which it was copied.

    """

    def __init__(self, store: Store, loop_id: str, taken: Counter[Way], counted: int = 0) -> None:
        """Nothing was read yet."""
        self._store = store
        self._loop_id = loop_id
        self._taken = taken
        self._counted = counted
        self._starts: Counter[tuple[int, str]] = Counter()
        self.states: list[State] = []  # after each event
        self.compacted: set[str] = set()  # the strategies that changed the history

    @property
    def rev(self) -> int:
        """How many events there are."""
        return len(self.states)

    def read_on(self) -> State | None:
        """Read what came since. The state after it is returned; None if the loop is not in its store yet."""
        if self._row() is not None:
            for entry in self._store.load(self._loop_id, after=self.rev).entries:
                self._hear(decode_event(entry.body))
        return self.states[-1] if self.states else None

    def _row(self) -> object | None:
        return next((row for row in self._store.list(limit=1000) if row.loop_id == self._loop_id), None)

    def _hear(self, event: ev.Event) -> None:
        if not self.states:
            assert isinstance(event, ev.Opened | ev.Adopted)
            self.states.append(begin(event))
            self._take_over(self.states[0])
            return
        before = self.states[-1]
        after = step(before, event)
        self.compacted |= _compacting(event)
        if self.rev >= self._counted:
            self._taken[type(before), type(event), type(after)] += 1
        if isinstance(event, ev.Started) and isinstance(after, Running):
            self._starts[after.round.iteration, event.call_id] += 1
        if isinstance(event, ev.Ended):
            began = self._starts[event.iteration, event.call_id]
            assert 1 <= event.attempt <= began, f"{event.call_id} ended before it started"
        self.states.append(after)

    def _take_over(self, state: State) -> None:
        """What a loop that was taken over had started before."""
        if isinstance(state, Judging | Deciding | Running):
            self._starts.update({(state.round.iteration, call.id): call.attempts for call in state.round.calls})

    def compare(self, handle: ToolLoopHandle) -> State:
        """Check that the journal says the same as the handle, and the store's list too. What it says is returned."""
        truth = self.read_on()
        recorder = handle._recorder
        assert isinstance(recorder, StoringRecorder)
        waiting = [item.event for item in recorder._waiting if item.kind != "late"]
        known = fold(waiting[:1]) if recorder._rev == 0 else self.states[recorder._rev - 1]
        for event in waiting[recorder._rev == 0 :]:
            known = step(known, event)
        assert known == handle.state
        if truth is None:
            return handle.state
        row = next(row for row in self._store.list(limit=1000) if row.loop_id == self._loop_id)
        assert (row.status, row.deadline, row.rev) == (status_of(truth), next_deadline(truth), self.rev)
        assert row.lease is None, "nobody drives, and the lease was not given back"
        return truth

    def is_ahead_of(self, handle: ToolLoopHandle) -> bool:
        """Whether others said what the handle has not heard."""
        self.read_on()
        recorder = handle._recorder
        assert isinstance(recorder, StoringRecorder)
        return recorder._rev < self.rev


def _compacting(event: ev.Event) -> set[str]:
    """The strategy with which an event changed the history, if one did."""
    return {event.strategy.partition("#")[0]} if isinstance(event, ev.Compacted) and event.splices else set()


def watched(handle: ToolLoopHandle, taken: Counter[Way], counted: int = 0) -> CountingRecorder | StoredJournal:
    """Let a handle be counted from here on: by its recorder, or by the journal that it stores."""
    if handle._stored is not None:
        return StoredJournal(handle._stored.store, handle.loop_id, taken, counted)
    recorder = CountingRecorder(handle._recorder, taken)
    handle._recorder = recorder
    return recorder
