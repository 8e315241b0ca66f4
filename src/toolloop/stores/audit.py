"""Looking a journal through: does it keep the promises, and who did what, when?

The machine itself is asked: each event is read and taken as it was when it happened. Beside it books are kept, so that
a broken promise is found also where the machine would say nothing to it, and named where it would only refuse.

Any journal that was cut off keeps the promises as far as it goes: nothing is said about what is not there yet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from toolloop.core import events as ev
from toolloop.core.errors import CallerError, UnreadableSnapshot
from toolloop.core.freezing import frozen
from toolloop.core.machine import begin, step
from toolloop.core.states import Deciding, Judging, Proposed, Running, State
from toolloop.core.tree import loop_at, loops
from toolloop.stores.audit_acts import Action, Teller
from toolloop.stores.audit_checks import Books, Breach, spent
from toolloop.stores.audit_tree import Path, hearings, standing, tree
from toolloop.stores.protocol import Entry, StoredJournal

_OPEN = (Proposed, Judging, Deciding, Running)


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

    def of_call(self, name: str) -> tuple[Action, ...]:
        """What was done to one call. `name`: its id; or its path joined with "/", for ids may repeat in a tree."""
        return tuple(action for action in self.actions if name in (action.call_id, _name(action)))


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


def _name(action: Action) -> str | None:
    return None if action.call_id is None else "/".join((*action.path, action.call_id))


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
        self._books: dict[Path, Books] = {}
        self._unknown = Books()  # those of a loop that this journal knows nothing of
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
        was = tree(before)
        heard = hearings(was, event)
        found = [
            breach.at(path)
            for path, own in heard.items()
            for breach in self._books.get(path, self._unknown).check(number, was.get(path), own)
        ]
        if isinstance(event, ev.Spent):
            found += (breach.at(event.path) for breach in spent(number, before, event))
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
            now = tree(after)
            found += self._take(number, was, heard, now)
            if isinstance(event, ev.Opened):
                self._open(number, event, now[event.path])
        self.problems += found

    def _begin(self, number: int, event: ev.Event) -> None:
        if not isinstance(event, ev.Opened | ev.Adopted) or event.path:
            if not self._lost:
                text = f"a journal starts with Opened or Adopted, and this one with {type(event).__name__}"
                self.problems.append(Breach(number, "no_beginning", None, text))
            self._lost = True
            return
        self._state = begin(event)
        self._lost = False
        self._books = {path: Books.of(loop) for path, loop in tree(self._state).items()}
        if isinstance(event, ev.Adopted):
            self._unknown = Books(since=sys.maxsize)
        self.actions += Teller(number, event).acts(None, self._state)

    def _at(self, number: int, state: State, event: ev.Event) -> State:
        """The state when an event came: what had expired by then is over, whatever the event says."""
        if not isinstance(state, _OPEN):
            return state
        then = step(state, ev.Ticked(at=event.at))
        for path, was in loops(state):
            now = loop_at(then, path)
            if isinstance(was, _OPEN) and isinstance(now, _OPEN):
                self.actions += Teller(number, event, path).expired(was.round, now.round)
        return then

    def _open(self, number: int, event: ev.Opened, child: State) -> None:
        """A loop began inside of a call."""
        self._books[event.path] = self._books.get(event.path, self._unknown).next()
        self.actions += Teller(number, event, event.path).acts(None, child)

    def _take(
        self, number: int, before: dict[Path, State], heard: dict[Path, ev.Event], after: dict[Path, State]
    ) -> Iterator[Breach]:
        """What the machine made of an event, in every loop."""
        for path, own in heard.items():
            if path not in before:
                self.actions += Teller(number, own, path).too_late()
        cut_off = standing(before).keys() - standing(after).keys()
        for path, was in before.items():
            own, now = heard.get(path, ev.Ticked()), after.get(path)
            if path in cut_off:
                self.actions += Teller(number, own, path).cut_off(was)
            elif now is not None:
                self.actions += Teller(number, own, path).acts(was, now)
            if now is not None:
                yield from (breach.at(path) for breach in self._books[path].take(number, was, own, now))


def _impossible(number: int, event: ev.Event, error: Exception) -> Breach:
    told = str(error) if isinstance(error, CallerError) else f"{type(error).__name__}: {error}"
    call_id = getattr(event, "call_id", None)
    return Breach(number, "impossible", call_id, f"{type(event).__name__} cannot be here: {told}").at(event.path)


__all__ = ["Action", "Audit", "Breach", "audit"]
