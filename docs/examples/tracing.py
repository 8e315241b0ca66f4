"""Print spans: a loop waits for a decision, sleeps, and wakes in another handle. Each handle makes a trace.

python docs/examples/tracing.py        # it needs ANTHROPIC_API_KEY, 'toolloop[otel]' and opentelemetry-sdk
"""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from toolloop import Completed, LoopConfig, ToolLoopHandle, Yielded, tool
from toolloop.otel import OpenTelemetry


@tool(needs_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    with trace.get_tracer("shop").start_as_current_span("bank transfer"):  # inside the tool's span
        return f"order {order} is refunded"


def line(span: ReadableSpan) -> str:
    """Return a span as one line: its trace, duration, name and output tokens."""
    milliseconds = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    used = (span.attributes or {}).get("gen_ai.usage.output_tokens")
    said = [f"{milliseconds:7.1f} ms", span.name, *([f"{used} tokens out"] if used else [])]
    trace_id = span.context.trace_id if span.context else 0
    return "  ".join([f"{trace_id:032x}"[:8], *said]) + "\n"


def ask(turn: Yielded) -> None:
    """Ask a person about each call."""
    for call in turn.pending:
        if input(f"{call.name} {call.input}? [y/n] ") == "y":
            turn.approve(call)
        else:
            turn.deny(call, "no")


if __name__ == "__main__":
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
    trace.set_tracer_provider(provider)
    question = {"role": "user", "content": "Order 7 came broken. I want my money back."}
    params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": [question]}
    parts: dict[str, Any] = {"tools": [refund], "config": LoopConfig(observers=[OpenTelemetry()])}
    with ToolLoopHandle(Anthropic(), params=params, **parts) as handle:
        handle.run()
        asleep = handle.snapshot()
    with ToolLoopHandle.restore(asleep, Anthropic(), **parts) as handle:  # in another process, on another day
        end = handle.run(ask)
        print(end.text if isinstance(end, Completed) else end)
