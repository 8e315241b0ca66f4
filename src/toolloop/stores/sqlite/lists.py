"""Lists of loops in an SQLite file: the queries. Each function takes a connection within a transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from toolloop.stores.protocol import Left, StoredLoop
from toolloop.stores.rows import (
    COLUMNS,
    DUE_AT,
    MARK_LEFT,
    TO_REMIND,
    UNNOTIFIED,
    WAITING,
    left_to_json,
    read_stored_loop,
)

Alternatives = Sequence[Mapping[str, str]]


# Damage in the row of one loop is no error for a person who lists others.
_METADATA = "CASE WHEN json_valid(metadata) THEN metadata ELSE '{}' END"


def list_loops(
    db: sqlite3.Connection,
    page: tuple[Sequence[str] | None, int | None],
    metadata: Alternatives,
    limit: int,
) -> list[StoredLoop]:
    """See `Store.list`. `page`: the statuses and the number of the last row, or None."""
    statuses, number = page
    wanted, values = _has_metadata(metadata)
    if statuses is not None:
        wanted.append(f"status IN ({', '.join('?' * len(statuses))})")
        values += statuses
    if number is not None:
        wanted.append("number < ?")
        values.append(number)
    where = f"WHERE {' AND '.join(wanted)}" if wanted else ""
    numbers = f"SELECT number FROM loops {where} ORDER BY number DESC LIMIT ?"  # noqa: S608 - no text of a caller
    # Rows are wide: sorting only their numbers takes a third of the time.
    query = f"SELECT {COLUMNS}, digest FROM loops WHERE number IN ({numbers}) ORDER BY number DESC"  # noqa: S608 - likewise
    return [read_stored_loop(row) for row in db.execute(query, (*values, limit))]


def list_due(db: sqlite3.Connection, now: float, metadata: Alternatives) -> tuple[list[StoredLoop], float | None]:
    """See `SqliteStore.list_due`."""
    has, values = _has_metadata(metadata)
    due = f"SELECT {COLUMNS}, digest FROM loops WHERE {' AND '.join((f'{DUE_AT} <= ?', *has))}"  # noqa: S608 - likewise
    later = f"SELECT {DUE_AT} FROM loops WHERE {' AND '.join((f'{DUE_AT} > ?', *has))} ORDER BY {DUE_AT} LIMIT 1"  # noqa: S608 - likewise
    found = [read_stored_loop(row) for row in db.execute(due, (now, *values))]
    return found, next((float(at) for (at,) in db.execute(later, (now, *values))), None)


def list_unnotified(db: sqlite3.Connection, metadata: Alternatives) -> list[StoredLoop]:
    """See `SqliteStore.list_unnotified`."""
    has, values = _has_metadata(metadata)
    query = f"SELECT {COLUMNS}, digest FROM loops WHERE {' AND '.join((UNNOTIFIED, *has))}"  # noqa: S608 - likewise
    return [read_stored_loop(row) for row in db.execute(query, values)]


def list_reminders(db: sqlite3.Connection, since: float, now: float, metadata: Alternatives) -> list[StoredLoop]:
    """See `SqliteStore.list_reminders`."""
    has, values = _has_metadata(metadata)
    query = f"SELECT {COLUMNS}, digest FROM loops WHERE {' AND '.join((TO_REMIND.format('?'), *has))}"  # noqa: S608 - likewise
    return [read_stored_loop(row) for row in db.execute(query, (since, now, *values))]


def count_loops(db: sqlite3.Connection, now: float, metadata: Alternatives) -> tuple[dict[str, int], int]:
    """See `SqliteStore.count`."""
    has, values = _has_metadata(metadata)
    waiting = f"""CASE WHEN {WAITING} THEN (SELECT count(*) FROM json_each(pending)
        WHERE coalesce(json_extract(value, '$[6]'), 9e999) > ?) ELSE 0 END"""  # noqa: S608 - likewise
    where = f"WHERE {' AND '.join(has)}" if has else ""
    query = f"SELECT status, count(*), sum({waiting}) FROM loops {where} GROUP BY status"  # noqa: S608 - likewise
    rows = db.execute(query, (now, *values)).fetchall()
    return {status: count for status, count, _ in rows}, sum(calls for _, _, calls in rows)


def list_tallies(db: sqlite3.Connection, metadata: Alternatives) -> list[tuple[str, str | None]]:
    """See `SqliteStore.tallies`."""
    has, values = _has_metadata(metadata)
    where = f"WHERE {' AND '.join(has)}" if has else ""
    query = f"SELECT loop_id, tally FROM loops {where}"  # noqa: S608 - likewise
    return db.execute(query, values).fetchall()


def mark_left(db: sqlite3.Connection, loop: StoredLoop, left: Left) -> None:
    """See `SqliteStore.mark_left`."""
    token, why = None if loop.lease is None else loop.lease.token, left_to_json(left)
    query = f"UPDATE loops SET {MARK_LEFT.format('?')} AND lease_token IS ?"  # noqa: S608 - likewise
    db.execute(query, (why, left.since, why, int(loop.rev), int(loop.cursor), int(loop.rev), token))


def _has_metadata(metadata: Alternatives) -> tuple[list[str], list[Any]]:
    """Return the conditions for loops whose metadata contains one of these, and their values."""
    if len(metadata) == 1:
        pairs = metadata[0].items()
        condition = f"EXISTS (SELECT 1 FROM json_each({_METADATA}) WHERE key = ? AND value = ?)"  # noqa: S608 - likewise
        return [condition for _ in pairs], [value for pair in pairs for value in pair]
    # One condition for any number of alternatives: a long chain of OR is too deep for SQLite.
    has = f"SELECT 1 FROM json_each({_METADATA}) has WHERE has.key = pair.key AND has.value = pair.value"  # noqa: S608 - likewise
    lacks = f"SELECT 1 FROM json_each(one.value) pair WHERE NOT EXISTS ({has})"  # noqa: S608 - no text of a caller
    wanted = f"EXISTS (SELECT 1 FROM json_each(?) one WHERE NOT EXISTS ({lacks}))"  # noqa: S608 - likewise
    return [wanted], [json.dumps([dict(each) for each in metadata])]
