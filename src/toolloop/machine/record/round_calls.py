"""The calls of a round: an immutable sequence whose new versions are cheap."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import is_not
from typing import overload

from toolloop.machine.values.calls import Call, Status


class RoundCalls(Sequence[Call]):
    """The calls of a round, in the model's order: an immutable sequence, indexed by id and by status.

    Each start and each end of a call makes a new version. A version copies positions and references, not calls, so an
    event stays cheap in a round of many calls.

    Args:
        calls: the calls.

    Attributes:
        members: the ids of the calls of members of toolsets, in the model's order.

    Raises:
        ValueError: two calls have the same id.

    """

    __slots__ = ("_by_status", "_calls", "_places", "members")

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        """Index the calls."""
        self._calls = list(calls)
        self._places = {call.id: place for place, call in enumerate(self._calls)}
        self._by_status: dict[Status, list[int]] = {}  # the places of the calls in each status, ascending
        for place, call in enumerate(self._calls):
            self._by_status.setdefault(call.status, []).append(place)
        self.members: tuple[str, ...] = tuple([call.id for call in self._calls if call.is_member])
        if len(self._places) < len(self._calls):
            raise ValueError("two calls of a round have the same id")

    def find(self, call_id: str) -> Call | None:
        """Return the call with this id, if there is one."""
        place = self._places.get(call_id)
        return None if place is None else self._calls[place]

    def having(self, status: Status) -> list[Call]:
        """Return the calls with a status, in the model's order."""
        return list(map(self._calls.__getitem__, self._by_status.get(status, ())))

    def replace(self, changed: Iterable[Call]) -> RoundCalls:
        """Return a new version in which these calls replace those with the same ids."""
        new = RoundCalls.__new__(RoundCalls)
        new._places, new.members = self._places, self.members  # noqa: SLF001 - it is made here
        new._calls = calls = self._calls.copy()  # noqa: SLF001 - likewise
        new._by_status = by_status = {status: places.copy() for status, places in self._by_status.items()}  # noqa: SLF001 - likewise
        for call in changed:
            place = self._places[call.id]
            before, calls[place] = calls[place].status, call
            if before is not call.status:
                del by_status[before][bisect_left(by_status[before], place)]
                insort(by_status.setdefault(call.status, []), place)
        return new

    def changes(self, older: RoundCalls) -> Iterator[tuple[Call, Call]]:
        """Return each call that differs from an older version of these calls, as (old, new)."""
        changed = compress(self, map(is_not, older, self))
        return ((older._calls[self._places[call.id]], call) for call in changed)

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    @overload
    def __getitem__(self, index: int) -> Call: ...
    @overload
    def __getitem__(self, index: slice) -> list[Call]: ...
    def __getitem__(self, index: int | slice) -> Call | list[Call]:
        return self._calls[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoundCalls) and self._calls == other._calls

    def __hash__(self) -> int:
        return hash(tuple(self._calls))

    def __reduce__(self) -> tuple[type[RoundCalls], tuple[list[Call]]]:
        return RoundCalls, (self._calls,)

    def __repr__(self) -> str:
        return f"RoundCalls({self._calls})"


NO_CALLS = RoundCalls()
