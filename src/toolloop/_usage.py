"""Token counts, costs and their sums.

Source: reference of the Messages API, "Usage". The usage of a reply covers only its own request, so requests are added.
If a reply breaks its usage down into `iterations`, their sum is billed: the top level omits the tokens of a compaction
or an advisor, and, if another model took over, all attempts but the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from itertools import zip_longest
from typing import Any, Literal

from attrs import evolve, field, frozen

from toolloop._public import set_module

_MOST = 2**63  # a larger number is not a plausible count


def as_decimal(value: Any) -> Any:
    """Return a number, or a text with one, as a `Decimal`. Anything else is returned unchanged, to be refused."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return value


_NOTHING = Decimal(0)
EXACT = Context(prec=100)  # sums of costs are the same in each process, whatever its decimal context is


@set_module("toolloop")
@frozen
class Cost:
    """The cost of one or more requests, by the prices when they were answered.

    Attributes:
        dollars: the sum, as far as it is known.
        is_partial: whether more was spent, or may have been. The text of the cost then begins with "at least".
        unpriced: the models that had no price, whose tokens are not in the sum.

    """

    dollars: Decimal = _NOTHING
    is_partial: bool = False
    unpriced: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        if not isinstance(other, Cost):
            return NotImplemented
        return Cost(
            EXACT.add(self.dollars, other.dollars),
            self.is_partial or other.is_partial,
            tuple(sorted({*self.unpriced, *other.unpriced})),
        )

    def __str__(self) -> str:
        """Return the sum in dollars, rounded to cents, or to a hundredth of a cent below one dollar."""
        return f"{'at least ' if self.is_partial else ''}${self.dollars:.{4 if 0 < self.dollars < 1 else 2}f}"


