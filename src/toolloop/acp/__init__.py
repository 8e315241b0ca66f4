"""Serve loops to an editor with the Agent Client Protocol: `pip install 'toolloop[acp]'`.

`python -m toolloop.acp MODULE:FACTORY` speaks the protocol on its standard input and output.

Not here: rules of a loop. Each prompt becomes a call of the inbox, and a handle drives the loop.
"""

from toolloop._public import export as _export

try:
    from toolloop.acp.agent import serve as serve
except ImportError as _missing:
    raise ImportError(
        f"toolloop.acp needs agent-client-protocol ({_missing}): pip install 'toolloop[acp]'", name=_missing.name
    ) from _missing
from toolloop.acp.loops import AcpLoops as AcpLoops, AcpSession as AcpSession, Describe as Describe, Factory as Factory

_export(globals())
