"""Spans in memory, for the tests of traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from toolloop.otel import OpenTelemetry


@define(eq=False)
class Traces:
    """The spans of one process."""

    sampler: Sampler | None = None
    exporter: InMemorySpanExporter = field(factory=InMemorySpanExporter)
    provider: TracerProvider = field(init=False)
    observer: OpenTelemetry = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.provider = TracerProvider(sampler=self.sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.observer = OpenTelemetry(self.provider)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended, in the order of their ends."""
        return self.exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        """The one span of this name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def above(self, span: ReadableSpan) -> list[str]:
        """The names of the spans that a span is in, the innermost first."""
        known = {each.context.span_id: each for each in self.spans}
        found = []
        while span.parent is not None and span.parent.span_id in known:
            span = known[span.parent.span_id]
            found.append(span.name)
        return found

    def tracer(self) -> Any:
        return self.provider.get_tracer("of the tests")


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def status(span: ReadableSpan) -> tuple[str, Any]:
    return span.status.status_code.name, attributes(span).get("error.type")
