"""What an import adds to the start of an interpreter, with its bytecode at hand, as an installed package has it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from statistics import median

STATEMENTS = ("import toolloop", "from toolloop import ToolLoopHandle, LoopConfig, tool")

_EMPTY = "pass"


def seconds_to_import(statements: Sequence[str] = STATEMENTS, runs: int = 15) -> dict[str, float]:
    """Seconds by the clock on the wall, beyond those of an empty program: medians over runs that take turns."""
    taken: dict[str, list[float]] = {statement: [] for statement in statements}
    with tempfile.TemporaryDirectory() as folder:
        environment = with_bytecode(folder)
        for statement in statements:
            _started(statement, environment)  # compiles what is new
        for _ in range(runs):
            empty = _started(_EMPTY, environment)
            for statement, each in taken.items():
                each.append(_started(statement, environment) - empty)
    return {statement: median(each) for statement, each in taken.items()}


def with_bytecode(folder: str) -> dict[str, str]:
    """The environment of a program that keeps compiled modules in that folder, and finds them there."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def _started(program: str, environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    return time.perf_counter() - start
