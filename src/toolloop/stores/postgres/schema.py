"""The tables of a PostgreSQL store, in their own schema."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from psycopg.errors import InsufficientPrivilege

from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.stores.postgres.connections import Connection, fetch_rows
from toolloop.stores.rows import DUE_AT

_FORMAT: Final = "toolloop store, format 1"  # the comment of the table `loops`
_SCHEMA = f"""
CREATE TABLE toolloop.loops (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    loop_id text COLLATE "C" NOT NULL UNIQUE,
    rev bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    deadline double precision,
    pending text NOT NULL,
    retryable boolean NOT NULL,
    retry_at double precision,
    attempts bigint NOT NULL,
    changed double precision NOT NULL,
    notified text NOT NULL,
    created double precision NOT NULL,
    metadata text NOT NULL,
    lease_owner text,
    lease_token bigint,
    lease_until double precision
) WITH (fillfactor = 80); -- room for the next version of a row on its page, so that an update leaves the indexes alone
CREATE INDEX loops_by_status ON toolloop.loops (status);
CREATE INDEX loops_by_metadata ON toolloop.loops USING gin ((metadata::jsonb) jsonb_path_ops);
CREATE TABLE toolloop.events (
    number bigint NOT NULL REFERENCES toolloop.loops (number) ON DELETE CASCADE,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    digest bytea NOT NULL, -- see `chains`
    body text NOT NULL,
    text text,
    PRIMARY KEY (number, seq),
    CONSTRAINT events_by_id UNIQUE (number, id)
);
CREATE SEQUENCE toolloop.tokens;
CREATE TABLE toolloop.secrets (is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only), text text NOT NULL);
COMMENT ON TABLE toolloop.loops IS '{_FORMAT}';
"""

# What the tables of earlier versions may lack. Their processes can go on: each of their statements names its columns.
_ADDED: Final = {
    "named": "ALTER TABLE toolloop.loops ADD COLUMN named text",
    "notified_rev": "ALTER TABLE toolloop.loops ADD COLUMN notified_rev bigint",
    # What the driver with the lease `progress_token` shows. Earlier versions leave them as they are.
    "progress_token": "ALTER TABLE toolloop.loops ADD COLUMN progress_token bigint",
    "progress": "ALTER TABLE toolloop.loops ADD COLUMN progress text",
    # Why workers leave a loop to others, from when on, and at which revision that holds. Earlier versions leave them.
    "left_rev": "ALTER TABLE toolloop.loops ADD COLUMN left_rev bigint",
    "left_why": "ALTER TABLE toolloop.loops ADD COLUMN left_why text",
    "left_since": "ALTER TABLE toolloop.loops ADD COLUMN left_since double precision",
    # Earlier versions leave it as it is, and so do not count.
    "tally": "ALTER TABLE toolloop.loops ADD COLUMN tally text",
    "forked_from": "ALTER TABLE toolloop.loops ADD COLUMN forked_from text",
    # See `chains`. Earlier versions leave both as they are.
    "chain": "ALTER TABLE toolloop.loops ADD COLUMN chain text; ALTER TABLE toolloop.events ADD COLUMN chain bytea",
    # When the next reminder of a call is due. Earlier versions leave it.
    "remind_at": "ALTER TABLE toolloop.loops ADD COLUMN remind_at double precision",
    "loops_to_remind": "CREATE INDEX loops_to_remind ON toolloop.loops (remind_at) WHERE remind_at IS NOT NULL",
    "loops_by_due": f"CREATE INDEX loops_by_due ON toolloop.loops ({DUE_AT}) WHERE {DUE_AT} IS NOT NULL",
    # States at a revision. `chain` is that of the event of the revision. Earlier versions leave the table.
    "checkpoints": """CREATE TABLE toolloop.checkpoints (
        number bigint NOT NULL REFERENCES toolloop.loops (number) ON DELETE CASCADE,
        meaning bigint NOT NULL, rev bigint NOT NULL, chain bytea NOT NULL, body bytea NOT NULL,
        PRIMARY KEY (number, meaning)
    )""",
    # Not by `notified_rev <> rev`: an index that names `rev` would have every append rewrite all indexes of the row.
    "loops_waiting": "CREATE INDEX loops_waiting ON toolloop.loops (number) WHERE pending <> '[]'",
}


def set_up(db: Connection) -> None:
    """Check the database, and create the tables, or what those of an earlier version lack."""
    encoding = fetch_rows(db, "SELECT current_setting('server_encoding')")[0][0]
    if encoding != "UTF8":
        raise StoreError(f"the encoding of the database is {encoding}: create it with ENCODING 'UTF8'")
    found, lacking = _find_tables(db)
    if found is None:
        with _exclude_others(db):  # one process creates them
            found, lacking = _find_tables(db)
            if found is None:
                if not fetch_rows(db, "SELECT 1 FROM pg_namespace WHERE nspname = 'toolloop'"):
                    db.execute("CREATE SCHEMA toolloop")
                db.execute("; ".join([_SCHEMA, *_ADDED.values()]).encode())
                found, lacking = _FORMAT, ()
    if found != _FORMAT:
        raise UnreadableSnapshot(
            f"the schema toolloop holds {found!r}, but this version of toolloop reads {_FORMAT!r}. Nothing was "
            "changed. Use the version of toolloop that wrote it, or a newer one"
        )
    if lacking:
        _upgrade(db)


def _upgrade(db: Connection) -> None:
    lacking: Sequence[str] = ()
    try:
        with _exclude_others(db):
            _, lacking = _find_tables(db)  # another process may have been faster
            for name in lacking:
                db.execute(_ADDED[name].encode())
    except InsufficientPrivilege as error:
        raise StoreError(
            f"the table toolloop.loops is of an earlier version: it lacks {', '.join(lacking)}, and this role may not "
            "add that. Run `toolloop migrate URL` as the role that owns the table"
        ) from error


@contextmanager
def _exclude_others(db: Connection) -> Generator[None]:
    """Begin a transaction that excludes those of other processes here."""
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(hashtext('toolloop'))")
        yield


def is_current(db: Connection) -> bool:
    """Return whether the tables exist, with all that this version needs."""
    found, lacking = _find_tables(db)
    return found is not None and not lacking


def _find_tables(db: Connection) -> tuple[str | None, Sequence[str]]:
    """Return the format of the tables, or None if there are none, and the names in `_ADDED` that they lack."""
    # This reads the catalogue, because `to_regclass` may return a cached answer from before the transaction.
    query = """SELECT coalesce(obj_description(c.oid, 'pg_class'), 'another table'),
        ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped
            UNION ALL SELECT i.relname::text FROM pg_index JOIN pg_class i ON i.oid = indexrelid WHERE indrelid = c.oid
            UNION ALL SELECT t.relname::text FROM pg_class t WHERE t.relnamespace = n.oid)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'toolloop' AND c.relname = 'loops'"""
    rows = fetch_rows(db, query)
    return (str(rows[0][0]), [name for name in _ADDED if name not in rows[0][1]]) if rows else (None, ())
