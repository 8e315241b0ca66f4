"""Token counts and their sums.

Source: reference of the Messages API, "Usage". The usage of a reply covers only its own request, so requests are added.
If a reply breaks its usage down into `iterations`, their sum is billed: the top level omits the tokens of a compaction
or an advisor, and, if another model took over, all attempts but the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import evolve, field, frozen

from toolloop._public import set_module

_MOST = 2**63  # a larger number is not a plausible count


def _count(value: object) -> int:
    """Return a count of the API; zero if it is absent, null or not a count."""
    return value if type(value) is int and 0 <= value <= _MOST else 0


def _part(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = value.get(name)
    return part if isinstance(part, Mapping) else {}


@set_module("toolloop")
@frozen
class Usage:
    """The tokens and server tools that one or more requests used. A count that the API left out is zero.

    `cache_creation_5m_input_tokens` and `cache_creation_1h_input_tokens` split `cache_creation_input_tokens`, and
    `thinking_tokens` is a part of `output_tokens`, so they are not added to the totals again.
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
        """Return all input tokens: uncached, written to the cache, and read from it."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @property
    def total_tokens(self) -> int:
        """Return all input and output tokens."""
        return self.total_input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            self.cache_read_input_tokens + other.cache_read_input_tokens,
            self.cache_creation_5m_input_tokens + other.cache_creation_5m_input_tokens,
            self.cache_creation_1h_input_tokens + other.cache_creation_1h_input_tokens,
            self.thinking_tokens + other.thinking_tokens,
            self.web_search_requests + other.web_search_requests,
            self.web_fetch_requests + other.web_fetch_requests,
        )

    @classmethod
    def read(cls, usage: object) -> Usage:
        """Read the `usage` of a reply, and add up its `iterations`. Details may be in them or at the top level."""
        if not isinstance(usage, Mapping):
            return cls()
        top, parts = _plain(usage), iterations_in(usage)
        if not parts:
            return top
        total = sum(map(_plain, parts), cls())
        return evolve(total, **{name: max(getattr(total, name), getattr(top, name)) for name in _DETAILS})


_DETAILS = (
    "cache_creation_5m_input_tokens",
    "cache_creation_1h_input_tokens",
    "thinking_tokens",
    "web_search_requests",
    "web_fetch_requests",
)


def iterations_in(usage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the breakdown of a reply's usage; empty if it has none."""
    parts = usage.get("iterations")
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def _plain(usage: Mapping[str, Any]) -> Usage:
    cached, server = _part(usage, "cache_creation"), _part(usage, "server_tool_use")
    return Usage(
        input_tokens=_count(usage.get("input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
        cache_creation_input_tokens=_count(usage.get("cache_creation_input_tokens")),
        cache_read_input_tokens=_count(usage.get("cache_read_input_tokens")),
        cache_creation_5m_input_tokens=_count(cached.get("ephemeral_5m_input_tokens")),
        cache_creation_1h_input_tokens=_count(cached.get("ephemeral_1h_input_tokens")),
        thinking_tokens=_count(_part(usage, "output_tokens_details").get("thinking_tokens")),
        web_search_requests=_count(server.get("web_search_requests")),
        web_fetch_requests=_count(server.get("web_fetch_requests")),
    )


@set_module("toolloop")
@frozen
class IterationUsage:
    """The usage of one answered request.

    Attributes:
        seconds: the duration of the request.
        path: the ids of the calls that lead to its loop in a tree of loops.
        kind: "summary" if the request was for a summary of the history; else "reply".
        is_partial: whether the request was given up, so that more tokens may have been used than are counted.

    """

    iteration: int
    model: str | None = None
    stop_reason: str | None = None
    request_id: str | None = None
    usage: Usage = field(factory=Usage)
    seconds: float = 0.0
    path: tuple[str, ...] = ()
    kind: Literal["reply", "summary"] = "reply"
    is_partial: bool = False
