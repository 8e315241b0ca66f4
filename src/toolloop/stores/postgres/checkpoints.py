"""The queries of a PostgreSQL store for checkpoints."""

from __future__ import annotations

from toolloop.stores.postgres.connections import IS_OWN, Connection, change, fetch_rows
from toolloop.stores.protocol import Lease
from toolloop.stores.revisions import Revision

# An older checkpoint never replaces a newer one, unless the journal has lost the revision of that one.
_KEEP = f"""changed AS (
    INSERT INTO toolloop.checkpoints (number, meaning, rev, chain, body)
    SELECT number, %s, %s, %s, %s FROM toolloop.loops
    WHERE loop_id = %s AND lease_token = %s AND lease_owner = %s AND {IS_OWN}
    ON CONFLICT (number, meaning) DO UPDATE SET rev = excluded.rev, chain = excluded.chain, body = excluded.body
    WHERE checkpoints.rev < excluded.rev OR NOT EXISTS (
        SELECT FROM toolloop.events e
        WHERE e.number = checkpoints.number AND e.seq = checkpoints.rev AND e.chain = checkpoints.chain
    ) RETURNING number
), cleared AS (
    -- those that no version has written for long
    DELETE FROM toolloop.checkpoints old USING changed
    WHERE old.number = changed.number AND meaning <> %s AND rev * 2 < %s
)"""  # noqa: S608 - no text of a caller


def keep_checkpoint(db: Connection, lease: Lease, body: bytes, rev: Revision, meaning: int) -> None:
    """See `PostgresStore.keep_checkpoint`."""
    chain = bytes.fromhex(rev.digest or "")
    which = (lease.loop_id, lease.token, lease.owner, db.mark)
    change(db, _KEEP, meaning, int(rev), chain, body, *which, meaning, int(rev))


def find_checkpoint(db: Connection, loop_id: str, meaning: int) -> bytes | None:
    """See `PostgresStore.checkpoint`."""
    query = """SELECT body FROM toolloop.checkpoints JOIN toolloop.loops USING (number)
        WHERE loop_id = %s AND meaning = %s"""
    rows = fetch_rows(db, query, loop_id, meaning)
    return bytes(rows[0][0]) if rows else None
