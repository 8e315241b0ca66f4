"""Loops on many machines, dispatched by DBOS: `pip install 'toolloop[dbos]'`.

Not here: rules about when a loop is driven, and by whom; they are those of `toolloop.Worker`.
"""

from toolloop._public import export as _export

try:
    from toolloop.dbos.durable_loops import DurableLoops as DurableLoops
except ImportError as _missing:
    raise ImportError(
        f"toolloop.dbos needs dbos ({_missing}): pip install 'toolloop[dbos]'", name=_missing.name
    ) from _missing

_export(globals())
