"""A store in an SQLite file: many loops in one file, for many threads and processes of one machine."""

from __future__ import annotations

import builtins  # `list` is a method of a store
import math
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Self

from attrs import evolve

from toolloop.core.errors import UnreadableSnapshot
from toolloop.core.freezing import frozen
from toolloop.stores import checking, refusals
from toolloop.stores.protocol import Entry, Head, Lease, StoredJournal, StoredLoop

if TYPE_CHECKING:
    from sqlite3 import Connection

    from toolloop.stores.sqlite_connections import Connections

_LONGEST_WAIT = 1_000_000  # SQLite counts milliseconds in 32 bits
_LAST = 0xFFFFFFFF  # of the events of a loop
_COLUMNS = "number, loop_id, rev, status, deadline, lease_owner, lease_token, lease_until"
_ONE = f"SELECT {_COLUMNS} FROM loops WHERE loop_id = ?"  # noqa: S608 - our own words
_KINDS: tuple[Any, ...] = (int, str, int, str, (float, NoneType), (str, NoneType), (int, NoneType), (float, NoneType))


@frozen
class _Loop:
    """A row of `loops`: its number, and what it says."""

    number: int
    stored: StoredLoop


class SqliteStore:
    """A store in an SQLite file.

    Its methods are those of `Store`. The file is made at the first use. Look into it with the `sqlite3` shell: the view
    `journal` has the events of all loops. What a method stored is on the disk when it returns. A writer waits for
    others, for `busy_timeout` seconds; then it raises `StoreError`, and nothing was stored. The threads of one process
    write in the order they came in.

    The file must be on a disk of this machine: network file systems are unsupported.

    As a context manager it closes itself.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = 5.0) -> None:
        """Name the file; nothing is opened yet.

        Args:
            path: the file, or a link to it. Its folder must be there.
            busy_timeout: seconds.

        """
        name = os.fspath(path)
        checking.a_text("path", name)
        if name == ":memory:":
            raise ValueError("path is ':memory:', and each connection would have a store of its own: use MemoryStore")
        if isinstance(busy_timeout, bool) or not isinstance(busy_timeout, int | float):
            raise TypeError(f"busy_timeout is a {type(busy_timeout).__name__}; give seconds")
        if math.isnan(busy_timeout) or not 0 <= busy_timeout <= _LONGEST_WAIT:
            raise ValueError(f"busy_timeout is {busy_timeout}; give seconds from 0 to {_LONGEST_WAIT}")
        self._path = os.fspath(Path(name).absolute())  # with its dots: after a link they lead elsewhere
        self._wait = busy_timeout
        self._opened: Connections | None = None

    def __repr__(self) -> str:
        return f"SqliteStore({self._path!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, but for what other threads are at. A later call opens it again."""
        self._connections.close()

    def create(self, loop_id: str, entries: Sequence[Entry], *, head: Head) -> int:
        """See `Store.create`."""
        checking.a_text("loop_id", loop_id)
        entries, head = checking.new_entries(entries), checking.a_head(head)
        with self._writing() as connection:
            if _look_for(connection, loop_id) is not None:
                raise refusals.taken(loop_id)
            made = connection.execute(
                "INSERT INTO loops (loop_id, rev, status, deadline) VALUES (?, ?, ?, ?)",
                (loop_id, len(entries), head.status, head.deadline),
            )
            _add(connection, made.lastrowid or 0, 0, entries)
            return len(entries)

    def append(
        self,
        loop_id: str,
        entries: Sequence[Entry],
        *,
        expected_rev: int | None,
        head: Head | None = None,
        lease: Lease | None = None,
    ) -> int:
        """See `Store.append`."""
        asked = checking.an_append(loop_id, entries, expected_rev, head, lease)
        with self._writing() as connection:
            loop = _find(connection, loop_id)
            if lease is not None and not _is_current(lease, loop.stored):
                raise refusals.lost(loop_id, loop.stored.lease)
            new = [entry for entry in asked.entries if not _has(connection, loop, entry.id)]
            rev = loop.stored.rev
            if not new:
                return rev
            if expected_rev is not None and expected_rev != rev:
                raise refusals.stale(loop_id, expected_rev, rev)
            _add(connection, loop.number, rev, new)
            _move(connection, loop, rev + len(new), asked.head)
            return rev + len(new)

    def load(self, loop_id: str, *, after: int = 0) -> StoredJournal:
        """See `Store.load`."""
        checking.a_text("loop_id", loop_id)
        checking.a_number("after", after)
        with self._reading() as connection:
            loop = _find(connection, loop_id)
            rows = connection.execute(
                "SELECT place, id, body FROM events WHERE place BETWEEN ? AND ? ORDER BY place",
                (_place(loop.number, after + 1), _place(loop.number, _LAST)),
            ).fetchall()
        rev = loop.stored.rev
        # No two rows have one seq: with the right number of them and the right last one, none is missing.
        if len(rows) != max(0, rev - after) or (rows and rows[-1][0] != _place(loop.number, rev)):
            raise _damaged(f"loop {loop_id!r} is at revision {rev}, and its events are not all there")
        if not all(type(name) is str and type(body) is str for _, name, body in rows):
            raise _damaged(f"an event of loop {loop_id!r} is no text")
        return StoredJournal(rev, tuple([Entry(name, body) for _, name, body in rows]))

    def list(
        self, status: str | None = None, *, limit: int = 100, before: str | None = None
    ) -> builtins.list[StoredLoop]:
        """See `Store.list`."""
        checking.a_page(status, limit, before)
        wanted: dict[str, Any] = {}
        if status is not None:
            wanted["status = ?"] = status
        with self._reading() as connection:
            if before is not None:
                wanted["number < ?"] = _find(connection, before).number
            where = f"WHERE {' AND '.join(wanted)}" if wanted else ""
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM loops {where} ORDER BY number DESC LIMIT ?",  # noqa: S608 - our own words
                (*wanted.values(), limit),
            )
            return [_read(row) for row in rows]

    def delete(self, loop_id: str) -> None:
        """See `Store.delete`."""
        checking.a_text("loop_id", loop_id)
        with self._writing() as connection:
            number = _find(connection, loop_id).number
            connection.execute(
                "DELETE FROM events WHERE place BETWEEN ? AND ?", (_place(number, 0), _place(number, _LAST))
            )
            connection.execute("DELETE FROM loops WHERE number = ?", (number,))

    def lease(self, loop_id: str) -> Lease | None:
        """See `Store.lease`."""
        checking.a_text("loop_id", loop_id)
        with self._reading() as connection:
            return _find(connection, loop_id).stored.lease

    def acquire(self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None) -> Lease:
        """See `Store.acquire`."""
        until = checking.an_acquisition(loop_id, owner, until, instead_of)
        with self._writing() as connection:
            loop = _find(connection, loop_id)
            if loop.stored.lease is not None and loop.stored.lease.token != instead_of:
                raise refusals.leased(loop_id, loop.stored.lease)
            connection.execute("UPDATE tokens SET last = last + 1")
            (token,) = connection.execute("SELECT last FROM tokens").fetchone()
            lease = Lease(loop_id, owner, token, until, rev=loop.stored.rev)
            _set_lease(connection, loop, lease)
            return lease

    def renew(self, lease: Lease, *, until: float) -> Lease:
        """See `Store.renew`."""
        checking.a_lease(lease)
        until = checking.a_moment("until", until)
        with self._writing() as connection:
            loop = _find(connection, lease.loop_id)
            if loop.stored.lease is None or not _is_current(lease, loop.stored):
                raise refusals.lost(lease.loop_id, loop.stored.lease)
            renewed = evolve(loop.stored.lease, until=until)
            _set_lease(connection, loop, renewed)
            return renewed

    def release(self, lease: Lease) -> None:
        """See `Store.release`."""
        checking.a_lease(lease)
        with self._writing() as connection:
            loop = _look_for(connection, lease.loop_id)
            if loop is not None and _is_current(lease, loop.stored):
                _set_lease(connection, loop, None)

    @property
    def _connections(self) -> Connections:
        if self._opened is None:
            # sqlite3 is loaded when it is first needed.
            from toolloop.stores.sqlite_connections import Connections  # noqa: PLC0415 - see above

            self._opened = Connections(os.path.realpath(self._path), self._wait)
        return self._opened

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._connections.reading()

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._connections.writing()


