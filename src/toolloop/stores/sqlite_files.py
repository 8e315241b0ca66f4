"""Opening the file of a store: made if there is none, looked at before anything is written, refused if it is not ours.

A file that is foreign, damaged or of a newer format is only read: it is looked at through a connection that cannot
write. It is never read past SQLite, whose locks end when a process closes any handle on the file
(https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_).
"""

from __future__ import annotations

import math
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Literal

from toolloop.core.errors import StoreError, UnreadableSnapshot
from toolloop.stores.sqlite_errors import primary_code

FORMAT = 1  # SQLite's user_version
APPLICATION_ID = int.from_bytes(b"tlop")

_PAGE_SIZE = 8192  # in SQLite's 4096, events of about 1 KB leave an eighth of the file unused

_TABLES = {"loops", "events", "tokens"}
_SCHEMA = (
    # `rev` is the number of the loop's events. The three of a lease are all NULL, or none is.
    """CREATE TABLE loops (
        number INTEGER PRIMARY KEY,
        loop_id TEXT NOT NULL UNIQUE,
        rev INTEGER NOT NULL,
        status TEXT NOT NULL,
        deadline REAL,
        lease_owner TEXT,
        lease_token INTEGER,
        lease_until REAL
    )""",
    "CREATE INDEX loops_by_status ON loops (status)",
    # `place` is where an event stands: loops.number times 2^32, plus its number in the journal, counted from 1. So the
    # table itself is the index. No WITHOUT ROWID: such tables waste room on rows of over 1 KB.
    "CREATE TABLE events (place INTEGER PRIMARY KEY, id TEXT NOT NULL, body TEXT NOT NULL)",
    "CREATE UNIQUE INDEX events_by_id ON events (place >> 32, id)",
    # One counter for the leases of all loops, so that a loop's tokens grow even if it is deleted and made anew.
    "CREATE TABLE tokens (last INTEGER NOT NULL)",
    "INSERT INTO tokens VALUES (0)",
    """CREATE VIEW journal AS
        SELECT loop_id, place & 0xffffffff AS seq, id, body
        FROM loops JOIN events ON place BETWEEN (number << 32) AND (number << 32 | 0xffffffff) ORDER BY place""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)


class Kept(sqlite3.Connection):
    """A connection that is used for one transaction after another."""

    _wait: float | None = None

    def wait_for(self, wait: float) -> None:
        """Wait so many seconds for a lock from here on."""
        if wait != self._wait:  # each transaction asks, and it is mostly the same
            self.execute(f"PRAGMA busy_timeout = {math.ceil(wait * 1000)}")
            self._wait = wait


def connect(path: str, wait: float, turn: AbstractContextManager[object]) -> Kept:
    """A connection to the store in this file, made where there is none.

    Args:
        path: the file, by its real path: SQLite follows links, and has its two other files beside what they point to.
        wait: for how many seconds to wait for a lock.
        turn: what to be in while the file is made.

    Raises:
        UnreadableSnapshot: the file is foreign, damaged or of a newer format; it was left as it is.
        StoreError: the file cannot keep a store.
        sqlite3.Error: SQLite failed.

    """
    if _look_at(path, wait) == "store":
        return _opened(path, wait, is_new=False)
    with turn:  # and by now another thread may have made it
        return _opened(path, wait, is_new=_look_at(path, wait) == "nothing")


def _opened(path: str, wait: float, *, is_new: bool) -> Kept:
    connection = _open(path, "rwc" if is_new else "rw", wait)
    try:
        if is_new:
            connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
        _try_for(wait, lambda: require_wal(connection, path))
        _require_full(connection, path)
        if is_new:
            _make(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: str, mode: Literal["ro", "rw", "rwc"], wait: float) -> Kept:
    return sqlite3.connect(
        f"{Path(path).as_uri()}?mode={mode}",
        uri=True,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,  # they go from thread to thread, though never to two at a time
        factory=Kept,
    )


def require_wal(connection: sqlite3.Connection, path: str) -> None:
    """Switch the write-ahead log on, unless it is.

    Raises:
        StoreError: there is none to be had here.

    """
    if _pragma(connection, "journal_mode") != "wal" and _pragma(connection, "journal_mode = WAL") != "wal":
        raise StoreError(
            f"{path} gets no write-ahead log, which needs memory that is shared between processes: network file "
            "systems are unsupported. Put the store on a local disk"
        )


def _require_full(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    if _pragma(connection, "synchronous") != 2:  # noqa: PLR2004 - FULL; see the SQLite manual
        raise StoreError(f"SQLite does not write through to the disk here: {path} got no synchronous = FULL")


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if not _names(connection):  # else another process was quicker
        for statement in _SCHEMA:
            connection.execute(statement)
    connection.execute("COMMIT")


def _look_at(path: str, wait: float) -> Literal["nothing", "store"]:
    """What is there. A database without any content is nothing, too: so it is left where a process died just now."""
    # The log first: where it has something, the file had something before.
    log, size = _size(f"{path}-wal"), _size(path)
    if not size and log:
        raise UnreadableSnapshot(
            f"{path} is damaged: it is {'empty' if size == 0 else 'gone'}, and {path}-wal, which belongs to it, is "
            "there. Nothing was changed"
        )
    if not size:
        return "nothing"
    if size == 1:  # which SQLite would take for empty
        raise UnreadableSnapshot(f"{path} is no SQLite database: it has one byte. It was left as it is")
    if not os.access(path, os.W_OK):
        # Before SQLite makes its two files beside it, which nobody could write to either, even later.
        raise StoreError(f"{path} can only be read: this process may not write to it. Nothing was stored")
    try:
        return _read_head(path, wait)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
    # A process died while it wrote without a log, as it does only while the file is made. SQLite takes that back.
    with closing(_open(path, "rw", wait)) as connection:
        _names(connection)
    return _read_head(path, wait)


def _read_head(path: str, wait: float) -> Literal["nothing", "store"]:
    with closing(_open(path, "ro", wait)) as connection:
        connection.execute("BEGIN")
        names, owner = _names(connection), _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        if not names and owner == version == 0:
            return "nothing"
        if owner != APPLICATION_ID:
            raise UnreadableSnapshot(
                f"{path} is an SQLite database of some other program (its application_id is {owner}). It was left as "
                "it is; give the store a file of its own"
            )
        if version > FORMAT:
            raise UnreadableSnapshot(
                f"{path} is a store of format {version}, and this version of toolloop reads format {FORMAT}. It was "
                "left as it is; use a newer toolloop"
            )
        if version != FORMAT or not names >= _TABLES or _is_cut(connection, path):
            raise UnreadableSnapshot(f"{path} is damaged: a part of it is missing. It was left as it is")
        return "store"


def _is_cut(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file ends too early. SQLite itself reads a missing part as zeros.

    What is in the log need not be in the file yet. While a transaction is open, what it reads from the log stays there.
    """
    page_size, pages = _pragma(connection, "page_size"), _pragma(connection, "page_count")
    whole = (_size(path) or 0) // page_size
    missing = set(range(whole + 1, pages + 1))
    missing.discard(2**30 // page_size + 1)  # the page that SQLite keeps its locks in is never written
    return bool(missing) and not missing <= set(_pages_in_log(f"{path}-wal", page_size))


_LOG_HEADER = Struct(">16x8s8x")  # the salts, which tell its frames from older ones
_FRAME_HEADER = Struct(">II8s8x")  # the page; the pages of the database, if a transaction ends here; the salts


def _pages_in_log(path: str, page_size: int) -> Iterator[int]:
    """The pages that the committed transactions of a log wrote. See https://www.sqlite.org/fileformat2.html#walformat."""
    try:
        log = Path(path).open("rb", buffering=0)  # noqa: SIM115 - closed below; no lock of SQLite is on this file
    except FileNotFoundError:
        return
    with log:
        end = os.fstat(log.fileno()).st_size
        header = log.read(_LOG_HEADER.size)
        if len(header) < _LOG_HEADER.size:
            return
        (salts,) = _LOG_HEADER.unpack(header)
        uncommitted = []
        for page, commit in _frames(log, salts, page_size, end):
            uncommitted.append(page)
            if commit:
                yield from uncommitted
                uncommitted.clear()


def _frames(log: BinaryIO, salts: bytes, page_size: int, end: int) -> Iterator[tuple[int, int]]:
    frame = _FRAME_HEADER.size + page_size
    for at in range(_LOG_HEADER.size, end - frame + 1, frame):
        log.seek(at)
        page, commit, found = _FRAME_HEADER.unpack(log.read(_FRAME_HEADER.size))
        if found != salts:
            return
        yield page, commit


def _size(path: str) -> int | None:
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a device, a pipe or the like"
        raise StoreError(f"{path} is no file, but {kind}. Give the store a file of its own. Nothing was stored")
    return found.st_size


def _names(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _pragma(connection: sqlite3.Connection, text: str) -> Any:
    return connection.execute(f"PRAGMA {text}").fetchone()[0]


def _try_for(wait: float, act: Callable[[], None]) -> None:
    """Do what SQLite does not wait for by itself: two who switch a new file over stand in each other's way."""
    deadline = time.monotonic() + wait
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.005)
