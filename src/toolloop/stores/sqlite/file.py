"""The file of an SQLite store: its one connection in this process, and its transactions."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar
from weakref import finalize

from toolloop._forks import hold_at_fork
from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.stores.sqlite.opening import code_of, open_to_read, open_to_write, run_pragma
from toolloop.stores.watchers import QUIET, Watchers

T = TypeVar("T")

_PAUSE = 0.01  # seconds
_LINGER = 20  # looks for changes without a watcher, so that a driver's next turn finds the thread and its connection

# By the primary result code; see https://www.sqlite.org/rescode.html.
_PROBLEMS = {
    sqlite3.SQLITE_BUSY: "is locked by another process or connection (gave up after {wait:g} s): try again, or pass "
    "a longer busy_timeout to SqliteStore",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check that its folder exists, and that this process may write to both",
    sqlite3.SQLITE_READONLY: "is read-only: this process may not write to the file or its folder",
    sqlite3.SQLITE_FULL: "cannot grow, because the disk is full: free some space, and try again",
    sqlite3.SQLITE_IOERR: "could not be read or written: the disk failed or is full",
    sqlite3.SQLITE_TOOBIG: "cannot store an event of this size",
}

# Held during each transaction, which takes milliseconds, but not while a thread waits for another process. So no thread
# is inside SQLite during a fork; otherwise SQLite's own locks would stay locked in the child.
_LOCK = threading.RLock()
# The open connection of each store, by the id of the store.
_CONNECTIONS: dict[int, sqlite3.Connection] = {}


def _close(store: int) -> None:
    with _LOCK:
        connection = _CONNECTIONS.pop(store, None)
        if connection is not None:
            connection.close()


def _close_all() -> None:
    """Close all connections, because SQLite in a forked child assumes that it holds the file locks of its parent.

    See https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_. Parent and child
    open the file again when they next use it.
    """
    for store in tuple(_CONNECTIONS):
        _close(store)


hold_at_fork(_LOCK, _close_all)


class _FileReplacedError(Exception):
    """The path of a store leads to another file than the open one, or to none."""


def _identify_file(path: str) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path, or None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for each transaction, and a `Path` takes longer
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class SqliteFile:
    """A database file, and the one connection of this process to it. Reading does not need write permission."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        """Set the path. The first transaction opens the file.

        Args:
            path: the file, or a link to it.
            busy_timeout: how long to wait for the lock of the file, in seconds.

        """
        self.path = path
        self._name = os.fspath(path)
        self._watchers = Watchers()
        self._open_file: tuple[int, int] | None = None  # device and inode of the file that the connection is to
        self._own = 0  # changes by this process after which the functions that watch are called
        self._busy_timeout = busy_timeout
        finalize(self, _close, id(self))

    def close(self) -> None:
        """Close the connection. The next transaction opens it again."""
        _close(id(self))

    @property
    def _target(self) -> Path:
        """The path with links resolved, because SQLite puts its log next to the real file."""
        return Path(os.path.realpath(self.path))

    def write(self, act: Callable[[sqlite3.Connection], T], *, tells: bool = True) -> T:
        """Run a function in a transaction that writes.

        Args:
            act: the function.
            tells: whether functions that watch in this process are called. Other processes notice every change.

        Raises:
            StoreError: SQLite failed, or the file stayed locked. Nothing was stored.

        """
        result = self._transact("BEGIN IMMEDIATE", self._connect_and_keep, act)
        self._own += tells
        return result

    def read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in a transaction that only reads.

        Raises:
            StoreError: SQLite failed.

        """
        return self._transact("BEGIN", self._connect_to_read, act)

    def vacuum(self) -> bool:
        """Rewrite the file, and empty its log. Return whether the log is empty: a program that reads prevents that."""
        self._transact("", self._connect_and_keep, lambda db: db.execute("VACUUM"))
        give_up = time.monotonic() + self._busy_timeout
        while not (is_done := self._transact("", self._connect_and_keep, _empty_log)) and time.monotonic() < give_up:
            time.sleep(_PAUSE)
        return is_done

    def watch(self, on_change: Callable[[], object]) -> AbstractContextManager[None]:
        """While the block runs, call a function soon after a change of the file by any process."""
        return self._watchers.watch(on_change, self._look)

    def _look(self, watchers: Watchers) -> None:
        """Look for changes while they are needed. See `Watchers`."""
        known: object = None
        unneeded = 0
        while unneeded < _LINGER:
            unneeded = 0 if watchers.is_needed else unneeded + 1
            if not unneeded and (found := self._read_version()) != known:
                known = found
                watchers.tell()
            time.sleep(QUIET)

    def _read_version(self) -> object:
        """Return a value that differs after each change, or None while the file cannot be opened. No row is read.

        SQLite's `data_version` differs after a commit by any other connection. A new connection counts as a change, and
        so does a file that replaced the open one, which the next transaction then notices.
        """
        try:
            with _LOCK:
                found = self.path.stat()
                if not found.st_size:
                    return None  # another process creates it now
                connection, file = _CONNECTIONS.get(id(self)) or self._open(), (found.st_dev, found.st_ino)
                return (
                    (file, connection, run_pragma(connection, "data_version"), self._own) if self._is_same() else file
                )
        except (sqlite3.Error, StoreError, OSError):
            self.close()
            return None

    def _transact(
        self,
        begin: str,
        connect: Callable[[], AbstractContextManager[sqlite3.Connection]],
        act: Callable[[sqlite3.Connection], T],
    ) -> T:
        """Run a function in a transaction, or without `begin` in none. While the file is locked, retry for a while."""
        give_up = time.monotonic() + self._busy_timeout
        while True:
            try:
                # The lock and the transaction (`with connection`) end in C code: an interrupt cannot leave either open.
                with _LOCK, connect() as connection, connection:
                    connection.execute(begin)
                    try:
                        return act(connection)
                    finally:
                        self._check_file(connection)  # last, because the commit goes to the file that is open
            except _FileReplacedError:
                self.close()  # the next call opens the file that is there then
                raise StoreError(
                    f"{self.path} was replaced or removed while it was open, as by a restore from a backup. Nothing "
                    "was stored. The next call opens the file that is there then"
                ) from None
            except sqlite3.Error as error:
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up:
                    self.close()  # the next call opens the file again
                    raise self._explain(error) from error
            except OSError as error:
                raise StoreError(f"{self.path} cannot be opened: {error}. Nothing was stored") from error
            # The callers check what users give, so a stored value has a wrong type, or is too large or too deep.
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                raise UnreadableSnapshot(f"{self.path} is damaged: {error}. It was not changed") from error
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 - so that two writers do not stay in step

    def _connect_and_keep(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return the connection of this store, which stays open after the transaction."""
        connection = _CONNECTIONS.get(id(self))
        if connection is None:
            return nullcontext(self._open())
        if connection.in_transaction:
            raise StoreError(f"{self.path} is in use by this thread: do not use a store in a signal handler")
        return nullcontext(connection)

    def _open(self) -> sqlite3.Connection:
        connection = open_to_write(self._target)
        self._open_file = _identify_file(self._name)
        _CONNECTIONS[id(self)] = connection
        return connection

    def _is_same(self) -> bool:
        """Return whether the path still leads to the file that is open."""
        return _identify_file(self._name) == self._open_file

    def _check_file(self, connection: sqlite3.Connection) -> None:
        if connection is _CONNECTIONS.get(id(self)) and not self._is_same():
            raise _FileReplacedError

    def _connect_to_read(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a connection that can read: a separate one where this process may not write."""
        path = self._target
        if not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return self._connect_and_keep()
        return open_to_read(path)

    def _explain(self, error: sqlite3.Error) -> StoreError:
        code = code_of(error)
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR) or "UTF-8" in str(error):
            return UnreadableSnapshot(
                f"{self.path} is damaged, or not an SQLite database. It was not changed (SQLite: {error})"
            )
        problem = _PROBLEMS.get(code, "failed").format(wait=self._busy_timeout)
        return StoreError(f"{self.path} {problem}. Nothing was stored (SQLite: {error})")


def _empty_log(connection: sqlite3.Connection) -> bool:
    is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not is_busy
