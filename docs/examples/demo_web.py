"""The demo with `--web`: the loop is in a store, and a person decides in a browser.

The page is a process of its own: `toolloop serve` knows the store, and neither the client nor the tools. This program
drives the loop to where it waits, looks until the store says that everything is decided, and goes on.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from demo_screen import Screen

from toolloop import Completed, Error, SqliteStore, ToolLoopHandle, Yielded

LOOP = "demo"
_LOOK_EVERY = 0.2  # seconds


@contextmanager
def page_of(file: Path) -> Generator[str]:
    """Serve the approval page of a store, and give its address."""
    command = [sys.executable, "-m", "toolloop", "serve", "--store", str(file), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - a command of its own
        try:
            line = server.stdout.readline() if server.stdout else ""
            if not line:
                sys.exit("The page needs the extras: pip install 'toolloop[cli,inbox]'")
            yield line.split()[-1]
        finally:
            server.terminate()


def drive_in_browser(
    open_loop: Callable[[SqliteStore], ToolLoopHandle], file: Path, screen: Screen
) -> tuple[ToolLoopHandle, int]:
    """Drive a loop whose calls are decided in a browser, to its end. Returns the closed handle, and the exit code."""
    with SqliteStore(file) as store:
        open_loop(store).close()  # so that the file is there
        with page_of(file) as address:
            screen.page(address)
            while True:
                with open_loop(store) as handle:
                    match handle.run():
                        case Yielded() as turn:
                            screen.in_browser(turn)
                        case Completed() as done:
                            screen.completed(done)
                            return handle, 0
                        case Error() as failed:
                            screen.failed(failed)
                            return handle, 1
                while store.head(LOOP).status == "needs_decision":
                    time.sleep(_LOOK_EVERY)
