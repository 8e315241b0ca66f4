"""How many turns per second several processes store, each in a loop of its own: in one file, and in one database."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.kit.postgres import own_server, programs
from tests.measured.benchmarks import rounds
from tests.measured.benchmarks.measure import ROOT
from tests.measured.benchmarks.stored import Model, look_up
from tests.promises.processes.programs import store_of
from toolloop import LoopConfig, ToolLoopHandle

_PROCESSES = (1, 8)


def drive(place: str, turns: int) -> None:
    """Drive a new loop for so many turns, once a line arrives."""
    with store_of(place) as store:
        store.list(limit=1)  # so that the first turn opens nothing
        parts = {"params": rounds.params(), "tools": [look_up], "config": LoopConfig(max_iterations=turns)}
        with ToolLoopHandle(Model(), store=store, loop_id=uuid.uuid4().hex, **parts) as handle:  # type: ignore[arg-type] # they are those
            print("ready", flush=True)  # noqa: T201 - a program
            sys.stdin.readline()
            handle.run()
            print("done", flush=True)  # noqa: T201 - likewise


def turns_per_second(place: str, processes: int, turns: int) -> float:
    """Return the turns of all processes per second by the wall clock."""
    command = [sys.executable, "-m", "tests.measured.benchmarks.throughput", place, str(turns)]
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(processes)
        ]
        for each in running:
            if each.stdout is None or each.stdout.readline() != "ready\n":
                raise RuntimeError("a process did not start")
        begun = time.perf_counter()
        for each in running:
            print(file=each.stdin, flush=True)
        for each in running:
            if each.stdout is None or each.stdout.readline() != "done\n":
                raise RuntimeError("a process failed")
        return processes * turns / (time.perf_counter() - begun)


def measure(folder: Path, turns: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each store. Both write each commit to the disk."""
    yield "SqliteStore", *_row(str(folder / "shared.db"), turns)
    if programs() is not None:
        with own_server() as server:
            yield "PostgresStore", *_row(server.database(), turns)


def _row(place: str, turns: int) -> tuple[str, ...]:
    return tuple(f"{turns_per_second(place, processes, turns):,.0f}" for processes in _PROCESSES)


if __name__ == "__main__":
    drive(sys.argv[1], int(sys.argv[2]))
