"""The queries of an SQLite store for checkpoints."""

from __future__ import annotations

import sqlite3

from toolloop.stores.protocol import Lease
from toolloop.stores.revisions import Revision

# An older checkpoint never replaces a newer one, unless the journal has lost the revision of that one.
_KEEP = """INSERT INTO checkpoints (number, meaning, rev, digest, body)
    SELECT number, ?, ?, ?, ? FROM loops WHERE loop_id = ? AND lease_token = ? AND lease_owner = ?
    ON CONFLICT (number, meaning) DO UPDATE SET rev = excluded.rev, digest = excluded.digest, body = excluded.body
    WHERE rev < excluded.rev OR NOT EXISTS (
        SELECT 1 FROM events WHERE place = (checkpoints.number << 32 | checkpoints.rev) AND digest = checkpoints.digest
    )"""

# Those that no version has written for long.
_CLEAR = """DELETE FROM checkpoints WHERE number = (SELECT number FROM loops WHERE loop_id = ?) AND meaning <> ?
    AND rev * 2 < ?"""


def keep_checkpoint(db: sqlite3.Connection, lease: Lease, body: bytes, rev: Revision, meaning: int) -> None:
    """See `SqliteStore.keep_checkpoint`."""
    digest = bytes.fromhex(rev.digest or "")
    kept = db.execute(_KEEP, (meaning, int(rev), digest, body, lease.loop_id, lease.token, lease.owner))
    if kept.rowcount:
        db.execute(_CLEAR, (lease.loop_id, meaning, int(rev)))


def find_checkpoint(db: sqlite3.Connection, loop_id: str, meaning: int) -> bytes | None:
    """See `SqliteStore.checkpoint`."""
    query = "SELECT CAST(body AS BLOB) FROM checkpoints JOIN loops USING (number) WHERE loop_id = ? AND meaning = ?"
    row = db.execute(query, (loop_id, meaning)).fetchone()
    return None if row is None else row[0]
