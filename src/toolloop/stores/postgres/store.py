"""A store in a PostgreSQL database: many loops, for processes on many machines."""

from __future__ import annotations

import builtins  # `list` is a method of a store
import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from typing import Any, Self

from attrs import evolve
from psycopg.errors import UniqueViolation

from toolloop._public import set_module
from toolloop.stores import arguments, checks, store_errors
from toolloop.stores.optional import LEASE_SECONDS, check_lease_seconds
from toolloop.stores.postgres.connections import CHANNEL, Connection, Connections, rows_of
from toolloop.stores.postgres.schema import is_current, set_up
from toolloop.stores.protocol import Entry, Head, Lease, StoredJournal, StoredLoop
from toolloop.stores.rows import COLUMNS, DUE_AT, UNNOTIFIED, added, head_columns, stored_loop

# Adds the events of an append. It follows `changed`: the loop's row, with the revision `before`.
_ADD = """added AS (
    INSERT INTO toolloop.events (number, seq, id, digest, body, text)
    SELECT number, before + nth, id,
        sha256(convert_to(concat_ws(E'\\n', loop_id, before + nth, id, body, text), 'UTF8')), body, text
    FROM changed, unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS entry (id, body, text, nth)
)"""
_NOTIFY = f"pg_notify('{CHANNEL}', '')"
_COMPARED = {"notified": "notified::jsonb"}  # so that the order of its keys makes no difference
_IS_FIRST = "EXISTS (SELECT FROM toolloop.events e WHERE e.number = loops.number AND e.seq = 1 AND e.id = %s)"


