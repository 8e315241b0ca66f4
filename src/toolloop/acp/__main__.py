"""Serve loops to an editor: `python -m toolloop.acp MODULE:FACTORY`."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Sequence

from toolloop.acp.agent import serve
from toolloop.acp.transport import take_over_stdio


def main(arguments: Sequence[str]) -> int:
    """Serve until the editor closes the input. Return the exit code."""
    module, _, name = arguments[0].partition(":") if len(arguments) == 1 else ("", "", "")
    if not (module and name):
        sys.stderr.write("usage: python -m toolloop.acp MODULE:FACTORY\n")
        return 2
    source, sink = take_over_stdio()  # before the factory is imported, for that may print, too
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        sys.stderr.write(f"cannot import {arguments[0]!r}: {error}. Set PYTHONPATH to the folder of the module\n")
        return 2
    asyncio.run(serve(factory, source, sink))
    return 0


if __name__ == "__main__":
    code: int = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # after a Ctrl-C, a thread still waits for input, and would be waited for
