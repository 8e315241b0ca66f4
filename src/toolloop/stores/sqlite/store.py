"""A store in an SQLite file: many loops, for the threads and processes of one machine."""

from __future__ import annotations

import builtins  # `list` is a method of a store
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path
from typing import Any, Self

from attrs import evolve
from typing_extensions import override

from toolloop._public import set_module
from toolloop.stores import arguments, store_errors
from toolloop.stores.digests import chain_digests, make_first_digest, make_next_digest
from toolloop.stores.optional import LEASE_SECONDS, check_lease_seconds
from toolloop.stores.protocol import Entry, Head, Lease, Left, Store, StoredJournal, StoredLoop
from toolloop.stores.revisions import Revision
from toolloop.stores.rows import COLUMNS, is_current, list_added, read_stored_loop, to_head_columns
from toolloop.stores.sqlite import checkpoints, lists
from toolloop.stores.sqlite.file import SqliteFile

_LAST = 0xFFFFFFFF  # number of an event
_ROW = f"{COLUMNS}, digest"  # of `read_stored_loop`


@set_module("toolloop")
class SqliteStore(Store):
    """A store in an SQLite file.

    It has the methods of `Store`. The first use creates the file, with access for its owner only. To inspect it in the
    `sqlite3` shell, use the view `journal`. When a method returns, its changes are on the disk. A method that cannot
    get the file's write lock within `busy_timeout` seconds raises `StoreError` and stores nothing.

    Reading does not need write permission on the file or its folder. The file must be on a local disk: network file
    systems are not supported.

    The store is a context manager: leaving the block closes it.
    """

    takes_alternatives: bool = True

    def __init__(
        self, path: str | os.PathLike[str], *, busy_timeout: float = 5.0, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        """Set the path. The first call opens the file.

        Args:
            path: the file, or a link to it. Its folder must exist.
            busy_timeout: how long to wait for the lock of the file, in seconds.
            lease_seconds: how long a lease lasts if it is not renewed, in seconds, at least 10.

        """
        name = os.fspath(path)
        arguments.check_text("path", name)
        if name == ":memory:":
            raise ValueError("path is ':memory:', which two connections cannot share: use MemoryStore")
        arguments.check_seconds("busy_timeout", busy_timeout)
        if busy_timeout < 0:
            raise ValueError(f"busy_timeout is {busy_timeout}; give 0 or more seconds")
        self.lease_seconds: float = check_lease_seconds(lease_seconds)
        self._file = SqliteFile(Path(name).absolute(), busy_timeout)

    def __repr__(self) -> str:
        return f"SqliteStore({os.fspath(self._file.path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        self._file.close()

    def watch(self, on_change: Callable[[], object]) -> AbstractContextManager[None]:
        """While the block runs, call a function within about 50 ms after any process changed the file.

        Of what this store object writes, it is not called for leases and the steps of a driver. The function is called
        in a thread, sometimes without a cause, and not at all if this process may not write to the file.
        """
        return self._file.watch(on_change)

    @override
    def create(
        self, loop_id: str, entries: Sequence[Entry], *, head: Head, metadata: Mapping[str, str] | None = None
    ) -> int:
        kept = json.dumps(dict(metadata or {}))

        def act(db: sqlite3.Connection) -> int:
            if _look(db, loop_id) is not None:
                raise store_errors.make_taken_error(loop_id)
            digests = chain_digests(make_first_digest(loop_id), entries)
            columns = {"loop_id": loop_id, "rev": len(entries), "digest": digests[-1]}
            columns |= {"created": head.changed, "metadata": kept, **to_head_columns(head.behind(head))}
            places = ", ".join("?" * len(columns))
            made = db.execute(f"INSERT INTO loops ({', '.join(columns)}) VALUES ({places})", (*columns.values(),))  # noqa: S608 - no text of a caller
            _add(db, made.lastrowid or 0, 0, entries, digests)
            return Revision(len(entries), digests[-1].hex())

        return self._file.write(act)

    @override
    def append(
        self,
        loop_id: str,
        entries: Sequence[Entry],
        *,
        expected_rev: int | None,
        head: Head | None = None,
        lease: Lease | None = None,
        first_id: str | None = None,
        instead_of: Head | None = None,
    ) -> int:

        def act(db: sqlite3.Connection) -> int:
            number, digest, loop = _find(db, loop_id, first_id, calls=instead_of is not None)
            known = {entry.id for entry in entries if _has(db, number, entry.id)}
            new = list_added(loop, entries, known, expected_rev=expected_rev, lease=lease, instead_of=instead_of)
            if new is None:
                return loop.rev
            digests = chain_digests(digest, new)
            _add(db, number, loop.rev, new, digests)
            rev = Revision(loop.rev + len(new), digests[-1].hex())
            columns: dict[str, Any] = {"rev": int(rev), "digest": digests[-1]}
            columns |= {} if head is None else to_head_columns(head)
            for name in ("status", "deadline", "retry_at"):
                if name in columns and columns[name] == getattr(loop.head, name):
                    del columns[name]  # so that SQLite does not update its indexes
            changes = ", ".join(f"{name} = ?" for name in columns)
            db.execute(f"UPDATE loops SET {changes} WHERE number = ?", (*columns.values(), number))  # noqa: S608 - likewise
            return rev

        return self._file.write(act, tells=lease is None)  # of the steps of a driver, when it returns the lease

    @override
    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:

        def act(db: sqlite3.Connection) -> StoredJournal:
            number, digest, loop = _find(db, loop_id, first_id)
            known = min(int(after), int(loop.rev))
            last, entries = _find_digest(db, number, known) if known else make_first_digest(loop_id), list[Entry]()
            if Revision.of(after).digest is not None and (after > known or Revision(known, last.hex()) != after):
                raise store_errors.make_missing_revision_error(loop_id, after, loop.rev)
            rows = db.execute(
                "SELECT place, digest, CAST(id AS BLOB), CAST(body AS BLOB), CAST(text AS BLOB) FROM events "
                "WHERE place BETWEEN ? AND ? ORDER BY place",
                (_make_place(number, known + 1), _make_place(number, _LAST)),
            )
            for seq, (place, kept, *parts) in enumerate(rows, known + 1):
                if place != _make_place(number, seq) or kept != make_next_digest(last, parts):
                    raise store_errors.make_damaged_error(loop_id, seq)
                entry_id, body, text = parts
                entries.append(Entry(entry_id.decode(), body.decode(), None if text is None else text.decode()))
                last = kept
            if (loop.rev, digest) != (known + len(entries), last):
                raise store_errors.make_damaged_error(loop_id, min(int(loop.rev), known + len(entries) + 1))
            return StoredJournal(loop.rev, tuple(entries))

        return self._file.read(act)

    @override
    def head(self, loop_id: str) -> StoredLoop:
        return self._file.read(lambda db: _find(db, loop_id))[-1]

    @override
    def list(
        self,
        status: str | Collection[str] | None = None,
        *,
        metadata: arguments.MetadataFilter = None,
        limit: int = 100,
        before: str | None = None,
    ) -> builtins.list[StoredLoop]:
        page, wanted = arguments.check_page(status, limit, before), arguments.check_alternatives(metadata)
        return self._file.read(lambda db: lists.list_loops(db, page, wanted, limit))

    def list_due(
        self, now: float, metadata: arguments.MetadataFilter = None
    ) -> tuple[builtins.list[StoredLoop], float | None]:
        """Return the loops whose `due_at` is not after `now`, and the next later `due_at`, or None.

        `metadata`: only of loops whose metadata contains all of these.
        """
        wanted = arguments.check_alternatives(metadata)
        return self._file.read(lambda db: lists.list_due(db, now, wanted))

    def list_unnotified(self, metadata: arguments.MetadataFilter = None) -> builtins.list[StoredLoop]:
        """Return the loops with waiting calls, but for those that were marked at this revision.

        `metadata`: only those whose metadata contains all of these.
        """
        wanted = arguments.check_alternatives(metadata)
        return self._file.read(lambda db: lists.list_unnotified(db, wanted))

    def count(self, now: float, metadata: arguments.MetadataFilter = None) -> tuple[dict[str, int], int]:
        """Return how many loops have each status, and how many of their calls wait and have not expired by `now`.

        `metadata`: only loops whose metadata contains all of these.
        """
        wanted = arguments.check_alternatives(metadata)
        return self._file.read(lambda db: lists.count_loops(db, now, wanted))

    def tallies(self, metadata: arguments.MetadataFilter = None) -> builtins.list[tuple[str, str | None]]:
        """Return each loop with its tally as JSON text, None if it has none; `Inbox.statistics` adds them up.

        `metadata`: only of loops whose metadata contains all of these.
        """
        wanted = arguments.check_alternatives(metadata)
        return self._file.read(lambda db: lists.list_tallies(db, wanted))

    def mark_left(self, loop: StoredLoop, left: Left) -> None:
        """Keep why a worker left a loop to others, as long as the row of the loop is as given."""
        self._file.write(lambda db: lists.mark_left(db, loop, left), tells=False)

    def list_reminders(
        self, now: float, metadata: arguments.MetadataFilter = None, since: float = -inf
    ) -> builtins.list[StoredLoop]:
        """Return the loops with waiting calls whose `remind_at` is from `since` to `now`. `metadata`: as for `list`."""
        wanted = arguments.check_alternatives(metadata)
        return self._file.read(lambda db: lists.list_reminders(db, since, now, wanted))

    def mark_notified(self, loops: Sequence[StoredLoop], remind_at: Sequence[float] | None = None) -> None:
        """Mark loops, at their revision: notifications of all their waiting calls were sent.

        `remind_at`: for each, when the next reminder is due, in seconds since the epoch; infinite if there is none, and
        negative if the worker has no times for reminders.
        """
        times = [inf] * len(loops) if remind_at is None else remind_at
        marks = [(int(loop.rev), at, int(loop.cursor)) for loop, at in zip(loops, times, strict=True)]
        query = "UPDATE loops SET notified_rev = ?, remind_at = ? WHERE number = ?"
        self._file.write(lambda db: db.executemany(query, marks), tells=False)

    def delete(self, loop_id: str) -> None:
        """See `Store.delete`. Its text may stay in unused parts of the file and in the log: see `vacuum`."""

        def act(db: sqlite3.Connection) -> None:
            number, *_ = _find(db, loop_id)
            db.execute(
                "DELETE FROM events WHERE place BETWEEN ? AND ?", (_make_place(number, 0), _make_place(number, _LAST))
            )
            db.execute("DELETE FROM loops WHERE number = ?", (number,))

        self._file.write(act)

    def vacuum(self) -> bool:
        """Rewrite the file, so that no text of deleted loops stays in it or its log. Meanwhile, writers wait.

        It takes about three seconds for each 100 MB, and as much free space as the file has. Backups are not changed.

        Returns:
            Whether nothing is left. False: a program that reads the file keeps the log in use; call this again later.

        Raises:
            StoreError: SQLite failed, such as for lack of space. Nothing was changed.

        """
        return self._file.vacuum()

    @override
    def acquire(
        self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None, first_id: str | None = None
    ) -> Lease:
        wanted = Lease(loop_id, owner, 0, until)

        def act(db: sqlite3.Connection) -> Lease:
            number, _, loop = _find(db, wanted.loop_id, first_id)
            if loop.lease is not None and loop.lease.token != instead_of:
                raise store_errors.make_leased_error(wanted.loop_id, loop.lease)
            db.execute("UPDATE tokens SET last = last + 1")
            (token,) = db.execute("SELECT last FROM tokens").fetchone()
            lease = evolve(wanted, token=token, rev=loop.rev)
            _set_lease(db, number, lease)
            db.execute("UPDATE loops SET left_why = NULL WHERE number = ? AND left_why IS NOT NULL", (number,))
            return lease

        return self._file.write(act, tells=False)

    @override
    def renew(self, lease: Lease, *, until: float) -> Lease:

        def act(db: sqlite3.Connection) -> Lease:
            number, _, loop = _find(db, lease.loop_id)
            if loop.lease is None or not is_current(lease, loop):
                raise store_errors.make_lost_error(lease.loop_id, loop.lease)
            renewed = evolve(loop.lease, until=until)
            _set_lease(db, number, renewed)
            return renewed

        return self._file.write(act, tells=False)

    @override
    def release(self, lease: Lease) -> None:

        def act(db: sqlite3.Connection) -> None:
            found = _look(db, lease.loop_id)
            if found is not None and is_current(lease, found[-1]):
                _set_lease(db, found[0], None)

        self._file.write(act)

    def keep_progress(self, lease: Lease, text: str | None) -> None:
        """Keep a text beside a lease, or remove it. Nothing happens if it is not the loop's lease."""
        query = "UPDATE loops SET progress = ?, progress_token = lease_token WHERE loop_id = ? AND lease_token = ? "
        query += "AND lease_owner = ?"
        self._file.write(lambda db: db.execute(query, (text, lease.loop_id, lease.token, lease.owner)))

    def progress(self, loop_id: str) -> str | None:
        """Return the text beside the lease of a loop, or None."""
        query = "SELECT progress FROM loops WHERE loop_id = ? AND progress_token = lease_token"
        return self._file.read(lambda db: next((text for (text,) in db.execute(query, (loop_id,))), None))

    def keep_checkpoint(self, lease: Lease, body: bytes, *, rev: int, meaning: int) -> None:
        """Keep a checkpoint of a loop. Nothing happens if it is not the loop's lease, or a newer checkpoint is kept."""
        known = Revision.of(rev)
        self._file.write(lambda db: checkpoints.keep_checkpoint(db, lease, body, known, meaning), tells=False)

    def checkpoint(self, loop_id: str, *, meaning: int) -> bytes | None:
        """Return the checkpoint of a loop with a meaning, or None."""
        return self._file.read(lambda db: checkpoints.find_checkpoint(db, loop_id, meaning))

    @override
    def secret(self) -> str:

        def make(db: sqlite3.Connection) -> str:
            if (made := _find_secret(db)) is None:
                made = secrets.token_urlsafe()
                db.execute("INSERT INTO secrets VALUES (?)", (made,))
            return made

        return self._file.read(_find_secret) or self._file.write(make)


def _find_secret(db: sqlite3.Connection) -> str | None:
    row = db.execute("SELECT text FROM secrets").fetchone()
    return None if row is None else str(row[0])


def _look(db: sqlite3.Connection, loop_id: str, *, calls: bool = True) -> tuple[int, bytes, StoredLoop] | None:
    """Return the number of a loop, the digest of its last event, and its row; None if it does not exist.

    `calls`: whether to read the calls in its row, which may be many.
    """
    columns = COLUMNS if calls else COLUMNS.replace("pending", "'[]'").replace("named", "NULL")
    row = db.execute(f"SELECT {columns}, digest FROM loops WHERE loop_id = ?", (loop_id,)).fetchone()  # noqa: S608 - likewise
    return None if row is None else (row[0], row[-1], read_stored_loop(row))


def _find(
    db: sqlite3.Connection, loop_id: str, first_id: str | None = None, *, calls: bool = True
) -> tuple[int, bytes, StoredLoop]:
    found = _look(db, loop_id, calls=calls)
    if found is None:
        raise store_errors.make_missing_error(loop_id)
    if first_id is not None:
        first = db.execute("SELECT id FROM events WHERE place = ?", (_make_place(found[0], 1),)).fetchone()
        if first != (first_id,):
            raise store_errors.make_replaced_error(loop_id)
    return found


def _has(db: sqlite3.Connection, number: int, entry_id: str) -> bool:
    found = db.execute("SELECT 1 FROM events WHERE place >> 32 = ? AND id = ?", (number, entry_id))
    return found.fetchone() is not None


def _find_digest(db: sqlite3.Connection, number: int, seq: int) -> bytes:
    found = db.execute("SELECT digest FROM events WHERE place = ?", (_make_place(number, seq),)).fetchone()
    return found[0] if found is not None and isinstance(found[0], bytes) else b""  # which does not match any event


def _add(db: sqlite3.Connection, number: int, rev: int, entries: Sequence[Entry], digests: Sequence[bytes]) -> None:
    rows = (
        (_make_place(number, seq), entry.id, digest, entry.body, entry.text)
        for seq, (digest, entry) in enumerate(zip(digests[1:], entries, strict=True), rev + 1)
    )
    db.executemany("INSERT INTO events (place, id, digest, body, text) VALUES (?, ?, ?, ?, ?)", rows)


def _make_place(number: int, seq: int) -> int:
    return number << 32 | min(seq, _LAST)


def _set_lease(db: sqlite3.Connection, number: int, lease: Lease | None) -> None:
    columns = (None, None, None) if lease is None else (lease.owner, lease.token, lease.until)
    db.execute(
        "UPDATE loops SET lease_owner = ?, lease_token = ?, lease_until = ? WHERE number = ?", (*columns, number)
    )
    if lease is None:
        db.execute("UPDATE loops SET progress = NULL WHERE number = ? AND progress IS NOT NULL", (number,))
