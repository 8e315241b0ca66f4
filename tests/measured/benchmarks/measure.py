"""One contestant in a process of its own: CPU per turn, or instructions per turn.

`python -m tests.measured.benchmarks.measure cpu NAME URL SECONDS TURNS ...` prints seconds of CPU per turn as JSON.
`python -m tests.measured.benchmarks.measure count NAME URL TURNS` holds one conversation, for callgrind.
It needs the standard library only, because the peers run it in an environment of their own.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.measured.benchmarks import scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[3]
_WARM_UP = 5
_PATIENCE = 180.0  # seconds for all conversations of a contestant in one run
_LOW, _HIGH = 20, 60
_CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--instr-atstart=no")


def cpu_per_turn(
    name: str, url: str, lengths: Sequence[int], *, python: str | Path = sys.executable, seconds: float = 0.5
) -> dict[int, float]:
    """Return seconds of CPU per turn for each length of conversation, measured in a new process.

    Args:
        name: the contestant's module.
        url: the server's.
        lengths: in turns.
        python: the interpreter of the environment that it needs.
        seconds: the conversation is repeated for this much CPU, and the median counts.

    """
    command = [str(python), "-W", "ignore", "-m", __name__, "cpu", name, url, str(seconds), *map(str, lengths)]
    how: Any = {"stdout": subprocess.PIPE, "timeout": _PATIENCE, "env": environment(), "cwd": ROOT}
    printed = subprocess.run(command, check=True, **how).stdout
    return {int(turns): seconds for turns, seconds in json.loads(printed).items()}


def instructions_per_turn(name: str, url: str, low: int = _LOW, high: int = _HIGH) -> float:
    """Return the instructions per turn that callgrind counts: the difference of a long and a short conversation.

    So connecting and the first turns do not count. Hashes are the same in each run, else the figures would differ.

    Raises:
        RuntimeError: nothing was counted.

    """

    def count(turns: int) -> int:
        command = [*_CALLGRIND, sys.executable, "-m", __name__, "count", name, url, str(turns)]
        variables = {**environment(), "PYTHONHASHSEED": "0"}
        ended = subprocess.run(command, check=False, capture_output=True, text=True, env=variables, cwd=ROOT)
        found = re.findall(r"Collected : (\d+)", ended.stderr)
        if ended.returncode or not found:
            raise RuntimeError(f"callgrind counted nothing: {ended.stderr[-2000:]}")
        return int(found[-1])

    return (count(high) - count(low)) / (high - low)


def environment() -> dict[str, str]:
    """Return the variables of a process that talks to loopback only."""
    return {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "LANGSMITH_TRACING": "false"}


def hold(converse: Callable[[], str], turns: int) -> None:
    """Hold a conversation.

    Raises:
        ValueError: it ended with another text than the server's last one.

    """
    text = converse()
    if text != scenario.last_word(turns):
        raise ValueError(f"a conversation of {turns} turns ended with {text!r}")


def main(what: str, name: str, url: str, *numbers: str) -> None:
    """Measure in this process; imports, connecting and the first turns do not count."""
    contestant = import_module(f"tests.measured.benchmarks.contestants.{name}")
    with contestant.connect(url) as client:
        hold(contestant.conversation(client, _WARM_UP), _WARM_UP)
        if what == "cpu":
            seconds, lengths = float(numbers[0]), map(int, numbers[1:])
            figures = {turns: _cpu(contestant.conversation(client, turns), turns, seconds) for turns in lengths}
            sys.stdout.write(json.dumps(figures))
        else:
            turns = int(numbers[0])
            converse = contestant.conversation(client, turns)
            gc.collect()
            _switch("on")
            hold(converse, turns)
            _switch("off")


def _cpu(converse: Callable[[], str], turns: int, seconds: float) -> float:
    taken: list[float] = []
    while sum(taken) < seconds:
        gc.collect()
        start = time.process_time()
        hold(converse, turns)
        taken.append(time.process_time() - start)
    return median(taken) / turns


def _switch(state: str) -> None:
    subprocess.run(["callgrind_control", f"--instr={state}", str(os.getpid())], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
