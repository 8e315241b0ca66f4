"""CPU per turn of toolloop, of the floor and of the peers, side by side: `python -m tests.benchmarks.turns [--quick]`.

Each contestant runs in a process of its own, against a server in another, in several rounds that take turns, so that a
slow minute of the machine hits all of them. The figures are medians. This is no gate: it reports, and exits 0.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from tests.benchmarks.machine_turn import seconds_per_turn
from tests.benchmarks.measure import CONTESTANTS, measure
from tests.benchmarks.report import report
from tests.benchmarks.server import serving

_IMPORTS = 5


def main(*, quick: bool) -> None:
    """Measure, and print the report."""
    rounds, lengths = (2, (20, 100)) if quick else (5, (20, 100, 400))
    samples: dict[str, list[dict[int, float]]] = {name: [] for name in CONTESTANTS}
    with serving() as url:
        for number in range(1, rounds + 1):
            for name in CONTESTANTS:
                sys.stderr.write(f"\r\033[Kround {number} of {rounds}: {name}")
                samples[name].append(measure(name, url, lengths))
    sys.stderr.write("\r\033[K")
    figures = {
        name: {turns: median(sample[turns] for sample in taken) for turns in lengths} for name, taken in samples.items()
    }
    sys.stdout.write(report(figures, seconds_per_turn(10, 10_000), import_seconds()))


def import_seconds() -> float:
    """What `import toolloop` adds to the start of an interpreter: wall time, the median of five."""
    return median(_started("import toolloop") - _started("pass") for _ in range(_IMPORTS))


def _started(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
