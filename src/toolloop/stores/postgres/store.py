"""A store in a PostgreSQL database: many loops, for processes on many machines."""

from __future__ import annotations

import builtins  # `list` is a method of a store
import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import Any, Self

from attrs import evolve
from typing_extensions import override

from toolloop._public import set_module
from toolloop.stores import arguments, store_errors
from toolloop.stores.digests import make_first_digest
from toolloop.stores.optional import LEASE_SECONDS, check_lease_seconds
from toolloop.stores.postgres import checkpoints, lists
from toolloop.stores.postgres.chains import format_revision, read_chain
from toolloop.stores.postgres.connections import (
    CLOCK,
    IS_OWN,
    Connection,
    Connections,
    change,
    fetch_rows,
    fetch_timed_rows,
)
from toolloop.stores.postgres.journals import (
    ADD,
    NOTIFY,
    append_entries,
    arrays_of,
    find_loop,
    guard_first,
    read_entries,
)
from toolloop.stores.postgres.schema import is_current, set_up
from toolloop.stores.protocol import Entry, Head, Lease, Left, Store, StoredJournal, StoredLoop
from toolloop.stores.revisions import Revision
from toolloop.stores.rows import list_added, to_head_columns

_IS_LEASE = "loop_id = %s AND lease_token = %s AND lease_owner = %s"
_COMPARED = {"notified": "notified::jsonb"}  # so that the order of its keys makes no difference


