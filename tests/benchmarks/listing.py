"""10,000 loops that wait for a human, in one SQLite file: how long it takes to list them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from tests.benchmarks import rounds
from tests.benchmarks.journal import LOOP, Model, begin
from toolloop import MemoryStore, SqliteStore, ToolLoopHandle, tool
from toolloop.stores import Entry, Head

LOOPS = 10_000

_EVERY = 10
RUNS = 15


@tool(name=rounds.TOOL, needs_approval=True)
def ask_first(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


def seconds_to_list(folder: Path, loops: int = LOOPS, runs: int = RUNS) -> float:
    """Seconds by the clock on the wall to list the loops that wait for a decision: the median of some runs.

    There are so many of them in the file, and for each ten of them another one that waits for a command. Each run opens
    the file anew. What is listed does not depend on how long the journals are: they have one round.

    Raises:
        ValueError: other loops were listed than those.

    """
    path = folder / "asleep.db"
    with SqliteStore(path) as store:
        asks, waits = _journal([ask_first]), _journal(None)
        for number in range(loops):
            store.create(f"asks-{number}", asks, head=Head("needs_decision"))
            if number % _EVERY == 0:
                store.create(f"waits-{number}", waits, head=Head("needs_command"))
    return median(_listed(path, loops) for _ in range(runs))


def _journal(tools: Iterable[object] | None) -> tuple[Entry, ...]:
    """The journal of a loop that waits after its first reply, or, without these tools, after its first round."""
    store = MemoryStore()
    if tools is None:
        handle = begin(store)
    else:
        handle = ToolLoopHandle(Model(), params=rounds.params(), tools=tools, store=store, loop_id=LOOP)
    handle.next_turn()
    handle.close()
    return store.load(LOOP).entries


def _listed(path: Path, loops: int) -> float:
    start = time.perf_counter()
    with SqliteStore(path) as store:
        found = store.list("needs_decision", limit=2 * loops)
    taken = time.perf_counter() - start
    if {loop.loop_id for loop in found} != {f"asks-{number}" for number in range(loops)}:
        raise ValueError(f"{len(found)} loops wait for a decision, and there are {loops}")
    return taken
