"""CPU per turn of one contestant in its own process: `python -m tests.benchmarks.measure NAME URL SECONDS TURNS …`.

Nothing but the standard library is needed here: the peers are measured by it too, in an environment of their own.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.benchmarks import scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[2]

_WARM_UP = 5


def measure(
    name: str, url: str, lengths: Sequence[int], *, python: str | Path = sys.executable, seconds: float = 0.5
) -> dict[int, float]:
    """Seconds of CPU per turn for each length of conversation, measured in a new process.

    Args:
        name: the contestant's module.
        url: the server's.
        lengths: in turns.
        python: the interpreter of the environment that it needs.
        seconds: a conversation is held again and again for this much CPU, and the median counts: one alone is at the
            mercy of its moment.

    """
    command = [str(python), "-W", "ignore", "-m", __name__, name, url, str(seconds), *map(str, lengths)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment(), cwd=ROOT).stdout
    return {int(turns): seconds for turns, seconds in json.loads(printed).items()}


def environment() -> dict[str, str]:
    """The variables of a process that talks to loopback and to nobody else."""
    return {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "LANGSMITH_TRACING": "false"}


def hold(converse: Callable[[], str], turns: int) -> None:
    """Hold a conversation, and make sure that it went all the way.

    Raises:
        ValueError: it ended with another text than the server's last word.

    """
    text = converse()
    if text != scenario.last_word(turns):
        raise ValueError(f"a conversation of {turns} turns ended with {text!r}")


def main(name: str, url: str, seconds: float, lengths: Sequence[int]) -> None:
    """Print the seconds of CPU per turn as JSON. Imports, connecting and the first turns are not in it."""
    contestant = import_module(f"tests.benchmarks.contestants.{name}")
    with contestant.connect(url) as client:
        hold(contestant.conversation(client, _WARM_UP), _WARM_UP)
        figures = {turns: _per_turn(contestant.conversation(client, turns), turns, seconds) for turns in lengths}
    sys.stdout.write(json.dumps(figures))


def _per_turn(converse: Callable[[], str], turns: int, seconds: float) -> float:
    taken: list[float] = []
    while sum(taken) < seconds:
        gc.collect()
        start = time.process_time()
        hold(converse, turns)
        taken.append(time.process_time() - start)
    return median(taken) / turns


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), [int(turns) for turns in sys.argv[4:]])
