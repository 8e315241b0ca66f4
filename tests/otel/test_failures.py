"""Spans after errors, limits, cancellation and crashes: each span ends, and the loop is not affected."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio
from attrs import define
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from tests.kit.concurrency import (
    DEADLINE,
    Background,
    Gate,
    async_loop,
    async_wire,
    cancel_after,
    either_kind,
    list_contents,
    make,
    on_both_backends,
    run_async,
    sync_wire,
    turn,
    wait_for,
)
from tests.kit.loop_trees import join
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import MODEL, TOOLS, params
from tests.otel.traced import Traces, attributes, status
from toolloop import Approve, AsyncToolLoopHandle, LoopConfig, MemoryStore, Stop, ToolLoopHandle, tool
from toolloop.events import LoopFinished
from toolloop.otel import OpenTelemetry
from toolloop.testing import ScriptedProvider, call, delayed, reply


@either_kind
def test_a_tool_that_raises_failed_and_one_that_never_ran_has_no_span(kind: str) -> None:
    """The error type is the name of the exception."""
    traces = Traces()
    calls = [call("broken", {}, id="t1"), call("add", {"a": "?"}, id="t2"), call("unknown", {}, id="t3")]
    handle = make(kind, [reply(calls=calls), reply("done")], TOOLS, observers=[traces.observer])
    expect_yielded(turn(kind, handle)).continue_loop()
    expect_completed(turn(kind, handle))
    assert traces.names == [f"chat {MODEL}", "execute_tool broken", f"chat {MODEL}", "invoke_agent"]
    run, loop = traces.one("execute_tool broken"), traces.one("invoke_agent")
    assert (status(run), attributes(run)["toolloop.outcome"]) == (("ERROR", "OSError"), "failed")
    assert status(loop) == ("UNSET", None)


@define
class Provider:
    """A provider that returns or raises one value."""

    said: Any

    def send(self, _: Any) -> Any:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


class AsyncProvider(Provider):
    async def send(self, request: Any) -> Any:
        return super().send(request)


@either_kind
def test_a_failed_request_has_an_error_type(kind: str) -> None:
    """An exception, or an invalid reply."""
    cases: list[tuple[Any, str]] = [(LookupError("?"), "LookupError"), ({"type": "message"}, "ProtocolError")]
    for said, error in cases:
        traces = Traces()
        made: Any = ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle
        provider = (Provider if kind == "sync" else AsyncProvider)(said)
        expect_error(turn(kind, made(provider, params=params(), config=LoopConfig(observers=[traces.observer]))))
        assert [(span.name, status(span)) for span in traces.spans] == [
            (f"chat {MODEL}", ("ERROR", error)),
            ("invoke_agent", ("ERROR", error)),
        ]


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_request_that_the_loop_no_longer_waits_for_ends_with_the_loop() -> None:
    """The loop timed out while the request was still in flight in its thread."""
    traces, gate = Traces(), Gate()

    class Slow:
        def send(self, request: Any) -> Any:
            gate.stand()
            return ScriptedProvider([reply("late")]).send(request)

    handle = ToolLoopHandle(
        Slow(), params=params(), config=LoopConfig(timeout=0.05, observers=[traces.observer]), loop_id="loop"
    )
    expect_completed(handle.next_turn())
    assert traces.names == [f"chat {MODEL}", "invoke_agent"]
    assert attributes(traces.one("invoke_agent"))["toolloop.termination"] == "timeout"
    gate.opened.set()
    join()
    assert traces.names == [f"chat {MODEL}", "invoke_agent"]


# --- cancellation and interrupts -------------------------------------------------------------------------------------


@on_both_backends
def test_a_cancelled_request_ends_with_the_cancellation(backend: str) -> None:
    """The next request has a new span in the same loop's span."""
    traces = Traces()

    async def main() -> None:
        held = delayed(DEADLINE, reply("never seen"))
        async with async_wire([held, reply("done")], observers=[traces.observer]) as (handle, _):
            await cancel_after(handle, held.arrived)
            assert [status(span) for span in traces.spans] == [("ERROR", _cancelled(backend))]
            expect_completed(await handle.next_turn())

    run_async(backend, main)
    assert traces.names == [f"chat {MODEL}", f"chat {MODEL}", "invoke_agent"]
    assert status(traces.one("invoke_agent")) == ("UNSET", None)


def _cancelled(backend: str) -> str:
    return {"asyncio": asyncio.CancelledError, "trio": trio.Cancelled}[backend].__qualname__