@set_module("toolloop")
@frozen
class Usage:
    """The tokens and server tools that one or more requests used. A count that the API left out is zero.

    `cache_creation_5m_input_tokens` and `cache_creation_1h_input_tokens` split `cache_creation_input_tokens`, and
    `thinking_tokens` is a part of `output_tokens`, so they are not added to the totals again. `cost` is None if no
    prices were set.
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
    cost: Cost | None = None

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
            _sum_of_costs(self, other),
        )

    @classmethod
    def read(cls, usage: object) -> Usage:
        """Read the `usage` of a reply, and add up its `iterations`. Details may be in them or at the top level."""
        return sum_usage(read_parts(usage))


def _sum_of_costs(one: Usage, other: Usage) -> Cost | None:
    """Return the cost of both. If only one has a cost, it is partial unless the other one used nothing."""
    if one.cost is None or other.cost is None:
        cost, without = (other.cost, one) if one.cost is None else (one.cost, other)
        return evolve(cost, is_partial=True) if cost is not None and without.total_tokens else cost
    return one.cost + other.cost


@set_module("toolloop")
@frozen
class ModelUsage:
    """The part of a request's usage that one model has, such as an advisor or a fallback.

    Attributes:
        model: the model, which sets the price.
        service_tier, speed, inference_geo: how it was served, as the API gave it; None for the standard.
        is_partial: whether the API gave something else than a count, so that more may have been used.

    """

    model: str | None = None
    usage: Usage = field(factory=Usage)
    service_tier: str | None = None
    speed: str | None = None
    inference_geo: str | None = None
    is_partial: bool = False


_DETAILS = (
    "cache_creation_5m_input_tokens",
    "cache_creation_1h_input_tokens",
    "thinking_tokens",
    "web_search_requests",
    "web_fetch_requests",
)
_LABELS = ("service_tier", "speed", "inference_geo")
_STANDARD = frozenset({"standard", "not_available", "global", "default"})


def read_parts(usage: object, model: str | None = None) -> tuple[ModelUsage, ...]:
    """Read the `usage` of a reply: a part for each model, and for each way in which it was served.

    `model`: the model of the reply. Details that only the top level has are counted for it.
    """
    if not isinstance(usage, Mapping):
        return ()
    if not (parts := iterations_in(usage)):
        return (_whole_part(usage, model),)
    (top, is_odd), found, odd = _read_counts(usage), dict[ModelUsage, Usage](), set[ModelUsage]()
    for part in parts:
        named = part.get("model")
        own = named if isinstance(named, str) else model
        labels: list[Any] = [_label(part.get(each, usage.get(each) if own == model else None)) for each in _LABELS]
        who = ModelUsage(own, Usage(), *labels)
        counts, is_part_odd = _read_counts(part)
        found[who] = found.get(who, Usage()) + counts
        odd |= {who} if is_part_odd else set()
    main = next((who for who in found if who.model == model), next(iter(found)))
    rest = {name: max(0, getattr(top, name) - sum(getattr(each, name) for each in found.values())) for name in _DETAILS}
    found[main] += evolve(Usage(), **rest)
    odd |= {main} if is_odd else set()
    return tuple(evolve(who, usage=each, is_partial=who in odd) for who, each in found.items())


def _whole_part(usage: Mapping[str, Any], model: str | None) -> ModelUsage:
    """Return the usage of a reply without a breakdown as one part, which takes a tenth of the time."""
    (counts, is_odd), named = _read_counts(usage), usage.get("model")
    served: list[Any] = [*map(_label, map(usage.get, _LABELS)), is_odd]
    return ModelUsage(named if isinstance(named, str) else model, counts, *served)


def sum_usage(parts: Sequence[ModelUsage]) -> Usage:
    """Return the usage of all parts of a request."""
    return parts[0].usage if len(parts) == 1 else sum((part.usage for part in parts), Usage())


def with_costs(parts: Sequence[ModelUsage], costs: Sequence[Cost]) -> tuple[ModelUsage, ...]:
    """Return the parts of a request with their costs, which are in the same order. Without parts, the cost is one."""
    if not costs:
        return tuple(parts)
    parts = parts or [ModelUsage(is_partial=True) for _ in costs]
    pairs = zip_longest(parts, costs[: len(parts)])
    return tuple(evolve(part, usage=evolve(part.usage, cost=cost)) for part, cost in pairs)


def _label(value: object) -> str | None:
    return value if isinstance(value, str) and value not in _STANDARD else None


def iterations_in(usage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the breakdown of a reply's usage; empty if it has none."""
    parts = usage.get("iterations")
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def _read_counts(usage: Mapping[str, Any]) -> tuple[Usage, bool]:
    """Return the counts, and whether the API gave something else than a count. What is left out or null is zero."""
    details = ("cache_creation", "server_tool_use", "output_tokens_details")
    cached, server, output = [part if isinstance(part := usage.get(name), Mapping) else {} for name in details]
    given = [  # in the order of the fields of `Usage`
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        usage.get("cache_creation_input_tokens"),
        usage.get("cache_read_input_tokens"),
        cached.get("ephemeral_5m_input_tokens"),
        cached.get("ephemeral_1h_input_tokens"),
        output.get("thinking_tokens"),
        server.get("web_search_requests"),
        server.get("web_fetch_requests"),
    ]
    counts: list[Any] = [value if type(value) is int and 0 <= value <= _MOST else 0 for value in given]
    is_odd = any(value is not None and value is not count for value, count in zip(given, counts, strict=True))
    return Usage(*counts), is_odd


@set_module("toolloop")
@frozen
class IterationUsage:
    """The usage of one answered request.

    Attributes:
        seconds: the duration of the request.
        path: the ids of the calls that lead to its loop in a tree of loops.
        kind: "summary" if the request was for a summary of the history; else "reply".
        is_partial: whether more tokens may have been used than are counted: the request was given up, its driver is
            gone, or the API gave something else than counts.
        parts: the usage by model, if another model than `model` had a part in it, or it was not served as standard;
            else empty.
        cache_miss: why the API did not read the whole beginning of the request from its prompt cache, such as
            "messages_changed"; "pending" if it did not know yet. None if it read it, or the parameters have no
            `diagnostics` (source: reference of the Messages API, "Diagnostics").

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
    parts: tuple[ModelUsage, ...] = ()
    cache_miss: str | None = None

    @property
    def cost(self) -> Cost | None:
        """Return the cost; None if no prices were set."""
        return self.usage.cost

    @property
    def by_model(self) -> tuple[ModelUsage, ...]:
        """Return the usage by model: `parts`, or one part with everything."""
        return self.parts or (ModelUsage(self.model, self.usage),)
