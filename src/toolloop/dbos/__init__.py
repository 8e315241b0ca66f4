"""Loops on many machines, dispatched by DBOS: `pip install 'toolloop[dbos]'`.

Not here: how a loop is driven; `toolloop.Worker` does it.
"""

from toolloop._public import export as _export

try:
    from toolloop.dbos.durable_loops import DurableLoops as DurableLoops
except ImportError as missing:
    raise ImportError(
        f"toolloop.dbos needs dbos ({missing}): pip install 'toolloop[dbos]'", name=missing.name
    ) from missing

_export(globals())
