"""Which transitions a handle takes: counted where its state changes, and folded once more as a journal."""

from __future__ import annotations

from collections import Counter

from toolloop import ToolLoopHandle
from toolloop.core import events as ev
from toolloop.core.machine import TRANSITIONS, step
from toolloop.core.states import Failed, Judging, Ready, Running, State
from toolloop.handle.recording import Recorder

Way = tuple[type[State], type[ev.Event], type[State]]

#: What only a journal does, in which the implied event before was left out.
JOURNAL_ONLY: set[tuple[type[State], type[ev.Event]]] = {(Judging, ev.Started), (Running, ev.Continued)}

#: What takes another thread or an interrupt at the right moment; shown one by one in tests/handle/test_late_words.py
#: and tests/handle/test_cancel_*.py.
AT_THE_RIGHT_MOMENT: set[tuple[type[State], type[ev.Event]]] = {
    (Ready, ev.RequestCancelled),
    (Judging, ev.Decided),
    (Failed, ev.Stopped),
}

#: The pairs of the table that the caller, the tools and the network can bring about through a handle.
BY_A_HANDLE = (
    {(state, event) for state, row in TRANSITIONS.items() for event in row} - JOURNAL_ONLY - AT_THE_RIGHT_MOMENT
)

#: How often each way was taken in this run.
TAKEN: Counter[Way] = Counter()


class CountingRecorder(Recorder):
    """Records like any other, and counts. The journal it keeps says the same as the state."""

    def __init__(self, other: Recorder, taken: Counter[Way]) -> None:
        """Take the place of a recorder that a handle was made with."""
        super().__init__(other.state, other.clock, other._observers)
        self._taken = taken
        self.first = other.state
        self.journal: list[ev.Event] = []

    def record(self, event: ev.Event) -> State:
        """Record, and count the way that was taken."""
        with self.lock:
            before = self.state
            after = super().record(event)
            self._taken[type(before), type(event), type(after)] += 1
            self.journal.append(event)
            return after

    def folded(self) -> State:
        """The state after the journal."""
        state = self.first
        for event in self.journal:
            state = step(state, event)
        return state


def count(handle: ToolLoopHandle, taken: Counter[Way]) -> CountingRecorder:
    """Let a handle count what it does from here on."""
    recorder = CountingRecorder(handle._recorder, taken)
    handle._recorder = recorder
    return recorder


def report(taken: Counter[Way]) -> str:
    """The counts as a table, the rare ones first."""
    rows = sorted((times, *(part.__name__ for part in way)) for way, times in taken.items())
    return "\n".join(f"{times:7} {before:9} {event:14} {after}" for times, before, event, after in rows)
