"""Cache marks of a request: how many there are, and whether one of an hour may follow one of five minutes (rule 34)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce

from attrs import frozen

from toolloop._messages.blocks import MOST_CACHE_MARKS
from toolloop._messages.reading import runs_of
from toolloop._messages.turn_order import marks_in
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

    def then(self, other: CacheMarks) -> CacheMarks:
        """Return the marks of both parts."""
        if not other.count:
            return self
        return CacheMarks(
            self.count + other.count,
            self.has_short or other.has_short,
            self.has_long or other.has_long,
            self.is_mixed or other.is_mixed or (self.has_short and other.has_long),
        )

    @property
    def may_be_refused(self) -> bool:
        """Whether the API may refuse these marks, so that the whole request must be checked."""
        return self.count > MOST_CACHE_MARKS or self.is_mixed


def cache_marks(text: bytes) -> CacheMarks:
    """Return the marks of a message, a tool or a block. A call may have an input that looks like one."""
    if _START not in text:
        return CacheMarks()
    found = _MARK.findall(text)
    long = sum(b'"1h"' in mark for mark in found)
    is_mixed = 0 < long < len(found) and _is_mixed(text)
    return CacheMarks(len(found), long < len(found), long > 0, is_mixed)


def _is_mixed(text: bytes) -> bool:
    """Return whether a mark of an hour follows one of five minutes in a message."""
    are_long = [mark.get("ttl") == "1h" for _, mark in marks_in(runs_of([decode(text.decode())]))]
    return are_long != sorted(are_long, reverse=True)


def count_marks(messages: Iterable[bytes]) -> CacheMarks:
    """Return the marks of several messages."""
    return reduce(CacheMarks.then, map(cache_marks, messages), CacheMarks())


def count_marks_of_params(params: Mapping[str, JSON]) -> CacheMarks:
    """Return the marks of parameters. The top-level mark applies to the end of the request, so it only counts."""
    system = params.get("system")
    marked = [*(params.get("tools") or ()), *(system if isinstance(system, list) else ())]
    count = 0 if params.get("cache_control") is None else 1
    return CacheMarks(count).then(count_marks(encode(each).encode() for each in marked))
