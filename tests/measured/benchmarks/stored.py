"""What a store costs: the size of a long journal, the bytes and the CPU of a turn, waking, and listing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from attrs import define

from tests.measured.benchmarks import rounds
from tests.measured.benchmarks.report import Figure
from toolloop import Completed, LoopConfig, MemoryStore, SqliteStore, ToolLoopHandle, tool
from toolloop.stores import Entry, Head, Store

LOOP = "loop"
_RUNS = 15
_LONG = 1000


@define(eq=False)
class Model:
    """Answers each request with the reply of the next round; `before` is called before that."""

    turn: int = 0
    before: Callable[[], object] = lambda: None

    def send(self, _request: Any) -> dict[str, Any]:
        self.before()
        self.turn += 1
        return rounds.reply(self.turn)

    def stream(self, request: Any) -> Any:
        raise NotImplementedError(request)


@tool(name=rounds.TOOL, effect="pure")
def look_up(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


@tool(name=rounds.TOOL, needs_approval=True)
def ask_first(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


class CountingStore(SqliteStore):
    """Counts the bytes that it is handed: ids and bodies of events."""

    handed = 0

    def append(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        self.handed += sum(len(entry.id.encode()) + len(entry.body.encode()) for entry in entries)
        return super().append(loop_id, entries, **more)


def begin(store: Store | None, turns: int, before: Callable[[], object] = lambda: None) -> ToolLoopHandle:
    """Return a handle at the start of a conversation of so many rounds."""
    config = LoopConfig(max_iterations=turns)
    model = Model(before=before)
    return ToolLoopHandle(model, params=rounds.params(), tools=[look_up], config=config, store=store, loop_id=LOOP)


def drive(handle: ToolLoopHandle, turns: int) -> None:
    """Let `run()` go to the end, which is after so many turns.

    Raises:
        TypeError: it ended before that, or in another way.

    """
    ended = handle.run()
    handle.close()
    if not isinstance(ended, Completed) or handle.iterations != turns:
        raise TypeError(f"the conversation ended after {handle.iterations} of {turns} turns: {ended!r}")


def bytes_per_turn(folder: Path, turns: int) -> tuple[dict[int, float], dict[int, float]]:
    """Return the bytes handed to the store and those written by the process, per turn, at some rounds."""
    handed: list[int] = []
    written: list[int] = []
    with CountingStore(folder / "driven.db") as store:

        def note() -> None:
            handed.append(store.handed)
            written.append(rounds.written_bytes())

        drive(begin(store, turns, before=note), turns)
        note()
    return rounds.per_turn(handed), rounds.per_turn(written)


def seconds_to_open(store: Store, wanted: int) -> float:
    """Return the seconds of CPU from a store to a handle that has its state, after so many rounds."""
    start = time.process_time()
    handle = ToolLoopHandle.open(store, LOOP, Model(), tools=[look_up])
    taken = time.process_time() - start
    if handle.iterations != wanted:
        raise ValueError(f"the loop woke up after {handle.iterations} rounds, and there were {wanted}")
    return taken


def seconds_to_list(folder: Path, loops: int) -> float:
    """Return the seconds by the wall clock to list the loops that wait for a decision, with the calls that wait.

    The file is just opened.
    Beside each ten of them there is one that waits for a command.

    Raises:
        ValueError: other loops were listed than those.

    """
    path, asking = folder / "asleep.db", MemoryStore()
    with ToolLoopHandle(Model(), params=rounds.params(), tools=[ask_first], store=asking, loop_id=LOOP) as handle:
        handle.next_turn()
    entries, head = asking.load(LOOP).entries, asking.head(LOOP).head
    with SqliteStore(path) as store:
        for number in range(loops):
            store.create(f"asks-{number}", entries, head=head, metadata={"owner": "ana", "title": f"Ledger {number}"})
            if number % 10 == 0:
                store.create(f"waits-{number}", entries, head=Head("needs_command"))

    def listed() -> float:
        start = time.perf_counter()
        with SqliteStore(path) as store:
            found = store.list("needs_decision", limit=2 * loops)
            calls = [call.name for loop in found for call in loop.pending]
        taken = time.perf_counter() - start
        if (
            set(calls) != {rounds.TOOL}
            or len(calls) != loops
            or {loop.loop_id for loop in found} != {f"asks-{number}" for number in range(loops)}
        ):
            raise ValueError(f"{len(found)} loops wait for a decision, and there are {loops}")
        return taken

    return median(listed() for _ in range(_RUNS))


def measure(folder: Path, turns: int, loops: int) -> tuple[list[Figure], tuple[str, ...]]:
    """Measure everything in an empty folder. Also return the row of the file's size and the bytes of a turn."""
    handed, written = bytes_per_turn(folder, turns)
    size, bare = rounds.checkpointed_size(folder / "driven.db"), rounds.size_of_journal(folder / "driven.db")
    with SqliteStore(folder / "driven.db") as store:
        beyond = (bare - rounds.raw_bytes(turns)) / store.list()[0].rev
    is_long = turns >= _LONG  # the file of a shorter loop has its fixed pages beside few events
    figures = [
        Figure(f"journal of {_LONG:,} rounds: bytes beyond the raw JSON, per event", beyond if is_long else None, 250),
        Figure(f"its file with checkpoints of states, over the journal ({turns:,} rounds)", size / bare, 2, "x"),
        Figure(
            f"listing {loops:,} loops that wait for a human, with their calls",
            seconds_to_list(folder, loops) * 1e3,
            100,
            "ms",
        ),
    ]
    first, last = min(handed), max(handed)
    growth = handed[last] / handed[first] if handed[first] else None
    what = f"bytes of events handed to the store per turn, at round {last:,} over round {first:,}"
    figures.append(Figure(what, growth, 1.05, "x"))
    return figures, ("toolloop, SqliteStore", *rounds.cells(size, written.values()))
