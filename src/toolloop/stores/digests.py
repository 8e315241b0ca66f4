"""Digests that find damage: each event of a journal has one, over itself and the digest of the event before it.

The first event is chained to the id of the loop. So a changed, removed, moved or foreign event does not match its
digest. Digests find damage, not attacks: a program that can write both can make them match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import accumulate

from toolloop.stores.protocol import Entry

Parts = Sequence[bytes | None]  # the id, body and text of an event


def make_first_digest(loop_id: str) -> bytes:
    """Return the start of a loop's chain, which the digest of its first event follows."""
    return blake2b(loop_id.encode(), digest_size=8).digest()


def make_next_digest(before: bytes, parts: Parts) -> bytes:
    """Return the digest of an event after the event with the digest `before`. The parts do not contain NUL."""
    return blake2b(b"\0".join([before, *[part for part in parts if part is not None]]), digest_size=8).digest()


def chain_digests(before: bytes, entries: Iterable[Entry]) -> list[bytes]:
    """Return `before`, and the digests of the entries after it."""
    return list(accumulate(map(_split_entry, entries), make_next_digest, initial=before))


def _split_entry(entry: Entry) -> Parts:
    return entry.id.encode(), entry.body.encode(), None if entry.text is None else entry.text.encode()
