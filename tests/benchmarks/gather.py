"""Everything is measured here, as much of it as an `Extent` says."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from attrs import evolve, frozen

from tests.benchmarks import instructions, journal, peers
from tests.benchmarks.contest import CONTESTANTS, Contestant
from tests.benchmarks.figures import Checkpoints, Counted, Figures
from tests.benchmarks.imports import STATEMENTS, seconds_to_import
from tests.benchmarks.listing import seconds_to_list
from tests.benchmarks.machine_turn import seconds_per_turn
from tests.benchmarks.measure import measure
from tests.benchmarks.server import serving
from tests.benchmarks.waking import seconds_to_wake

_FAILED = "it failed"


@frozen
class Extent:
    """How much of everything a run does.

    Attributes:
        contestants: who takes part.
        lengths: of the conversations, in turns.
        runs: of each contestant, at most.
        seconds: of CPU, for which a conversation is held again and again in a run.
        rounds: of the journal.
        loops: that are listed.
        machine: the rounds that the pure machine is measured at.
        repeats: of what is quick to measure.
        starts: of an interpreter, for each import.
        is_counted: whether instructions are counted.
        sets_up: whether the peers' environment is made.
        is_short: whether that is too little to judge ratios of times.

    """

    contestants: tuple[Contestant, ...]
    lengths: tuple[int, ...]
    runs: int
    seconds: float
    rounds: int
    loops: int
    machine: tuple[int, ...]
    repeats: int
    starts: int
    is_counted: bool
    sets_up: bool
    is_short: bool

    @property
    def store_turns(self) -> int:
        """Of the conversations over each store, and the peer's, whose time is taken."""
        return self.rounds // 5


WHOLE = Extent(
    contestants=CONTESTANTS,
    lengths=(20, 100, 400),
    runs=5,
    seconds=0.5,
    rounds=1000,
    loops=10_000,
    machine=(10, 10_000),
    repeats=5,
    starts=15,
    is_counted=True,
    sets_up=True,
    is_short=False,
)
QUICK = evolve(
    WHOLE,
    lengths=(20, 100),
    runs=2,
    seconds=0.1,
    rounds=200,
    loops=1000,
    repeats=2,
    starts=5,
    is_counted=False,
    sets_up=False,
    is_short=True,
)


def run(extent: Extent) -> Figures:
    """Measure everything."""
    python, why = _peers(make=extent.sets_up)
    with serving() as url, tempfile.TemporaryDirectory() as name:
        counted = _count(extent, url) if extent.is_counted else "a quick run does without"
        samples, left_out = cpu_per_turn(extent, url, python, why)
        say("the machine alone, and what an import takes")
        machine = seconds_per_turn(*extent.machine, loops=extent.repeats)
        imports = seconds_to_import(runs=extent.starts)
        folder = Path(name)
        say(f"{extent.loops:,} loops asleep")
        folding = seconds_to_wake(extent.rounds)
        listing = seconds_to_list(folder, extent.loops)
        say(f"a journal of {extent.rounds:,} rounds")
        kept = journal.kept(folder, extent.rounds)
        stores = journal.seconds_per_turn(folder, turns=extent.store_turns, runs=extent.repeats)
        checkpoints = {kind: _checkpoints(extent, kind, python, why, folder) for kind in peers.KINDS}
    say("")
    return Figures(
        samples=samples,
        is_short=extent.is_short,
        left_out=left_out,
        counted=counted,
        machine=machine,
        imports=imports,
        kept=kept,
        stores=stores,
        store_turns=extent.store_turns,
        repeats=extent.repeats,
        starts=extent.starts,
        checkpoints=checkpoints,
        folding=folding,
        listing=listing,
        listed=extent.loops,
        made_on=(_machine(), _own_versions(), *([] if python is None else [_named(peers.versions(python).items())])),
        day=datetime.now(tz=UTC).date().isoformat(),
    )


def _peers(*, make: bool) -> tuple[Path | None, str]:
    """The peers' interpreter, or why there is none."""
    try:
        return peers.python(make=make), ""
    except peers.NotThere as error:
        return None, str(error)


def cpu_per_turn(
    extent: Extent, url: str, python: Path | None, why: str
) -> tuple[dict[str, list[dict[int, float]]], dict[str, str]]:
    """Seconds of CPU per turn of each contestant's runs, and why the others were left out.

    The contestants take turns, so that a slow minute of the machine hits all of them.
    """
    taken: dict[str, list[dict[int, float]]] = {}
    left_out = {each.name: why for each in extent.contestants if each.is_peer and python is None}
    for number in range(1, extent.runs + 1):
        for each in extent.contestants:
            if each.name in left_out or number > max(1, each.runs * extent.runs // WHOLE.runs):
                continue
            say(f"run {number} of {extent.runs}: {each.label}")
            interpreter = python if each.is_peer and python is not None else sys.executable
            try:
                found = measure(each.name, url, extent.lengths, python=interpreter, seconds=extent.seconds)
            except subprocess.CalledProcessError:
                if not each.is_peer:
                    raise
                left_out[each.name] = _FAILED
                taken.pop(each.name, None)
            else:
                taken.setdefault(each.name, []).append(found)
    return taken, left_out


def _count(extent: Extent, url: str) -> Counted | str:
    """Instructions of whatever is counted, or why there are none."""
    say("instructions")
    counter = instructions.counter()
    if counter is None:
        return "neither callgrind nor perf stat works"
    turns, machine, imports = {}, {}, {}
    for each in extent.contestants:
        if each.is_counted:
            say(f"instructions: {each.label}")
            turns[each.name] = instructions.per_turn(counter, ("talk", each.name, url))
    say("instructions: toolloop once more")
    again = instructions.per_turn(counter, ("talk", "toolloop_handle", url))
    for round_ in extent.machine:
        say(f"instructions: the machine at round {round_:,}")
        machine[round_] = instructions.per_turn(counter, ("machine", str(round_)))
    for statement in STATEMENTS:
        say(f"instructions: {statement}")
        imports[statement] = instructions.to_start(counter, statement)
    return Counted(counter.name, turns, again, machine, imports)


def _checkpoints(extent: Extent, kind: str, python: Path | None, why: str, folder: Path) -> Checkpoints | str:
    """What the peer keeps, or why that is not known."""
    if python is None:
        return why
    say(f"LangGraph's checkpointer, {kind}, {extent.rounds:,} rounds")
    turns, runs = extent.store_turns, extent.repeats
    try:
        return peers.measure(python, kind, extent.rounds, folder, turns=turns, runs=runs)
    except subprocess.CalledProcessError:
        return _FAILED


def _machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    model = next(models, platform.processor() or platform.machine())
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"


def _own_versions() -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"{python}, {_named((name, version(name)) for name in ('toolloop', 'anthropic', 'httpx2', 'pydantic'))}"


def _named(versions: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions)


def say(what: str) -> None:
    """Tell the person at the terminal what is going on."""
    sys.stderr.write(f"\r\033[K{what}")
    sys.stderr.flush()
