"""Verify an exported audit trail: find the first line that does not fit."""

from __future__ import annotations

import re

from toolloop._public import set_module
from toolloop.inbox.export.signing import is_signed_by
from toolloop.inbox.export.writing import FORMAT, next_digest, signed_text
from toolloop.machine.values.jsontext import JSON, decode, encode

_LINE = re.compile(rb'(\{.*),"chain":"([0-9a-f]{64})"\}', re.DOTALL)


@set_module("toolloop.inbox")
def verify_trail(data: bytes, *, public_key: bytes | None = None) -> str | None:
    """Return the first line of an exported trail that does not fit, and why; None if all lines fit.

    A changed, removed, moved or added line does not fit, and a missing end is found.

    Args:
        data: the file.
        public_key: the public Ed25519 key as PEM. Without it, a signature is not verified.

    Raises:
        ValueError: the key is not a public Ed25519 key.
        ImportError: a key is given, and `cryptography` is not installed.

    """
    *lines, rest = data.split(b"\n")
    digest, before = "", ""
    value: dict[str, JSON] = {}
    for number, line in enumerate(lines, 1):
        before, found = digest, _LINE.fullmatch(line)
        if found is None or (digest := found[2].decode()) != next_digest(before, found[1] + b"}"):
            return f"line {number}: it was changed, or a line before it was removed, added or moved"
        last, value = value, _read(found[1] + b"}")
        if (why := _why_misplaced(number, value, last)) is not None:
            return f"line {number}: {why}"
    if rest or value.get("kind") != "end":
        return f"line {len(lines) + 1}: {'it is cut' if rest else 'the end of the file is missing'}"
    return _check_end(len(lines), before, value, public_key)


def _why_misplaced(number: int, value: dict[str, JSON], last: dict[str, JSON]) -> str | None:
    """Return why a line whose digest fits cannot be here. `last`: the line before it."""
    if last.get("kind") == "end":
        return "it follows the end"
    if (number == 1) != (value.get("kind") == "begin"):
        return "the file does not begin here"
    if number == 1 and value.get("format") != FORMAT:
        return f"its format is {value.get('format')!r}; this version reads {FORMAT}"
    return None


def _check_end(number: int, before: str, end: dict[str, JSON], public_key: bytes | None) -> str | None:
    signature = end.pop("signature", None)
    if end != {"kind": "end", "entries": number - 2}:
        return f"line {number}: it ends another file"
    if public_key is None:
        return None
    if not isinstance(signature, str):
        return f"line {number}: the file is not signed"
    is_right = is_signed_by(public_key, signed_text(before, end), signature)
    return None if is_right else f"line {number}: the signature is not of this key, or the file was changed"


def _read(body: bytes) -> dict[str, JSON]:
    """Return the value of a line. One that is not written as `export_trail` writes it has none."""
    try:
        value = decode(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) and encode(value).encode() == body else {}
