"""OpenTelemetry spans and metrics of loops, following the GenAI conventions: `pip install 'toolloop[otel]'`.

Not here: anything that changes a loop; spans follow from watch events.
"""

from toolloop._public import export as _export

try:
    from toolloop.otel.metrics import LoopMetrics as LoopMetrics, observe_store as observe_store
    from toolloop.otel.spans import OpenTelemetry as OpenTelemetry
except ImportError as _missing:
    raise ImportError(
        f"toolloop.otel needs opentelemetry-api ({_missing}): pip install 'toolloop[otel]'", name=_missing.name
    ) from _missing

_export(globals())
