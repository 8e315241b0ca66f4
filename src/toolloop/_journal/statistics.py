"""Add up the tallies of many loops."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import accumulate
from math import inf
from typing import Any, Final

from attrs import field, frozen

from toolloop._interface.heads import view_of_cost
from toolloop._journal.tally import BUCKETS
from toolloop._public import set_module
from toolloop._usage import Cost

_EPOCH: Final = date(1970, 1, 1).toordinal()
_BY_PERSON: Final = frozenset({"approved", "edited", "denied", "answered", "rerun"})


@set_module("toolloop.inbox")
@frozen
class Waits:
    """How long calls waited, from when they began to wait to what settled them.

    Attributes:
        buckets: how many calls waited how long: at most the number of seconds in `bounds`, and for the last one longer.
        bounds: the ends of the buckets, in seconds.

    """

    buckets: tuple[int, ...]
    bounds: tuple[int, ...] = BUCKETS

    @property
    def count(self) -> int:
        """Return how many calls waited."""
        return sum(self.buckets)

    @property
    def median(self) -> float:
        """Return in how many seconds half of the calls were settled, rounded up to a bucket."""
        return self.within(0.5)

    @property
    def ninety(self) -> float:
        """Return in how many seconds 90 % of the calls were settled, rounded up to a bucket."""
        return self.within(0.9)

    def within(self, part: float) -> float:
        """Return in how many seconds a part of the calls was settled, rounded up to a bucket; it may be infinite."""
        needed = part * self.count
        sums = zip(accumulate(self.buckets), (*self.bounds, inf), strict=True)
        return next((bound for total, bound in sums if total and total >= needed), 0.0)


@set_module("toolloop.inbox")
@frozen
class Statistics:
    """What became of the calls of many loops, how long people took, and what the loops cost.

    A call counts once it is settled, and again if it waits again. Times are those of UTC days.

    Attributes:
        calls: how many calls of each tool were settled how: `approved` (as proposed), `edited`, `denied`, `answered` or
            `rerun` by a person; the same with `rule_` before it by a policy; `grant`, `expired`, `unasked` (it needed
            no decision), `invalid`, `not_run` (the loop ended first) or `late` (its run ended while it waited).
        waits: how long calls of each tool waited.
        people: the decisions of each person, by the same words, also approvals of calls that needed more of them. The
            name of a person without one is empty.
        days: the cost of each day.
        loops: the cost of each loop that had one.
        uncounted: how many loops are left out, because an earlier version of toolloop stored them: until their next
            event, or until `recount` counts them.

    """

    calls: Mapping[str, Mapping[str, int]] = field(factory=dict)
    waits: Mapping[str, Waits] = field(factory=dict)
    people: Mapping[str, Mapping[str, int]] = field(factory=dict)
    days: Mapping[date, Cost] = field(factory=dict)
    loops: Mapping[str, Cost] = field(factory=dict)
    uncounted: int = 0

    @property
    def cost(self) -> Cost:
        """Return the cost of all days."""
        return sum(self.days.values(), Cost())

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON. Costs are those of `CostView`; waits have `count`, `median` and `ninety`."""
        waits = {
            tool: {"count": each.count, "median": _to_finite(each.median), "ninety": _to_finite(each.ninety)}
            for tool, each in self.waits.items()
        }
        return {
            "calls": {tool: dict(counts) for tool, counts in self.calls.items()},
            "waits": waits,
            "people": {name: dict(counts) for name, counts in self.people.items()},
            "days": {day.isoformat(): view_of_cost(cost) for day, cost in self.days.items()},
            "loops": {loop_id: view_of_cost(cost) for loop_id, cost in self.loops.items()},
            "cost": view_of_cost(self.cost),
            "uncounted": self.uncounted,
        }


def add_up(tallies: Iterable[tuple[str, str | None]], since: date | None = None) -> Statistics:
    """Return the statistics of loops.

    Args:
        tallies: the id and the tally of each; None if it has none.
        since: the first day that counts, in UTC; None means all. A datetime counts as its day.

    """
    first = -inf if since is None else _day_of(since)
    settled, people = Counter[tuple[Any, ...]](), Counter[tuple[str | None, str]]()
    days, loops, uncounted = dict[int, Cost](), dict[str, Cost](), 0
    for loop_id, text in tallies:
        uncounted += text is None
        fields = {} if text is None else json.loads(text)
        for day, *key, count in fields.get("settled", ()):
            if day >= first:
                settled[tuple(key)] += count
        for day, by, verb, count in fields.get("approvals", ()):
            if day >= first:
                people[by, verb] += count
        for day, dollars, is_partial in fields.get("costs", ()):
            if day >= first:
                cost = Cost(Decimal(dollars), bool(is_partial))
                days[day] = days.get(day, _NOTHING) + cost
                loops[loop_id] = loops.get(loop_id, _NOTHING) + cost
    by_date = {date.fromordinal(_EPOCH + day): days[day] for day in sorted(days)}
    return Statistics(*_count_calls(settled), _count_people(settled, people), by_date, loops, uncounted)


def _count_calls(settled: Mapping[tuple[Any, ...], int]) -> tuple[dict[str, Counter[str]], dict[str, Waits]]:
    """Return how the calls of each tool were settled, and how long they waited."""
    calls, waits = dict[str, Counter[str]](), dict[str, list[int]]()
    for (tool, outcome, _, bucket), count in sorted(settled.items(), key=repr):
        calls.setdefault(tool, Counter())[outcome] += count
        if bucket is not None:
            waits.setdefault(tool, [0] * (len(BUCKETS) + 1))[bucket] += count
    return calls, {tool: Waits(tuple(each)) for tool, each in waits.items()}


def _count_people(
    settled: Mapping[tuple[Any, ...], int], approvals: Counter[tuple[str | None, str]]
) -> dict[str, Counter[str]]:
    """Return what each person decided: what settled calls, and what came before."""
    decided = approvals.copy()
    for (_, outcome, by, _), count in settled.items():
        if outcome in _BY_PERSON:
            decided[by, outcome] += count
    people = dict[str, Counter[str]]()
    for (by, verb), count in sorted(decided.items(), key=repr):
        people.setdefault(by or "", Counter())[verb] += count
    return people


def _day_of(since: date) -> int:
    at = since.astimezone(UTC).date() if isinstance(since, datetime) else since
    return at.toordinal() - _EPOCH


def _to_finite(seconds: float) -> float | None:
    return None if seconds == inf else seconds


_NOTHING: Final = Cost()