@set_module("toolloop.stores")
class PostgresStore(Store):
    """A store in a PostgreSQL database.

    It has the methods of `Store`. Time is that of the database (`now`), and the store reports changes (`watch`). It
    needs the extra `postgres`. The tables are in the schema `toolloop`. The first use creates them if the role may
    create tables; otherwise call `migrate` with another role. `toolloop migrate --help` lists the privileges that are
    enough after that.

    When a method returns, its changes are committed. A call takes at most `timeout` seconds, even if the network drops
    all packets; then it raises `StoreError`. If an answer is lost, a call that is safe to repeat is repeated once, on a
    new connection. The store holds no lock between two calls. A forked child opens its own connections.

    The store is a context manager: leaving the block closes it.
    """

    takes_alternatives: bool = True

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
        """Return the time of the database, in seconds since the epoch, as it is known from what was read last."""
        return self._db.now()

    def watch(self, on_change: Callable[[], object]) -> AbstractContextManager[None]:
        """While the block runs, call a function soon after a change, but for the steps of a driver.

        The function is called in a thread, sometimes without a cause, and possibly not at all while the network fails.
        """
        return self._db.watch(on_change)

    @override
    def create(
        self, loop_id: str, entries: Sequence[Entry], *, head: Head, metadata: Mapping[str, str] | None = None
    ) -> int:
        kept = json.dumps(dict(metadata or {}))
        start = Revision(0, make_first_digest(loop_id).hex())
        arrays, rev = arrays_of(loop_id, start, entries)
        columns = {"loop_id": loop_id, "rev": len(entries), "created": head.changed, "metadata": kept}
        columns |= {"chain": format_revision(rev), **to_head_columns(head.behind(head))}
        query = f"""changed AS (
            INSERT INTO toolloop.loops ({", ".join(columns)}) SELECT {", ".join(["%s"] * len(columns))} WHERE {IS_OWN}
            ON CONFLICT (loop_id) DO NOTHING RETURNING number, loop_id, 0 AS before, {NOTIFY}
        ), {ADD}"""

        def act(db: Connection) -> int:
            if change(db, query, *columns.values(), db.mark, *arrays) is None:
                raise store_errors.make_taken_error(loop_id)
            return rev

        return self._db.run(act)

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
        guards: dict[str, Any] = {"loop_id = %s": loop_id, **guard_first(first_id)}
        if lease is not None:
            guards |= {"lease_token = %s": lease.token, "lease_owner = %s": lease.owner}
        if instead_of is not None:
            guards |= {
                f"{_COMPARED.get(name, name)} IS NOT DISTINCT FROM %s": value
                for name, value in to_head_columns(instead_of).items()
                if name not in ("named", "tally")  # an earlier version may have left both as they were
            }

        def act(db: Connection) -> int:
            rev, chain = Revision.of(-1 if expected_rev is None else expected_rev), dict[str, Any]()
            if rev.digest is not None:
                chain = {"chain = %s": format_revision(rev)}
            write = partial(append_entries, db, loop_id=loop_id, head=head, is_step=lease is not None)
            new = entries
            while not chain or (stored := write({**guards, **chain}, new, rev)) is None:
                loop, known, chain = find_loop(db, loop_id, first_id, new)
                rest = list_added(loop, entries, known, expected_rev=expected_rev, lease=lease, instead_of=instead_of)
                if rest is None:
                    return loop.rev
                new, rev = rest, Revision.of(loop.rev)  # others may append meanwhile: then look again
            return stored

        return self._db.run(act, again=True)

    @override
    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> StoredJournal:
        return self._db.run(lambda db: read_entries(db, loop_id, after, first_id), again=True)

    @override
    def head(self, loop_id: str) -> StoredLoop:
        return self._db.run(lambda db: find_loop(db, loop_id)[0], again=True)

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
        return self._db.run(lambda db: lists.list_loops(db, page, wanted, limit), again=True)

    def list_due(
        self, now: float, metadata: arguments.MetadataFilter = None
    ) -> tuple[builtins.list[StoredLoop], float | None]:
        """Return the loops whose `due_at` is not after `now`, and the next later `due_at`, or None.

        `metadata`: only of loops whose metadata contains all of these.
        """
        wanted = arguments.check_alternatives(metadata)
        return self._db.run(lambda db: lists.list_due(db, now, wanted), again=True)

    def list_unnotified(self, metadata: arguments.MetadataFilter = None) -> builtins.list[StoredLoop]:
        """Return the loops with waiting calls, but for those that were marked at this revision.

        `metadata`: only those whose metadata contains all of these.
        """
        wanted = arguments.check_alternatives(metadata)
        return self._db.run(lambda db: lists.list_unnotified(db, wanted), again=True)

    def count(self, now: float, metadata: arguments.MetadataFilter = None) -> tuple[dict[str, int], int]:
        """Return how many loops have each status, and how many of their calls wait and have not expired by `now`.

        `metadata`: only loops whose metadata contains all of these.
        """
        wanted = arguments.check_alternatives(metadata)
        return self._db.run(lambda db: lists.count_loops(db, now, wanted), again=True)

    def tallies(self, metadata: arguments.MetadataFilter = None) -> builtins.list[tuple[str, str | None]]:
        """Return each loop with its tally as JSON text, None if it has none; see `SqliteStore.tallies`."""
        wanted = arguments.check_alternatives(metadata)
        return self._db.run(lambda db: lists.list_tallies(db, wanted), again=True)

    def mark_left(self, loop: StoredLoop, left: Left) -> None:
        """Keep why a worker left a loop to others, as long as the row of the loop is as given."""
        self._db.run(lambda db: lists.mark_left(db, loop, left), again=True)

    def list_reminders(
        self, now: float, metadata: arguments.MetadataFilter = None, since: float = -inf
    ) -> builtins.list[StoredLoop]:
        """Return the loops with waiting calls whose `remind_at` is from `since` to `now`. `metadata`: as for `list`."""
        wanted = arguments.check_alternatives(metadata)
        return self._db.run(lambda db: lists.list_reminders(db, since, now, wanted), again=True)

    def mark_notified(self, loops: Sequence[StoredLoop], remind_at: Sequence[float] | None = None) -> None:
        """Mark loops, at their revision: notifications of all their waiting calls were sent.

        `remind_at`: for each, when the next reminder is due, in seconds since the epoch; infinite if there is none, and
        negative if the worker has no times for reminders.
        """
        query = """UPDATE toolloop.loops SET notified_rev = mark.rev, remind_at = mark.at
            FROM unnest(%s::bigint[], %s::bigint[], %s::double precision[]) AS mark (number, rev, at)
            WHERE loops.number = mark.number"""
        times = [inf] * len(loops) if remind_at is None else [*remind_at]
        marks = [int(loop.cursor) for loop in loops], [int(loop.rev) for loop in loops], times
        self._db.run(lambda db: db.execute(query.encode(), marks), again=True)

    @override
    def delete(self, loop_id: str) -> None:
        query = f"changed AS (DELETE FROM toolloop.loops WHERE loop_id = %s AND {IS_OWN} RETURNING number, {NOTIFY})"  # noqa: S608 - likewise

        def act(db: Connection) -> None:
            if change(db, query, loop_id, db.mark) is None:
                raise store_errors.make_missing_error(loop_id)

        self._db.run(act)

    @override
    def acquire(
        self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None, first_id: str | None = None
    ) -> Lease:
        wanted = Lease(loop_id, owner, 0, until)
        guards = {"loop_id = %s": loop_id, **guard_first(first_id)}
        query = f"""changed AS (
            UPDATE toolloop.loops SET lease_owner = %s, lease_until = %s, lease_token = nextval('toolloop.tokens'),
                left_why = NULL
            WHERE {" AND ".join(guards)} AND (lease_token IS NULL OR lease_token = %s) AND {IS_OWN}
            RETURNING lease_token, rev, chain
        )"""  # noqa: S608 - likewise

        def act(db: Connection) -> Lease:
            while (row := change(db, query, owner, until, *guards.values(), instead_of, db.mark)) is None:
                loop, *_ = find_loop(db, loop_id, first_id)
                if loop.lease is not None and loop.lease.token != instead_of:
                    raise store_errors.make_leased_error(loop_id, loop.lease)
            token, rev, chain = row
            at = read_chain(loop_id, chain, rev)
            known = Revision(*at) if at is not None and at[0] == rev else find_loop(db, loop_id)[0].rev
            return evolve(wanted, token=token, rev=known)

        return self._db.run(act)

    @override
    def renew(self, lease: Lease, *, until: float) -> Lease:
        query = f"UPDATE toolloop.loops SET lease_until = %s WHERE {_IS_LEASE} RETURNING lease_owner, {CLOCK}"  # noqa: S608 - likewise

        def act(db: Connection) -> Lease:
            rows = fetch_timed_rows(db, query, until, *_identify(lease))
            if not rows:
                raise store_errors.make_lost_error(lease.loop_id, find_loop(db, lease.loop_id)[0].lease)
            return Lease(lease.loop_id, rows[0][0], lease.token, until)

        return self._db.run(act, again=True)

    @override
    def release(self, lease: Lease) -> None:
        query = f"""WITH free AS (
            UPDATE toolloop.loops SET lease_owner = NULL, lease_token = NULL, lease_until = NULL, progress = NULL
            WHERE {_IS_LEASE} RETURNING 1
        ) SELECT {NOTIFY} FROM free"""  # noqa: S608 - likewise
        self._db.run(lambda db: fetch_rows(db, query, *_identify(lease)), again=True)

    def keep_progress(self, lease: Lease, text: str | None) -> None:
        """Keep a text beside a lease, or remove it. Nothing happens if it is not the loop's lease."""
        query = f"""WITH kept AS (
            UPDATE toolloop.loops SET progress = %s, progress_token = lease_token
            WHERE {_IS_LEASE} RETURNING 1
        ) SELECT {NOTIFY} FROM kept"""  # noqa: S608 - likewise
        self._db.run(lambda db: fetch_rows(db, query, text, *_identify(lease)), again=True)

    def progress(self, loop_id: str) -> str | None:
        """Return the text beside the lease of a loop, or None."""
        query = "SELECT progress FROM toolloop.loops WHERE loop_id = %s AND progress_token = lease_token"
        rows = self._db.run(lambda db: fetch_rows(db, query, loop_id), again=True)
        return rows[0][0] if rows else None

    def keep_checkpoint(self, lease: Lease, body: bytes, *, rev: int, meaning: int) -> None:
        """Keep a checkpoint of a loop. Nothing happens if it is not the loop's lease, or a newer checkpoint is kept."""
        known = Revision.of(rev)
        self._db.run(lambda db: checkpoints.keep_checkpoint(db, lease, body, known, meaning), again=True)

    def checkpoint(self, loop_id: str, *, meaning: int) -> bytes | None:
        """Return the checkpoint of a loop with a meaning, or None."""
        return self._db.run(lambda db: checkpoints.find_checkpoint(db, loop_id, meaning), again=True)

    @override
    def secret(self) -> str:
        made, query = secrets.token_urlsafe(), "SELECT text FROM toolloop.secrets"
        insert = f"""changed AS (
            INSERT INTO toolloop.secrets (text) SELECT %s WHERE {IS_OWN} ON CONFLICT DO NOTHING RETURNING text
        )"""

        def act(db: Connection) -> str:
            if not (rows := fetch_rows(db, query)):
                change(db, insert, made, db.mark)
                rows = fetch_rows(db, query)
            return str(rows[0][0])

        return self._db.run(act, again=True)


def _identify(lease: Lease) -> tuple[str, int, str]:
    return lease.loop_id, lease.token, lease.owner
