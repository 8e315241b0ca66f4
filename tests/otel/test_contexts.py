"""Spans as the current span: of a tool while it runs, of a request while it is sent; and the span around a loop."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio.to_thread
import pytest
from opentelemetry import baggage, context, trace as tracing

from tests.kit import inside
from tests.kit.concurrency import BACKENDS, DEADLINE, either_kind, list_contents, make, run_async, turn
from tests.kit.each import each
from tests.kit.support import expect_completed
from tests.kit.tools import MODEL
from tests.otel.traced import Traces
from toolloop import ToolContext, tool
from toolloop.testing import ScriptedProvider, call, reply

LOG = logging.getLogger("tests.kit.inside")


def tools_of(traces: Traces, barrier: threading.Barrier) -> list[Any]:
    """Return a tool of each kind. Each makes a span and a log record while all of them run."""
    tracer = traces.tracer()

    def inside(call_id: str) -> str:
        with tracer.start_as_current_span(f"in {call_id}"):
            LOG.info(call_id)
            here = tracing.get_current_span().get_span_context()
            return f"{here.span_id} {baggage.get_baggage('who')}"

    @tool
    def plain(context: ToolContext) -> str:
        """Do it."""
        barrier.wait(DEADLINE)
        return inside(context.call_id)

    @tool(timeout=DEADLINE)
    def limited(context: ToolContext) -> str:
        """Do it."""
        barrier.wait(DEADLINE)
        return inside(context.call_id)

    @tool
    async def task(context: ToolContext) -> str:
        """Do it."""
        await anyio.to_thread.run_sync(barrier.wait, DEADLINE)
        return inside(context.call_id)

    return [plain, limited, task]


@each(
    ("kind", "names"),
    [
        ("sync", ["plain"]),
        ("sync", ["limited"]),
        ("sync", ["plain", "limited", "plain"]),
        *((backend, [name]) for backend in BACKENDS for name in ("plain", "limited", "task")),
        *((backend, ["plain", "limited", "task", "task"]) for backend in BACKENDS),
    ],
)
def test_a_span_that_a_tool_makes_is_inside_the_tools_span(
    kind: str, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Also for concurrent tools. Their log records have that span, and the context around the loop reaches them."""
    caplog.set_level(logging.INFO, "tests.kit.inside")
    where: dict[str, int] = {}

    def written(record: logging.LogRecord) -> bool:
        if record.name == "tests.kit.inside":
            where[record.getMessage()] = tracing.get_current_span().get_span_context().span_id
        return True

    caplog.handler.addFilter(written)
    traces = Traces()
    tools = tools_of(traces, threading.Barrier(len(names)))
    calls = [call(name, {}, id=f"t{number}") for number, name in enumerate(names)]
    usable = [each for each in tools if kind != "sync" or each.name in ("plain", "limited")]
    handle = make(kind, [reply(calls=calls)], usable, observers=[traces.observer])
    token = context.attach(baggage.set_baggage("who", "ana"))
    try:
        results = list_contents(turn(kind, handle))
    finally:
        context.detach(token)
        caplog.handler.removeFilter(written)
    for number, name in enumerate(names):
        own = traces.one(f"in t{number}")
        runs = {dict(span.attributes or {})["gen_ai.tool.call.id"]: span for span in traces.all(f"execute_tool {name}")}
        assert own.parent == runs[f"t{number}"].context
        assert results[number] == f"{own.context.span_id} ana"
        assert where[f"t{number}"] == own.context.span_id
    assert not tracing.get_current_span().get_span_context().is_valid


@either_kind
def test_a_request_is_the_current_span_of_the_provider(kind: str) -> None:
    """So the span of an HTTP client is inside it."""
    traces, seen = Traces(), []

    class Provider:
        def __init__(self, answers: Any) -> None:
            self.answers = answers

        def send(self, request: Any) -> Any:
            seen.append(tracing.get_current_span().get_span_context().span_id)
            return ScriptedProvider([reply("done")]).send(request)

    class AsyncProvider(Provider):
        async def send(self, request: Any) -> Any:
            return super().send(request)

    handle: Any = make(kind, [], observers=[traces.observer])
    inside.set_provider(handle, (Provider if kind == "sync" else AsyncProvider)([]))
    expect_completed(turn(kind, handle))
    assert seen == [traces.one(f"chat {MODEL}").context.span_id]


@either_kind
def test_a_loop_is_inside_the_span_around_it(kind: str) -> None:
    """Its trace is the trace of the surrounding span."""
    traces = Traces()
    handle = make(kind, [reply("done")], observers=[traces.observer])
    with traces.tracer().start_as_current_span("web request") as request:
        if kind == "sync":
            turn(kind, handle)
        else:
            run_async(kind, handle.next_turn)  # type: ignore[arg-type] # an async one
    loop = traces.one("invoke_agent")
    assert traces.above(loop) == ["web request"]
    assert loop.context.trace_id == request.get_span_context().trace_id
