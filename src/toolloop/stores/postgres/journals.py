"""The queries of a PostgreSQL store that read and extend a journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from attrs import evolve
from psycopg.errors import UniqueViolation

from toolloop.stores import store_errors
from toolloop.stores.digests import make_first_digest, make_next_digest
from toolloop.stores.postgres.chains import digest_of, find_chain, format_revision, make_chains, read_chain
from toolloop.stores.postgres.connections import (
    CHANNEL,
    CLOCK,
    IS_OWN,
    Connection,
    change,
    fetch_rows,
    fetch_timed_rows,
)
from toolloop.stores.protocol import Entry, Head, StoredJournal, StoredLoop
from toolloop.stores.revisions import Revision
from toolloop.stores.rows import COLUMNS, read_stored_loop, to_head_columns

# Adds the events of an append. It follows `changed`: the loop's row, with the revision `before`.
ADD = """added AS (
    INSERT INTO toolloop.events (number, seq, id, digest, chain, body, text)
    SELECT number, before + nth, id,
        sha256(convert_to(concat_ws(E'\\n', loop_id, before + nth, id, body, text), 'UTF8')), chain, body, text
    FROM changed,
        unnest(%s::text[], %s::bytea[], %s::text[], %s::text[]) WITH ORDINALITY AS entry (id, chain, body, text, nth)
)"""
NOTIFY = f"pg_notify('{CHANNEL}', '')"
ROW = f"{COLUMNS}, chain"
IS_FIRST = "EXISTS (SELECT FROM toolloop.events e WHERE e.number = loops.number AND e.seq = 1 AND e.id = %s)"


def read_entries(db: Connection, loop_id: str, after: int, first_id: str | None) -> StoredJournal:
    """Return the events of a loop after a revision. See `Store.load`."""
    query = f"""SELECT rev, loops.number, loops.chain, {IS_FIRST},
            (SELECT e.chain FROM toolloop.events e WHERE e.number = loops.number AND e.seq = %s),
            seq, digest, entry.chain, id, body, text, {CLOCK}
        FROM toolloop.loops LEFT JOIN toolloop.events entry ON entry.number = loops.number AND seq > %s
        WHERE loop_id = %s ORDER BY seq"""  # noqa: S608 - no text of a caller

    rows = fetch_timed_rows(db, query, first_id, int(after), int(after), loop_id)
    if not rows:
        raise store_errors.make_missing_error(loop_id)
    rev, number, whole, is_first, before, *first = rows[0]
    if first_id is not None and not is_first:
        raise store_errors.make_replaced_error(loop_id)
    known = min(int(after), rev)
    last = make_first_digest(loop_id) if before is None else bytes(before)
    if known and before is None:  # an earlier version has stored that event
        last = find_chain(db, loop_id, number, known)
    if Revision.of(after).digest is not None and (after > rev or Revision(known, last.hex()) != after):
        raise store_errors.make_missing_revision_error(loop_id, after, rev)
    stored = [] if first[0] is None else [row[5:] for row in rows]
    chains = {known: last.hex()}
    for expected, (seq, digest, chain, *parts) in enumerate(stored, known + 1):
        last = make_next_digest(last, (bytes(digest),))
        is_same = bytes(digest) == digest_of(loop_id, seq, parts) and chain in (None, last)
        if seq != expected or not is_same:
            raise store_errors.make_damaged_error(loop_id, min(seq, expected))
        chains[seq] = last.hex()
    if len(stored) != rev - known:
        raise store_errors.make_damaged_error(loop_id, known + len(stored) + 1)
    at = read_chain(loop_id, whole, rev)
    if at is not None and chains.get(at[0], at[1]) != at[1]:
        raise store_errors.make_damaged_error(loop_id, rev)
    return StoredJournal(Revision(rev, last.hex()), tuple(Entry(*parts) for _, _, _, *parts in stored))


def append_entries(  # noqa: PLR0913 - what an append is guarded by
    db: Connection,
    guards: Mapping[str, Any],
    entries: Sequence[Entry],
    rev: Revision,
    *,
    loop_id: str,
    head: Head | None,
    is_step: bool,
) -> Revision | None:
    """Append in one statement, so in one round trip; return the revision, or None if a guard does not hold."""
    arrays, after = arrays_of(loop_id, rev, entries)
    columns = {"chain": format_revision(after), **({} if head is None else to_head_columns(head))}
    changes = ", ".join(["rev = rev + %s", *(f"{name} = %s" for name in columns)])
    guards = {**guards, IS_OWN: db.mark, "rev = %s": int(rev)}
    # NOTIFY holds a lock of the whole server until the commit, so the steps of a driver do not use it. A decision or a
    # command does, for the loop's driver.
    notify = "" if is_step and (head is None or head.status == "running") else f", {NOTIFY}"
    query = f"""changed AS (
        UPDATE toolloop.loops SET {changes} WHERE {" AND ".join(guards)}
        RETURNING rev, number, loop_id, rev - %s AS before{notify}
    ), {ADD}"""  # noqa: S608 - likewise
    count = len(entries)
    with suppress(UniqueViolation):  # some are stored already
        values = (count, *columns.values(), *guards.values(), count)
        return None if change(db, query, *values, *arrays) is None else after
    return None


def find_loop(
    db: Connection, loop_id: str, first_id: str | None = None, entries: Sequence[Entry] = ()
) -> tuple[StoredLoop, set[str], dict[str, Any]]:
    """Return the row of a loop, the ids of the entries that are already stored, and the guards of its revision."""
    query = f"""SELECT {IS_FIRST},
        ARRAY(SELECT id FROM toolloop.events e WHERE e.number = loops.number AND id = ANY(%s)),
        {ROW} FROM toolloop.loops WHERE loop_id = %s"""  # noqa: S608 - likewise
    rows = fetch_rows(db, query, first_id, [entry.id for entry in entries], loop_id)
    if not rows:
        raise store_errors.make_missing_error(loop_id)
    is_first, known, *row = rows[0]
    if first_id is not None and not is_first:
        raise store_errors.make_replaced_error(loop_id)
    loop, guards = loop_of(row), {"chain IS NOT DISTINCT FROM %s": row[-1]}
    if Revision.of(loop.rev).digest is None:  # an earlier version has appended, or made the loop
        loop = evolve(loop, rev=Revision(loop.rev, find_chain(db, loop_id, int(loop.cursor), int(loop.rev)).hex()))
    return loop, set(known), guards


def loop_of(row: Sequence[Any]) -> StoredLoop:
    """Return the loop of a row with the columns `ROW`. After an append by an earlier version, `rev` has no digest."""
    *columns, chain = row
    _, loop_id, rev, *_ = columns
    at = read_chain(loop_id, chain, rev)
    return read_stored_loop([*columns, at[1] if at is not None and at[0] == rev else None])


def guard_first(first_id: str | None) -> dict[str, Any]:
    """Return the guard of the first event of a journal."""
    return {} if first_id is None else {IS_FIRST: first_id}


def arrays_of(loop_id: str, rev: Revision, entries: Sequence[Entry]) -> tuple[tuple[list[Any], ...], Revision]:
    """Return the values that `ADD` takes for the entries after a revision, and the revision after them."""
    chains = make_chains(loop_id, rev, entries)
    after = Revision(rev + len(entries), chains[-1].hex() if chains else rev.digest)
    bodies, texts = [each.body for each in entries], [each.text for each in entries]
    return ([each.id for each in entries], chains, bodies, texts), after