def _look_for(connection: Connection, loop_id: str) -> _Loop | None:
    row = connection.execute(_ONE, (loop_id,)).fetchone()
    return None if row is None else _Loop(row[0], _read(row))


def _find(connection: Connection, loop_id: str) -> _Loop:
    loop = _look_for(connection, loop_id)
    if loop is None:
        raise refusals.missing(loop_id)
    return loop


def _read(row: tuple[Any, ...]) -> StoredLoop:
    if not all(map(isinstance, row, _KINDS)):
        raise _damaged(f"loop {row[1]!r} has a column that is not of its kind")
    _number, loop_id, rev, status, deadline, owner, token, until = row
    lease = None if token is None else Lease(loop_id, owner, token, until)
    return StoredLoop(loop_id, status, deadline, rev, lease)


def _damaged(what: str) -> UnreadableSnapshot:
    return UnreadableSnapshot(f"the store is damaged: {what}. It was left as it is")


def _has(connection: Connection, loop: _Loop, entry_id: str) -> bool:
    known = connection.execute("SELECT 1 FROM events WHERE place >> 32 = ? AND id = ?", (loop.number, entry_id))
    return known.fetchone() is not None


def _add(connection: Connection, number: int, rev: int, entries: Sequence[Entry]) -> None:
    rows = ((_place(number, seq), entry.id, entry.body) for seq, entry in enumerate(entries, rev + 1))
    connection.executemany("INSERT INTO events (place, id, body) VALUES (?, ?, ?)", rows)


def _place(number: int, seq: int) -> int:
    return number << 32 | seq


def _move(connection: Connection, loop: _Loop, rev: int, head: Head | None) -> None:
    """The loop has another revision, and perhaps another head: its row is written once."""
    if head is None or (head.status, head.deadline) == (loop.stored.status, loop.stored.deadline):
        connection.execute("UPDATE loops SET rev = ? WHERE number = ?", (rev, loop.number))  # and no index of it
    else:
        connection.execute(
            "UPDATE loops SET rev = ?, status = ?, deadline = ? WHERE number = ?",
            (rev, head.status, head.deadline, loop.number),
        )


def _is_current(lease: Lease, loop: StoredLoop) -> bool:
    return loop.lease is not None and (lease.loop_id, lease.token) == (loop.loop_id, loop.lease.token)


def _set_lease(connection: Connection, loop: _Loop, lease: Lease | None) -> None:
    columns = (None, None, None) if lease is None else (lease.owner, lease.token, lease.until)
    connection.execute(
        "UPDATE loops SET lease_owner = ?, lease_token = ?, lease_until = ? WHERE number = ?", (*columns, loop.number)
    )
