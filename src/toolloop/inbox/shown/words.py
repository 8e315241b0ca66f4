"""The words of the page and the command for times, and for what a call waits for."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from toolloop.machine.rules.approving import count_missing, is_counted
from toolloop.machine.values.calls import DecisionRecord
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.names import Person, to_name_key
from toolloop.machine.values.setup import ToolAnnotations
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


def uncounted(number: int) -> str:
    """Return which loops statistics leave out."""
    return f"{count(number, 'loop')} that an earlier version of toolloop stored"


def hints(annotations: ToolAnnotations | None) -> str:
    """Return the hints of a server about a tool: "read only, open world"; empty if no server has the tool."""
    if annotations is None:
        return ""
    reach = "open world" if annotations.open_world_hint else "closed world"
    if annotations.read_only_hint:
        return f"read only, {reach}"
    effect = "destructive" if annotations.destructive_hint else "only adds"
    return ", ".join([effect, *(["idempotent"] if annotations.idempotent_hint else []), reach])


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
        return to_name_key(self.me.name) in {to_name_key(each.by) for each in self.given}

    @property
    def is_mine(self) -> bool:
        """Whether an approval by this person would count for a demand that is not met."""
        open_ = (demand for number, demand in zip(self._missing(), self.demands, strict=True) if number)
        return not self.demands or (not self.has_mine and any(is_counted(demand, self._yes) for demand in open_))

    @property
    def progress(self) -> tuple[int, int]:
        """How many approvals the call has, and how many it needs. Those of any person count only if no others do."""
        pairs = [
            (each, number) for each, number in zip(self.demands, self._missing(), strict=True) if _is_special(each)
        ]
        need = sum(each.need for each, _ in pairs) or 1
        return need - (sum(number for _, number in pairs) if pairs else 1), need

    @property
    def still_needed(self) -> str:
        """Which approvals are missing, such as "one more of finance"."""
        return self._in_words(self._missing())

    @property
    def needs_others(self) -> bool:
        """Whether the call needs others after an approval by this person."""
        return any(self._missing(self._yes))

    @property
    def when(self) -> str:
        """When the call runs, such as "when one more of finance approves"."""
        return f"when {self.still_needed} approve{'s' if sum(self._missing()) == 1 else ''}"

    @property
    def waits_for(self) -> str:
        """Whom the call waits for, such as "Waits for one more of finance, 1 of 2."."""
        given, need = self.progress
        return f"Waits for {self.still_needed}{f', {given} of {need}' if need > 1 else ''}."

    @property
    def why_not(self) -> str:
        """Why another approval by this person would not count; empty if it would."""
        if self.is_mine:
            return ""
        if self.has_mine:
            return "You have approved."
        open_ = [demand for number, demand in zip(self._missing(), self.demands, strict=True) if number]
        if any(to_name_key(self.me.name) in map(to_name_key, each.not_by) for each in open_):
            return "You are excluded from approving this call."
        groups = dict.fromkeys(group for each in open_ for group in each.of if group not in self.me.groups)
        return f"You are not in {' or '.join(groups)}." if groups else "Your approval does not count here."

    def note(self, now: float) -> str:
        """Return how far the approvals are, and what this person can do about it."""
        given, need = self.progress
        who = ", ".join(f"{self._name(each.by)}, {duration(now - each.at.timestamp())} ago" for each in self.given)
        so_far = f"{given} of {need}: {who}; {self.still_needed}." if who else f"Needs {self.still_needed}."
        return f"{so_far} {self._effect() if self.is_mine else '' if self.has_mine else self.why_not}".strip()

    def _name(self, by: str | None) -> str:
        return "you" if to_name_key(by) == to_name_key(self.me.name) else by or "a person without a name"

    def tag(self, why: str) -> Tag | None:
        """Return what is special about a call that waits, by the reason it waits for; None if nothing is."""
        if why == "uncertain":
            return Tag("warn", "may have run")
        if why == "external":
            return Tag("", "needs your answer")
        if not self.is_special:
            return None
        given, need = self.progress
        is_others = not (self.is_mine or self.has_mine)
        whom = " or ".join(dict.fromkeys(group for each in self.demands for group in each.of)) if is_others else ""
        count_ = "" if need == 1 else f"{given} of {need}{', you' if self.has_mine else ''}"
        text = ", ".join(filter(None, (whom, count_)))
        return Tag("", text or "for others") if text or is_others else None

    @property
    def _yes(self) -> DecisionRecord:
        return DecisionRecord("approve", by=self.me.name, groups=self.me.groups)

    def _missing(self, *more: DecisionRecord) -> tuple[int, ...]:
        given = (DecisionRecord("approve", by=each.by, groups=each.groups) for each in self.given)
        return count_missing(self.demands, [*given, *more])

    def _in_words(self, left: Sequence[int]) -> str:
        parts = [
            f"{_NUMBERS.get(number, str(number))}{' more' if number < demand.need else ''}"
            f"{' of ' + ' or '.join(demand.of) if demand.of else ' person' if number == 1 else ' people'}"
            f"{' (not ' + ' or '.join(demand.not_by) + ')' if demand.not_by else ''}"
            for number, demand in zip(left, self.demands, strict=True)
            if number
        ]
        return " and ".join(parts) or "no more"

    def _effect(self) -> str:
        """Return what an approval by this person would do."""
        if any(left := self._missing(self._yes)):
            return f"After your approval, it needs {self._in_words(left)}."
        order = _ORDER.get(len(self.given) + 1)
        return f"Your approval is the {order}: the call then runs." if order else "After your approval, the call runs."


def _is_special(demand: Demand) -> bool:
    return bool(demand.need > 1 or demand.of or demand.not_by)
