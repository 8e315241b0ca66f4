"""Attack the promises of toolloop from outside: `python -m tests.promises.attack [--share 0.05] [--seed 1] [--write]`.

Each attack is judged by ledgers that the tools write themselves. The program prints a table, and a line for each
broken promise; then it exits with 1. `--write` puts the table into `docs/reliability.md`.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.kit.fork_server import ForkServer
from tests.kit.postgres import leave_shared_server
from tests.kit.warm_python import warm
from tests.promises.attack.attacks import ATTACKS, COUNTS
from tests.promises.attack.places import LeftOut
from tests.promises.attack.row import Row, table

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"
TABLE = re.compile(r"(?<=<!-- attacked -->\n).*?(?=<!-- end of attacked -->)", re.DOTALL)


def attacked(share: float, seed: int) -> Iterator[Row]:
    """Run every attack with a share of its full count."""
    with ForkServer(warm("tests.promises.attack.programs")) as server:
        for name, attack in ATTACKS.items():
            sys.stderr.write(f"{name} ...\n")
            # An interrupted process may still write to the folder while it is removed.
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                try:
                    row = attack(max(1, round(COUNTS[name] * share)), seed, Path(folder), server)
                except LeftOut as missing:
                    sys.stderr.write(f"left out: {missing}\n")
                    continue
            sys.stderr.write(f"{' | '.join(row.cells())}\n")
            sys.stderr.writelines(f"{finding}\n" for finding in row.findings)
            yield row


def main() -> int:
    """Attack, print, and write if asked to. Returns 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description="Attack the promises of toolloop from outside.")
    parser.add_argument("--share", type=float, default=1.0, help="of the full count of rounds")
    parser.add_argument("--seed", type=int, default=1, help="what the attacks are drawn from")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    asked = parser.parse_args()
    logging.disable()
    sys.unraisablehook = lambda _: None  # an interrupt may strike a finalizer, too
    try:
        rows = list(attacked(asked.share, asked.seed))
    finally:
        leave_shared_server()
    text = f"\nSeed {asked.seed}, {asked.share:.0%} of the full counts.\n\n{table(rows)}\n\n"
    sys.stdout.write(text)
    findings = [finding for row in rows for finding in row.findings]
    sys.stdout.writelines(f"{finding}\n" for finding in findings)
    if asked.write:
        PAGE.write_text(TABLE.sub(lambda _: text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
