"""A bar for what takes more than a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

_PATIENCE = 1.0  # seconds before there is a bar


@contextmanager
def progress(what: str, total: int | None = None) -> Generator[Callable[[], None]]:
    """Show a bar on stderr, if it is a terminal, while the block runs. The block calls what it gets after each step.

    Args:
        what: what the block does, such as "Deleting".
        total: the number of steps; None if it is unknown.

    """
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    timer = threading.Timer(_PATIENCE, bar.start)
    if sys.stderr.isatty():
        timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()
        bar.stop()
