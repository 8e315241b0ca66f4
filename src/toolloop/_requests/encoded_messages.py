"""Encode each message of a history once, and count the cache marks in it.

The marks are an upper bound: how many there are, and whether one of an hour may follow one of five minutes (rule 34).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from toolloop._messages.reading import runs_of
from toolloop._messages.turn_order import find_marks
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode, encode

_MARK = re.compile(rb'"cache_control":\{([^{}]*)')
_START = b'"cache_control":{'


@frozen
class CacheMarks:
    """An upper bound for the cache marks in a part of a request.

    Attributes:
        count: the number of marks.
        has_short: whether there is one of five minutes.
        has_long: whether there is one of an hour.
        is_mixed: whether one of an hour may follow one of five minutes.

    """

    count: int = 0
    has_short: bool = False
    has_long: bool = False
    is_mixed: bool = False

    def join(self, other: CacheMarks) -> CacheMarks:
        """Return the marks of both parts."""
        if not other.count:
            return self
        return CacheMarks(
            self.count + other.count,
            self.has_short or other.has_short,
            self.has_long or other.has_long,
            self.is_mixed or other.is_mixed or (self.has_short and other.has_long),
        )


def count_marks(parts: Iterable[bytes]) -> CacheMarks:
    """Return the marks of several messages, tools or blocks. A call may have an input that looks like one."""
    marks = CacheMarks()
    for text in parts:
        if _START in text:
            marks = marks.join(_read_marks(text))
    return marks


def _read_marks(text: bytes) -> CacheMarks:
    found = _MARK.findall(text)
    long = sum(b'"1h"' in mark for mark in found)
    is_mixed = 0 < long < len(found) and _is_mixed(text)
    return CacheMarks(len(found), long < len(found), long > 0, is_mixed)


def _is_mixed(text: bytes) -> bool:
    """Return whether a mark of an hour follows one of five minutes in a message."""
    are_long = [mark.get("ttl") == "1h" for _, mark in find_marks(runs_of([decode(text.decode())]))]
    return are_long != sorted(are_long, reverse=True)


def count_marks_of_params(params: Mapping[str, JSON]) -> CacheMarks:
    """Return the marks of parameters. The top-level mark applies to the end of the request, so it only counts."""
    system = params.get("system")
    marked = [*(params.get("tools") or ()), *(system if isinstance(system, list) else ())]
    count = 0 if params.get("cache_control") is None else 1
    return CacheMarks(count).join(count_marks(encode(each).encode() for each in marked))


class EncodedMessages:
    """The encoded messages of the last request.

    Attributes:
        marks: the cache marks in its messages.
        size: the number of bytes of its messages, including a comma for each.

    """

    def __init__(self) -> None:
        """Start without a request."""
        # The history, its bytes, and their marks and size. They are replaced together, so an interrupt cannot leave
        # them inconsistent.
        self._known: tuple[Chain[str], Chain[bytes], CacheMarks, int] = (Chain(), Chain(), CacheMarks(), 0)
        self.marks, self.size = CacheMarks(), 0

    def take(self, history: Chain[str], unjoined: Sequence[str] = ()) -> Sequence[bytes]:
        """Return the bytes of these messages. Do not modify the list."""
        known, ready, marks, size = self._known
        new = history.since(known)
        if new is None:  # the history was replaced
            new, ready, marks, size = list(history), Chain[bytes](), CacheMarks(), 0
        joined = [text.encode() for text in new]
        ready = ready.extend(joined)
        marks, size = marks.join(count_marks(joined)), size + sum(map(len, joined), len(joined))
        self._known = history, ready, marks, size
        self.marks, self.size = marks, size
        if not unjoined:
            return ready
        beside = [text.encode() for text in unjoined]
        self.marks, self.size = marks.join(count_marks(beside)), size + sum(map(len, beside), len(beside))
        return [*ready, *beside]
