"""The file of an SQLite store: opening it, and its transactions."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import finalize

from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.stores.rows import DUE_AT, UNNOTIFIED
from toolloop.stores.watchers import QUIET, Watchers

T = TypeVar("T")

FILE_FORMAT: Final = 1  # SQLite's user_version
APPLICATION_ID: Final = int.from_bytes(b"tlop")

_SCHEMA = (
    # AUTOINCREMENT: the cursor of a deleted loop must not become that of a later one. `rev` is the number of the loop's
    # events, `digest` that of the last one. For the other columns see `rows`.
    """CREATE TABLE loops (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        loop_id TEXT NOT NULL UNIQUE,
        rev INTEGER NOT NULL,
        digest BLOB NOT NULL,
        status TEXT NOT NULL,
        deadline REAL,
        pending TEXT NOT NULL,
        retryable INTEGER NOT NULL,
        retry_at REAL,
        attempts INTEGER NOT NULL,
        changed REAL NOT NULL,
        notified TEXT NOT NULL,
        created REAL NOT NULL,
        metadata TEXT NOT NULL,
        lease_owner TEXT,
        lease_token INTEGER,
        lease_until REAL
    )""",
    "CREATE INDEX loops_by_status ON loops (status)",
    # `place` is loops.number times 2^32, plus the number of the event in its journal, counted from 1: the table itself
    # is the index. It is not WITHOUT ROWID, which wastes space with rows of more than 1 KB. For digests see `digests`.
    """CREATE TABLE events (
        place INTEGER PRIMARY KEY, id TEXT NOT NULL, digest BLOB NOT NULL, body TEXT NOT NULL, text TEXT
    )""",
    "CREATE UNIQUE INDEX events_by_id ON events (place >> 32, id)",
    # One counter for all loops: the tokens of a loop grow also when it is deleted and created again.
    "CREATE TABLE tokens (last INTEGER NOT NULL)",
    "INSERT INTO tokens VALUES (0)",
    "CREATE TABLE secrets (text TEXT NOT NULL)",
    """CREATE VIEW journal AS
        SELECT loop_id, place & 0xffffffff AS seq, id, body, text
        FROM loops JOIN events ON place BETWEEN (number << 32) AND (number << 32 | 0xffffffff) ORDER BY place""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FILE_FORMAT}",
)
# What the files of earlier versions may lack. Their processes can go on: each of their statements names its columns.
_ADDED = {
    "named": "ALTER TABLE loops ADD COLUMN named TEXT",
    "notified_rev": "ALTER TABLE loops ADD COLUMN notified_rev INTEGER",
    # What the driver with the lease `progress_token` shows. They come last, because a row that is read up to another
    # column is not read further. Earlier versions leave them as they are, so that they may be of an earlier lease.
    "progress_token": "ALTER TABLE loops ADD COLUMN progress_token INTEGER",
    "progress": "ALTER TABLE loops ADD COLUMN progress TEXT",
    "loops_by_due": f"CREATE INDEX loops_by_due ON loops ({DUE_AT}) WHERE {DUE_AT} IS NOT NULL",
    "loops_unnotified": f"CREATE INDEX loops_unnotified ON loops (number) WHERE {UNNOTIFIED}",
}
_COLUMNS = ("named", "progress_token", "progress")  # of them, those that a reader needs
_FULL = 2  # of PRAGMA synchronous
_LINGER = 20  # looks for changes that nobody needs, so that a driver's next turn finds the thread and its connection
_PAGE_SIZE = 8192  # with SQLite's default of 4096, events of about 1 KB leave an eighth of the file unused

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


