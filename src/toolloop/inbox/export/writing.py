"""Write the audit trail of a loop as lines of JSON, each with a digest of itself and of all lines before it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib.metadata import version

from attrs import asdict

from toolloop._journal.store_access import call_store
from toolloop._public import set_module
from toolloop.inbox.export.signing import sign
from toolloop.inbox.trail import read_trail
from toolloop.machine.values.jsontext import JSON, encode
from toolloop.stores.optional import read_time
from toolloop.stores.protocol import Store

FORMAT = 1


@set_module("toolloop.inbox")
def export_trail(store: Store, loop_id: str, *, key: bytes | None = None) -> str:
    """Return the audit trail of a loop as lines of JSON, for an auditor: see `verify_trail`.

    The first line names the loop, its revision and the version of toolloop. Then each entry of the trail is a line; the
    last line ends the file. `chain` of a line is a digest of itself and of all lines before it.

    Args:
        store: the store.
        loop_id: the loop.
        key: a private Ed25519 key as PEM, without a password, which signs the file (extra `sign`). Without it, a person
            who changes the file can also make the digests fit.

    Raises:
        LoopNotFound: the loop does not exist.
        StoreError: the store failed.
        ValueError: the key is not a private Ed25519 key.
        ImportError: a key is given, and `cryptography` is not installed.

    """
    journal = call_store(loop_id, partial(store.load, loop_id))
    entries = [asdict(entry) for entry in read_trail(journal.entries, store.secret)]
    row = call_store(loop_id, partial(store.head, loop_id))
    begin = {
        "format": FORMAT,
        "toolloop": version("toolloop"),
        "loop_id": loop_id,
        "created": _time(row.created),
        "metadata": {**row.metadata},
        "revision": int(journal.rev),
        "revision_digest": getattr(journal.rev, "digest", None),
        "exported": _time(read_time(store)),
    }
    values = [{"kind": "begin", **begin}, *({**entry, "at": entry["at"].isoformat()} for entry in entries)]
    return "".join(f"{line}\n" for line in _lines(values, key))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _lines(values: list[dict[str, JSON]], key: bytes | None) -> Iterator[str]:
    digest = ""
    for value in values:
        line, digest = _line(value, digest)
        yield line
    end: dict[str, JSON] = {"kind": "end", "entries": len(values) - 1}
    if key is not None:
        end["signature"] = sign(key, signed_text(digest, end))
    yield _line(end, digest)[0]


def _line(value: dict[str, JSON], before: str) -> tuple[str, str]:
    body = encode(value)
    digest = next_digest(before, body.encode())
    return f'{body[:-1]},"chain":"{digest}"}}', digest


def next_digest(before: str, body: bytes) -> str:
    """Return the digest of a line. `before`: that of the line before it; `body`: the line without its digest."""
    return sha256(before.encode() + body).hexdigest()


def signed_text(digest: str, end: dict[str, JSON]) -> bytes:
    """Return what is signed: the digest of the last entry, and the end without its signature."""
    return f"{digest} {encode(end)}".encode()
