"""Prices of models, for `LoopConfig(prices=...)`. The cost of a request is computed once, when its usage arrives.

Not here: a loop, and sums; a price turns the usage of one request into a cost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from attrs import field, frozen

from toolloop._public import set_module
from toolloop._usage import EXACT, Cost, ModelUsage, Usage, as_decimal
from toolloop.errors import UnpricedModel
from toolloop.machine.values.setup import Budget

__all__ = ["Price", "Prices", "known_prices"]

_NOTHING = Decimal(0)
_MILLION = Decimal(1_000_000)
_DATE = re.compile(r"-\d{8}$")


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


# Type checkers use the type of a converter's parameter for the field.
def _dollars(value: Decimal | float | str | None) -> Any:
    return as_decimal(value)


def _is_price(_price: object, attribute: Any, value: Any) -> None:
    is_left_out = value is None and attribute.default is None
    if not is_left_out and not (isinstance(value, Decimal) and value.is_finite() and value >= 0):
        raise ValueError(f"{attribute.name} is {value!r}; give dollars for a million tokens (0 or more)")


@set_module("toolloop.prices")
@frozen(kw_only=True)
class Price:
    """The prices of a model, in dollars for a million tokens. If one is None, its tokens make a cost partial.

    Args:
        input: input that is neither read from the prompt cache nor written to it.
        output: output, including thinking.
        cache_read: input read from the cache.
        cache_write: input written to the cache for five minutes.
        cache_write_1h: input written to the cache for an hour.

    Raises:
        ValueError: a price is not a number, is negative or is infinite.

    """

    input: Decimal = field(converter=_dollars, validator=_is_price)
    output: Decimal = field(converter=_dollars, validator=_is_price)
    cache_read: Decimal | None = field(default=None, converter=_dollars, validator=_is_price)
    cache_write: Decimal | None = field(default=None, converter=_dollars, validator=_is_price)
    cache_write_1h: Decimal | None = field(default=None, converter=_dollars, validator=_is_price)

    def cost(self, usage: Usage) -> Cost:
        """Return the cost of one request. Web searches make it partial, because they are not paid by the token."""
        dollars, is_partial = _NOTHING, bool(usage.web_search_requests)
        for name, tokens in _tokens(usage).items():
            price: Decimal | None = getattr(self, name)
            is_partial |= price is None and tokens > 0
            dollars = EXACT.add(dollars, EXACT.multiply(price or _NOTHING, Decimal(tokens)))
        return Cost(EXACT.divide(dollars, _MILLION), is_partial)


def _tokens(usage: Usage) -> dict[str, int]:
    """Return the tokens of a request by the names of their prices."""
    for_an_hour = min(usage.cache_creation_1h_input_tokens, usage.cache_creation_input_tokens)
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cache_read": usage.cache_read_input_tokens,
        "cache_write": usage.cache_creation_input_tokens - for_an_hour,
        "cache_write_1h": for_an_hour,
    }


def _are_prices(_prices: object, attribute: Any, value: object) -> None:
    has_prices = isinstance(value, Mapping) and all(
        isinstance(model, str) and isinstance(price, Price) for model, price in value.items()
    )
    if not has_prices:
        raise TypeError(f'{attribute.name}: give a mapping of models to prices, as in {{"claude-opus-*": Price(...)}}')


@set_module("toolloop.prices")
@frozen
class Prices:
    """The prices of models: your own, and those that a function knows.

    Args:
        own: the prices by model. `*` and `?` in a name match any characters. The first name that matches counts. A
            name without a date is that of all dated versions of the model, whose names replies have.
            A name may end with a space and how a request was served, as in `"claude-opus-* fast"`: its speed, tier or
            region as the reply gives it, unless it is the standard. Without such a name, the price of the model
            counts, and the cost is partial.
        known: returns the cost of a request at a time, for models without a price of yours; or None.

    """

    own: Mapping[str, Price] = field(factory=dict, validator=_are_prices)
    known: Callable[[ModelUsage, datetime], Cost | None] | None = field(default=None, repr=False)

    def cost(self, part: ModelUsage, at: datetime) -> Cost:
        """Return the cost of the part of a request at a time. `unpriced` has the model if it has no price."""
        labels = [label for label in (part.service_tier, part.speed, part.inference_geo) if label is not None]
        models = {str(part.model), _DATE.sub("", str(part.model))}
        for label in (*labels, None):
            names = models if label is None else {f"{model} {label}" for model in models}
            if (price := self._find(names, is_labelled=label is not None)) is not None:
                cost = price.cost(part.usage)
                is_exact = len(labels) == (label is not None)
                return cost if is_exact else cost + Cost(is_partial=True)
        cost_known = None if self.known is None or part.model is None else self.known(part, at)
        if cost_known is not None:
            return cost_known
        is_free = part.usage == Usage()
        return Cost(is_partial=not is_free, unpriced=() if is_free else (part.model or "unknown",))

    def costs(self, parts: Sequence[ModelUsage], at: float) -> tuple[Cost, ...]:
        """Return the costs of the parts of a request. `at`: in seconds since the epoch."""
        when = datetime.fromtimestamp(at, UTC)
        return tuple(self.cost(part, when) + Cost(is_partial=part.is_partial) for part in parts)

    def has(self, model: str) -> bool:
        """Return whether a model has a price."""
        probe = ModelUsage(model, Usage(input_tokens=1))
        return not self.cost(probe, datetime.now(UTC)).unpriced

    def _find(self, names: set[str], *, is_labelled: bool) -> Price | None:
        for each, price in self.own.items():
            if (" " in each) is is_labelled and any(fnmatchcase(name, each) for name in names):
                return price
        return None


@set_module("toolloop.prices")
def known_prices(own: Mapping[str, Price] | None = None) -> Prices:
    """Return the prices that the package genai-prices knows, without asking a server (extra `prices`).

    Args:
        own: your own prices, which come first; see `Prices`.

    Raises:
        ImportError: the package is not installed.
        TypeError: `own` is not a mapping of models to prices.

    """
    try:
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - only who uses it has it
    except ImportError as missing:
        raise ImportError(
            f"known_prices() needs genai-prices ({missing}): pip install 'toolloop[prices]'", name=missing.name
        ) from missing
    get_snapshot()  # reads its tables, now rather than when the first reply arrives
    return Prices(own or {}, _known_cost)


def _known_cost(part: ModelUsage, at: datetime) -> Cost | None:
    """Return the cost by the tables of genai-prices, which know dates, long prompts, searches and speeds."""
    import genai_prices as known  # noqa: PLC0415 - likewise
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - likewise

    tokens, usage = _tokens(part.usage), part.usage
    used = known.Usage(
        input_tokens=usage.total_input_tokens,
        cache_read_tokens=usage.cache_read_input_tokens,
        cache_write_tokens=usage.cache_creation_input_tokens,
        cache_write_1h_tokens=tokens["cache_write_1h"],
        output_tokens=usage.output_tokens,
        web_searches=usage.web_search_requests,
    )
    given = {"service_tier": part.service_tier, "speed": part.speed, "inference_geo": part.inference_geo}
    context = {name: label for name, label in given.items() if label is not None}
    try:
        _, model = get_snapshot().find_provider_model(str(part.model), None, "anthropic", None)
    except LookupError:
        return None
    prices = model.get_prices(at, context)
    is_standard = bool(context) and prices == model.get_prices(at)  # it has no price for how it was served
    is_partial = is_standard or len(context) > 1
    return Cost(prices.calc_price(used)["total_price"], is_partial)


# --- loops with a budget for their cost -------------------------------------------------------------------------------


def refuse_unpriced(params: Mapping[str, Any], budget: Budget, prices: Prices | None, *, asked: str) -> None:
    """Refuse parameters that name a model without a price, if the budget limits the cost.

    Raises:
        UnpricedModel: the message has the models and the remedy.

    """
    if budget.cost is None:
        return
    models = tuple(model for model in dict.fromkeys(_models_in(params)) if prices is None or not prices.has(model))
    if models:
        names, has = " and ".join(map(repr, models)), "has" if len(models) == 1 else "have"
        raise UnpricedModel(
            f"{asked}: the budget limits the cost, but {names} {has} no price. Add one to LoopConfig(prices=...), or "
            "use a budget without cost",
            models=models,
        )


def _models_in(params: Mapping[str, Any]) -> Iterator[str]:
    """Yield the models that the parameters of a request name: its own, fallbacks, and those of server tools."""
    others = [*(params.get("fallbacks") or ()), *(params.get("tools") or ())]
    for named in (params, *others):
        if isinstance(named, Mapping) and isinstance(model := named.get("model"), str):
            yield model
