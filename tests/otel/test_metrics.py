"""Metrics: of the requests of this process, and of what is in a store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from toolloop import Approve, Deny, Inbox, LoopConfig, MemoryStore, ToolLoopHandle, tool
from toolloop.errors import StoreError
from toolloop.otel import LoopMetrics, observe_store
from toolloop.prices import Price
from toolloop.testing import ScriptedProvider, call, reply

PARAMS = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go"}]}
NOW = datetime.fromisoformat("2026-11-20T12:00:00Z").timestamp()


@tool(needs_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def collected(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], Any]]:
    """The points of each metric, by the values of their attributes; of a histogram its count and sum."""
    data, found = reader.get_metrics_data(), dict[str, dict[tuple[Any, ...], Any]]()
    for metric in [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics:
        points = found[metric.name] = {}
        for point in metric.data.data_points:
            key = tuple(value for name, value in (point.attributes or {}).items() if "provider" not in name)
            points[key] = getattr(point, "value", None) if hasattr(point, "value") else (point.count, point.sum)
    return found


def test_requests_tokens_and_cost_are_counted_by_model() -> None:
    """An advisor's under its own name."""
    reader = InMemoryMetricReader()
    metrics = LoopMetrics(MeterProvider([reader], shutdown_on_exit=False))
    usage = {"iterations": [{"input_tokens": 10, "output_tokens": 2}, {"model": "wise", "output_tokens": 7}]}
    config = LoopConfig(observers=[metrics], prices={"*": Price(input=0, output=500_000)})
    ToolLoopHandle(ScriptedProvider([reply("so", usage=usage)]), params=PARAMS, config=config).run()
    found = collected(reader)
    assert found["gen_ai.client.operation.duration"].keys() == {("chat", "m")}
    assert found["gen_ai.client.token.usage"] == {
        ("chat", "m", "input"): (1, 10),
        ("chat", "m", "output"): (1, 2),
        ("chat", "wise", "input"): (1, 0),
        ("chat", "wise", "output"): (1, 7),
    }
    assert found["toolloop.cost"] == {("chat", "m"): 1.0, ("chat", "wise"): 3.5}


class Clocked(MemoryStore):
    """A store with a clock."""

    at = NOW
    is_gone = False
    reads = 0

    def now(self) -> float:
        return self.at

    def list(self, *given: Any, **more: Any) -> Any:
        if self.is_gone:
            raise StoreError("the disk is gone")
        self.reads += 1
        return super().list(*given, **more)


def test_what_is_in_a_store_is_observed(caplog: Any) -> None:
    """Whichever process wrote it; a store that cannot be read reports nothing."""
    store, reader = Clocked(), InMemoryMetricReader()
    observe_store(store, MeterProvider([reader], shutdown_on_exit=False))
    calls = [call("pay", id=f"c{number}") for number in range(3)]
    with ToolLoopHandle.open(store, "a", ScriptedProvider([reply(calls=calls)]), tools=[pay], params=PARAMS) as handle:
        handle.run()
    store.at += 90
    inbox = Inbox(store)
    first, second, _ = inbox.pending()
    inbox.decide("a", {first: Approve(by="ana"), second: Deny("no")})
    found = collected(reader)
    assert {status: count for (status,), count in found["toolloop.loops"].items() if count} == {"needs_decision": 1}
    assert found["toolloop.calls.waiting"] == {("pay",): 1}
    assert found["toolloop.calls.oldest"] == {("pay",): 90.0}
    assert found["toolloop.stored.calls"] == {("pay", "approved"): 1, ("pay", "denied"): 1}
    assert found["toolloop.decision.time"] == {("pay", "0.5"): 120, ("pay", "0.9"): 120}
    reads = store.reads
    inbox.decide("a", {inbox.pending()[0]: Approve(by="bo")})
    found = collected(reader)
    assert "toolloop.calls.waiting" not in found
    assert found["toolloop.stored.calls"] == {("pay", "approved"): 2, ("pay", "denied"): 1}
    assert store.reads == reads + 4  # the inbox here; and loops, pending and tallies, once each
    store.delete("a")
    assert "toolloop.stored.calls" not in collected(reader)  # so it is not a counter
    store.is_gone = True
    assert "toolloop.calls.waiting" not in collected(reader)
    assert "the metrics of a store cannot be read: the disk is gone" in caplog.text
