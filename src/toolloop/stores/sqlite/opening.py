"""Open the file of an SQLite store: create it, add what an earlier version lacks, or read it without write access."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.stores.rows import DUE_AT, UNNOTIFIED

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
    # Why workers leave a loop to others, from when on, and at which revision that holds. Earlier versions leave them.
    "left_rev": "ALTER TABLE loops ADD COLUMN left_rev INTEGER",
    "left_why": "ALTER TABLE loops ADD COLUMN left_why TEXT",
    "left_since": "ALTER TABLE loops ADD COLUMN left_since REAL",
    # Earlier versions leave it as it is, and so do not count.
    "tally": "ALTER TABLE loops ADD COLUMN tally TEXT",
    "forked_from": "ALTER TABLE loops ADD COLUMN forked_from TEXT",
    # When the next reminder of a call is due. Earlier versions leave it.
    "remind_at": "ALTER TABLE loops ADD COLUMN remind_at REAL",
    "loops_to_remind": "CREATE INDEX loops_to_remind ON loops (remind_at) WHERE remind_at IS NOT NULL",
    "loops_by_due": f"CREATE INDEX loops_by_due ON loops ({DUE_AT}) WHERE {DUE_AT} IS NOT NULL",
    # States at a revision. `digest` is that of the event of the revision. Earlier versions leave the table, and the
    # trigger removes the rows of the loops that they delete.
    "checkpoints": """CREATE TABLE checkpoints (
        number INTEGER NOT NULL, meaning INTEGER NOT NULL, rev INTEGER NOT NULL,
        digest BLOB NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (number, meaning)
    )""",
    "loops_without_checkpoints": """CREATE TRIGGER loops_without_checkpoints AFTER DELETE ON loops
        BEGIN DELETE FROM checkpoints WHERE number = OLD.number; END""",
    "loops_unnotified": f"CREATE INDEX loops_unnotified ON loops (number) WHERE {UNNOTIFIED}",
}
# Of them, those that a reader needs.
_COLUMNS = ("named", "progress_token", "progress", "left_rev", "left_why", "left_since", "tally", "forked_from")
_FULL = 2  # of PRAGMA synchronous
_PAGE_SIZE = 8192  # with SQLite's default of 4096, events of about 1 KB leave an eighth of the file unused


def code_of(error: Exception) -> int:
    """Return SQLite's primary result code; 0 for any other error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def open_to_write(path: Path) -> sqlite3.Connection:
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
    if run_pragma(connection, "journal_mode = WAL") != "wal":
        raise StoreError(
            f"{path} cannot have a write-ahead log, which needs shared memory: network file systems are not supported. "
            "Put the store on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")
    if run_pragma(connection, "synchronous") != _FULL:
        raise StoreError(f"{path} cannot be flushed to the disk: SQLite refused synchronous = FULL")
    if is_new:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if _is_new(connection, path):  # another process may have been faster
                for statement in (*_SCHEMA, *_ADDED.values()):
                    connection.execute(statement)
    elif _list_lacking(connection):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _list_lacking(connection):  # likewise
                connection.execute(statement)


@contextmanager
def open_to_read(path: Path) -> Generator[sqlite3.Connection]:
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
            lacking = {*_list_lacking(connection)}
            if columns := [f"NULL AS {name}" for name in _COLUMNS if _ADDED[name] in lacking]:
                connection.execute("PRAGMA temp_store = MEMORY")
                connection.execute(f"CREATE TEMP VIEW loops AS SELECT *, {', '.join(columns)} FROM main.loops")  # noqa: S608 - names from above
            if _ADDED["checkpoints"] in lacking:
                connection.execute("PRAGMA temp_store = MEMORY")
                connection.execute(_ADDED["checkpoints"].replace("TABLE", "TEMP TABLE"))
            yield connection
    except Exception as error:
        is_closed = has_log and code_of(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if has_writer() or (is_closed and os.access(path, os.R_OK)):
            raise _make_locked_error() from error
        raise
    if has_writer():
        raise _make_locked_error()


def _make_locked_error() -> sqlite3.OperationalError:
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


def _list_lacking(connection: sqlite3.Connection) -> list[str]:
    """Return the statements that add what a file of an earlier version lacks."""
    found = connection.execute("SELECT name FROM pragma_table_info('loops') UNION SELECT name FROM sqlite_master")
    names = {name for (name,) in found}
    return [statement for name, statement in _ADDED.items() if name not in names]


def run_pragma(connection: sqlite3.Connection, text: str) -> Any:
    """Return the value of a pragma, which the text may also set."""
    return connection.execute(f"PRAGMA {text}").fetchone()[0]
