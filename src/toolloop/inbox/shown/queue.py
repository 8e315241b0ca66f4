"""The queue: rows of waiting calls and failed loops, groups of calls that are alike, and the filters of an address."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from attrs import evolve, frozen

from toolloop.inbox.items import InboxCall
from toolloop.inbox.shown.cards import Card
from toolloop.inbox.shown.keys import key_of
from toolloop.inbox.shown.values import shown_input
from toolloop.inbox.shown.words import NEAR, Need, Tag, count, duration
from toolloop.machine.values.jsontext import JSON
from toolloop.machine.values.names import Person
from toolloop.stores.pending import WHOLE_INPUT
from toolloop.stores.protocol import StoredLoop

ROWS = 100  # rows of a page
MOST = 50  # calls of a group on one page
_SHORT = 40  # characters of a value in a table
_MANY = 3  # calls of one loop that are alike get one row
Look = tuple[Person, float]  # who looks, and when
VIEWS = ("you", "others", "failed")
SORTS = ("deadline", "wait")


@frozen
class Filters:
    """What an address of the queue selects. Unknown values count as the default."""

    view: str = "you"
    tool: str = ""
    q: str = ""
    sort: str = "deadline"
    start: int = 0

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> Filters:
        """Read the parameters of an address."""
        given = {name: str(query.get(name, "")) for name in ("view", "tool", "q", "sort", "from")}
        view = given["view"] if given["view"] in VIEWS else "you"
        sort = given["sort"] if given["sort"] in SORTS else "deadline"
        start = int(given["from"]) if re.fullmatch(r"[0-9]{1,6}", given["from"]) else 0
        return cls(view, given["tool"], given["q"], sort, start)

    def query(self, **more: str | int) -> str:
        """Return the query of an address with these filters, changed by `more`; defaults are left out."""
        values = {"view": self.view, "tool": self.tool, "q": self.q, "sort": self.sort, "from": self.start, **more}
        defaults = {"view": "you", "sort": "deadline", "from": 0}
        return urlencode({name: value for name, value in values.items() if value and value != defaults.get(name)})


@frozen
class Row:
    """A row of the queue: a call, a group of calls that are alike, or a failed loop.

    Attributes:
        keys: the keys of its calls; empty for a loop.
        at: the address of the row without the base.
        left: seconds until the deadline; None without one.
        waits: seconds since it waits.
        tag: what is special about it; None if nothing is.

    """

    keys: tuple[str, ...]
    at: str
    name: str
    gist: str
    loop: str
    metadata: Mapping[str, str]
    left: float | None
    waits: float | None
    tag: Tag | None


@frozen
class Queue:
    """A page of the queue.

    Attributes:
        sections: rows under a heading each.
        order: the keys of all calls of the view, in order.
        counts: how many there are in each view.
        tools: how many calls wait for each tool.
        more: where the next page begins; None on the last one.

    """

    filters: Filters
    sections: tuple[tuple[str, tuple[Row, ...]], ...]
    order: tuple[str, ...]
    counts: Mapping[str, int]
    tools: Mapping[str, int]
    oldest: float | None
    more: int | None

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [row for _, rows in self.sections for row in rows]


def queue_of(
    calls: Sequence[InboxCall], chosen: Sequence[InboxCall], failed: Sequence[StoredLoop], filters: Filters, look: Look
) -> Queue:
    """Return the queue of one person. `calls`: all that wait; `chosen`: those that fit the filters, in their order."""
    me, now = look
    mine = [call for call in calls if is_for(call, me)]
    counts = {"you": len(mine), "others": len(calls) - len(mine), "failed": len(failed)}
    tools = dict(Counter(call.name for call in mine))
    if filters.view == "failed":
        rows = tuple(_failed(loop, now) for loop in failed)
        return Queue(filters, (("Failed loops", rows),) if rows else (), (), counts, tools, None, None)
    fits = [call for call in chosen if is_for(call, me) == (filters.view == "you")]
    end = filters.start + ROWS
    sections = _sections(fits[filters.start : end], filters, look)
    order = tuple(key for _, rows in sections for row in rows for key in row.keys)
    waits = [_waits(call, now) or 0.0 for call in fits]
    return Queue(filters, sections, order, counts, tools, max(waits, default=None), end if len(fits) > end else None)


def is_for(call: InboxCall, me: Person) -> bool:
    """Return whether this person can move a call forward."""
    return not call.demands or Need(call.demands, call.approvals, me).is_mine


def has_odd(call: InboxCall) -> bool:
    """Return whether the input, as far as the row has it, holds characters that the page marks."""
    text = json.dumps(call.input, ensure_ascii=False)
    return not (text.isascii() and text.isprintable() and "\\u" not in text) and bool(shown_input(call.input).odd)


def alike(call: InboxCall) -> tuple[Any, ...] | None:
    """Return what calls of one group have in common; None for a call that is never grouped."""
    if call.why != "approval" or call.secret or any(each.need > 1 for each in call.demands):
        return None
    if call.size > WHOLE_INPUT or has_odd(call):  # a row has only the beginning of a longer input
        return None
    return (call.names, call.why, call.reason, call.takes, call.demands)


def group_of(calls: Sequence[InboxCall], key: str, *, in_one_loop: bool) -> list[InboxCall]:
    """Return the waiting calls that are like the call with this key, with itself; empty if it does not wait."""
    first = next((call for call in calls if key_of(call.loop_id, call.path) == key), None)
    like = None if first is None else alike(first)
    if first is None or like is None:
        return []
    return [call for call in calls if alike(call) == like and (not in_one_loop or call.loop_id == first.loop_id)]


def _waits(call: InboxCall, now: float) -> float | None:
    return None if call.since is None else now - call.since.timestamp()


def _sections(calls: Sequence[InboxCall], filters: Filters, look: Look) -> tuple[tuple[str, tuple[Row, ...]], ...]:
    if filters.sort == "wait":
        found = {"Longest wait first": calls}
    else:
        soon = [call for call in calls if call.expires_at is not None and call.expires_at.timestamp() - look[1] < NEAR]
        later = [call for call in calls if call not in soon]
        found = {"Expires within 15 minutes": soon, "Later, or without a deadline": later}
    return tuple((name, tuple(_rows(each, filters, look))) for name, each in found.items() if each)


def _rows(calls: Iterable[InboxCall], filters: Filters, look: Look) -> list[Row]:
    """Return a row for each call. Calls of one loop that are alike share one."""
    groups: dict[Any, list[InboxCall]] = {}
    for call in calls:
        like = alike(call)
        groups.setdefault((call.loop_id, like) if like else (call.loop_id, call.path), []).append(call)
    rows: list[Row] = []
    for group in groups.values():
        if len(group) >= _MANY:
            rows.append(_group(group, filters, look))
        else:
            rows += [_row(call, filters, look) for call in group]
    return rows


def _row(call: InboxCall, filters: Filters, look: Look) -> Row:
    me, now = look
    key = key_of(call.loop_id, call.path)
    left = None if call.expires_at is None else call.expires_at.timestamp() - now
    loop = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} ".join((call.loop_id, *call.names[:-1]))
    tag = Need(call.demands, call.approvals, me).tag(call.why)
    if tag is None and has_odd(call):
        tag = Tag("warn", "odd characters")
    at = f"?{filters.query(call=key)}"
    return Row((key,), at, call.name, call.gist, loop, call.metadata, left, _waits(call, now), tag)


def _group(group: list[InboxCall], filters: Filters, look: Look) -> Row:
    first = _row(group[0], filters, look)
    return evolve(
        first,
        keys=tuple(key_of(call.loop_id, call.path) for call in group),
        at=f"group?{filters.query(of=first.keys[0], one=1)}",
        gist=f"{group[0].gist} to {group[-1].gist}",
        tag=Tag("", f"{len(group)} alike"),
    )


def _failed(loop: StoredLoop, now: float) -> Row:
    again = "" if loop.head.retry_at is None else f", tried again in {duration(loop.head.retry_at - now)}"
    gist, at = count(loop.head.attempts or 0, "attempt") + again, f"loop?{urlencode({'id': loop.loop_id})}"
    tag, waits = Tag("no", "failed"), now - loop.head.changed
    return Row((), at, loop.loop_id, gist, "", loop.metadata, None, waits, tag)


@frozen
class Group:
    """The values of calls that are alike.

    Attributes:
        cards: the calls.
        shared: the values that all calls share, by name.
        columns: the names of the other values.
        is_table: whether the other values are short, so that each call is a row of a table.
        sums: the sum of each column of numbers.

    """

    cards: Sequence[Card]
    shared: Mapping[str, JSON]
    columns: Sequence[str]
    is_table: bool
    sums: Mapping[str, str]

    def own(self, card: Card) -> dict[str, JSON]:
        """Return the values of a call that not all share."""
        return {name: value for name, value in card.input_given.items() if name not in self.shared}


def group_of_cards(cards: Sequence[Card]) -> Group:
    """Return the group of these calls."""
    inputs = [card.input_given for card in cards]
    names = dict.fromkeys(name for each in inputs for name in each)
    first = inputs[0] if inputs else {}
    shared = {name: first[name] for name in names if all(_is_same(each, first, name) for each in inputs)}
    columns = [name for name in names if name not in shared]
    values = [each[name] for each in inputs for name in columns if name in each]
    sums = {name: _sum([each.get(name) for each in inputs]) for name in columns}
    return Group(
        cards, shared, columns, all(map(_is_short, values)), {name: each for name, each in sums.items() if each}
    )


def _is_same(one: Mapping[str, JSON], other: Mapping[str, JSON], name: str) -> bool:
    if name not in one or name not in other:
        return False
    return type(one[name]) is type(other[name]) and bool(one[name] == other[name])


def _is_short(value: JSON) -> bool:
    if isinstance(value, str):
        return len(value) <= _SHORT and value.isprintable()
    return not isinstance(value, (dict, list))


def _sum(values: Sequence[Any]) -> str:
    """Return the sum of numbers as they are written; empty if one is another value."""
    if not all(type(each) in (int, float) for each in values):
        return ""
    return str(sum((Decimal(str(each)) for each in values), Decimal()))
