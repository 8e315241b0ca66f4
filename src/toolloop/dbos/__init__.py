"""Loops on many machines, dispatched by DBOS: `pip install 'toolloop[dbos]'`."""

try:
    from toolloop.dbos.durable_loops import DurableLoops
except ImportError as missing:
    raise ImportError(
        f"toolloop.dbos needs dbos ({missing}): pip install 'toolloop[dbos]'", name=missing.name
    ) from missing

__all__ = ["DurableLoops"]
