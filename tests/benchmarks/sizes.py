"""How many bytes there are, and how many were written: for the project and its peers alike, with nothing but Python."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

_MARKS = (10, 100, 1000)
_SPAN = 50
_LOG_HEAD, _FRAME_HEAD = 32, 24


def per_turn(totals: Sequence[int]) -> dict[int, float]:
    """Bytes per turn at rounds 10, 100 and 1,000, as far as there are so many: the mean of the fifty turns up to each.

    It is no median, for SQLite carries its log over now and then, and then much at once.

    Args:
        totals: the bytes before the first turn, and after each turn.

    """
    spans = {mark: (max(0, mark - _SPAN), mark) for mark in _MARKS if mark < len(totals)}
    return {mark: (totals[end] - totals[start]) / (end - start) for mark, (start, end) in spans.items()}


def written_bytes() -> int:
    """What this process has written so far, to files and all else; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:  # not Linux
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar")), 0)


def commits(path: Path) -> int:
    """The transactions that wrote to an SQLite file, as its log has them since the log was last carried over.

    The last page of each transaction says how big the file is after it; the others say 0
    (https://www.sqlite.org/fileformat2.html#the_write_ahead_log). Pages of an older log have another salt.
    """
    log = Path(f"{path}-wal").read_bytes()
    size, salt = int.from_bytes(log[8:12]), log[16:24]
    frames = (log[at : at + _FRAME_HEAD] for at in range(_LOG_HEAD, len(log), _FRAME_HEAD + size))
    return sum(any(frame[4:8]) for frame in frames if frame[8:16] == salt)


def checkpointed_size(path: Path) -> int:
    """The size of an SQLite file and its log, once all of the log is in the file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return sum(file.stat().st_size for file in (path, Path(f"{path}-wal")) if file.exists())
