"""Counting the commits of SQLite in this process, whatever library makes them. It needs the standard library only."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_WRITES = re.compile(r"\s*(insert|replace|update|delete|create|drop|alter|with)\b", re.IGNORECASE)
_ENDS = re.compile(r"\s*(commit|end)\b", re.IGNORECASE)
_WEAKENS = re.compile(
    r"\s*pragma\s+(synchronous\s*=\s*(off|normal|0|1)|journal_mode\s*=\s*(off|memory))\b", re.IGNORECASE
)
_SQLITE: Any = sqlite3  # whose `connect` is replaced meanwhile


class Commits:
    """What the connections did that were opened meanwhile.

    Attributes:
        made: commits, each `COMMIT` and each statement that writes outside a transaction.
        is_weakened: whether a connection asked SQLite not to wait for the disk.

    """

    def __init__(self) -> None:
        self.made, self.is_weakened = 0, not _waits_by_default()

    @property
    def confirmed(self) -> int:
        """The commits that waited for the disk."""
        return 0 if self.is_weakened else self.made

    def watch(self, connection: sqlite3.Connection) -> None:
        """Count the commits of a connection that was just opened."""

        def note(statement: str) -> None:
            if _WEAKENS.match(statement):
                self.is_weakened = True
            elif _ENDS.match(statement) or (_WRITES.match(statement) and not connection.in_transaction):
                self.made += 1

        connection.set_trace_callback(note)


@contextmanager
def commits() -> Iterator[Commits]:
    """Count the commits of all connections that are opened meanwhile."""
    counted, connect = Commits(), sqlite3.connect

    def watched(*given: Any, **more: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **more)
        counted.watch(connection)
        return connection

    _SQLITE.connect = watched
    try:
        yield counted
    finally:
        _SQLITE.connect = connect


def _waits_by_default() -> bool:
    with sqlite3.connect(":memory:") as connection:
        found: int = connection.execute("PRAGMA synchronous").fetchone()[0]
    connection.close()
    return found >= 2
