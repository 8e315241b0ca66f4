"""The words of the page for times, and for what a call waits for."""

from __future__ import annotations

from collections.abc import Sequence

from toolloop.machine.rules.approving import counts, missing
from toolloop.machine.values.calls import DecisionRecord
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.names import Person, name_key
from toolloop.tools.calls import RecordedDecision

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
SOON, NEAR = 5 * _MINUTE, 15 * _MINUTE  # seconds until a deadline
_TWO = 2  # of a unit: below, the next smaller unit says more
_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}
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


def people(demand: Demand) -> str:
    """Return whom a demand asks for, such as "2 people of finance, not bo"."""
    whom = "1 person" if demand.need == 1 else f"{demand.need} people"
    of = f" of {' or '.join(demand.of)}" if demand.of else ""
    never = f", not {' or '.join(demand.not_by)}" if demand.not_by else ""
    return f"{whom}{of}{never}"


def is_special(demands: Sequence[Demand]) -> bool:
    """Return whether a call needs more than one approval by any person."""
    return any(each.need > 1 or each.of or each.not_by for each in demands)


def _records(given: Sequence[RecordedDecision], *more: DecisionRecord) -> list[DecisionRecord]:
    return [*(DecisionRecord("approve", by=each.by, groups=each.groups) for each in given), *more]


def counts_for(demands: Sequence[Demand], given: Sequence[RecordedDecision], me: Person) -> bool:
    """Return whether an approval by this person would count for a demand that is not met."""
    if not demands:
        return True
    yes = DecisionRecord("approve", by=me.name, groups=me.groups)
    if name_key(me.name) in {name_key(each.by) for each in given}:
        return False
    left = missing(demands, _records(given))
    return any(number and counts(demand, yes) for number, demand in zip(left, demands, strict=True))


def why_not(demands: Sequence[Demand], given: Sequence[RecordedDecision], me: Person) -> list[str]:
    """Return why an approval by this person does not count; nothing if the person has approved."""
    if name_key(me.name) in {name_key(each.by) for each in given}:
        return []
    groups = next((each.of for each in demands if each.of and not {*each.of} & {*me.groups}), ())
    is_out = any(name_key(me.name) in map(name_key, each.not_by) for each in demands)
    return [f"You are not in {' or '.join(groups)}." if groups and not is_out else "Your approval does not count here."]


def progress(demands: Sequence[Demand], given: Sequence[RecordedDecision]) -> tuple[int, int]:
    """Return how many approvals a call has, and how many it needs, where it needs the most."""
    if not demands:
        return 0, 1
    left = missing(demands, _records(given))
    number, demand = max(zip(left, demands, strict=True), key=lambda each: each[1].need)
    return demand.need - number, demand.need


def still_needed(demands: Sequence[Demand], given: Sequence[RecordedDecision]) -> str:
    """Return which approvals are missing, such as "one more of finance"."""
    return _needed(demands, _records(given))


def _needed(demands: Sequence[Demand], given: Sequence[DecisionRecord]) -> str:
    parts = [
        f"{_NUMBERS.get(number, str(number))}{' more' if number < demand.need else ''}"
        f"{' of ' + ' or '.join(demand.of) if demand.of else ''}"
        for number, demand in zip(missing(demands, given), demands, strict=True)
        if number
    ]
    return " and ".join(parts) or "no more"


def effect_of_approval(demands: Sequence[Demand], given: Sequence[RecordedDecision], me: Person) -> str:
    """Return what an approval by this person would do."""
    yes = DecisionRecord("approve", by=me.name, groups=me.groups)
    if any(missing(demands, _records(given, yes))):
        return f"After your approval, it needs {_needed(demands, _records(given, yes))}."
    order = _ORDER.get(len(given) + 1)
    return f"Your approval is the {order}: the call then runs." if order else "After your approval, the call runs."
