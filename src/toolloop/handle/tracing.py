"""OpenTelemetry: an observer that makes spans and metrics of what happens in loops."""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry import metrics, trace

from toolloop.handle.observing import WatchedLoop
from toolloop.handle.tracing_loops import LoopTracer
from toolloop.handle.tracing_spans import Instruments, sweep
from toolloop.handle.watching import WatchEvent


class OpenTelemetry:
    """An observer that makes spans and metrics, by the GenAI conventions: `LoopConfig(observers=[OpenTelemetry()])`.

    One of it serves any number of loops. It makes a span for each loop (`invoke_agent`), each model request
    (`chat MODEL`) and each run of a tool (`execute_tool NAME`). That of a tool is the current one while it runs, in
    whatever thread or task.

    Where no span is the current one when a loop begins, its trace is made of its id: so all of its spans are in one
    trace, whichever process drives it, before a sleep and after. Where there is one, the loop's span is inside of it,
    and links to that trace.

    Args:
        tracer_provider: makes the spans; None is the global one, as it is when a loop begins.
        meter_provider: makes the metrics; likewise.
        contents: put into the spans what people, models and tools said, too.

    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        contents: bool = False,
    ) -> None:
        """Keep the providers."""
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider
        self._contents = contents

    def for_loop(self, loop: WatchedLoop) -> Callable[[WatchEvent], None]:
        """What watches one loop. The loop asks for it."""
        sweep()
        tracer = trace.get_tracer("toolloop", tracer_provider=self._tracer_provider)
        meter = metrics.get_meter("toolloop", meter_provider=self._meter_provider)
        return LoopTracer(loop, tracer, Instruments(meter), contents=self._contents)
