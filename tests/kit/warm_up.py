"""What a process does before it forks, so that none of its children has to."""

from __future__ import annotations

from importlib import import_module

from toolloop import MemoryStore, ToolLoopHandle
from toolloop.testing import ScriptedProvider


def warm_up() -> None:
    """Import and make what a loop needs at its first event and its first request over HTTP. No thread is left."""
    for name in ("anyio._backends._asyncio", "httpcore2"):
        import_module(name)
    params = {"model": "m", "max_tokens": 1, "messages": []}
    with ToolLoopHandle.open(MemoryStore(), "warm", ScriptedProvider([]), params=params):
        pass
