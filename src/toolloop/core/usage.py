"""Token counts and their sums.

Source: reference of the Messages API, "Usage". Each reply's usage covers its own request only, so requests are added.
Where a reply breaks its usage down into `iterations`, those are what is billed: the top level leaves out what a
compaction or an advisor used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add, attrgetter
from typing import Any, Final

from attrs import field, fields, frozen

# `dict` first: it is what there is, and to ask for a mapping alone takes five times as long.
MAPPING: Final = (dict, Mapping)


_MOST = 2**63  # a number of thousands of digits is no count, and no JSON could be written of it


def _count(value: object) -> int:
    """A count as the API gives it: absent and null mean zero, and so does what is none."""
    return value if type(value) is int and 0 <= value <= _MOST else 0


def _part(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = value.get(name)
    return part if part is not None and isinstance(part, MAPPING) else {}


@frozen
class Usage:
    """What one request, or several, used. All counts are zero where the API said nothing.

    `cache_creation_5m_input_tokens` and `cache_creation_1h_input_tokens` split `cache_creation_input_tokens`, and
    `thinking_tokens` is a part of `output_tokens`: they are not added to the totals again.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_5m_input_tokens: int = 0
    cache_creation_1h_input_tokens: int = 0
    thinking_tokens: int = 0
    web_search_requests: int = 0
    web_fetch_requests: int = 0

    @property
    def total_input_tokens(self) -> int:
        """All input: uncached, written to the cache, read from it."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @property
    def total_tokens(self) -> int:
        """All input and all output."""
        return self.total_input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(*map(add, _COUNTS(self), _COUNTS(other)))

    @classmethod
    def read(cls, usage: object) -> Usage:
        """The counts of a reply's `usage`, whatever of it is there."""
        if not isinstance(usage, MAPPING):
            return cls()
        billed = usage.get("iterations")
        parts = [part for part in billed if isinstance(part, MAPPING)] if isinstance(billed, list) else []
        parts = parts or [usage]
        server = _part(usage, "server_tool_use")
        return cls(
            input_tokens=_sum(parts, "input_tokens"),
            output_tokens=_sum(parts, "output_tokens"),
            cache_creation_input_tokens=_sum(parts, "cache_creation_input_tokens"),
            cache_read_input_tokens=_sum(parts, "cache_read_input_tokens"),
            cache_creation_5m_input_tokens=_count(_part(usage, "cache_creation").get("ephemeral_5m_input_tokens")),
            cache_creation_1h_input_tokens=_count(_part(usage, "cache_creation").get("ephemeral_1h_input_tokens")),
            thinking_tokens=_count(_part(usage, "output_tokens_details").get("thinking_tokens")),
            web_search_requests=_count(server.get("web_search_requests")),
            web_fetch_requests=_count(server.get("web_fetch_requests")),
        )


def _sum(parts: Iterable[Mapping[str, Any]], name: str) -> int:
    total = 0
    for part in parts:
        total += _count(part.get(name))
    return total


_COUNTS = attrgetter(*(item.name for item in fields(Usage)))


@frozen
class IterationUsage:
    """One answered request: `seconds` is how long it took; `path` the calls that lead to it in a tree of loops."""

    iteration: int
    model: str | None = None
    stop_reason: str | None = None
    request_id: str | None = None
    usage: Usage = field(factory=Usage)
    seconds: float = 0.0
    path: tuple[str, ...] = ()
