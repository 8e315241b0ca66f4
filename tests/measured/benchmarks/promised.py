"""Figures of the design's table that need no peer: the start of a script, confirmed writes, the cache, statistics."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.kit.prompt_cache import share_read
from tests.measured.benchmarks import rounds
from tests.measured.benchmarks.measure import ROOT, environment
from tests.measured.benchmarks.report import Figure
from tests.measured.benchmarks.stored import CountingStore, Model, ask_first, begin, drive
from toolloop import Inbox, LoopConfig, SqliteStore, ToolLoopHandle

_TURNS, _DECISIONS = 20, 3


def seconds_to_answer(name: str, url: str) -> float:
    """Return the seconds of CPU of a script up to its first answer, with its bytecode cached."""
    kept = {key: value for key, value in environment().items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "tests.measured.benchmarks.starting", name, url]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=kept, cwd=ROOT).stdout)


def measure_start(url: str, runs: int) -> Figure:
    """Measure what a loop adds to the start of a script: both scripts take turns, the first pair compiles."""
    more = [seconds_to_answer("toolloop", url) - seconds_to_answer("create", url) for _ in range(runs + 1)][1:]
    what = "CPU from process start to the first answer, beyond the SDK's own `create`"
    return Figure(what, median(more) * 1e3, 100, "ms")


def measure_writes(folder: Path) -> Figure:
    """Count the commits of a stored turn; each is one confirmed write (`synchronous = FULL`)."""
    with CountingStore(folder / "counted.db") as store:
        counts: list[int] = []
        drive(begin(store, _TURNS, before=lambda: counts.append(store.appends)), _TURNS)
    return Figure("confirmed writes of a stored turn of `run()`", (counts[-1] - counts[1]) / (_TURNS - 2), 2)


def seconds_of_statistics(folder: Path, loops: int) -> float:
    """Return the seconds of CPU to count the decisions of so many loops, three in each.

    Raises:
        ValueError: another number was counted.

    """
    with SqliteStore(folder / "counted-decisions.db") as store:
        config = LoopConfig(max_iterations=_DECISIONS)
        parts = {"params": rounds.params(), "tools": [ask_first], "config": config}
        with ToolLoopHandle(Model(), store=store, loop_id="loop-0", **parts) as handle:  # type: ignore[arg-type]  # they are those
            handle.run(lambda turn: turn.approve_all(by="ana"))
        entries, head = store.load("loop-0").entries, store.head("loop-0").head
        for number in range(1, loops):
            store.create(f"loop-{number}", entries, head=head)
        begun = time.process_time()
        found = Inbox(store).statistics()
        taken = time.process_time() - begun
    decided = found.calls[rounds.TOOL]["approved"]
    if decided != _DECISIONS * loops:
        raise ValueError(f"{decided} calls were counted, expected {_DECISIONS * loops}")
    return taken


def measure_cache() -> Figure:
    """Read from the cache of the fake API, after a person thought for half an hour."""
    what = 'after 30 minutes with `cache="1h"`: the part of the prefix that is read from the cache'
    return Figure(what, 100 * share_read("1h", wait=1800.0), 95, "%", at_least=True)


def measure(folder: Path, url: str, loops: int, runs: int) -> Iterator[Figure]:
    """Measure in an empty folder."""
    yield measure_start(url, runs)
    yield measure_writes(folder)
    yield measure_cache()
    what = f"`statistics` over {loops:,} loops of {_DECISIONS} decisions, CPU"
    yield Figure(what, seconds_of_statistics(folder, loops), 2, "s")
