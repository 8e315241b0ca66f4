"""A page of waiting calls: which ones, in which order, and where the next page begins."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Literal, get_args, overload

from attrs import frozen

from toolloop._public import set_module
from toolloop.inbox.items import InboxCall
from toolloop.machine.queries import LoopStatus
from toolloop.machine.values.calls import Why
from toolloop.machine.values.jsontext import JSON, encode
from toolloop.stores.arguments import check_kind
from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import StoredLoop

_Place = tuple[float, float, str, tuple[str, ...]]


@frozen
class CallFilter:
    """Which waiting calls to list: the arguments of `Inbox.pending`."""

    tool: str | None
    why: str | None
    text: str | None

    @classmethod
    def of(cls, *, tool: str | None, why: str | None, text: str | None, sort: str) -> CallFilter:
        """Check the arguments.

        Raises:
            TypeError, ValueError: one of them is not a text, or not one of its values.

        """
        for name, value, allowed in (("why", why, (None, *Why)), ("sort", sort, ("deadline", "age"))):
            if value not in allowed:
                raise ValueError(f"{name}: expected one of {', '.join(filter(None, allowed))}, got {value!r}")
        for name, value in (("tool", tool), ("text", text)):
            check_kind(name, value, str | None)
        return cls(tool, why, text)

    def matches(self, loop: StoredLoop, call: PendingCall) -> bool:
        """Return whether a call matches."""
        if self.tool not in (None, call.name) or self.why not in (None, call.why):
            return False
        return self.text is None or any(self.text.casefold() in each.casefold() for each in _texts(loop, call))


def _texts(loop: StoredLoop, call: PendingCall) -> Iterator[str]:
    """Yield the texts in which a person may search for a call."""
    yield from (loop.loop_id, *loop.metadata.values(), *call.names)
    yield from (text for text in (call.reason, call.named.get("asked"), call.named.get("said")) if text)
    values: list[JSON] = [call.input]
    while values:
        match values.pop():
            case dict(fields):
                values += [*fields, *fields.values()]
            case list(items):
                values += items
            case str(text):
                yield text
            case other:
                yield encode(other)


@set_module("toolloop.inbox")
@frozen
class InboxCounts:
    """How much there is to do.

    Attributes:
        loops: how many loops have each status, also if there are none: `needs_decision`, `needs_command`, `runnable`,
            `running`, `stopping`, `failed` and `ended`.
        waiting: how many calls wait for a decision, without those that have expired.

    """

    loops: Mapping[str, int]
    waiting: int

    @classmethod
    def of(cls, loops: Mapping[str, int], waiting: int) -> InboxCounts:
        """Add the statuses that no loop has."""
        return cls({**dict.fromkeys(get_args(LoopStatus), 0), **loops}, waiting)


@set_module("toolloop.inbox")
class InboxPage(Sequence[InboxCall]):
    """A page of waiting calls.

    Attributes:
        cursor: the cursor of the next page; None on the last page.
        counts: `waiting`: how many calls match, on all pages; `failed`: how many of the loops have failed, whatever the
            calls.

    """

    def __init__(  # noqa: PLR0913 - what was asked for
        self,
        loops: Iterable[StoredLoop],
        now: float,
        wanted: CallFilter,
        *,
        sort: Literal["deadline", "age"],
        limit: int,
        cursor: str | None,
    ) -> None:
        """Select the first calls after a cursor."""
        after = None if cursor is None else _from_cursor(cursor, sort)
        place, failed = _PLACES[sort], 0
        found: list[tuple[_Place, StoredLoop, PendingCall]] = []
        for loop in loops:
            failed += loop.status == "failed"
            found += [
                (place(loop, call), loop, call)
                for call in loop.pending
                if (call.expires_at is None or call.expires_at > now) and wanted.matches(loop, call)
            ]
        self.counts: dict[str, int] = {"waiting": len(found), "failed": failed}
        found = [each for each in found if after is None or each[0] > after]
        found.sort(key=itemgetter(0))
        self._calls = tuple(InboxCall.of(loop, call) for _, loop, call in found[:limit])
        self.cursor: str | None = _to_cursor(found[limit - 1][0], sort) if len(found) > limit else None

    @overload
    def __getitem__(self, index: int) -> InboxCall: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[InboxCall]: ...
    def __getitem__(self, index: int | slice) -> InboxCall | Sequence[InboxCall]:
        return self._calls[index]

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"<InboxPage of {len(self)} calls>"


def _by_deadline(loop: StoredLoop, call: PendingCall) -> _Place:
    return (inf if call.expires_at is None else call.expires_at, loop.created, loop.loop_id, call.path)


def _by_age(loop: StoredLoop, call: PendingCall) -> _Place:
    return (call.named.get("since", loop.created), loop.created, loop.loop_id, call.path)


_PLACES: Mapping[str, Callable[[StoredLoop, PendingCall], _Place]] = {"deadline": _by_deadline, "age": _by_age}


def _to_cursor(place: _Place, sort: str) -> str:
    return base64.urlsafe_b64encode(json.dumps((*place, sort)).encode()).decode()


def _from_cursor(cursor: str, sort: str) -> _Place:
    try:
        first, created, loop_id, path, of = json.loads(base64.urlsafe_b64decode(cursor))
        place = float(first), float(created), str(loop_id), tuple(map(str, path))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"cursor: expected the `cursor` of a page from pending(), got {cursor[:80]!r}") from error
    if of != sort:
        raise ValueError(f"cursor: it is of a page with sort={of!r}; pass the same `sort`, or no cursor")
    return place
