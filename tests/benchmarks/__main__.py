"""All of the benchmark: `python -m tests.benchmarks [--quick]`.

It measures toolloop, what it is held against, and the peers, prints a report, and writes it to `docs` with a plot. A
quick run measures less, leaves the peers out where they are not set up, and writes nothing. This is no gate: a target
that is missed is shown as missed, and the program exits 0.
"""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec

from tests.benchmarks import page
from tests.benchmarks.gather import QUICK, WHOLE, run
from tests.benchmarks.measure import ROOT


def main(*, quick: bool) -> None:
    """Measure and print; a whole run writes the page and the plot, too."""
    if not quick and find_spec("matplotlib") is None:
        sys.exit("the plot needs matplotlib: `make bench` installs it, so does `pip install --group bench`")
    start = time.monotonic()
    figures = run(QUICK if quick else WHOLE)
    sys.stdout.write(page.text(figures))
    if not quick:
        page.write(figures, ROOT / "docs")
        sys.stdout.write("\nwritten to docs/benchmarks.md\n")
    sys.stderr.write(f"{time.monotonic() - start:.0f} seconds\n")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
