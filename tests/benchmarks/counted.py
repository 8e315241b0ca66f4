"""What is counted in instructions, in a process of its own.

`python -m tests.benchmarks.counted talk NAME URL TURNS` holds a conversation, and `… machine ROUND TURNS` takes the
pure machine so many turns further from a round on. Under callgrind the counting begins after all imports and the first
turns, which would take it minutes; without it the program just does the work.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING

from tests.benchmarks.measure import hold

if TYPE_CHECKING:
    from collections.abc import Iterator

# Set by `instructions`, where it runs the program under callgrind.
SWITCHED = "TOOLLOOP_BENCH_CALLGRIND"

_WARM_UP = 5


def talk(name: str, url: str, turns: int) -> None:
    """Hold a conversation of so many turns."""
    contestant = import_module(f"tests.benchmarks.contestants.{name}")
    with contestant.connect(url) as client:
        hold(contestant.conversation(client, _WARM_UP), _WARM_UP)
        converse = contestant.conversation(client, turns)
        with counting():
            hold(converse, turns)


def machine(round_: int, turns: int) -> None:
    """Take the pure machine to a round, and then so many turns further."""
    from tests.benchmarks.machine_turn import conversation  # noqa: PLC0415 - nobody else here needs the library

    going = conversation()
    sum(1 for _turn in islice(going, round_))
    gc.disable()  # whether it runs in these few turns, and over ten thousand rounds, is chance
    with counting():
        sum(1 for _turn in islice(going, turns))


@contextmanager
def counting() -> Iterator[None]:
    """Callgrind counts what is inside, and only that."""
    gc.collect()
    _switch("on")
    yield
    _switch("off")


def _switch(state: str) -> None:
    if SWITCHED in os.environ:
        subprocess.run(["callgrind_control", f"--instr={state}", str(os.getpid())], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "talk":
        talk(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        machine(int(sys.argv[2]), int(sys.argv[3]))
