"""The whole benchmark: `python -m tests.measured.benchmarks [--quick]`.

It measures toolloop and the peers in one run, and prints a report; a whole run also writes it to `docs/benchmarks.md`,
with its pictures. A quick run measures less, leaves out peers that are not set up, and writes nothing. This is not a
gate: a missed target is shown as missed, and the program exits 0.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from tests.measured.benchmarks import (
    batch,
    compare,
    conversations,
    deciding,
    peers,
    promised,
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

Each library runs in a process of its own, in its newest version. A clock starts when all processes stand ready, and
the libraries take turns. A cell holds the median over the rounds, then the least and the most. All of it runs on one
machine with loopback for a network, so a real model adds its seconds to each of these figures. A library that cannot do
something has the reason in its row. openai-agents has no client of its own for the Messages API, so it is not in the
table of CPU time."""

# Seconds after which further runs of the CPU time, and further rounds of the libraries, are left out.
_TIMES = (240.0, 480.0)

Section = tuple[str, list[compare.Plot]]


def main(*, quick: bool) -> None:
    """Measure and print; a whole run writes the page and its pictures, too."""
    start = time.monotonic()
    parts, pictures = [_HEAD], list[compare.Plot]()
    for text, plots in sections(quick=quick):
        shown = [f"![{text.splitlines()[0].removeprefix('## ')}](images/benchmarks-{name}.svg)" for name, _ in plots]
        parts += [text, *shown]
        pictures += plots
    page = "\n\n".join(parts) + "\n"
    sys.stdout.write(page)
    if not quick:
        (ROOT / "docs" / "benchmarks.md").write_text(page, encoding="utf-8")
        for name, picture in pictures:
            (ROOT / "docs" / "images" / f"benchmarks-{name}.svg").write_text(picture, encoding="utf-8")
    sys.stderr.write(f"{time.monotonic() - start:.0f} seconds\n")


def sections(*, quick: bool) -> Iterator[Section]:
    """Measure everything; yield the sections of the report with their pictures.

    What every row needs comes first. On a slow machine, further rounds are left out, so that it ends in time.
    """
    begun, python = time.monotonic(), peers.python(make=not quick)
    late = [partial(_is_late, begun, seconds) for seconds in _TIMES]
    with serving() as url, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = [*_noted(_own(folder, url, quick=quick))]
        lengths, runs, seconds = ((20, 100), 1, 0.1) if quick else ((20, 100, 400), 2, 0.3)
        turned = conversations.measure(
            url, python, lengths=lengths, runs=runs, seconds=seconds, counts=not quick, late=late[0]
        )
        stores, batches = _throughput(folder, 20 if quick else 100), _batch(folder, 8 if quick else 16)
        compared = compare.measure(folder, python, compare.QUICK if quick else compare.WHOLE, late[1])
    yield targets([*figures, *compared.figures(), *turned.figures()]), []
    yield from compared.sections()
    cpu, *counted = turned.tables()
    yield cpu, [("cpu", turned.plot())]
    yield from ((each, []) for each in (*counted, stores, batches))
    yield "\n".join(["## The machine and the versions", "", *_made_on(), f"- {peers.versions(python)}"]), []


def _is_late(begun: float, seconds: float) -> bool:
    taken = time.monotonic() - begun
    if taken > seconds:
        sys.stderr.write(f"left out after {taken:.0f} seconds\n")
    return taken > seconds


def _own(folder: Path, url: str, *, quick: bool) -> Iterator[Figure]:
    """Measure what needs no peer."""
    yield from deciding.measure(folder, *((1000, 20, 2.0) if quick else (10_000, 30, 5.0)))
    yield from deciding.measure_stops(folder, 20 if quick else 40)
    yield deciding.measure_parallel(5 if quick else 50)
    yield from waiting.measure(folder, *((1000, 50) if quick else (10_000, 500)))
    with stored.in_memory() as fast:  # CPU time, counts and bytes
        yield from waking.measure(fast, *((100, 200) if quick else (1000, 5000)))
        yield from promised.measure(fast, url, *((1000, 1) if quick else (10_000, 5)))
        yield from stored.measure(fast, 200 if quick else 1000)


def _noted(figures: Iterator[Figure]) -> Iterator[Figure]:
    for figure in figures:
        sys.stderr.write(f"{figure.what}\n")
        yield figure


def _throughput(folder: Path, turns: int) -> str:
    sys.stderr.write("stored turns per second\n")
    return table(
        "Stored turns per second",
        ("", "1 process", "8 processes"),
        throughput.measure(folder, turns),
        f"Each process drives a loop of its own for {turns} turns with one call each, and the model answers at once. "
        "The store, the processes and the server of the database are on this machine. By the wall clock.",
    )


def _batch(folder: Path, loops: int) -> str:
    sys.stderr.write("a batch against a rate limit\n")
    return table(
        "A batch against a rate limit",
        ("", "loops that ended", "share of what the API allows", "requests", "seconds"),
        batch.measure(folder, loops),
        f"{loops} loops of two requests each, all at a time. The API takes {batch.PER_SECOND} requests a second, and "
        "refuses the others with `retry-after: 1`. The retries are those of the client.",
    )


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
