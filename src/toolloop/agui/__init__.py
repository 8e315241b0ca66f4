"""Loops behind front ends that speak AG-UI: `pip install 'toolloop[agui]'`.

Not here: rules about calls, decisions and messages; they are those of `toolloop.Inbox` and `toolloop.AsyncWorker`.
"""

from toolloop._public import export as _export

try:
    from toolloop.agui.app import agui_app as agui_app
except ImportError as _missing:
    raise ImportError(
        f"toolloop.agui needs ag-ui-protocol and starlette ({_missing}): pip install 'toolloop[agui]'",
        name=_missing.name,
    ) from _missing

_export(globals())
