"""The page of statistics: what became of the calls, how long people took, and what the loops cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from math import inf, log10
from typing import Final

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response

from toolloop._journal.statistics import Statistics, Waits
from toolloop._usage import Cost
from toolloop.inbox.page.rendering import rendered
from toolloop.inbox.page.views import Views
from toolloop.inbox.shown.words import duration, uncounted

_SPANS: Final = {"7": "7 days", "30": "30 days", "365": "a year", "": "all time"}
_LONGEST: Final = 60  # days in the plot of the cost
_MOST: Final = 10  # loops in the list of the cost
# In the order of the bars; a rule's outcome has the colour of a person's.
OUTCOMES: Final = {
    "approved": "approved",
    "edited": "edited, then approved",
    "answered": "answered",
    "rerun": "run again",
    "rule_approved": "approved by a rule",
    "rule_answered": "answered by a rule",
    "grant": "covered by a grant",
    "unasked": "needed no decision",
    "denied": "denied",
    "rule_denied": "denied by a rule",
    "expired": "expired",
    "invalid": "not valid",
    "not_run": "not run: the loop ended",
    "late": "ended by itself",
}


@frozen
class Part:
    """A part of a bar. `start` and `width`: in percent of the longest bar."""

    outcome: str
    count: int
    start: float
    width: float

    @property
    def words(self) -> str:
        """Return the outcome for people."""
        return OUTCOMES.get(self.outcome, self.outcome)


@frozen
class Bar:
    """A row with a bar: of a tool or a person. `total`: of its parts."""

    name: str
    total: int
    parts: tuple[Part, ...]


@frozen
class WaitRow:
    """How long the calls of a tool waited: in words, and the height of each bucket in percent."""

    tool: str
    count: int
    median: str
    ninety: str
    heights: tuple[float, ...]


@frozen
class Day:
    """The cost of a day. `height`: in percent of the highest."""

    day: date
    cost: Cost
    height: float


async def statistics_page(views: Views, request: Request) -> Response:
    """Show the statistics. `days` in the query: of how many days; all if it is empty."""
    me, days = await views.people.require(request), request.query_params.get("days", "30")
    days = days if days in _SPANS else "30"
    today = datetime.fromtimestamp(views.clock(), UTC).date()
    found = await me.inbox.statistics(today - timedelta(days=int(days) - 1) if days else None)
    tools, people = bars(found.calls), bars(found.people)
    return rendered(
        request,
        "statistics.html",
        page="statistics",
        me=me,
        now=views.clock(),
        spans=_SPANS,
        days=days,
        tools=tools,
        people=people,
        waits=wait_rows(found.waits),
        legend=_legend(tools, people),
        cost=found.cost if found.days else None,
        columns=columns(found),
        loops=sorted(found.loops.items(), key=lambda item: item[1].dollars, reverse=True)[:_MOST],
        left_out=uncounted(found.uncounted) if found.uncounted else None,
        is_empty=not (found.calls or found.days),
    )


def bars(rows: Mapping[str, Mapping[str, int]]) -> list[Bar]:
    """Return a row for each tool or person, the largest first."""
    most = max((sum(counts.values()) for counts in rows.values()), default=0)
    made = [Bar(name, sum(counts.values()), tuple(_parts(counts, most))) for name, counts in rows.items()]
    return sorted(made, key=lambda bar: (-bar.total, bar.name))


def _parts(counts: Mapping[str, int], most: int) -> Iterable[Part]:
    start = 0.0
    for outcome in (*OUTCOMES, *sorted(counts.keys() - OUTCOMES.keys())):
        if count := counts.get(outcome, 0):
            width = 100 * count / most
            yield Part(outcome, count, round(start, 2), round(width, 2))
            start += width


def _legend(*rows: Iterable[Bar]) -> list[Part]:
    seen = {part.outcome: part for bars_ in rows for bar in bars_ for part in bar.parts}
    return [seen[outcome] for outcome in (*OUTCOMES, *sorted(seen.keys() - OUTCOMES.keys())) if outcome in seen]


def wait_rows(waits: Mapping[str, Waits]) -> list[WaitRow]:
    """Return how long the calls of each tool waited, the most calls first."""
    rows = []
    for tool, each in sorted(waits.items(), key=lambda item: (-item[1].count, item[0])):
        most = max(each.buckets)
        heights = tuple(round(100 * log10(1 + 9 * count / most), 1) for count in each.buckets)
        rows.append(WaitRow(tool, each.count, _most_words(each, each.median), _most_words(each, each.ninety), heights))
    return rows


def _most_words(waits: Waits, seconds: float) -> str:
    return f"more than {duration(waits.bounds[-1])}" if seconds == inf else f"{duration(seconds)} or less"


def columns(found: Statistics) -> list[Day]:
    """Return the cost of each of the last days, with those that cost nothing in between."""
    if not found.days:
        return []
    last, most = max(found.days), max(cost.dollars for cost in found.days.values())
    first = max(min(found.days), last - timedelta(days=_LONGEST - 1))
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    costs = [(day, found.days.get(day, Cost())) for day in days]
    return [Day(day, cost, round(float(100 * cost.dollars / most) if most else 0.0, 1)) for day, cost in costs]
