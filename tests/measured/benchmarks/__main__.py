"""The whole benchmark: `python -m tests.measured.benchmarks [--quick]`.

It measures toolloop, bare loops and the peers in one run, and prints a report; a whole run also writes it to
`docs/benchmarks.md`. A quick run measures less, leaves out peers that are not set up, and writes nothing. This is not a
gate: a missed target is shown as missed, and the program exits 0.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

from tests.measured.benchmarks import (
    batch,
    conversations,
    deciding,
    machine_turn,
    peers,
    rounds,
    stored,
    throughput,
    waiting,
    waking,
)
from tests.measured.benchmarks.measure import ROOT
from tests.measured.benchmarks.report import Figure, table, targets
from tests.measured.benchmarks.server import serving

_HEAD = """\
# Benchmarks

Written by `make bench` and by nothing else; `make bench-quick` prints a shorter run and writes nothing.
Where the time of a turn goes is in [Performance](performance.md).

Each contestant holds the same conversation in a process of its own: one call of one tool a turn, about 1.1 KB more of
history each time, over HTTP on loopback, with a server in another process. CPU time is that of the contestant's
process, user and system, without imports and the first turns.

The floor is a hand-written loop of `httpx2` and the standard `json` that keeps encoded messages. The bare post sends
the same ready bytes and reads no reply. LangGraph is a graph of a model and its tools over langchain-anthropic, without
a checkpointer."""


def main(*, quick: bool) -> None:
    """Measure and print; a whole run writes the page, too."""
    start = time.monotonic()
    text = "\n\n".join([_HEAD, *sections(quick=quick)]) + "\n"
    sys.stdout.write(text)
    if not quick:
        (ROOT / "docs" / "benchmarks.md").write_text(text, encoding="utf-8")
    sys.stderr.write(f"{time.monotonic() - start:.0f} seconds\n")


def sections(*, quick: bool) -> Iterator[str]:
    """Measure everything; yield the sections of the report."""
    python = peers.python(make=not quick)
    turns = 200 if quick else 1000
    extent = {"lengths": (20, 100) if quick else (20, 100, 400), "runs": 1 if quick else 5}
    with serving() as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        turned = conversations.measure(url, python, seconds=0.1 if quick else 0.5, counts=not quick, **extent)  # type: ignore[arg-type]  # a tuple and a number
        kept, row = stored.measure(folder, turns, 1000 if quick else 10_000)
        kept += waking.measure(folder, *((100, 200) if quick else (1000, 5000)))
        kept += waiting.measure(folder, *((1000, 50) if quick else (10_000, 500)))
        kept += deciding.measure(folder, *((1000, 20, 2.0) if quick else (10_000, 100, 10.0)))
        kept += [*deciding.measure_stops(folder, 20 if quick else 100), deciding.measure_parallel(5 if quick else 50)]
        yield targets([*turned.figures(), *kept, *_machine(2 if quick else 5), *_imports(5 if quick else 15)])
        yield from turned.tables()
        yield table(
            f"The file of {turns:,} rounds, and what a turn writes",
            ("", "MB", "KB at round 10", "KB at round 100", "KB at round 1,000"),
            [row, *peers.checkpoints(python, turns, folder)],
            "One call a round, 200 bytes in and 1 KB out, in one `run()` or `invoke`; the raw JSON of the messages has "
            f"{rounds.raw_bytes(turns) / 1e6:.3f} MB. Means of the fifty turns up to each round.",
        )
        kept_rows = _throughput(folder, 20 if quick else 200)
        batch_rows = _batch(folder, 20 if quick else 200)
    yield kept_rows
    yield batch_rows
    yield "\n".join(["## The machine and the versions", "", *_made_on()])


def _throughput(folder: Path, turns: int) -> str:
    return table(
        "Stored turns per second",
        ("", "1 process", "8 processes"),
        throughput.measure(folder, turns),
        f"Each process drives a loop of its own for {turns} turns with one call each, and the model answers at once. "
        "The store, the processes and the server of the database are on this machine. By the wall clock.",
    )


def _batch(folder: Path, loops: int) -> str:
    return table(
        "A batch against a rate limit",
        ("", "loops that ended", "share of what the API allows", "requests", "seconds"),
        batch.measure(folder, loops),
        f"{loops} loops of two requests each, all at a time. The API takes {batch.PER_SECOND} requests a second, and "
        "refuses the others with `retry-after: 1`. The retries are those of the client.",
    )


def _machine(loops: int) -> Iterator[Figure]:
    taken = machine_turn.seconds_per_turn(10, 10_000, loops=loops)
    slower = max(taken.values())
    yield Figure("the pure machine, a turn with one call, at rounds 10 and 10,000", slower * 1e6, 75, "us")
    yield Figure("the same, the slower round over the faster", slower / min(taken.values()), 1.2, "x")


def _imports(runs: int) -> Iterator[Figure]:
    """Seconds that an import adds to the start of an interpreter, with its bytecode cached."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def started(program: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, env=kept)
        return time.perf_counter() - start

    for statement, bound in (
        ("import toolloop", 25),
        ("from toolloop import ToolLoopHandle, LoopConfig, tool", 180),
    ):
        started(statement)  # compiles what is new
        taken = median(started(statement) - started("pass") for _ in range(runs))
        yield Figure(f"`{statement}`", taken * 1e3, bound, "ms")


def _made_on() -> Iterator[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    model = next(models, platform.processor() or platform.machine())
    named = ", ".join(f"{name} {version(name)}" for name in ("toolloop", "anthropic", "httpx2", "pydantic"))
    yield f"- Measured on {datetime.now(tz=UTC).date().isoformat()}."
    yield f"- {model}, {os.cpu_count()} cores, {platform.system()}"
    yield f"- CPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {named}"


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
