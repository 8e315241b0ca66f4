"""Spans and metrics for OpenTelemetry, by its GenAI conventions: `pip install 'toolloop[otel]'`."""

try:
    from toolloop.handle.tracing import OpenTelemetry
except ImportError as missing:
    raise ImportError(
        f"toolloop.otel makes spans with opentelemetry-api ({missing}): pip install 'toolloop[otel]'", name=missing.name
    ) from missing

__all__ = ["OpenTelemetry"]