@set_module("toolloop.stores")
class PostgresStore:
    """A store in a PostgreSQL database.

    It has the methods of `Store`. Leases use the clock of the database (`now`), and the store reports changes
    (`watch`). It needs the extra `postgres`. The tables are in the schema `toolloop`. The first use creates them if
    the role may create tables; otherwise call `migrate` with another role. `toolloop migrate --help` lists the
    privileges that are enough after that.

    When a method returns, its changes are committed. A call takes at most `timeout` seconds, even if the network drops
    all packets; then it raises `StoreError`. If an answer is lost, a call that is safe to repeat is repeated once, on a
    new connection. The store holds no lock between two calls. A forked child opens its own connections.

    The store is a context manager: leaving the block closes it.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        timeout: float = 10.0,
        lock_timeout: float = 5.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """Set the database. The first call connects.

        Args:
            url: the database, such as `postgresql://user@host:5432/database`.
            pool_size: the maximum number of connections per process. `watch` uses one more.
            timeout: how long a call may take, in seconds, at least 2.
            lock_timeout: how long to wait for another call on the same loop, in seconds.
            lease_seconds: how long a lease lasts if it is not renewed, in seconds, at least 10.

        Raises:
            ValueError: the URL cannot be read, or a number is too small.

        """
        arguments.check_text("url", url)
        arguments.check_integer("pool_size", pool_size, least=1)
        for name, value, least in (("timeout", timeout, 2.0), ("lock_timeout", lock_timeout, 0.001)):
            arguments.check_seconds(name, value)
            if value < least:
                raise ValueError(f"{name} is {value}; give at least {least:g} seconds")
        self.lease_seconds: float = check_lease_seconds(lease_seconds)
        settings = {
            "statement_timeout": f"{timeout * 1000:.0f}",
            "lock_timeout": f"{lock_timeout * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{timeout * 1000:.0f}",
            "default_transaction_isolation": "read committed",
        }
        self._db = Connections(url, size=pool_size, timeout=timeout, settings=settings, set_up=set_up)

    def __repr__(self) -> str:
        return f"PostgresStore({self._db!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        self._db.close()

    def migrate(self) -> None:
        """Create the tables, or add what those of an earlier version lack. The first call of any method does this, too.

        Raises:
            StoreError: the role may not create tables, or the database cannot be reached.

        """
        self._db.run(lambda _: None)

    def is_migrated(self) -> bool:
        """Return whether the database has the tables of this version, without creating or changing them.

        Raises:
            StoreError: the database cannot be reached.

        """
        return self._db.look(is_current)

    def now(self) -> float:
        """Return the time of the database, in seconds since the epoch."""
        query = "SELECT extract(epoch FROM current_timestamp)::float8"
        return float(self._db.run(lambda db: rows_of(db, query), again=True)[0][0])

    def watch(self, on_change: Callable[[], object]) -> AbstractContextManager[None]:
        """While the block runs, call a function soon after a change, but for the steps of a driver.

        The function is called in a thread, sometimes without a cause, and possibly not at all while the network fails.
        """
        return self._db.watch(on_change)

    def create(
        self, loop_id: str, entries: Sequence[Entry], *, head: Head, metadata: Mapping[str, str] | None = None
    ) -> int:
        """See `Store.create`."""
        kept = json.dumps(checks.check_create(loop_id, entries, head, metadata))
        columns = {"loop_id": loop_id, "rev": len(entries), "created": head.changed, "metadata": kept}
        columns |= head_columns(head.behind(head))
        query = f"""WITH changed AS (
            INSERT INTO toolloop.loops ({", ".join(columns)}) VALUES ({", ".join(["%s"] * len(columns))})
            ON CONFLICT (loop_id) DO NOTHING RETURNING number, loop_id, 0 AS before
        ), {_ADD} SELECT {_NOTIFY} FROM changed"""  # noqa: S608 - no text of a caller

        def act(db: Connection) -> int:
            if not rows_of(db, query, *columns.values(), *_arrays(entries)):
                raise store_errors.taken(loop_id)
            return len(entries)

        return self._db.run(act)

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
        guards: dict[str, Any] = {"loop_id = %s": loop_id, **_only_first(first_id)}
        if lease is not None:
            guards["lease_token = %s"] = lease.token
        if instead_of is not None:
            guards |= {
                f"{_COMPARED.get(name, name)} IS NOT DISTINCT FROM %s": value
                for name, value in head_columns(instead_of).items()
                if name != "named"  # an earlier version may have left entries of calls that no longer wait
            }

        def act(db: Connection) -> int:
            new, rev = entries, expected_rev
            while (stored := _append(db, guards, new, rev, head, is_step=lease is not None)) is None:
                loop, known = _find(db, loop_id, first_id, new)
                rest = added(loop, entries, known, expected_rev=expected_rev, lease=lease, instead_of=instead_of)
                if rest is None:
                    return loop.rev
                new, rev = rest, loop.rev  # others may append meanwhile: then look again
            return stored

        return self._db.run(act, again=True)

    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:
        """See `Store.load`."""
        checks.check_known(loop_id, first_id)
        arguments.check_integer("after", after)
        query = f"""SELECT rev, {_IS_FIRST}, seq, digest, id, body, text
            FROM toolloop.loops LEFT JOIN toolloop.events entry ON entry.number = loops.number AND seq > %s
            WHERE loop_id = %s ORDER BY seq"""  # noqa: S608 - no text of a caller

        def act(db: Connection) -> StoredJournal:
            rows = rows_of(db, query, first_id, after, loop_id)
            if not rows:
                raise store_errors.missing(loop_id)
            rev, is_first, *last = rows[0]
            if first_id is not None and not is_first:
                raise store_errors.replaced(loop_id)
            stored = [] if last[0] is None else [row[2:] for row in rows]
            for expected, (seq, digest, *parts) in enumerate(stored, after + 1):
                if seq != expected or bytes(digest) != _digest(loop_id, seq, parts):
                    raise store_errors.damaged(loop_id, min(seq, expected))
            if len(stored) != max(0, rev - after):
                raise store_errors.damaged(loop_id, after + len(stored) + 1)
            return StoredJournal(rev, tuple(Entry(*parts) for _, _, *parts in stored))

        return self._db.run(act, again=True)

    def head(self, loop_id: str) -> StoredLoop:
        """See `Store.head`."""
        arguments.check_text("loop_id", loop_id)
        return self._db.run(lambda db: _find(db, loop_id)[0], again=True)

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
        wanted = arguments.check_metadata(metadata)
        guards: dict[str, Any] = {}
        if statuses is not None:
            guards["status = ANY(%s)"] = builtins.list(statuses)
        if number is not None:
            guards["number < %s"] = number
        if wanted:
            guards["metadata::jsonb @> %s::jsonb"] = json.dumps(wanted)
        where = f"WHERE {' AND '.join(guards)}" if guards else ""
        query = f"SELECT {COLUMNS} FROM toolloop.loops {where} ORDER BY number DESC LIMIT %s"  # noqa: S608 - likewise
        return self._db.run(
            lambda db: [stored_loop(row) for row in rows_of(db, query, *guards.values(), limit)], again=True
        )

    def list_due(self, now: float) -> tuple[builtins.list[StoredLoop], float | None]:
        """Return the loops whose `due_at` is not after `now`, and the next later `due_at`, or None."""
        due = f"SELECT {COLUMNS} FROM toolloop.loops WHERE {DUE_AT} <= %s"  # noqa: S608 - no text of a caller
        later = f"SELECT min({DUE_AT}) FROM toolloop.loops WHERE {DUE_AT} > %s"  # noqa: S608 - likewise

        def act(db: Connection) -> tuple[builtins.list[StoredLoop], float | None]:
            return [stored_loop(row) for row in rows_of(db, due, now)], rows_of(db, later, now)[0][0]

        return self._db.run(act, again=True)

    def list_unnotified(self) -> builtins.list[StoredLoop]:
        """Return the loops with waiting calls, but for those that were marked at this revision."""
        query = f"SELECT {COLUMNS} FROM toolloop.loops WHERE {UNNOTIFIED}"  # noqa: S608 - likewise
        return self._db.run(lambda db: [stored_loop(row) for row in rows_of(db, query)], again=True)

    def mark_notified(self, loops: Sequence[StoredLoop]) -> None:
        """Mark loops, at their revision: notifications of all their waiting calls were sent."""
        query = """UPDATE toolloop.loops SET notified_rev = mark.rev
            FROM unnest(%s::bigint[], %s::bigint[]) AS mark (number, rev) WHERE loops.number = mark.number"""
        numbers, revs = [int(loop.cursor) for loop in loops], [loop.rev for loop in loops]
        self._db.run(lambda db: db.execute(query.encode(), (numbers, revs)), again=True)

    def delete(self, loop_id: str) -> None:
        """See `Store.delete`."""
        arguments.check_text("loop_id", loop_id)
        query = f"WITH gone AS (DELETE FROM toolloop.loops WHERE loop_id = %s RETURNING 1) SELECT {_NOTIFY} FROM gone"  # noqa: S608 - likewise

        def act(db: Connection) -> None:
            if not rows_of(db, query, loop_id):
                raise store_errors.missing(loop_id)

        self._db.run(act)

    def lease(self, loop_id: str) -> Lease | None:
        """See `Store.lease`."""
        return self.head(loop_id).lease

    def acquire(
        self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None, first_id: str | None = None
    ) -> Lease:
        """See `Store.acquire`."""
        checks.check_known(loop_id, first_id)
        if instead_of is not None:
            arguments.check_integer("instead_of", instead_of)
        wanted = Lease(loop_id, owner, 0, until)
        guards = {"loop_id = %s": loop_id, **_only_first(first_id)}
        query = f"""UPDATE toolloop.loops
            SET lease_owner = %s, lease_until = %s, lease_token = nextval('toolloop.tokens')
            WHERE {" AND ".join(guards)} AND (lease_token IS NULL OR lease_token = %s) RETURNING lease_token, rev"""  # noqa: S608 - likewise

        def act(db: Connection) -> Lease:
            while not (rows := rows_of(db, query, owner, until, *guards.values(), instead_of)):
                loop, _ = _find(db, loop_id, first_id)
                if loop.lease is not None and loop.lease.token != instead_of:
                    raise store_errors.leased(loop_id, loop.lease)
            return evolve(wanted, token=rows[0][0], rev=rows[0][1])

        return self._db.run(act)

    def renew(self, lease: Lease, *, until: float) -> Lease:
        """See `Store.renew`."""
        arguments.check_kind("lease", lease, Lease)
        arguments.check_seconds("until", until)
        query = """UPDATE toolloop.loops SET lease_until = %s WHERE loop_id = %s AND lease_token = %s
            RETURNING lease_owner"""

        def act(db: Connection) -> Lease:
            rows = rows_of(db, query, until, lease.loop_id, lease.token)
            if not rows:
                raise store_errors.lost(lease.loop_id, _find(db, lease.loop_id)[0].lease)
            return Lease(lease.loop_id, rows[0][0], lease.token, until)

        return self._db.run(act, again=True)

    def release(self, lease: Lease) -> None:
        """See `Store.release`."""
        arguments.check_kind("lease", lease, Lease)
        query = f"""WITH free AS (
            UPDATE toolloop.loops SET lease_owner = NULL, lease_token = NULL, lease_until = NULL, progress = NULL
            WHERE loop_id = %s AND lease_token = %s RETURNING 1
        ) SELECT {_NOTIFY} FROM free"""  # noqa: S608 - likewise
        self._db.run(lambda db: rows_of(db, query, lease.loop_id, lease.token), again=True)

    def keep_progress(self, lease: Lease, text: str | None) -> None:
        """Keep a text beside a lease, or remove it. Nothing happens if it is not the loop's lease."""
        query = f"""WITH kept AS (
            UPDATE toolloop.loops SET progress = %s, progress_token = lease_token
            WHERE loop_id = %s AND lease_token = %s RETURNING 1
        ) SELECT {_NOTIFY} FROM kept"""  # noqa: S608 - likewise
        self._db.run(lambda db: rows_of(db, query, text, lease.loop_id, lease.token), again=True)

    def progress(self, loop_id: str) -> str | None:
        """Return the text beside the lease of a loop, or None."""
        query = "SELECT progress FROM toolloop.loops WHERE loop_id = %s AND progress_token = lease_token"
        rows = self._db.run(lambda db: rows_of(db, query, loop_id), again=True)
        return rows[0][0] if rows else None

    def secret(self) -> str:
        """See `Store.secret`."""
        made, query = secrets.token_urlsafe(), "SELECT text FROM toolloop.secrets"

        def act(db: Connection) -> str:
            if not (rows := rows_of(db, query)):
                db.execute("INSERT INTO toolloop.secrets (text) VALUES (%s) ON CONFLICT DO NOTHING", (made,))
                rows = rows_of(db, query)
            return str(rows[0][0])

        return self._db.run(act, again=True)


