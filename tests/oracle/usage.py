"""Token counts and their sums.

Source: reference of the Messages API, "Usage". Each reply's usage covers its own request only, so requests are added.
Where a reply breaks its usage down into `iterations`, those are what is billed: the top level leaves out what a
compaction or an advisor used, and all but the last attempt where another model took over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from attrs import field, frozen

# `dict` first: it is what there is, and to ask for a mapping alone takes five times as long.
MAPPING: Final = (dict, Mapping)

# The iterations in which the model itself went on. Where another model took over, the last has a type of its own
# (source: `BetaFallbackMessageIterationUsage` of anthropic 2.12).
_SAMPLING = frozenset({"message", "fallback_message"})

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
        """The counts of a reply's `usage`, whatever of it is there.

        Where it has `iterations`, they are added up. Details come from them too where they have any, else from the
        top level: so a detail is of no more than the count that it details.
        """
        if not isinstance(usage, MAPPING):
            return cls()
        parts = _iterations(usage) if "iterations" in usage else ()
        return _read(parts, usage) if parts else _plain(usage)


def _plain(usage: Mapping[str, Any]) -> Usage:
    """The counts of an object without iterations: nearly every one, so it is read at once."""
    cached, output = _part(usage, "cache_creation"), _part(usage, "output_tokens_details")
    server = _part(usage, "server_tool_use")
    return Usage(
        _count(usage.get("input_tokens")),
        _count(usage.get("output_tokens")),
        _count(usage.get("cache_creation_input_tokens")),
        _count(usage.get("cache_read_input_tokens")),
        _count(cached.get("ephemeral_5m_input_tokens")) if cached else 0,
        _count(cached.get("ephemeral_1h_input_tokens")) if cached else 0,
        _count(output.get("thinking_tokens")) if output else 0,
        _count(server.get("web_search_requests")) if server else 0,
        _count(server.get("web_fetch_requests")) if server else 0,
    )


def _read(parts: Iterable[Mapping[str, Any]], whole: Mapping[str, Any]) -> Usage:
    cached = _details(parts, whole, "cache_creation")
    server = _part(whole, "server_tool_use")
    return Usage(
        input_tokens=_sum(parts, "input_tokens"),
        output_tokens=_sum(parts, "output_tokens"),
        cache_creation_input_tokens=_sum(parts, "cache_creation_input_tokens"),
        cache_read_input_tokens=_sum(parts, "cache_read_input_tokens"),
        cache_creation_5m_input_tokens=_sum(cached, "ephemeral_5m_input_tokens"),
        cache_creation_1h_input_tokens=_sum(cached, "ephemeral_1h_input_tokens"),
        thinking_tokens=_sum(_details(parts, whole, "output_tokens_details"), "thinking_tokens"),
        web_search_requests=_count(server.get("web_search_requests")),
        web_fetch_requests=_count(server.get("web_fetch_requests")),
    )


def _iterations(usage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    told = usage.get("iterations")
    return [part for part in told if isinstance(part, MAPPING)] if isinstance(told, list) else []


def _details(parts: Iterable[Mapping[str, Any]], whole: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [detail for part in parts if (detail := _part(part, name))] or [_part(whole, name)]


def _sum(parts: Iterable[Mapping[str, Any]], name: str) -> int:
    total = 0
    for part in parts:
        total += _count(part.get(name))
    return total


@frozen
class Billed:
    """What one kind of iteration of a reply used. Another model may have another price.

    Attributes:
        type: the API's word: "message", "compaction", "advisor_message" or "fallback_message"; "" if it said none.
        model: which model it was, where the API says so.
        usage: the sum of the iterations of this type and model.

    """

    type: str
    model: str | None = None
    usage: Usage = field(factory=Usage)


@frozen
class IterationUsage:
    """One answered request.

    Attributes:
        seconds: how long it took.
        path: the calls that lead to it in a tree of loops.
        service_tier: the API's words for how it was served, as are `speed` and `inference_geo`.
        fallback_credit: what became of the credit that the request presented, "redeemed" or "not_applied".
        billed: what `usage` is the sum of, if the reply says so; details may be in the sum only.
        kind: "summary" where the request was for a summary of the history; else "reply".
        context: what `context_tokens` is, if not the sum in `usage`; 0 is not known.

    """

    iteration: int
    model: str | None = None
    stop_reason: str | None = None
    request_id: str | None = None
    usage: Usage = field(factory=Usage)
    seconds: float = 0.0
    path: tuple[str, ...] = ()
    service_tier: str | None = None
    speed: str | None = None
    inference_geo: str | None = None
    fallback_credit: str | None = None
    billed: tuple[Billed, ...] = ()
    context: int | None = field(default=None, repr=False)
    kind: Literal["reply", "summary"] = "reply"

    @property
    def context_tokens(self) -> int | None:
        """How long the context is after this request, in tokens: all that went in, and the reply.

        None where nobody can say: the server's tools make several passes over it, and `usage` has their sum.
        """
        if self.context is None and has_passes(self.stop_reason, self.usage):
            return None
        return (self.usage.total_tokens if self.context is None else self.context) or None


def has_passes(stop_reason: str | None, usage: Usage) -> bool:
    """Whether the server's tools took part, as far as these two say: then the sum in `usage` is no context."""
    return stop_reason == "pause_turn" or usage.web_search_requests + usage.web_fetch_requests > 0


def billed_in(usage: Mapping[str, Any]) -> tuple[Billed, ...]:
    """The breakdown of a reply's `usage`, in the order in which type and model first come; empty if it has none."""
    sums: dict[tuple[str, str | None], Usage] = {}
    for part in _iterations(usage):
        key = (word(part.get("type")) or "", word(part.get("model")))
        used = _plain(part)
        sums[key] = sums[key] + used if key in sums else used
    return tuple(Billed(*key, used) for key, used in sums.items())


def context_in(usage: Mapping[str, Any], *, unsaid: bool) -> int | None:
    """The `context` of an `IterationUsage`.

    Args:
        usage: of the reply, as it came.
        unsaid: the server's tools took part in it, and nothing else in the entry says so.

    """
    iterations = _iterations(usage)
    if not iterations:
        return 0 if unsaid else None
    last = next((part for part in reversed(iterations) if word(part.get("type")) in _SAMPLING), None)
    return 0 if last is None else _plain(last).total_tokens


def word(value: object) -> str | None:
    """A text, or None for what is none."""
    return value if isinstance(value, str) else None
