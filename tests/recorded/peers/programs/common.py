"""What the programs share: a tool's effect in a file, the state in another, and processes that resume it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

FOLDER = Path(os.environ.get("FOLDER") or mkdtemp())
LOG, STATE = FOLDER / "paid", FOLDER / "state"


def paid(euros: int) -> str:
    """Leave the effect of the tool, then die or take long as the command line asks."""
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"{euros} ")
    if "die" in sys.argv:
        os._exit(9)
    time.sleep(0.5 if "slow" in sys.argv else 0)
    return "ok"


def processes(*options: str) -> list[int]:
    """Resume in a process for each option, all at once, and return their exit codes."""
    env = {**os.environ, "FOLDER": str(FOLDER)}
    running = [
        subprocess.Popen([sys.executable, sys.argv[0], "resume", option, *sys.argv[1:]], env=env) for option in options
    ]
    return [each.wait() for each in running]


def show(what: str, *seen: object) -> None:
    """Print what came of a case, and forget what was paid."""
    sys.stdout.write(f"{what}: {' '.join(map(str, seen))}; paid {LOG.read_text() if LOG.exists() else 'nothing'}\n")
    LOG.unlink(missing_ok=True)


def attempt(function: Callable[[], object]) -> object:
    """Return what a function returns, or the error that it raised as text."""
    try:
        return function()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:70]}"


def play(begin: Callable[[int], object], *cases: tuple[int, str, Callable[[], object]]) -> None:
    """Begin each case with its number of calls, and show what came of it."""
    for calls, what, act in cases:
        begin(calls)
        show(what, act())
