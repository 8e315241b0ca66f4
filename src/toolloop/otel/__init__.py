"""OpenTelemetry spans of loops, following the GenAI conventions: `pip install 'toolloop[otel]'`."""

try:
    from toolloop.otel.spans import OpenTelemetry
except ImportError as missing:
    raise ImportError(
        f"toolloop.otel needs opentelemetry-api ({missing}): pip install 'toolloop[otel]'", name=missing.name
    ) from missing

__all__ = ["OpenTelemetry"]
