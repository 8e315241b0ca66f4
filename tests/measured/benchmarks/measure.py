"""One contestant in a process of its own: CPU per turn, or instructions per turn.

`python -m tests.measured.benchmarks.measure cpu NAME URL SECONDS TURNS ...` prints seconds of CPU per turn as JSON.
`python -m tests.measured.benchmarks.measure count NAME URL LOW HIGH` holds one conversation, for callgrind.
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
    """Return the instructions per turn that callgrind counts between two turns of one conversation.

    So connecting and the first turns do not count. Hashes are the same in each run, else the figures would differ.

    Raises:
        RuntimeError: nothing was counted.

    """
    command = [*_CALLGRIND, sys.executable, "-m", __name__, "count", name, url, str(low), str(high)]
    variables = {**environment(), "PYTHONHASHSEED": "0"}
    how: Any = {"capture_output": True, "text": True, "timeout": _PATIENCE, "env": variables, "cwd": ROOT}
    ended = subprocess.run(command, check=False, **how)
    found = re.findall(r"Collected : (\d+)", ended.stderr)
    if ended.returncode or not found or not int(found[-1]):
        raise RuntimeError(f"callgrind counted nothing: {ended.stderr[-2000:]}")
    return int(found[-1]) / (high - low)


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
            _count(contestant, client, *map(int, numbers))


def _cpu(converse: Callable[[], str], turns: int, seconds: float) -> float:
    taken: list[float] = []
    while sum(taken) < seconds:
        gc.collect()
        start = time.process_time()
        hold(converse, turns)
        taken.append(time.process_time() - start)
    return median(taken) / turns


def _count(contestant: Any, client: Any, low: int, high: int) -> None:
    """Hold a conversation, and count from the tool of one turn to that of another."""
    converse = contestant.conversation(client, high + 1)
    gc.collect()
    scenario.hear.append(lambda turn: _switch("on") if turn == low else _switch("off") if turn == high else None)
    hold(converse, high + 1)


def _switch(state: str) -> None:
    command = ["callgrind_control", f"--instr={state}", str(os.getpid())]
    # With few instructions of our own, for they are counted. Its own output goes to stderr.
    outputs = [(os.POSIX_SPAWN_DUP2, 2, 1)]
    os.waitpid(os.posix_spawnp(command[0], command, os.environ, file_actions=outputs), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
