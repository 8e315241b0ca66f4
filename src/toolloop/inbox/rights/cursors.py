"""Cursors for a person who does not see all loops: those of a store count its rows, also the others."""

from __future__ import annotations

import hmac
from hashlib import sha256

_LENGTH = 32  # bytes of a cursor, so that its length says nothing; also of a digest
_MARK = 16


def seal_cursor(cursor: str, secret: str) -> str:
    """Return a cursor as a text that says nothing to a reader without the secret. It is always the same text."""
    text = cursor.encode().ljust(_LENGTH, b"\0")
    mark = _mac(secret, b"mark", text)[:_MARK]
    return (mark + _mixed(text, _mac(secret, b"text", mark))).hex()


def open_cursor(sealed: str, secret: str) -> str:
    """Return the cursor of a text that `seal_cursor` returned.

    Raises:
        ValueError: it is another text.

    """
    try:
        found = bytes.fromhex(sealed)
    except ValueError:
        found = b""
    mark = found[:_MARK]
    text = _mixed(found[_MARK:], _mac(secret, b"text", mark))
    if len(text) != _LENGTH or not hmac.compare_digest(mark, _mac(secret, b"mark", text)[:_MARK]):
        raise ValueError(f"before is {sealed[:80]!r}; give the `cursor` of a row of the page before")
    return text.rstrip(b"\0").decode()


def _mac(secret: str, use: bytes, text: bytes) -> bytes:
    return hmac.digest(secret.encode(), b"cursor " + use + text, sha256)


def _mixed(text: bytes, mask: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(text, mask, strict=False))
