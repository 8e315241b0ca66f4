"""Cutting the texts of a result that is too long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolloop.core.jsontext import JSON, decode, encode
from toolloop.tools.responses.raised import Content


def length_of(content: Content) -> int:
    """How many characters of text a content has, in whatever block they stand."""
    if isinstance(content, str):
        return len(content)
    return sum(len(owner[key]) for block in content for owner, key in _texts(block))


def cut(content: Content, left: int, note: str) -> Content:
    """A copy of a content that has so many characters of text, and where it was cut, the note.

    A block of text after that is left out. One that stands inside a search result or a document says the note instead,
    for the block may not be without words.
    """
    if isinstance(content, str):
        return _shortened(content, left, note)
    kept: list[dict[str, JSON]] = []
    noted = False
    for block in decode(encode(content)):
        for owner, key in _texts(block):
            text, was_noted = owner[key], noted
            if len(text) > left:
                owner[key] = _shortened(text, left, note)
                noted = True
            left = 0 if noted else left - len(text)
            if was_noted and owner is block:
                break
        else:
            kept.append(block)
    return kept


def _shortened(text: str, left: int, note: str) -> str:
    return text[:left] + note if text[:left].strip() else note.strip()


def _texts(block: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where the texts of a block stand: the object, and its key."""
    if block["type"] == "text":
        yield block, "text"
    inside = block.get("source") if block["type"] == "document" else block
    if not isinstance(inside, dict):
        return
    if inside.get("type") == "text" and inside is not block:
        yield inside, "data"
    content = inside.get("content")
    if isinstance(content, str):
        yield inside, "content"
    elif isinstance(content, list):
        yield from ((each, "text") for each in content if each["type"] == "text")
