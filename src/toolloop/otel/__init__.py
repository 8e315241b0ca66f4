"""OpenTelemetry spans of loops, following the GenAI conventions: `pip install 'toolloop[otel]'`.

Not here: anything that changes a loop; spans follow from watch events.
"""

from toolloop._public import export as _export

try:
    from toolloop.otel.spans import OpenTelemetry as OpenTelemetry
except ImportError as missing:
    raise ImportError(
        f"toolloop.otel needs opentelemetry-api ({missing}): pip install 'toolloop[otel]'", name=missing.name
    ) from missing

_export(globals())
