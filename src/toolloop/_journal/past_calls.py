"""Decided calls whose rounds may be closed, for the error of a decision that comes too late."""

from __future__ import annotations

from collections.abc import Iterable

from toolloop._interface.call_names import join_path
from toolloop.errors import AlreadyDecided
from toolloop.machine.record.call_changes import round_at
from toolloop.machine.record.loop import Round, round_of
from toolloop.machine.record.state import Path, State
from toolloop.machine.rules.deciding import was_decided
from toolloop.machine.values.calls import Call, Outcome


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
            past._add(path, round_of(loop))
        return past

    def note(self, before: State, after: State) -> None:
        """Note the calls of the rounds that an event has closed."""
        for path, loop in before.loops.items():
            if after.loops.get(path) is loop or (old := round_of(loop)) is None:
                continue
            new = round_at(after, path)
            if new is None or new.iteration != old.iteration:
                self._add(path, old)

    def _add(self, path: Path, round_: Round | None) -> None:
        for call in () if round_ is None else round_.calls:
            if call.decision is not None or (call.result is not None and call.result.outcome is Outcome.EXPIRED):
                self._calls[join_path((*path, call.id))] = call

    def explain(self, error: AlreadyDecided) -> AlreadyDecided:
        """Return the error with the decision on its call, if it is known here."""
        call = None if error.decision is not None or error.call is None else self._calls.get(error.call)
        return error if call is None else was_decided(str(error.call), call, type(error))