def _before_fork() -> None:
    """Close all connections, because SQLite in a child assumes that it holds the file locks of its parent.

    See https://www.sqlite.org/howtocorrupt.html#_carrying_an_open_database_connection_across_a_fork_. Parent and child
    open the file again when they next use it.
    """
    _LOCK.acquire()
    for store in tuple(_CONNECTIONS):
        _close(store)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class SqliteFile:
    """A database file, and the one connection of this process to it. Reading does not need write permission."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        """Set the path. The first transaction opens the file.

        Args:
            path: the file, or a link to it.
            busy_timeout: how long to wait for the lock of the file, in seconds.

        """
        self.path = path
        self._watchers = Watchers()
        self._inode: int | None = None  # of the file that is watched
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
        result = self._transact("BEGIN IMMEDIATE", self._connected, act)
        self._own += tells
        return result

    def read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in a transaction that only reads.

        Raises:
            StoreError: SQLite failed.

        """
        return self._transact("BEGIN", self._connected_to_read, act)

    def watch(self, on_change: Callable[[], object]) -> AbstractContextManager[None]:
        """While the block runs, call a function soon after a change of the file by any process."""
        return self._watchers.watch(on_change, self._look)

    def _look(self, watchers: Watchers) -> None:
        """Look for changes while they are needed. See `Watchers`."""
        known: object = None
        unneeded = 0
        while unneeded < _LINGER:
            unneeded = 0 if watchers.is_needed else unneeded + 1
            if not unneeded and (found := self._version()) != known:
                known = found
                watchers.tell()
            time.sleep(QUIET)

    def _version(self) -> object:
        """Return a value that differs after each change, or None while the file cannot be opened. No row is read.

        SQLite's `data_version` differs after a commit by any other connection. A new connection counts as a change, and
        so does a file that replaced the earlier one, which is then closed.
        """
        try:
            with _LOCK:
                found = self.path.stat()
                if not found.st_size:
                    return None  # another process creates it now
                inode = found.st_ino
                if self._inode not in (None, inode):
                    self.close()
                self._inode = inode
                connection = _CONNECTIONS.get(id(self)) or _CONNECTIONS.setdefault(id(self), _open(self._target))
                return inode, connection, _pragma(connection, "data_version"), self._own
        except (sqlite3.Error, StoreError, OSError):
            self.close()
            return None

    def _transact(
        self,
        begin: str,
        connect: Callable[[], AbstractContextManager[sqlite3.Connection]],
        act: Callable[[sqlite3.Connection], T],
    ) -> T:
        """Run a function in a transaction. While the file is locked, retry for `busy_timeout` seconds."""
        give_up = time.monotonic() + self._busy_timeout
        while True:
            try:
                # The lock and the transaction (`with connection`) end in C code: an interrupt cannot leave either open.
                with _LOCK, connect() as connection, connection:
                    connection.execute(begin)
                    return act(connection)
            except sqlite3.Error as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up:
                    self.close()  # the next call opens the file again
                    raise self._explained(error) from error
            except OSError as error:
                raise StoreError(f"{self.path} cannot be opened: {error}. Nothing was stored") from error
            # The arguments were checked, so a stored value has a wrong type, or is too large or too deep.
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                raise UnreadableSnapshot(f"{self.path} is damaged: {error}. It was not changed") from error
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 - so that two writers do not stay in step

    def _connected(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return the connection of this store, which stays open after the transaction."""
        connection = _CONNECTIONS.get(id(self))
        if connection is None:
            connection = _CONNECTIONS[id(self)] = _open(self._target)
        elif connection.in_transaction:
            raise StoreError(f"{self.path} is in use by this thread: do not use a store in a signal handler")
        return nullcontext(connection)

    def _connected_to_read(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a connection that can read: a separate one where this process may not write."""
        path = self._target
        if not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return self._connected()
        return _read_only(path)

    def _explained(self, error: sqlite3.Error) -> StoreError:
        code = _code(error)
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR) or "UTF-8" in str(error):
            return UnreadableSnapshot(
                f"{self.path} is damaged, or not an SQLite database. It was not changed (SQLite: {error})"
            )
        problem = _PROBLEMS.get(code, "failed").format(wait=self._busy_timeout)
        return StoreError(f"{self.path} {problem}. Nothing was stored (SQLite: {error})")


