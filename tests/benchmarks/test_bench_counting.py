"""Instructions are counted of what is marked, or not at all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from attrs import evolve

from tests.benchmarks.instructions import CALLGRIND, PERF, Counter, counter, per_turn, to_start
from tests.benchmarks.measure import ROOT, environment
from tests.benchmarks.server import serving

pytestmark = pytest.mark.bench

# Prints what `perf stat -x,` does of a program that takes 1,000 instructions a turn and 77 beside; not the program's.
ROTE = """
import sys
print("what the program says")
turns = int(sys.argv[-1]) if sys.argv[-1].isdigit() else len(sys.argv[-1])
print(f"{1000 * turns + 77},,instructions:u,51,100.00,,", file=sys.stderr)
"""
MARKED = """
from tests.benchmarks.counted import counting
sum(range(1_000_000))
with counting():
    sum(range({}))
"""


def by_rote(program: str) -> Counter:
    return evolve(PERF, command=(sys.executable, "-c", program))


def test_a_turn_is_the_difference_of_two_runs() -> None:
    """All that is not of the turns drops out."""
    assert per_turn(by_rote(ROTE), ("talk", "floor", "http://127.0.0.1"), low=3, high=8) == 1000


def test_an_import_is_counted_beyond_an_empty_program() -> None:
    """The statement's own instructions."""
    assert to_start(by_rote(ROTE), "import this") == 1000 * (len("import this") - len("pass"))


@pytest.mark.parametrize(
    "program",
    [
        "import sys; print('<not supported>,,instructions:u,0,100.00,,', file=sys.stderr)",
        "import sys; print('12,,instructions:u,0,100.00,,', file=sys.stderr); sys.exit(1)",
    ],
    ids=["where the machine does not count", "when the program fails"],
)
def test_no_count_is_an_error_and_no_figure(program: str) -> None:
    """Never a wrong figure."""
    with pytest.raises(RuntimeError, match="perf stat counted nothing"):
        by_rote(program).count(("-c", "pass"))


def test_without_a_program_that_counts_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither valgrind nor perf is there."""
    monkeypatch.setenv("PATH", "")
    assert counter() is None


def test_what_is_counted_runs_without_a_counter_too() -> None:
    """A conversation that stops early, or a round of another course, would have failed."""
    program = [sys.executable, "-m", "tests.benchmarks.counted"]
    with serving() as url:
        for what in (["talk", "floor", url, "3"], ["machine", "2", "3"]):
            subprocess.run([*program, *what], check=True, env=environment(), cwd=ROOT)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_callgrind_counts_what_is_marked() -> None:
    """A hundred thousand steps more are seen; a million before the mark are not."""
    with ThreadPoolExecutor() as pool:
        few, many = pool.map(lambda steps: CALLGRIND.count(("-c", MARKED.format(steps))), (100, 100_100))
    assert few < 1_000_000
    assert 1_000_000 < many - few < 100_000_000
