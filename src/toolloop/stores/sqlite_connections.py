"""The connections of a store: each used by one thread at a time, none carried over a fork, none left behind.

A thread borrows a connection for one transaction. So there are as many as there ever were transactions at one moment,
and a thread that ends leaves none.

SQLite must not be carried over a fork: a child believes that it has the locks of its parent, has not, and may destroy
the file, even over connections of its own (https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_).
So a fork waits until nobody uses a connection, and closes them all. They are opened again at the next use.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet, finalize

from toolloop.core.errors import StoreError, ToolLoopError
from toolloop.stores.sqlite_errors import explain
from toolloop.stores.sqlite_files import connect

_IDLE = 8  # so many connections are kept at most


class Connections:
    """The connections to one file."""

    def __init__(self, path: str, wait: float) -> None:
        """`path`: the file; `wait`: for how many seconds to wait for a lock."""
        self.path = path
        self._wait = wait
        self._idle: list[sqlite3.Connection] = []
        with _GATE:
            _ALL.add(self)
        finalize(self, _close, self._idle)

    @contextmanager
    def transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """One transaction, in a connection of one's own. `kind`: how it begins, DEFERRED or IMMEDIATE.

        Raises:
            StoreError: SQLite failed, and nothing was stored.

        """
        try:
            with _GATE, self._borrowed() as connection:
                connection.execute(f"BEGIN {kind}")
                try:
                    yield connection
                except ToolLoopError:  # the answer is no; the connection is well
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise explain(error, self.path, self._wait) from error
        except OSError as error:
            raise StoreError(f"{self.path} cannot be opened: {error}. Nothing was stored") from error

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        connection = self._take()
        try:
            yield connection
        except BaseException as error:
            if connection.in_transaction or not isinstance(error, ToolLoopError):
                connection.close()  # which takes back what was not committed
            else:
                self._put(connection)
            raise
        self._put(connection)

    def close(self) -> None:
        """Close every connection that nobody uses."""
        _close(self._idle)

    def _take(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return connect(self.path, self._wait)

    def _put(self, connection: sqlite3.Connection) -> None:
        if len(self._idle) < _IDLE:
            self._idle.append(connection)
        else:
            connection.close()


def _close(connections: list[sqlite3.Connection]) -> None:
    with _GATE:
        while True:
            try:
                connection = connections.pop()
            except IndexError:
                return
            connection.close()


class _Gate:
    """Whoever uses a connection is inside; a fork waits until nobody is, and lets nobody in meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # can be entered again: a collected store closes itself at any moment
        self._inside = 0

    def __enter__(self) -> None:
        with self._changed:
            self._inside += 1

    def __exit__(self, *_error: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        self._changed.acquire()
        self._changed.wait_for(lambda: self._inside == 0)

    def open(self) -> None:
        self._changed.release()


_GATE = _Gate()
_ALL: WeakSet[Connections] = WeakSet()


def _before_fork() -> None:
    _GATE.close()
    for connections in list(_ALL):
        connections.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_GATE.open, after_in_child=_GATE.open)
