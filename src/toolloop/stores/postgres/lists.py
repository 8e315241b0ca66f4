"""Lists of loops in a PostgreSQL database: the queries. Each function takes a connection within a transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolloop.stores.postgres.connections import CLOCK, Connection, fetch_rows, fetch_timed_rows
from toolloop.stores.postgres.journals import ROW, loop_of
from toolloop.stores.protocol import Left, StoredLoop
from toolloop.stores.rows import DUE_AT, MARK_LEFT, TO_REMIND, UNNOTIFIED, WAITING, left_to_json

Alternatives = Sequence[Mapping[str, str]]


def list_loops(
    db: Connection, page: tuple[Sequence[str] | None, int | None], metadata: Alternatives, limit: int
) -> list[StoredLoop]:
    """See `Store.list`. `page`: the statuses and the number of the last row, or None."""
    statuses, number = page
    guards = _has_metadata(metadata)
    if statuses is not None:
        guards["status = ANY(%s)"] = list(statuses)
    if number is not None:
        guards["number < %s"] = number
    where = f"WHERE {' AND '.join(guards)}" if guards else ""
    query = f"SELECT {ROW} FROM toolloop.loops {where} ORDER BY number DESC LIMIT %s"  # noqa: S608 - no text of a caller
    return [loop_of(row) for row in fetch_rows(db, query, *guards.values(), limit)]


def list_due(db: Connection, now: float, metadata: Alternatives) -> tuple[list[StoredLoop], float | None]:
    """See `PostgresStore.list_due`."""
    has = _has_metadata(metadata)
    due = f"SELECT {ROW} FROM toolloop.loops WHERE {' AND '.join((f'{DUE_AT} <= %s', *has))}"  # noqa: S608 - likewise
    later = f"SELECT min({DUE_AT}), {CLOCK} FROM toolloop.loops WHERE {' AND '.join((f'{DUE_AT} > %s', *has))}"  # noqa: S608 - likewise
    found = [loop_of(row) for row in fetch_rows(db, due, now, *has.values())]
    return found, fetch_timed_rows(db, later, now, *has.values())[0][0]


def list_unnotified(db: Connection, metadata: Alternatives) -> list[StoredLoop]:
    """See `PostgresStore.list_unnotified`."""
    has = _has_metadata(metadata)
    query = f"SELECT {ROW} FROM toolloop.loops WHERE {' AND '.join((UNNOTIFIED, *has))}"  # noqa: S608 - likewise
    return [loop_of(row) for row in fetch_rows(db, query, *has.values())]


def list_reminders(db: Connection, since: float, now: float, metadata: Alternatives) -> list[StoredLoop]:
    """See `PostgresStore.list_reminders`."""
    has = _has_metadata(metadata)
    query = f"SELECT {ROW} FROM toolloop.loops WHERE {' AND '.join((TO_REMIND.format('%s'), *has))}"  # noqa: S608 - likewise
    return [loop_of(row) for row in fetch_rows(db, query, since, now, *has.values())]


def count_loops(db: Connection, now: float, metadata: Alternatives) -> tuple[dict[str, int], int]:
    """See `PostgresStore.count`."""
    has = _has_metadata(metadata)
    waiting = f"""CASE WHEN {WAITING} THEN (SELECT count(*) FROM json_array_elements(pending::json) call
        WHERE coalesce((call ->> 6)::float8, 'Infinity') > %s) ELSE 0 END"""  # noqa: S608 - likewise
    where = f"WHERE {' AND '.join(has)}" if has else ""
    query = f"SELECT status, count(*), sum({waiting})::bigint FROM toolloop.loops {where} GROUP BY status"  # noqa: S608 - likewise
    rows = fetch_rows(db, query, now, *has.values())
    return {status: count for status, count, _ in rows}, sum(calls for _, _, calls in rows)


def list_tallies(db: Connection, metadata: Alternatives) -> list[tuple[str, str | None]]:
    """See `PostgresStore.tallies`."""
    has = _has_metadata(metadata)
    where = f"WHERE {' AND '.join(has)}" if has else ""
    query = f"SELECT loop_id, tally FROM toolloop.loops {where}"  # noqa: S608 - likewise
    return [(loop_id, tally) for loop_id, tally in fetch_rows(db, query, *has.values())]


def mark_left(db: Connection, loop: StoredLoop, left: Left) -> None:
    """See `PostgresStore.mark_left`."""
    token, why = None if loop.lease is None else loop.lease.token, left_to_json(left)
    query = f"UPDATE toolloop.loops SET {MARK_LEFT.format('%s')} AND lease_token IS NOT DISTINCT FROM %s"  # noqa: S608 - likewise
    db.execute(query.encode(), (why, left.since, why, int(loop.rev), int(loop.cursor), int(loop.rev), token))


def _has_metadata(metadata: Alternatives) -> dict[str, Any]:
    """Return the condition for loops whose metadata contains one of these, with its value."""
    if any(not each for each in metadata):
        return {}
    return {"metadata::jsonb @> ANY(%s::jsonb[])": [json.dumps(dict(each)) for each in metadata]}
