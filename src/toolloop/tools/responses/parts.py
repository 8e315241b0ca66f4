"""What a tool returned, taken apart: texts, files and content blocks, in order."""

from __future__ import annotations

from collections import UserString
from collections.abc import Iterable, Iterator, Sequence
from io import IOBase
from pathlib import Path
from typing import Any

from toolloop.core.blocks import RESULT_KINDS, media_type_of, misfits, named
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, encode
from toolloop.tools.failures import well_formed
from toolloop.tools.responses.files import File
from toolloop.tools.responses.jsonable import Unsendable, capped, to_json
from toolloop.tools.responses.types import (
    FILES,
    EmptyResponse,
    FileResponse,
    JsonResponse,
    LinkResponse,
    RawOutputs,
    Response,
    TextResponse,
    file_name,
)

# By what a mapping shows that it is meant as a block, whatever else is wrong with it. A text alone does not show it:
# rows of data have a "type" and a "text" too.
_TELLTALE = {
    "image": "source",
    "document": "source",
    "search_result": "source",
    "tool_reference": "tool_name",
    "browser_state": "tabs",
}
_TEXT_OR_FILE = str | FILES
_HEAD = 16  # bytes by which a file is known


@frozen
class Block:
    """A content block that was given as such. `where`: its path, for errors."""

    where: str
    fields: dict[str, JSON]

    @property
    def is_blank(self) -> bool:
        """Whether it is a text block without words, which the API refuses and which nobody misses."""
        text = self.fields.get("text")
        return self.fields["type"] == "text" and isinstance(text, str) and not text.strip()


@frozen
class Empty:
    """Nothing was returned."""


Ready = str | File | Block | Empty
Part = Ready | Path  # a file that is not read yet


def parts_of(value: Any, where: str = "result") -> list[Part]:  # noqa: C901, PLR0911 - one row per kind of value
    """What is to be sent for a value, in order.

    Raises:
        Unsendable: it is neither JSON nor content.

    """
    match value:
        case None | EmptyResponse():
            return [Empty()]
        case str():
            return [well_formed(str.__str__(value))]
        case UserString():
            return [well_formed(str(value))]
        case TextResponse():
            return [well_formed(value.text)]
        case JsonResponse():
            return [encode(to_json(value.data, where))]
        case LinkResponse():
            return [encode(to_json({"name": value.name, "url": value.url}))]
        case FileResponse():
            return [File(value.name, value.mime_type, value.data)]
        case RawOutputs():
            return _mixture(value.blocks, where)
        case Path():
            return [value]
        case bytes() | bytearray() | memoryview():
            return [File(None, "application/octet-stream", bytes(value))]
    if type(value) in {list, tuple}:
        return _list(value, where)
    if isinstance(value, Iterator | list | tuple) and not isinstance(value, IOBase) and not hasattr(value, "_fields"):
        return _list(capped(value, where), where)  # but a named tuple is data
    return [encode(to_json(value, where))]


def _list(items: Sequence[Any], where: str) -> list[Part]:
    """Content if it is meant as content, else data."""
    if any(isinstance(item, Response) for item in items) or _are_pictures(items):
        return _mixture(items, where)
    data = to_json(items, where)
    parts = [item if isinstance(item, FILES) else each for item, each in zip(items, data, strict=True)]
    others = [part for part in parts if not isinstance(part, FILES)]
    # Judged before the blank ones are left out: rows of data must not lose any.
    if any(map(is_telling, others)) or (others and all(map(_is_text, others))):
        return _mixture(parts, where)
    return [encode(data)]


def _are_pictures(items: Sequence[Any]) -> bool:
    """Whether it is an image or a PDF, with nothing beside it but texts and other files. As data they are of no use."""
    if not all(isinstance(item, _TEXT_OR_FILE) for item in items):
        return False
    return any(media_type_of(bytes(item[:_HEAD])) for item in items if not isinstance(item, str | Path))


def is_telling(item: JSON) -> bool:
    """Whether a value shows that it is meant as a content block, and not one of text."""
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and kind in _TELLTALE and _TELLTALE[kind] in item


def _is_text(item: JSON) -> bool:
    return isinstance(item, dict) and item.get("type") == "text" and not flaws_of(Block("", item))


def _mixture(items: Iterable[Any], where: str) -> list[Part]:
    """Blocks as they are, and among them texts, files and responses."""
    parts: list[Part] = []
    for index, item in enumerate(items):
        here = f"{where}[{index}]"
        if isinstance(item, str | UserString | Response | FILES):
            parts += parts_of(item, here)
        else:
            parts.append(_block(to_json(item, here), here))
    return parts


def _block(value: JSON, where: str) -> Block:
    if not isinstance(value, dict):
        raise Unsendable(f"{where} is {named(value)}, not a content block")
    if value.get("type") not in RESULT_KINDS:
        kind = encode(value.get("type"))[:40]
        raise Unsendable(f"{where} is a block of the type {kind}; a result may hold {', '.join(sorted(RESULT_KINDS))}")
    return Block(where, value)


def flaws_of(block: Block) -> str | None:
    """What the API would not take in a block, blank text aside; None if it takes it."""
    fields = {**block.fields, "text": "words"} if block.is_blank else block.fields
    for path, said in misfits(fields):
        return f"{block.where}{'.' if path else ''}{path}: {said}"
    return None


def plain(part: Part, empty: str) -> str:
    """A part as a host or a log shows it: its text, or its name."""
    match part:
        case str():
            return part
        case Empty():
            return empty
        case File():
            return file_name(part.name, part.mime_type) if part.name else "[file]"
        case Path():
            return well_formed(part.name)
    text = part.fields.get("text")
    return text if part.fields["type"] == "text" and isinstance(text, str) else f"[{part.fields['type']}]"
