"""What SQLite says when it fails, in our words: what was asked, what is so, what to do."""

from __future__ import annotations

import sqlite3

from toolloop.core.errors import StoreError, UnreadableSnapshot

# By the primary result code; see https://www.sqlite.org/rescode.html. `{path}` and `{waited}` are filled in.
_WORDS = {
    sqlite3.SQLITE_PERM: "{path} may not be opened by this process",
    sqlite3.SQLITE_READONLY: "{path} can only be read: the file, or its folder, may not be written to by this process",
    sqlite3.SQLITE_CANTOPEN: (
        "{path} cannot be opened. Is its folder there, and may this process write to both? SQLite keeps two more files "
        "beside it"
    ),
    sqlite3.SQLITE_FULL: "there is no room left for {path}. Make room, and try again",
    sqlite3.SQLITE_IOERR: "{path} could not be read or written: the disk failed, or is full, or a limit was met",
    sqlite3.SQLITE_TOOBIG: "an event is too big for {path}",
}
_AGAIN = "Try again, or give SqliteStore a longer busy_timeout"
_BUSY = (
    "{path} is locked: waited {waited:g} seconds, and at every try another process held it, or a connection of this "
    f"one that is not a SqliteStore's. {_AGAIN}"
)
_CROWDED = (
    "{path} is locked: waited {waited:g} seconds, and other threads of this process, which came first, still write to "
    f"it. {_AGAIN}"
)
_WORDS |= dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL), _BUSY)
_DAMAGED = {
    sqlite3.SQLITE_NOTADB: "{path} is no SQLite database. It was left as it is",
    sqlite3.SQLITE_CORRUPT: (
        "{path} is damaged. It was left as it is; the sqlite3 shell's .recover may save what is left"
    ),
}


def explain(error: sqlite3.Error, path: str, waited: float) -> StoreError:
    """The error to raise in place of one of SQLite's.

    Args:
        error: what the `sqlite3` module raised.
        path: the file.
        waited: how many seconds a writer waits for a lock.

    """
    code = primary_code(error)
    if code in _DAMAGED:
        return UnreadableSnapshot(f"{_DAMAGED[code].format(path=path)} (SQLite: {error})")
    if str(error).startswith("Could not decode"):  # the module's own words; it has no code for them
        return UnreadableSnapshot(f"{path} is damaged: a text in it is none. It was left as it is (SQLite: {error})")
    words = _WORDS.get(code, "{path}: SQLite failed").format(path=path, waited=waited)
    return StoreError(f"{words}. Nothing was stored (SQLite: {error})")


def locked(path: str, waited: float) -> StoreError:
    """The error of a thread that waited in vain for one of its process that SQLite gave no lock."""
    return StoreError(f"{_BUSY.format(path=path, waited=waited)}. Nothing was stored")


def crowded(path: str, waited: float) -> StoreError:
    """The error of a thread that waited in vain for others of its process, which wrote."""
    return StoreError(f"{_CROWDED.format(path=path, waited=waited)}. Nothing was stored")


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its details; 0 for an error of the `sqlite3` module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
