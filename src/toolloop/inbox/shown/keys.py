"""The keys of calls, which name a call of any loop in addresses, forms and elements of the page."""

from __future__ import annotations

import re

_BETWEEN = ".."
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(rb"\.([0-9A-F]{2})")


def key_of(loop_id: str, path: tuple[str, ...]) -> str:
    """Return the key of a call: ASCII letters, digits, `_`, `-` and `.`, which no part of an address escapes.

    The parts are joined by `..`; another character is written as `.` and two hexadecimal digits for each of its bytes.

    Args:
        loop_id: the loop.
        path: the ids from the outermost call down to this one.

    """
    return _BETWEEN.join(_UNSAFE.sub(_escape, part.encode()).decode() for part in (loop_id, *path))


def from_key(key: str) -> tuple[str, tuple[str, ...]]:
    """Return the loop id and the path of a key.

    Raises:
        ValueError: it is not a key that `key_of` returns.

    """
    try:
        loop_id, *path = [_ESCAPED.sub(_character, part).decode() for part in key.encode().split(_BETWEEN.encode())]
    except UnicodeError:
        loop_id, path = "", []
    if not path or not all((loop_id, *path)) or key_of(loop_id, tuple(path)) != key:
        raise ValueError(f"expected the key of a call, got {key[:80]!r}")
    return loop_id, tuple(path)


def _escape(character: re.Match[bytes]) -> bytes:
    return b".%02X" % ord(character[0])


def _character(escaped: re.Match[bytes]) -> bytes:
    return bytes([int(escaped[1], 16)])
