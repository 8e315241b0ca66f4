"""What waking a stored loop takes: opening it cold and again, showing it, and the pauses that a checkpoint makes."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from tests.measured.benchmarks.report import Figure
from tests.measured.benchmarks.stored import LOOP, Model, ask_first, begin, drive, seconds_to_open
from toolloop import Inbox, Person, SqliteStore, ToolLoopHandle
from toolloop.inbox.shown.cards import card_of
from toolloop.inbox.shown.keys import key_of
from toolloop.stores import Lease, Revision, read_journal
from toolloop.stores.checkpoints import Checkpoint, read_checkpoint, write_checkpoint

_RUNS = 9


class KeepingStore(SqliteStore):
    """Remembers the last two checkpoints that it was given."""

    kept: tuple[dict[str, Any], ...] = ()

    def keep_checkpoint(self, lease: Lease, body: bytes, *, rev: int, meaning: int) -> None:
        self.kept = (*self.kept[-1:], {"body": body, "rev": rev, "meaning": meaning})
        super().keep_checkpoint(lease, body, rev=rev, meaning=meaning)


def driven(path: Path, rounds: int) -> tuple[dict[str, Any], ...]:
    """Store a conversation of so many rounds, as `run()` does; return its last two checkpoints."""
    with KeepingStore(path) as store:
        drive(begin(store, rounds), rounds)
        return store.kept


def at_the_worst_moment(path: Path, kept: tuple[dict[str, Any], ...], worst: Path) -> int:
    """Store the loop as it was just before its last checkpoint; return its rounds then.

    That is when the most events are to be read behind the checkpoint before it.
    """
    earlier, last = kept
    with SqliteStore(path) as store:
        entries, head = store.load(LOOP).entries[: last["rev"]], store.head(LOOP).head
    with SqliteStore(worst) as store:
        store.create(LOOP, entries, head=head)
        lease = store.acquire(LOOP, "bench", until=time.time() + 60)
        store.keep_checkpoint(lease, **earlier)
        store.release(lease)
    return read_journal(entries).root.iterations


def cold_seconds(path: Path, rounds: int) -> float:
    """Return the seconds of CPU until a process that knows nothing of the loop has its state."""
    with SqliteStore(path) as store:
        store.head(LOOP)  # the file is open
        return seconds_to_open(store, rounds)


def warm_seconds(path: Path, rounds: int) -> tuple[float, float]:
    """Return the seconds of CPU to open the loop again, and to show it again."""
    with SqliteStore(path) as store:
        seconds_to_open(store, rounds)
        opened = median(seconds_to_open(store, rounds) for _ in range(_RUNS))
        return opened, median(_seconds(lambda: Inbox(store).show(LOOP)) for _ in range(_RUNS + 1))


def let_wait(path: Path, rounds: int) -> str:
    """Let the loop make one more call, which waits for a decision; return its key on the page."""
    opened: dict[str, Any] = {"tools": [ask_first], "on_drift": "accept"}
    with SqliteStore(path) as store, ToolLoopHandle.open(store, LOOP, Model(rounds), **opened) as handle:
        handle.extend(max_iterations=rounds + 2)
        while not handle.pending:
            handle.run()
        return key_of(LOOP, handle.pending[0].path)


def page_seconds(path: Path, key: str) -> tuple[float, float]:
    """Return the seconds of CPU until the page has a call in a process that knows nothing of it, and again."""
    with SqliteStore(path) as store:
        store.head(LOOP)
        first, *again = (_seconds(lambda: card_of(store, key, Person("ana"), time.time())) for _ in range(_RUNS))
        return first, median(again)


def _seconds(act: Callable[[], object]) -> float:
    start = time.process_time()
    act()
    return time.process_time() - start


def behind(path: Path) -> float:
    """Return the part of the journal, in events, that lies behind the checkpoint."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            "SELECT max(0, coalesce(c.rev, 0)), l.rev FROM loops l LEFT JOIN checkpoints c USING (number)"
        )
        kept, whole = rows.fetchone()
    return float(1 - kept / whole)


def longest_pause(act: Callable[[], object]) -> float:
    """Return the seconds of CPU of the longest call to C, during which the interpreter runs no other thread."""
    begun: list[float] = []
    longest = 0.0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal longest
        if event == "c_call":
            begun.append(time.thread_time())
        elif event in ("c_return", "c_exception") and begun:
            longest = max(longest, time.thread_time() - begun.pop())

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return longest


def pauses(path: Path) -> float:
    """Return the longest pause while a checkpoint of the loop is written and read."""
    with SqliteStore(path) as store:
        journal = store.load(LOOP)
    kept = Checkpoint(read_journal(journal.entries), Revision.of(journal.rev), journal.entries[0].id)
    body = write_checkpoint(kept)  # what is loaded the first time is no part of it
    writing = [longest_pause(lambda: write_checkpoint(kept)) for _ in range(_RUNS)]
    reading = [longest_pause(lambda: read_checkpoint(LOOP, body)) for _ in range(_RUNS)]
    return max(*writing, *reading)


def measure(folder: Path, long: int, longer: int) -> list[Figure]:
    """Measure in an empty folder, with loops of two lengths."""
    figures: list[Figure] = []
    for rounds, target in ((long, 60), (longer, 200)):
        path = folder / f"woken-{rounds}.db"
        kept = driven(path, rounds)
        cold = median(cold_seconds(path, rounds) for _ in range(_RUNS)) * 1e3
        part = f"{100 * behind(path):.0f} % of its events behind the checkpoint"
        figures.append(Figure(f"opening a loop of {rounds:,} rounds cold, {part}, CPU", cold, target, "ms"))
        if rounds == long:
            opened, shown = (each * 1e3 for each in warm_seconds(path, rounds))
            figures.append(Figure(f"opening it again in the same process ({rounds:,} rounds), CPU", opened, 1, "ms"))
            figures.append(Figure(f"`Inbox.show` of it, again ({rounds:,} rounds), CPU", shown, 10, "ms"))
            key = let_wait(path, rounds)
            seconds = [page_seconds(path, key) for _ in range(_RUNS)]
            first, again = (1e3 * median(each) for each in zip(*seconds, strict=True))
            what = f"a waiting call of it as the page reads it ({rounds:,} rounds)"
            figures += [Figure(f"{what}, cold, CPU", first, 60, "ms"), Figure(f"{what}, again, CPU", again, 10, "ms")]
    worst = folder / "woken-worst.db"
    rounds = at_the_worst_moment(path, kept, worst)
    cold = median(cold_seconds(worst, rounds) for _ in range(_RUNS)) * 1e3
    part = f"{100 * behind(worst):.0f} % of its events behind it"
    figures.append(Figure(f"opening it just before a checkpoint ({rounds:,} rounds, {part}), CPU", cold, 200, "ms"))
    pause = pauses(folder / f"woken-{longer}.db") * 1e3
    return [*figures, Figure(f"the longest pause by a checkpoint of {longer:,} rounds", pause, 10, "ms")]
