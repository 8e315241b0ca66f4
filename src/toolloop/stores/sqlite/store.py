"""A store in an SQLite file: many loops, for the threads and processes of one machine."""

from __future__ import annotations

import builtins  # `list` is a method of a store
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from attrs import evolve

from toolloop._public import set_module
from toolloop.stores import arguments, checks, store_errors
from toolloop.stores.digests import chain, first_digest, next_digest
from toolloop.stores.optional import LEASE_SECONDS, check_lease_seconds
from toolloop.stores.protocol import Entry, Head, Lease, StoredJournal, StoredLoop
from toolloop.stores.rows import COLUMNS, DUE_AT, UNNOTIFIED, added, head_columns, is_current, stored_loop
from toolloop.stores.sqlite.file import SqliteFile

_LAST = 0xFFFFFFFF  # number of an event


@set_module("toolloop")
class SqliteStore:
    """A store in an SQLite file.

    It has the methods of `Store`. The first use creates the file, with access for its owner only. To inspect it in the
    `sqlite3` shell, use the view `journal`. When a method returns, its changes are on the disk. A method that cannot
    get the file's write lock within `busy_timeout` seconds raises `StoreError` and stores nothing.

    Reading does not need write permission on the file or its folder. The file must be on a local disk: network file
    systems are not supported.

    The store is a context manager: leaving the block closes it.
    """

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

    def create(
        self, loop_id: str, entries: Sequence[Entry], *, head: Head, metadata: Mapping[str, str] | None = None
    ) -> int:
        """See `Store.create`."""
        kept = json.dumps(checks.check_create(loop_id, entries, head, metadata))

        def act(db: sqlite3.Connection) -> int:
            if _look(db, loop_id) is not None:
                raise store_errors.taken(loop_id)
            digests = chain(first_digest(loop_id), entries)
            columns = {"loop_id": loop_id, "rev": len(entries), "digest": digests[-1]}
            columns |= {"created": head.changed, "metadata": kept, **head_columns(head.behind(head))}
            places = ", ".join("?" * len(columns))
            made = db.execute(f"INSERT INTO loops ({', '.join(columns)}) VALUES ({places})", (*columns.values(),))  # noqa: S608 - no text of a caller
            _add(db, made.lastrowid or 0, 0, entries, digests)
            return len(entries)

        return self._file.write(act)

    def append(  # noqa: PLR0913 - what an append is guarded by
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
        """See `Store.append`."""
        checks.check_known(loop_id, first_id)
        checks.check_append(entries, expected_rev, head, lease, instead_of)

        def act(db: sqlite3.Connection) -> int:
            number, digest, loop = _find(db, loop_id, first_id)
            known = {entry.id for entry in entries if _has(db, number, entry.id)}
            new = added(loop, entries, known, expected_rev=expected_rev, lease=lease, instead_of=instead_of)
            if new is None:
                return loop.rev
            digests = chain(digest, new)
            _add(db, number, loop.rev, new, digests)
            rev, last = loop.rev + len(new), digests[-1]
            columns: dict[str, Any] = {"rev": rev, "digest": last, **({} if head is None else head_columns(head))}
            for name in ("status", "deadline", "retry_at"):
                if name in columns and columns[name] == getattr(loop.head, name):
                    del columns[name]  # so that SQLite does not update its indexes
            changes = ", ".join(f"{name} = ?" for name in columns)
            db.execute(f"UPDATE loops SET {changes} WHERE number = ?", (*columns.values(), number))  # noqa: S608 - likewise
            return rev

        return self._file.write(act, tells=lease is None)  # of the steps of a driver, when it returns the lease

    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:
        """See `Store.load`."""
        checks.check_known(loop_id, first_id)
        arguments.check_integer("after", after)

        def act(db: sqlite3.Connection) -> StoredJournal:
            number, digest, loop = _find(db, loop_id, first_id)
            known = min(after, loop.rev)
            last, entries = _digest_at(db, number, known) if known else first_digest(loop_id), list[Entry]()
            rows = db.execute(
                "SELECT place, digest, CAST(id AS BLOB), CAST(body AS BLOB), CAST(text AS BLOB) FROM events "
                "WHERE place BETWEEN ? AND ? ORDER BY place",
                (_place(number, known + 1), _place(number, _LAST)),
            )
            for seq, (place, kept, *parts) in enumerate(rows, known + 1):
                if place != _place(number, seq) or kept != next_digest(last, parts):
                    raise store_errors.damaged(loop_id, seq)
                entry_id, body, text = parts
                entries.append(Entry(entry_id.decode(), body.decode(), None if text is None else text.decode()))
                last = kept
            if (loop.rev, digest) != (known + len(entries), last):
                raise store_errors.damaged(loop_id, min(loop.rev, known + len(entries) + 1))
            return StoredJournal(loop.rev, tuple(entries))

        return self._file.read(act)

    def head(self, loop_id: str) -> StoredLoop:
        """See `Store.head`."""
        arguments.check_text("loop_id", loop_id)
        return self._file.read(lambda db: _find(db, loop_id))[-1]

    def list(
        self,
        status: str | Collection[str] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> builtins.list[StoredLoop]:
        """See `Store.list`."""
        statuses, number = arguments.check_page(status, limit, before)
        wanted, values = builtins.list[str](), builtins.list[Any]()
        if statuses is not None:
            wanted.append(f"status IN ({', '.join('?' * len(statuses))})")
            values += statuses
        if number is not None:
            wanted.append("number < ?")
            values.append(number)
        for key, value in arguments.check_metadata(metadata).items():
            wanted.append("EXISTS (SELECT 1 FROM json_each(metadata) WHERE key = ? AND value = ?)")
            values += (key, value)
        where = f"WHERE {' AND '.join(wanted)}" if wanted else ""
        numbers = f"SELECT number FROM loops {where} ORDER BY number DESC LIMIT ?"  # noqa: S608 - no text of a caller
        # Rows are wide: sorting only their numbers takes a third of the time.
        query = f"SELECT {COLUMNS} FROM loops WHERE number IN ({numbers}) ORDER BY number DESC"  # noqa: S608 - likewise
        return self._file.read(lambda db: [stored_loop(row) for row in db.execute(query, (*values, limit))])

    def list_due(self, now: float) -> tuple[builtins.list[StoredLoop], float | None]:
        """Return the loops whose `due_at` is not after `now`, and the next later `due_at`, or None."""
        due = f"SELECT {COLUMNS} FROM loops WHERE {DUE_AT} <= ?"  # noqa: S608 - no text of a caller
        later = f"SELECT {DUE_AT} FROM loops WHERE {DUE_AT} > ? ORDER BY {DUE_AT} LIMIT 1"  # noqa: S608 - likewise

        def act(db: sqlite3.Connection) -> tuple[builtins.list[StoredLoop], float | None]:
            found = [stored_loop(row) for row in db.execute(due, (now,))]
            return found, next((float(at) for (at,) in db.execute(later, (now,))), None)

        return self._file.read(act)

    def list_unnotified(self) -> builtins.list[StoredLoop]:
        """Return the loops with waiting calls, but for those that were marked at this revision."""
        query = f"SELECT {COLUMNS} FROM loops WHERE {UNNOTIFIED}"  # noqa: S608 - likewise
        return self._file.read(lambda db: [stored_loop(row) for row in db.execute(query)])

    def mark_notified(self, loops: Sequence[StoredLoop]) -> None:
        """Mark loops, at their revision: notifications of all their waiting calls were sent."""
        marks = [(loop.rev, int(loop.cursor)) for loop in loops]
        query = "UPDATE loops SET notified_rev = ? WHERE number = ?"
        self._file.write(lambda db: db.executemany(query, marks), tells=False)

    def delete(self, loop_id: str) -> None:
        """See `Store.delete`."""
        arguments.check_text("loop_id", loop_id)

        def act(db: sqlite3.Connection) -> None:
            number, *_ = _find(db, loop_id)
            db.execute("DELETE FROM events WHERE place BETWEEN ? AND ?", (_place(number, 0), _place(number, _LAST)))
            db.execute("DELETE FROM loops WHERE number = ?", (number,))

        self._file.write(act)

    def lease(self, loop_id: str) -> Lease | None:
        """See `Store.lease`."""
        arguments.check_text("loop_id", loop_id)
        return self._file.read(lambda db: _find(db, loop_id))[-1].lease

    def acquire(
        self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None, first_id: str | None = None
    ) -> Lease:
        """See `Store.acquire`."""
        checks.check_known(loop_id, first_id)
        if instead_of is not None:
            arguments.check_integer("instead_of", instead_of)
        wanted = Lease(loop_id, owner, 0, until)

        def act(db: sqlite3.Connection) -> Lease:
            number, _, loop = _find(db, wanted.loop_id, first_id)
            if loop.lease is not None and loop.lease.token != instead_of:
                raise store_errors.leased(wanted.loop_id, loop.lease)
            db.execute("UPDATE tokens SET last = last + 1")
            (token,) = db.execute("SELECT last FROM tokens").fetchone()
            lease = evolve(wanted, token=token, rev=loop.rev)
            _set_lease(db, number, lease)
            return lease

        return self._file.write(act, tells=False)

    def renew(self, lease: Lease, *, until: float) -> Lease:
        """See `Store.renew`."""
        arguments.check_kind("lease", lease, Lease)
        arguments.check_seconds("until", until)

        def act(db: sqlite3.Connection) -> Lease:
            number, _, loop = _find(db, lease.loop_id)
            if loop.lease is None or not is_current(lease, loop):
                raise store_errors.lost(lease.loop_id, loop.lease)
            renewed = evolve(loop.lease, until=until)
            _set_lease(db, number, renewed)
            return renewed

        return self._file.write(act, tells=False)

    def release(self, lease: Lease) -> None:
        """See `Store.release`."""
        arguments.check_kind("lease", lease, Lease)

        def act(db: sqlite3.Connection) -> None:
            found = _look(db, lease.loop_id)
            if found is not None and is_current(lease, found[-1]):
                _set_lease(db, found[0], None)

        self._file.write(act)

    def keep_progress(self, lease: Lease, text: str | None) -> None:
        """Keep a text beside a lease, or remove it. Nothing happens if it is not the loop's lease."""
        query = "UPDATE loops SET progress = ?, progress_token = lease_token WHERE loop_id = ? AND lease_token = ?"
        self._file.write(lambda db: db.execute(query, (text, lease.loop_id, lease.token)))

    def progress(self, loop_id: str) -> str | None:
        """Return the text beside the lease of a loop, or None."""
        query = "SELECT progress FROM loops WHERE loop_id = ? AND progress_token = lease_token"
        return self._file.read(lambda db: next((text for (text,) in db.execute(query, (loop_id,))), None))

    def secret(self) -> str:
        """See `Store.secret`."""

        def make(db: sqlite3.Connection) -> str:
            if (made := _secret(db)) is None:
                made = secrets.token_urlsafe()
                db.execute("INSERT INTO secrets VALUES (?)", (made,))
            return made

        return self._file.read(_secret) or self._file.write(make)


def _secret(db: sqlite3.Connection) -> str | None:
    row = db.execute("SELECT text FROM secrets").fetchone()
    return None if row is None else str(row[0])


def _look(db: sqlite3.Connection, loop_id: str) -> tuple[int, bytes, StoredLoop] | None:
    """Return the number of a loop, the digest of its last event, and its row; None if it does not exist."""
    row = db.execute(f"SELECT digest, {COLUMNS} FROM loops WHERE loop_id = ?", (loop_id,)).fetchone()  # noqa: S608 - likewise
    return None if row is None else (row[1], row[0], stored_loop(row[1:]))


def _find(db: sqlite3.Connection, loop_id: str, first_id: str | None = None) -> tuple[int, bytes, StoredLoop]:
    found = _look(db, loop_id)
    if found is None:
        raise store_errors.missing(loop_id)
    if first_id is not None:
        first = db.execute("SELECT id FROM events WHERE place = ?", (_place(found[0], 1),)).fetchone()
        if first != (first_id,):
            raise store_errors.replaced(loop_id)
    return found


def _has(db: sqlite3.Connection, number: int, entry_id: str) -> bool:
    found = db.execute("SELECT 1 FROM events WHERE place >> 32 = ? AND id = ?", (number, entry_id))
    return found.fetchone() is not None


def _digest_at(db: sqlite3.Connection, number: int, seq: int) -> bytes:
    found = db.execute("SELECT digest FROM events WHERE place = ?", (_place(number, seq),)).fetchone()
    return found[0] if found is not None and isinstance(found[0], bytes) else b""  # which does not match any event


def _add(db: sqlite3.Connection, number: int, rev: int, entries: Sequence[Entry], digests: Sequence[bytes]) -> None:
    rows = (
        (_place(number, seq), entry.id, digest, entry.body, entry.text)
        for seq, (digest, entry) in enumerate(zip(digests[1:], entries, strict=True), rev + 1)
    )
    db.executemany("INSERT INTO events (place, id, digest, body, text) VALUES (?, ?, ?, ?, ?)", rows)


def _place(number: int, seq: int) -> int:
    return number << 32 | min(seq, _LAST)


def _set_lease(db: sqlite3.Connection, number: int, lease: Lease | None) -> None:
    columns = (None, None, None) if lease is None else (lease.owner, lease.token, lease.until)
    db.execute(
        "UPDATE loops SET lease_owner = ?, lease_token = ?, lease_until = ? WHERE number = ?", (*columns, number)
    )
    if lease is None:
        db.execute("UPDATE loops SET progress = NULL WHERE number = ? AND progress IS NOT NULL", (number,))
