"""Mutate the rules of the machine, and show which mutants the tests do not notice.

    python scripts/mutation.py            all mutants of the files that `[tool.mutmut]` names
    python scripts/mutation.py PATTERN …  those whose names match, such as 'toolloop.machine.tree.*'

It works on the copy that mutmut makes in `mutants/`, prints every survivor as a diff, and exits with 1 if the tests
kill less than 95 % of the mutants, or if mutmut did not run them all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPY = ROOT / "mutants"
LEAST = 0.95
# mutmut switches a mutant on after it imported the tests. These functions run only while a module is imported, so their
# mutants get a process of their own, in which they are on from the start.
AT_IMPORT = "toolloop.machine.machine.x__make_row__*"
# What mutmut notes of a mutant is the exit code of its tests: they fail, or take too long.
KILLED = {1, 3, 24, -24, 36, 152, 255}


def mutmut(*arguments: str) -> str:
    """Run mutmut, and return what it prints."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - ours


def exit_codes() -> dict[str, int | None]:
    """Return the exit codes of the mutants, by name; None: a mutant was not run."""
    found: dict[str, int | None] = {}
    for path in sorted((COPY / "src").rglob("*.meta")):
        found |= json.loads(path.read_text())["exit_code_by_key"]
    return found


def survives_import(name: str) -> bool:
    """Return whether the tests of the table pass with a mutant that is on while the modules are imported."""
    switched_on = {"MUTANT_UNDER_TEST": name, "PYTHONPATH": f"{COPY / 'src'}{os.pathsep}{COPY}"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "tests/machine/test_laws.py"]
    done = subprocess.run(command, cwd=COPY, env=os.environ | switched_on, check=False, capture_output=True)  # noqa: S603 - ours
    return done.returncode == 0


def main() -> int:
    """Return the exit code of the program."""
    patterns = sys.argv[1:] or ["*"]
    mutmut("run", *patterns)
    codes = {name: code for name, code in exit_codes().items() if any(fnmatch(name, pattern) for pattern in patterns)}
    if not codes or None in codes.values():
        sys.exit("mutmut did not run every mutant: look at what it prints by itself, with `python -m mutmut run`")
    survivors = [name for name, code in codes.items() if code not in KILLED]
    survivors = [name for name in survivors if not fnmatch(name, AT_IMPORT) or survives_import(name)]
    for name in survivors:
        print(mutmut("show", name))
    share = 1 - len(survivors) / len(codes)
    print(f"{len(codes)} mutants, {len(survivors)} survivors: {share:.1%} killed")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())
