"""Metrics of a store and of driven loops, for Prometheus and other readers of OpenTelemetry.

What happens in this process is counted by `LoopMetrics`, an observer. What is in the store, whichever process wrote it,
is read by `observe_store` when the metrics are collected.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from toolloop._public import set_module
from toolloop.events import RequestAnswered, WatchedLoop, WatchEvent
from toolloop.inbox.inbox import Inbox
from toolloop.stores.optional import NO_LIMIT, read_time
from toolloop.stores.protocol import Store

LOG = logging.getLogger("toolloop.otel")
T = TypeVar("T")
_QUANTILES = (0.5, 0.9)


@set_module("toolloop.otel")
class LoopMetrics:
    """An observer that counts requests, tokens and cost: `LoopConfig(observers=[LoopMetrics()])`.

    It records `gen_ai.client.operation.duration` and `gen_ai.client.token.usage`, following the GenAI conventions, and
    `toolloop.cost`, each with the model. One instance can observe any number of loops.

    Args:
        meter_provider: makes the instruments; None means the global provider.

    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        """Make the instruments."""
        meter = _meter(meter_provider)
        self._seconds = meter.create_histogram("gen_ai.client.operation.duration", "s", "Duration of model requests")
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of model requests")
        self._cost = meter.create_counter("toolloop.cost", "{USD}", "Cost of model requests, as far as it is known")

    def for_loop(self, loop: WatchedLoop) -> Callable[[WatchEvent], None]:
        """Return the observer of one loop. The loop calls it once."""

        def observe(event: WatchEvent) -> None:
            common: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic"}
            if not isinstance(event, RequestAnswered):
                return
            found = loop.at(event.path)
            entry = found.usage_log[-1] if found is not None and found.usage_log else None
            parts = entry.by_model if entry is not None and entry.usage == event.usage else ()
            self._seconds.record(event.seconds, {**common, **_model(None if entry is None else entry.model)})
            for part in parts:
                named = {**common, **_model(part.model)}
                self._tokens.record(part.usage.total_input_tokens, {**named, "gen_ai.token.type": "input"})
                self._tokens.record(part.usage.output_tokens, {**named, "gen_ai.token.type": "output"})
                if part.usage.cost is not None:
                    self._cost.add(float(part.usage.cost.dollars), named)

        return observe


@set_module("toolloop.otel")
def observe_store(store: Store, meter_provider: MeterProvider | None = None) -> None:
    """Report what is in a store at each collection of metrics. Call it in one of the processes that share a store.

    - `toolloop.loops`: how many loops have each `status`.
    - `toolloop.calls.waiting`, `toolloop.calls.oldest`: how many calls of each `tool` wait, and for how many seconds
      the oldest of them has.
    - `toolloop.stored.calls`: how many calls of each `tool` were settled with which `outcome`, such as `expired`, in
      the loops that are stored now; see `toolloop.inbox.Statistics`. It falls when loops are deleted.
    - `toolloop.decision.time`: in how many seconds a part of the calls of each `tool` was settled, by `quantile`.

    Args:
        store: the store. It is read in the thread that collects. A failure is logged, and nothing is reported.
        meter_provider: makes the instruments; None means the global provider.

    """
    inbox, meter = Inbox(store), _meter(meter_provider)

    def loops() -> Iterator[Observation]:
        yield from (Observation(count, {"status": status}) for status, count in inbox.counts().loops.items())

    pending = _SharedRead(lambda: inbox.pending(limit=NO_LIMIT))
    statistics = _SharedRead(inbox.statistics)

    def waiting() -> Iterator[Observation]:
        counts = Counter(call.name for call in pending.read("waiting"))
        yield from (Observation(count, {"tool": tool}) for tool, count in counts.items())

    def oldest() -> Iterator[Observation]:
        now, since = read_time(store), dict[str, float]()
        for call in pending.read("oldest"):
            if call.since is not None:
                since[call.name] = min(since.get(call.name, now), call.since.timestamp())
        yield from (Observation(max(0.0, now - at), {"tool": tool}) for tool, at in since.items())

    def settled() -> Iterator[Observation]:
        for tool, counts in statistics.read("settled").calls.items():
            yield from (Observation(count, {"tool": tool, "outcome": outcome}) for outcome, count in counts.items())

    def decision_time() -> Iterator[Observation]:
        for tool, waits in statistics.read("time").waits.items():
            yield from (Observation(waits.within(part), {"tool": tool, "quantile": str(part)}) for part in _QUANTILES)

    meter.create_observable_gauge("toolloop.loops", [_safely(loops)], "{loop}", "Loops by status")
    meter.create_observable_gauge("toolloop.calls.waiting", [_safely(waiting)], "{call}", "Calls that wait")
    meter.create_observable_gauge("toolloop.calls.oldest", [_safely(oldest)], "s", "Wait of the oldest call")
    meter.create_observable_up_down_counter("toolloop.stored.calls", [_safely(settled)], "{call}", "Settled calls")
    meter.create_observable_gauge("toolloop.decision.time", [_safely(decision_time)], "s", "Time to a decision")


class _SharedRead(Generic[T]):
    """A read of the store that several metrics share: each collection reads once. It keeps nothing longer."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._kept: tuple[frozenset[str], T] | None = None  # who has it already
        self._lock = threading.Lock()

    def read(self, metric: str) -> T:
        """Return what was read for another metric, if this one has not had it yet. Otherwise read again."""
        with self._lock:
            kept, self._kept = self._kept, None
            if kept is None or metric in kept[0]:
                self._kept = frozenset({metric}), self._read()
            else:
                self._kept = kept[0] | {metric}, kept[1]
            return self._kept[1]


def _safely(observe: Callable[[], Iterable[Observation]]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Return a callback that reports nothing if the store fails."""

    def observed(_options: CallbackOptions) -> Iterable[Observation]:
        try:
            return [*observe()]
        except Exception as error:  # noqa: BLE001 - a store may raise anything
            LOG.warning("the metrics of a store cannot be read: %s", error)
            return []

    return observed


def _meter(provider: MeterProvider | None) -> Meter:
    return metrics.get_meter("toolloop", meter_provider=provider)


def _model(model: str | None) -> dict[str, str]:
    return {} if model is None else {"gen_ai.response.model": model}
