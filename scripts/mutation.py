"""Mutate the rules of the machine, and show which mutants the tests do not notice.

    python scripts/mutation.py            all mutants of the files that `[tool.mutmut]` names
    python scripts/mutation.py PATTERN …  those whose names match, such as 'toolloop.machine.tree.*'

It works on the copy that mutmut makes in `mutants/`, prints every survivor as a diff, and exits with 1 if the tests
kill less than 95 % of the mutants, or if mutmut did not run them all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEAST = 0.95
# What mutmut notes of a mutant is the exit code of its tests: they fail, or take too long.
KILLED = {1, 3, 24, -24, 36, 152, 255}


def mutmut(*arguments: str) -> str:
    """Run mutmut, and return what it prints."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - ours


def exit_codes() -> dict[str, int | None]:
    """Return the exit codes of the mutants, by name; None: a mutant was not run."""
    found: dict[str, int | None] = {}
    for path in sorted((ROOT / "mutants" / "src").rglob("*.meta")):
        found |= json.loads(path.read_text())["exit_code_by_key"]
    return found


def main() -> int:
    """Return the exit code of the program."""
    patterns = sys.argv[1:] or ["*"]
    mutmut("run", *patterns)
    codes = {name: code for name, code in exit_codes().items() if any(fnmatch(name, pattern) for pattern in patterns)}
    if not codes or None in codes.values():
        sys.exit("mutmut did not run every mutant: look at what it prints by itself, with `python -m mutmut run`")
    survivors = [name for name, code in codes.items() if code not in KILLED]
    for name in survivors:
        print(mutmut("show", name))
    share = 1 - len(survivors) / len(codes)
    print(f"{len(codes)} mutants, {len(survivors)} survivors: {share:.1%} killed")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())
