"""The connections of a store: each used by one thread at a time, none carried over a fork, none left behind.

A thread borrows a connection for one transaction. So there are as many as there ever were transactions at one moment,
and a thread that ends leaves none.

SQLite must not be carried over a fork: a child believes that it has the locks of its parent, has not, and may destroy
the file, even over connections of its own (https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_).
So a fork waits until nobody uses a connection, and closes them all. They are opened again at the next use. Nobody
stands in line for one then either, so the child finds every line empty.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from weakref import WeakSet, finalize

from toolloop.core.errors import StoreError, ToolLoopError
from toolloop.stores.sqlite_errors import explain
from toolloop.stores.sqlite_files import Kept, connect
from toolloop.stores.sqlite_queue import Turn, queue_for

_IDLE = 8  # so many connections are kept at most
_NO_LINE = nullcontext()  # readers stand in none


class Connections:
    """The connections to one file."""

    def __init__(self, path: str, wait: float) -> None:
        """`path`: the file, by its real path; `wait`: for how many seconds to wait for a lock."""
        self.path = path
        self._wait = wait
        self._idle: list[Kept] = []
        with _GATE:
            _ALL.add(self)
            self._queue = queue_for(path)
        finalize(self, _close, self._idle)

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that reads, in a connection of one's own. It waits for no writer.

        Raises:
            StoreError: SQLite failed.

        """
        return self._transaction("BEGIN DEFERRED", None)

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that writes, in a connection of one's own, when it is this thread's turn.

        Raises:
            StoreError: SQLite failed, or others wrote all the time. Nothing was stored.

        """
        return self._transaction("BEGIN IMMEDIATE", Turn(self._queue, self._wait))

    @contextmanager
    def _transaction(self, begin: str, mine: Turn | None) -> Iterator[sqlite3.Connection]:
        try:
            with _GATE, mine.held if mine is not None else _NO_LINE, mine or _NO_LINE:
                connection = self._take(mine)
                try:
                    connection.wait_for(self._wait if mine is None else mine.left)
                    connection.execute(begin)
                    if mine is not None:
                        mine.has_lock = True
                    yield connection
                    connection.execute("COMMIT")
                except BaseException as error:
                    self._break_off(connection, error)
                    raise
                self._put(connection)
        except sqlite3.Error as error:
            raise explain(error, self.path, self._wait) from error
        except OSError as error:
            raise StoreError(f"{self.path} cannot be opened: {error}. Nothing was stored") from error

    def _break_off(self, connection: Kept, error: BaseException) -> None:
        """Take back what was not committed."""
        if isinstance(error, ToolLoopError):  # the answer is no; the connection is well
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
                self._put(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close every connection that nobody uses."""
        _close(self._idle)

    def _take(self, mine: Turn | None) -> Kept:
        try:
            return self._idle.pop()
        except IndexError:
            if mine is not None:
                return connect(self.path, mine.left, nullcontext())
            return connect(self.path, self._wait, self._queue.turn(self._wait))  # if there is no file yet

    def _put(self, connection: Kept) -> None:
        if len(self._idle) < _IDLE:
            self._idle.append(connection)
        else:
            connection.close()


def _close(connections: list[Kept]) -> None:
    with _GATE:
        while True:
            try:
                connection = connections.pop()
            except IndexError:
                return
            connection.close()


class _Gate:
    """Whoever uses a connection is inside; a fork waits until nobody else is, and lets nobody in meanwhile.

    A Ctrl-C may strike anywhere in here. A condition that is entered by itself would stay locked then, for it is
    written in Python; a lock does not. A count may stay too high, but only that of the main thread, which is the one
    that Ctrl-C strikes. So they are kept by thread, and one that forks does not wait for itself.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # can be entered again: a collected store closes itself at any moment
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}
        # The threads that fork or wait to; without any, nobody needs a notice, which takes as long as all the rest. A
        # child keeps those of its parent that waited, which costs it no more than that.
        self._closing: set[int] = set()

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._lock:
            self._inside[me] = self._inside.get(me, 0) + 1

    def __exit__(self, *_error: object) -> None:
        me = threading.get_ident()
        with self._lock:
            left = self._inside.pop(me, 1) - 1
            if left > 0:
                self._inside[me] = left
            if self._closing:
                self._changed.notify_all()

    def close(self) -> None:
        me = threading.get_ident()
        self._lock.acquire()
        self._closing.add(me)
        self._changed.wait_for(lambda: not self._inside.keys() - {me})

    def open(self) -> None:
        self._closing.discard(threading.get_ident())  # alone: others may still wait to fork
        self._lock.release()


_GATE = _Gate()
_ALL: WeakSet[Connections] = WeakSet()


def _before_fork() -> None:
    _GATE.close()
    for connections in list(_ALL):
        connections.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_GATE.open, after_in_child=_GATE.open)
