"""What a store costs: the size of a long journal and the bytes of a turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import define

from tests.measured.benchmarks import rounds
from tests.measured.benchmarks.report import Figure
from toolloop import Completed, LoopConfig, SqliteStore, ToolLoopHandle, tool
from toolloop.stores import Entry, Store

LOOP = "loop"
_LONG = 1000


@contextmanager
def in_memory() -> Iterator[Path]:
    """Yield an empty folder, in memory where there is such a place: for what is not measured by the wall clock.

    A store of ten thousand loops waits a minute for the disk until it is filled.
    """
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        yield Path(name)


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
    """Counts its appends, and the bytes that it is handed: ids and bodies of events."""

    handed = appends = 0

    def append(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        self.appends += 1
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


def bytes_per_turn(folder: Path, turns: int) -> dict[int, float]:
    """Return the bytes handed to the store per turn, at some rounds."""
    handed: list[int] = []
    with CountingStore(folder / "driven.db") as store:
        drive(begin(store, turns, before=lambda: handed.append(store.handed)), turns)
        handed.append(store.handed)
    return rounds.per_turn(handed)


def seconds_to_open(store: Store, wanted: int) -> float:
    """Return the seconds of CPU from a store to a handle that has its state, after so many rounds."""
    start = time.process_time()
    handle = ToolLoopHandle.open(store, LOOP, Model(), tools=[look_up])
    taken = time.process_time() - start
    if handle.iterations != wanted:
        raise ValueError(f"the loop woke up after {handle.iterations} rounds, and there were {wanted}")
    return taken


def measure(folder: Path, turns: int) -> list[Figure]:
    """Measure everything in an empty folder."""
    handed = bytes_per_turn(folder, turns)
    size, bare = rounds.checkpointed_size(folder / "driven.db"), rounds.size_of_journal(folder / "driven.db")
    with SqliteStore(folder / "driven.db") as store:
        beyond = (bare - rounds.raw_bytes(turns)) / store.list()[0].rev
    is_long = turns >= _LONG  # the file of a shorter loop has its fixed pages beside few events
    figures = [
        Figure(f"journal of {_LONG:,} rounds: bytes beyond the raw JSON, per event", beyond if is_long else None, 250),
        Figure(f"its file with checkpoints of states, over the journal ({turns:,} rounds)", size / bare, 2, "x"),
    ]
    first, last = min(handed), max(handed)
    growth = handed[last] / handed[first] if handed[first] else None
    what = f"bytes of events handed to the store per turn, at round {last:,} over round {first:,}"
    return [*figures, Figure(what, growth, 1.05, "x")]