def _append(  # noqa: PLR0913 - what an append is guarded by
    db: Connection,
    guards: Mapping[str, Any],
    entries: Sequence[Entry],
    rev: int | None,
    head: Head | None,
    *,
    is_step: bool,
) -> int | None:
    """Append in one statement, so in one round trip; return the revision, or None if a guard does not hold."""
    columns = {} if head is None else head_columns(head)
    changes = ", ".join(["rev = rev + %s", *(f"{name} = %s" for name in columns)])
    guards = guards if rev is None else {**guards, "rev = %s": rev}
    # NOTIFY holds a lock of the whole server until the commit, so the steps of a driver do not use it. A decision or a
    # command does, for the loop's driver.
    told = "" if is_step and (head is None or head.status == "running") else f", {_NOTIFY}"
    query = f"""WITH changed AS (
        UPDATE toolloop.loops SET {changes} WHERE {" AND ".join(guards)}
        RETURNING number, loop_id, rev, rev - %s AS before
    ), {_ADD} SELECT rev{told} FROM changed"""  # noqa: S608 - likewise
    count = len(entries)
    with suppress(UniqueViolation):  # some are stored already
        rows = rows_of(db, query, count, *columns.values(), *guards.values(), count, *_arrays(entries))
        return int(rows[0][0]) if rows else None
    return None