def _code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 for any other error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _open(path: Path) -> sqlite3.Connection:
    """Open a store for reading and writing, and create it if the file does not exist or has no content."""
    with suppress(FileExistsError):
        # The log that SQLite creates beside the file gets the same permissions.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    if not os.access(path, os.W_OK):  # SQLite would create read-only files next to it
        raise StoreError(f"{path} is read-only: this process may not write to it. Nothing was stored")
    if Path(f"{path}-wal").exists():  # closing the database of another program would write its log into the file
        with closing(_connect(path, "ro")) as reader:
            _is_new(reader, path)
    connection = _connect(path, "rw")
    try:
        _set_up(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    is_new = _is_new(connection, path)
    if is_new:
        connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
    if _pragma(connection, "journal_mode = WAL") != "wal":
        raise StoreError(
            f"{path} cannot have a write-ahead log, which needs shared memory: network file systems are not supported. "
            "Put the store on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")
    if _pragma(connection, "synchronous") != _FULL:
        raise StoreError(f"{path} cannot be flushed to the disk: SQLite refused synchronous = FULL")
    if is_new:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if _is_new(connection, path):  # another process may have been faster
                for statement in (*_SCHEMA, *_ADDED.values()):
                    connection.execute(statement)
    elif _lacking(connection):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _lacking(connection):  # likewise
                connection.execute(statement)


@contextmanager
def _read_only(path: Path) -> Generator[sqlite3.Connection]:
    """Open a store that this process may not write to, for one transaction.

    If a log is next to the file, SQLite reads both. Otherwise the file has no writer, and SQLite reads it as immutable,
    without creating a log. If a writer opens or closes the file meanwhile, the transaction counts as locked and is
    retried. A log without its `-shm` file, as in a copied folder, cannot be read without write permission.
    """
    log = Path(f"{path}-wal")
    has_log, changed = log.exists(), path.stat().st_mtime_ns

    def has_writer() -> bool:
        return not has_log and (log.exists() or path.stat().st_mtime_ns != changed)

    try:
        with closing(_connect(path, "ro&readonly_shm=1" if has_log else "ro&immutable=1")) as connection:
            if _is_new(connection, path):
                raise StoreError(  # noqa: TRY301 - a writer may be creating the store, as with any failure here
                    f"{path} is empty, and this process may not write to the file or its folder"
                )
            lacking = {*_lacking(connection)}
            if columns := [f"NULL AS {name}" for name in _COLUMNS if _ADDED[name] in lacking]:
                connection.execute("PRAGMA temp_store = MEMORY")
                connection.execute(f"CREATE TEMP VIEW loops AS SELECT *, {', '.join(columns)} FROM main.loops")  # noqa: S608 - names from above
            yield connection
    except Exception as error:
        is_closed = has_log and _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if has_writer() or (is_closed and os.access(path, os.R_OK)):
            raise _locked() from error
        raise
    if has_writer():
        raise _locked()


def _locked() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("a writer opened or closed the file meanwhile")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=0,  # `_transact` waits, without the lock
        isolation_level=None,
        check_same_thread=False,
    )


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether a database has no content yet.

    Raises:
        UnreadableSnapshot: it has content, but is not a store of this format.

    """
    if path.stat().st_size == 1:  # SQLite would take this for an empty database, and overwrite it
        raise UnreadableSnapshot(f"{path} is not an SQLite database. It was not changed")
    # One statement, so one transaction: another process may be creating the store.
    owner, version, has_content = connection.execute(
        "SELECT application_id, user_version, EXISTS (SELECT 1 FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if not has_content and owner == version == 0:
        return True
    if owner != APPLICATION_ID:
        raise UnreadableSnapshot(
            f"{path} is an SQLite database of another program (application_id {owner}). It was not changed. Give the "
            "store its own file"
        )
    if version != FILE_FORMAT:
        raise UnreadableSnapshot(
            f"{path} is a store of format {version}, but this version of toolloop reads format {FILE_FORMAT}. It was "
            "not changed. Use the version of toolloop that wrote it, or a newer one"
        )
    return False


def _lacking(connection: sqlite3.Connection) -> list[str]:
    """Return the statements that add what a file of an earlier version lacks."""
    found = connection.execute("SELECT name FROM pragma_table_info('loops') UNION SELECT name FROM sqlite_master")
    names = {name for (name,) in found}
    return [statement for name, statement in _ADDED.items() if name not in names]


def _pragma(connection: sqlite3.Connection, text: str) -> Any:
    return connection.execute(f"PRAGMA {text}").fetchone()[0]
