"""What a store costs: the journal of a long loop, waking it, and a turn."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from attrs import define

from tests.benchmarks import rounds
from tests.benchmarks.figures import Kept
from tests.benchmarks.sizes import checkpointed_size, commits, per_turn, written_bytes
from toolloop import Completed, LoopConfig, MemoryStore, SqliteStore, ToolLoopHandle, Yielded, tool
from toolloop.stores import Entry, Head, Lease, Store

LOOP = "loop"
BY_HAND = "SqliteStore, by hand"
_CPU_ROUNDS, _CPU_RUNS = 200, 5
# So few that the log is not carried over meanwhile.
_COMMIT_ROUNDS = 10


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


class CountingStore(SqliteStore):
    """Counts the bytes that it is handed: names and bodies of events."""

    handed = 0

    def create(self, loop_id: str, entries: Sequence[Entry], *, head: Head) -> int:
        self.handed += _size(entries)
        return super().create(loop_id, entries, head=head)

    def append(
        self,
        loop_id: str,
        entries: Sequence[Entry],
        *,
        expected_rev: int | None,
        head: Head | None = None,
        lease: Lease | None = None,
    ) -> int:
        self.handed += _size(entries)
        return super().append(loop_id, entries, expected_rev=expected_rev, head=head, lease=lease)


def _size(entries: Sequence[Entry]) -> int:
    return sum(len(entry.id.encode()) + len(entry.body.encode()) for entry in entries)


def kept(folder: Path, wanted: int) -> Kept:
    """Hold a conversation of so many rounds over an SQLite file in an empty folder, and measure what is there.

    It is held twice: by `run()`, as the peer holds it, for the bytes of each turn; and by hand, so that it waits for a
    word and can be woken up.
    """
    path = folder / "loops.db"
    handed, driven = bytes_while_driven(folder, wanted)
    with SqliteStore(path) as store:
        by_hand = [written_bytes()]
        handle = begin(store)
        for _ in range(wanted):
            advance(handle)
            by_hand.append(written_bytes())
        handle.close()
        return Kept(
            rounds=wanted,
            raw=rounds.raw_bytes(wanted),
            events=store.list()[0].rev,
            file=checkpointed_size(path),
            **_parts(path),
            handed=per_turn(handed),
            written=per_turn(driven) if driven[-1] else {},
            by_hand=per_turn(by_hand) if by_hand[-1] else {},
            waking=median(seconds_to_open(store, wanted) for _ in range(rounds.OPENINGS)),
            commits=commits_per_turn(folder),
        )


def bytes_while_driven(folder: Path, wanted: int) -> tuple[list[int], list[int]]:
    """Bytes handed to the store, and written by the process: before each round of a `run()`, and at its end."""
    handed: list[int] = []
    written: list[int] = []
    with CountingStore(folder / "driven.db") as store:

        def note() -> None:
            handed.append(store.handed)
            written.append(written_bytes())

        drive(begin(store, wanted, before=note), wanted)
        note()
    return handed, written


def _parts(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        bodies, names = connection.execute(
            "SELECT sum(length(CAST(body AS BLOB))), sum(length(CAST(id AS BLOB))) FROM events"
        ).fetchone()
    return {"bodies": bodies, "names": names}


def commits_per_turn(folder: Path) -> float:
    """The transactions that wrote while `run()` drove, as the logs of new files have them."""
    return (_commits_of(folder, 2 * _COMMIT_ROUNDS) - _commits_of(folder, _COMMIT_ROUNDS)) / _COMMIT_ROUNDS


def _commits_of(folder: Path, turns: int) -> int:
    path = folder / f"commits-{turns}.db"
    with SqliteStore(path) as store:
        drive(begin(store, turns), turns)
        return commits(path)


def begin(store: Store | None, turns: int | None = None, before: Callable[[], object] = lambda: None) -> ToolLoopHandle:
    """A handle at the start of the conversation, which ends after so many turns or goes on and on."""
    config = LoopConfig(max_iterations=turns)
    model = Model(before=before)
    return ToolLoopHandle(model, params=rounds.params(), tools=[look_up], config=config, store=store, loop_id=LOOP)


def drive(handle: ToolLoopHandle, turns: int) -> None:
    """Let `run()` go to the end, which is after so many turns.

    Raises:
        TypeError: it ended before that, or in another way.

    """
    ended = handle.run()
    if not isinstance(ended, Completed) or handle.iterations != turns:
        raise TypeError(f"the conversation ended after {handle.iterations} of {turns} turns: {ended!r}")


def advance(handle: ToolLoopHandle) -> None:
    """One round more.

    Raises:
        TypeError: the loop ended.

    """
    if (waiting := handle.pending_turn) is not None:
        waiting.continue_loop()
    if not isinstance(turn := handle.next_turn(), Yielded):
        raise TypeError(f"the conversation did not go on: {turn!r}")


def seconds_to_open(store: Store, wanted: int) -> float:
    """Seconds of CPU from a store to a handle that is ready to go on after so many rounds."""
    start = time.process_time()
    handle = ToolLoopHandle.open(store, LOOP, Model(), tools=[look_up])
    taken = time.process_time() - start
    if handle.iterations != wanted or handle.pending_turn is None:
        raise ValueError(f"the loop woke up after {handle.iterations} rounds, and there were {wanted}")
    return taken


def seconds_per_turn(folder: Path, turns: int = _CPU_ROUNDS, runs: int = _CPU_RUNS) -> dict[str, float]:
    """Seconds of CPU per turn, of so many from the first one on, by the store: medians.

    `run()` drives, as the peer's `invoke` does; by hand there are up to twice as many writes, and the lease is taken
    and given back each turn.
    """
    numbers = count()

    def in_a_file() -> Store:
        return SqliteStore(folder / f"cpu-{next(numbers)}.db")

    stores: dict[str, Callable[[], Store | None]] = {
        "no store": lambda: None,
        "MemoryStore": MemoryStore,
        "SqliteStore": in_a_file,
        BY_HAND: in_a_file,
    }
    for name, make in stores.items():
        _seconds(name, make(), 1)  # what is imported at its first use is no part of a turn
    taken: dict[str, list[float]] = {name: [] for name in stores}
    for _ in range(runs):
        for name, make in stores.items():
            taken[name].append(_seconds(name, make(), turns) / turns)
    return {name: median(each) for name, each in taken.items()}


def _seconds(name: str, store: Store | None, turns: int) -> float:
    with closing(begin(store, None if name == BY_HAND else turns)) as handle:
        start = time.process_time()
        if name == BY_HAND:
            for _ in range(turns):
                advance(handle)
        else:
            drive(handle, turns)
        return time.process_time() - start
