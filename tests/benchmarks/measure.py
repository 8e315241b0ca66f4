"""CPU time per turn of one contestant in its own process: `python -m tests.benchmarks.measure NAME URL TURNS …`."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING

from tests.benchmarks import scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONTESTANTS = ("toolloop_handle", "client_post", "floor", "bare_post", "sdk_runner")

_WARM_UP = 5
# A conversation is held again and again for this long, and the median counts: one alone is at the mercy of its moment.
_CPU_SECONDS = 0.5


def measure(name: str, url: str, lengths: Sequence[int]) -> dict[int, float]:
    """Seconds of CPU per turn for each length of conversation, measured in a new process."""
    command = [sys.executable, "-m", __name__, name, url, *map(str, lengths)]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
    return {int(turns): seconds for turns, seconds in json.loads(printed).items()}


def hold(converse: Callable[[], str], turns: int) -> None:
    """Hold a conversation, and make sure that it went all the way.

    Raises:
        ValueError: it ended with another text than the server's last word.

    """
    text = converse()
    if text != scenario.last_word(turns):
        raise ValueError(f"a conversation of {turns} turns ended with {text!r}")


def main(name: str, url: str, lengths: Sequence[int]) -> None:
    """Print the seconds of CPU per turn as JSON. Imports, connecting and the first turns are not in it."""
    contestant = import_module(f"tests.benchmarks.contestants.{name}")
    with contestant.connect(url) as client:
        hold(contestant.conversation(client, _WARM_UP), _WARM_UP)
        seconds = {turns: _per_turn(contestant.conversation(client, turns), turns) for turns in lengths}
    sys.stdout.write(json.dumps(seconds))


def _per_turn(converse: Callable[[], str], turns: int) -> float:
    taken: list[float] = []
    while sum(taken) < _CPU_SECONDS:
        gc.collect()
        start = time.process_time()
        hold(converse, turns)
        taken.append(time.process_time() - start)
    return median(taken) / turns


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(turns) for turns in sys.argv[3:]])
