"""Looking a journal through: does it keep the promises, and who did what, when?

The machine itself is asked: each event is read and taken as it was when it happened. Beside it books are kept, so that
a broken promise is found also where the machine would say nothing to it, and named where it would only refuse.

Any journal that was cut off keeps the promises as far as it goes: nothing is said about what is not there yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from toolloop.core import events as ev
from toolloop.core.errors import CallerError, UnreadableSnapshot
from toolloop.core.machine import begin, step
from toolloop.core.states import Deciding, Judging, Running, State
from toolloop.stores.audit_acts import Action, Teller
from toolloop.stores.audit_checks import Books, Breach
from toolloop.stores.protocol import Entry, StoredJournal


@frozen
class Audit:
    """What was found in a journal.

    Attributes:
        problems: the promises it breaks, in its order; empty if it keeps them all.
        actions: who did what, when, in its order.

    """

    problems: tuple[Breach, ...]
    actions: tuple[Action, ...]

    @property
    def ok(self) -> bool:
        """Whether the journal keeps every promise."""
        return not self.problems

    def of_call(self, call_id: str) -> tuple[Action, ...]:
        """What was done to one call."""
        return tuple(action for action in self.actions if action.call_id == call_id)


def audit(journal: StoredJournal | Iterable[Entry | str]) -> Audit:
    """Check a whole journal against the promises, and list who did what, when.

    An event that is not possible where it stands is a problem, and is left out; so is each that only fails for want
    of it, without being named again.

    Args:
        journal: what `store.load(loop_id)` returned; or its entries, or the JSON texts of its events, oldest first.

    Raises:
        UnreadableSnapshot: an event is damaged, foreign or of a newer format. `entry` is its number, counted from 1.
        ValueError: the journal is only what came after some revision.

    """
    if isinstance(journal, StoredJournal):
        if journal.rev != len(journal.entries):
            raise ValueError(
                f"these are {len(journal.entries)} events of a journal of {journal.rev}: give the whole of it, as "
                "load(loop_id) returns it"
            )
        journal = journal.entries
    auditor = _Auditor()
    for number, entry in enumerate(journal, start=1):
        if isinstance(entry, Entry):
            auditor.know(number, entry.id)
        elif not isinstance(entry, str):
            raise TypeError(f"entry {number} is a {type(entry).__name__}; give an Entry, or the text of an event")
        auditor.hear(number, _read(number, entry.body if isinstance(entry, Entry) else entry))
    return Audit(tuple(auditor.problems), tuple(auditor.actions))


def _read(number: int, body: str) -> ev.Event:
    from toolloop.stores.events import decode_event  # noqa: PLC0415 - cattrs is loaded when it is first needed

    try:
        return decode_event(body)
    except UnreadableSnapshot as error:
        raise UnreadableSnapshot(f"entry {number} of the journal cannot be read: {error}", entry=number) from error


class _Auditor:
    """Goes through a journal, event by event."""

    def __init__(self) -> None:
        self.problems: list[Breach] = []
        self.actions: list[Action] = []
        self._state: State | None = None
        self._books = Books()
        self._ids: dict[str, int] = {}
        self._lost = False  # the last event was left out

    def know(self, number: int, entry_id: str) -> None:
        """An event has this id, which no other may have."""
        first = self._ids.setdefault(entry_id, number)
        if first != number:
            text = f"the entries {first} and {number} have one id, {entry_id!r}"
            self.problems.append(Breach(number, "same_id", None, text))

    def hear(self, number: int, event: ev.Event) -> None:
        """The next event."""
        if self._state is None:
            self._begin(number, event)
            return
        before = self._at(number, self._state, event)
        found = list(self._books.check(number, before, event))
        try:
            after = step(before, event)
        except Exception as error:  # noqa: BLE001 - a refusal, or what an event that was never legal may lead to
            if not found and not self._lost:
                found = [_impossible(number, event, error)]
            self._lost = True
            self._state = before
        else:
            self._lost = False
            self._state = after
            found += self._books.take(number, before, event, after)
            self.actions += Teller(number, event).acts(before, after)
        self.problems += found

    def _begin(self, number: int, event: ev.Event) -> None:
        if not isinstance(event, ev.Opened | ev.Adopted):
            if not self._lost:
                text = f"a journal starts with Opened or Adopted, and this one with {type(event).__name__}"
                self.problems.append(Breach(number, "no_beginning", None, text))
            self._lost = True
            return
        self._state = begin(event)
        self._lost = False
        self._books.begin(self._state)
        self.actions += Teller(number, event).acts(None, self._state)

    def _at(self, number: int, state: State, event: ev.Event) -> State:
        """The state when an event came: what had expired by then is over, whatever the event says."""
        if not isinstance(state, Judging | Deciding | Running):
            return state
        then = step(state, ev.Ticked(at=event.at))
        if isinstance(then, Judging | Deciding | Running):
            self.actions += Teller(number, event).expired(state.round, then.round)
        return then


def _impossible(number: int, event: ev.Event, error: Exception) -> Breach:
    told = str(error) if isinstance(error, CallerError) else f"{type(error).__name__}: {error}"
    return Breach(
        number, "impossible", getattr(event, "call_id", None), f"{type(event).__name__} cannot be here: {told}"
    )


__all__ = ["Action", "Audit", "Breach", "audit"]