def _find(
    db: Connection, loop_id: str, first_id: str | None = None, entries: Sequence[Entry] = ()
) -> tuple[StoredLoop, set[str]]:
    """Return the row of a loop, and the ids of those entries that are already stored."""
    query = f"""SELECT {_IS_FIRST},
        ARRAY(SELECT id FROM toolloop.events e WHERE e.number = loops.number AND id = ANY(%s)),
        {COLUMNS} FROM toolloop.loops WHERE loop_id = %s"""  # noqa: S608 - likewise
    rows = rows_of(db, query, first_id, [entry.id for entry in entries], loop_id)
    if not rows:
        raise store_errors.missing(loop_id)
    is_first, known, *row = rows[0]
    if first_id is not None and not is_first:
        raise store_errors.replaced(loop_id)
    return stored_loop(row), set(known)


def _only_first(first_id: str | None) -> dict[str, Any]:
    return {} if first_id is None else {_IS_FIRST: first_id}


def _arrays(entries: Sequence[Entry]) -> tuple[list[Any], ...]:
    return [each.id for each in entries], [each.body for each in entries], [each.text for each in entries]


def _digest(loop_id: str, seq: int, parts: Sequence[str | None]) -> bytes:
    """Return the digest of an event at its position, as `_ADD` writes it. A changed or moved event does not match."""
    return sha256("\n".join([loop_id, str(seq), *[part for part in parts if part is not None]]).encode()).digest()
