"""The words of the page for times, and for what a call waits for."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from attrs import frozen

from toolloop.machine.rules.approving import counts, missing
from toolloop.machine.values.calls import DecisionRecord
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.names import Person, name_key
from toolloop.tools.calls import RecordedDecision

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
SOON, NEAR = 5 * _MINUTE, 15 * _MINUTE  # seconds until a deadline
_TWO = 2  # of a unit: below, the next smaller unit says more
_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}
PAST = {"approve": "approved", "deny": "denied", "answer": "answered", "rerun": "started again"}
_ORDER = {2: "second", 3: "third", 4: "fourth"}


def duration(seconds: float) -> str:
    """Return a duration: "42 s", "12 min", "3 h 12 min" or "2 days"."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _TWO * _DAY:
        minutes = whole % _HOUR // _MINUTE
        return f"{whole // _HOUR} h" + (f" {minutes} min" if minutes else "")
    return f"{whole // _DAY} days"


def time_left(seconds: float) -> str:
    """Return the time to a deadline; in seconds when it is less than two minutes."""
    if seconds <= 0:
        return "expired"
    if seconds < _TWO * _MINUTE:
        return f"{max(1, int(seconds))} s left"
    return f"{duration(seconds)} left"


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@frozen
class Tag:
    """A few words about the state of a call. `kind`: `go`, `no`, `warn` or empty."""

    kind: str
    text: str


@frozen
class Need:
    """The approvals that a call demands and those that it has, as one person sees them."""

    demands: Sequence[Demand]
    given: Sequence[RecordedDecision]
    me: Person

    @property
    def is_special(self) -> bool:
        """Whether the call needs more than one approval by any person."""
        return any(map(_is_special, self.demands))

    @property
    def has_mine(self) -> bool:
        """Whether this person has approved."""
        return name_key(self.me.name) in {name_key(each.by) for each in self.given}

    @property
    def is_mine(self) -> bool:
        """Whether an approval by this person would count for a demand that is not met."""
        open_ = (demand for number, demand in zip(self._missing(), self.demands, strict=True) if number)
        return not self.demands or (not self.has_mine and any(counts(demand, self._yes) for demand in open_))

    @property
    def progress(self) -> tuple[int, int]:
        """How many approvals the call has, and how many it needs, where it needs the most."""
        pairs = [(demand.need, number) for demand, number in zip(self.demands, self._missing(), strict=True)]
        need, number = max(pairs, key=itemgetter(0), default=(1, 1))
        return need - number, need

    @property
    def still_needed(self) -> str:
        """Which approvals are missing, such as "one more of finance"."""
        return self._in_words(self._missing())

    @property
    def waits_for(self) -> str:
        """Whom the call waits for, such as "Waits for one more of finance, 1 of 2."."""
        given, need = self.progress
        return f"Waits for {self.still_needed}, {given} of {need}."

    def note(self, now: float) -> str:
        """Return what the demands ask for, and what this person can do about it."""
        parts = [f"Needs {_people(each)}." for each in self.demands if _is_special(each)]
        for each in self.given:
            who = "You" if name_key(each.by) == name_key(self.me.name) else each.by or "A person without a name"
            parts.append(f"{who} approved {duration(now - each.at.timestamp())} ago.")
        if self.is_mine:
            return " ".join((*parts, self._effect()))
        if not self.has_mine:
            parts.append(self._why_not())
        return " ".join((*parts, f"It runs when {self.still_needed} approves."))

    def tag(self, why: str) -> Tag | None:
        """Return what is special about a call that waits, by the reason it waits for; None if nothing is."""
        if why == "uncertain":
            return Tag("warn", "may have run")
        if why == "external":
            return Tag("", "needs your answer")
        given, need = self.progress
        return Tag("", f"{given} of {need}{', you' if self.has_mine else ''}") if self.is_special else None

    @property
    def _yes(self) -> DecisionRecord:
        return DecisionRecord("approve", by=self.me.name, groups=self.me.groups)

    def _missing(self, *more: DecisionRecord) -> tuple[int, ...]:
        given = (DecisionRecord("approve", by=each.by, groups=each.groups) for each in self.given)
        return missing(self.demands, [*given, *more])

    def _in_words(self, left: Sequence[int]) -> str:
        parts = [
            f"{_NUMBERS.get(number, str(number))}{' more' if number < demand.need else ''}"
            f"{' of ' + ' or '.join(demand.of) if demand.of else ''}"
            for number, demand in zip(left, self.demands, strict=True)
            if number
        ]
        return " and ".join(parts) or "no more"

    def _why_not(self) -> str:
        """Return why an approval by this person does not count."""
        groups = next((each.of for each in self.demands if each.of and not {*each.of} & {*self.me.groups}), ())
        is_out = any(name_key(self.me.name) in map(name_key, each.not_by) for each in self.demands)
        return (
            f"You are not in {' or '.join(groups)}." if groups and not is_out else "Your approval does not count here."
        )

    def _effect(self) -> str:
        """Return what an approval by this person would do."""
        if any(left := self._missing(self._yes)):
            return f"After your approval, it needs {self._in_words(left)}."
        order = _ORDER.get(len(self.given) + 1)
        return f"Your approval is the {order}: the call then runs." if order else "After your approval, the call runs."


def _is_special(demand: Demand) -> bool:
    return bool(demand.need > 1 or demand.of or demand.not_by)


def _people(demand: Demand) -> str:
    """Return whom a demand asks for, such as "2 people of finance, not bo"."""
    whom = "1 person" if demand.need == 1 else f"{demand.need} people"
    of = f" of {' or '.join(demand.of)}" if demand.of else ""
    never = f", not {' or '.join(demand.not_by)}" if demand.not_by else ""
    return f"{whom}{of}{never}"
