"""Instructions per turn: a figure that other work on the machine does not move.

By `valgrind --tool=callgrind` where it is installed, else by `perf stat` where the machine lets it count; else there is
no figure. Each figure is the difference of two runs, of which one goes some turns further: so all that comes before and
after the turns drops out. Hashes are the same in each run (`PYTHONHASHSEED=0`), else the figures would differ.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from attrs import frozen

from tests.benchmarks.counted import SWITCHED
from tests.benchmarks.imports import with_bytecode
from tests.benchmarks.measure import ROOT, environment

LOW, HIGH = 20, 60

_MARKED = "from tests.benchmarks.counted import counting\nwith counting(): pass"

Count = Callable[[Sequence[str]], int]


@frozen
class Counter:
    """A program that counts instructions.

    Attributes:
        name: what the report calls it.
        command: what stands before the program that is counted.
        switched: also before it, where the program says itself from where on to count.
        variables: of the program's environment then.
        pattern: finds the count in what is printed to standard error.

    """

    name: str
    command: tuple[str, ...]
    switched: tuple[str, ...]
    variables: Mapping[str, str]
    pattern: str

    def count(self, program: Sequence[str], *, whole: Mapping[str, str] | None = None) -> int:
        """The instructions of a Python program: of the part that it marks, or of all of it in that environment.

        Raises:
            RuntimeError: the program failed, or nothing was counted.

        """
        command = [*self.command, *(self.switched if whole is None else ()), sys.executable, *program]
        variables = {**environment(), **self.variables} if whole is None else whole
        variables = {**variables, "PYTHONHASHSEED": "0"}
        ended = subprocess.run(
            command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=variables, cwd=ROOT
        )
        found = re.findall(self.pattern, ended.stderr)
        if ended.returncode or not found:
            raise RuntimeError(f"{self.name} counted nothing: {ended.stderr[-2000:]}")
        return int(found[-1])


CALLGRIND = Counter(
    "valgrind --tool=callgrind",
    ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"),
    ("--instr-atstart=no",),
    {SWITCHED: "1"},
    r"Collected : (\d+)",
)
# Marks mean nothing to it: all of the program is counted, and the difference of two runs is the same.
PERF = Counter("perf stat", ("perf", "stat", "-x,", "-e", "instructions:u"), (), {}, r"(?m)^(\d+),.*instructions:u")


def counter() -> Counter | None:
    """The first that works here: it is installed, may look at the program, and counts a short one."""
    for each in (CALLGRIND, PERF):
        if shutil.which(each.command[0]) is None:
            continue
        try:
            each.count(("-c", _MARKED))
        except RuntimeError:
            continue
        return each
    return None


def per_turn(counted: Counter, program: Sequence[str], low: int = LOW, high: int = HIGH) -> float:
    """Instructions per turn of a program of `counted`, which is told the number of turns last."""
    programs = [("-m", "tests.benchmarks.counted", *program, str(turns)) for turns in (low, high)]
    with ThreadPoolExecutor() as pool:
        few, many = pool.map(counted.count, programs)
    return (many - few) / (high - low)


def to_start(counted: Counter, statement: str) -> int:
    """Instructions that a statement adds to the start of an interpreter, with its bytecode at hand."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        kept = with_bytecode(folder)
        subprocess.run([sys.executable, "-c", statement], check=True, env=kept)  # compiles what is new
        empty, whole = pool.map(lambda said: counted.count(("-c", said), whole=kept), ("pass", statement))
    return whole - empty
