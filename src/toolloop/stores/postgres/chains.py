"""The digests of a PostgreSQL store.

Each event has a digest of itself and its position (`events.digest`). `events.chain` is chained: a digest of that and of
the chain before it, so it differs after any other history. `loops.chain` has the revision of the loop, with the chain
of its last event, as text. So it is noticed if the last events are gone, or the tables are those of a backup.

Earlier versions of toolloop leave both columns as they are. After one of them has appended, `loops.chain` has an
earlier revision, and its events have no chain. Then the chain is computed from `events.digest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from toolloop.stores import store_errors
from toolloop.stores.digests import make_first_digest, make_next_digest
from toolloop.stores.postgres.connections import Connection, fetch_rows
from toolloop.stores.protocol import Entry
from toolloop.stores.revisions import Revision

# The events up to a revision, from the last one that has a chain.
_TAIL = """SELECT seq, digest, chain FROM toolloop.events WHERE number = %s AND seq <= %s AND seq >= coalesce(
    (SELECT max(seq) FROM toolloop.events WHERE number = %s AND seq <= %s AND chain IS NOT NULL), 0) ORDER BY seq"""


def format_revision(rev: Revision) -> str:
    """Return a revision as `loops.chain` has it."""
    return f"{int(rev)}-{rev.digest}"


def read_chain(loop_id: str, text: str | None, rev: int) -> tuple[int, str] | None:
    """Return the number and the digest in `loops.chain`, or None if it has no value. `rev`: the revision of the loop.

    Raises:
        UnreadableSnapshot: it is of a later revision, so the last events are gone.

    """
    if text is None:
        return None
    number, _, digest = text.partition("-")
    if int(number) > rev:
        raise store_errors.make_damaged_error(loop_id, rev + 1)
    return int(number), digest


def digest_of(loop_id: str, seq: int, parts: Sequence[str | None]) -> bytes:
    """Return the digest of an event at its position. A changed or moved event does not match."""
    return sha256("\n".join([loop_id, str(seq), *[part for part in parts if part is not None]]).encode()).digest()


def make_chains(loop_id: str, rev: Revision, entries: Sequence[Entry]) -> list[bytes]:
    """Return the chains of events that follow a revision."""
    last, chains = bytes.fromhex(rev.digest or ""), list[bytes]()
    for seq, entry in enumerate(entries, int(rev) + 1):
        last = make_next_digest(last, (digest_of(loop_id, seq, (entry.id, entry.body, entry.text)),))
        chains.append(last)
    return chains


def find_chain(db: Connection, loop_id: str, number: int, seq: int) -> bytes:
    """Return the chain of the event at a position, which exists, of the loop with a number."""
    last = make_first_digest(loop_id)
    for _, digest, kept in fetch_rows(db, _TAIL, number, seq, number, seq):
        last = bytes(kept) if kept is not None else make_next_digest(last, (bytes(digest),))
    return last