@on_both_backends
def test_a_cancelled_tool_is_uncertain(backend: str) -> None:
    """Its span ends when its call begins to wait."""
    traces, gate = Traces(), Gate()

    @tool
    async def work() -> str:
        """Work."""
        await gate.wait()
        return ""

    async def main() -> None:
        async with async_loop([reply(calls=[("work", {})])], [work], observers=[traces.observer]) as handle:
            await cancel_after(handle, gate.arrived)
            run = traces.one("execute_tool work")
            assert (status(run)[1], attributes(run)["toolloop.outcome"]) == (_cancelled(backend), "uncertain")

    run_async(backend, main)


def test_a_crash_leaves_no_span_open_and_the_next_process_says_what_is_uncertain() -> None:
    """The store has the start of the tool; the next handle makes no span for it."""
    first, second = Traces(), Traces()
    store = MemoryStore()

    @tool
    def work() -> str:
        """Work."""
        raise SystemExit

    def config(traces: Traces) -> LoopConfig:
        return LoopConfig(observers=[traces.observer])

    script = ScriptedProvider([reply(calls=[call("work", {}, id="t1")])])
    handle = ToolLoopHandle(script, params=params(), tools=[work], config=config(first), store=store, loop_id="loop")
    with pytest.raises(SystemExit), handle:
        handle.next_turn()
    assert first.names == [f"chat {MODEL}", "execute_tool work", "invoke_agent"]
    with ToolLoopHandle.open(store, "loop", script, tools=[work], config=config(second)) as other:
        assert [call.id for call in other.pending] == ["t1"]
        other.resume(Stop())
        expect_completed(other.next_turn())
    assert second.names == []  # it did no work


# --- what is broken in the telemetry ---------------------------------------------------------------------------------


class BrokenExporter(SpanExporter):
    def export(self, spans: Any) -> Any:
        raise LookupError


@define(eq=False)
class BrokenProcessor(SpanProcessor):
    place: str

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.place == "start":
            raise LookupError

    def on_end(self, span: Any) -> None:
        if self.place == "end":
            raise LookupError


class BrokenSampler(Sampler):
    def should_sample(self, *_: Any, **__: Any) -> Any:
        raise LookupError

    def get_description(self) -> str:
        return "broken"


def broken(how: str) -> Any:
    traces = Traces(sampler=BrokenSampler() if how == "sampler" else None)
    if how == "exporter":
        traces.provider.add_span_processor(SimpleSpanProcessor(BrokenExporter()))
    if how in ("start", "end"):
        traces.provider.add_span_processor(BrokenProcessor(how))
    return OpenTelemetry(traces.provider)


@either_kind
def test_broken_telemetry_never_harms_the_loop(kind: str) -> None:
    """The loop ends as it does without telemetry."""
    for how in ("exporter", "start", "end", "sampler"):
        calls = [call("add", {"a": 1, "b": 2}, id="t1"), call("broken", {}, id="t2")]
        handle = make(kind, [reply(calls=calls), reply("done")], TOOLS, observers=[broken(how)])
        executed = expect_yielded(turn(kind, handle))
        assert list_contents(executed) == ["3", "OSError: the disk is gone"]
        executed.continue_loop()
        assert expect_completed(turn(kind, handle)).text == "done"


def test_a_handle_that_only_watches_makes_no_spans() -> None:
    """It receives every event of the stored loop."""
    driver, watcher = Traces(), Traces()
    store, heard = MemoryStore(), list[Any]()
    script = ScriptedProvider([reply(calls=[call("write", {"path": "a", "text": "b"}, id="t1")]), reply("done")])

    def config(*observers: Any) -> LoopConfig:
        return LoopConfig(observers=observers)

    with ToolLoopHandle(
        script, params=params(), tools=TOOLS, config=config(driver.observer), store=store, loop_id="loop"
    ) as driving:
        expect_yielded(driving.next_turn())
        with ToolLoopHandle.open(
            store, "loop", script, tools=TOOLS, config=config(watcher.observer, heard.append)
        ) as watching:
            watching.decide({"t1": Approve()})
            expect_completed(driving.run())
            watching.flush()
            assert type(heard[-1]) is LoopFinished
    assert watcher.names == []
    assert driver.names == [f"chat {MODEL}", "execute_tool write", f"chat {MODEL}", "invoke_agent"]


def test_closing_a_handle_ends_its_spans() -> None:
    """Also the span of a tool that still runs in its thread; it is not ended twice."""
    traces, gate = Traces(), Gate()

    @tool(timeout=DEADLINE)
    def work() -> str:
        """Work."""
        gate.stand()
        return "late"

    with sync_wire([reply(calls=[("work", {})])], [work], observers=[traces.observer]) as (handle, _):
        driving = Background(handle.next_turn)
        wait_for(gate.arrived)
        handle.close()
        assert traces.names == [f"chat {MODEL}", "execute_tool work", "invoke_agent"]
        gate.opened.set()
        expect_yielded(driving.result())
        join()
    assert traces.names == [f"chat {MODEL}", "execute_tool work", "invoke_agent"]
