"""What a tool returned, taken apart: texts, files and content blocks, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import IOBase
from pathlib import Path
from typing import Any

from attrs import frozen

from toolloop.core.blocks import RESULT_KINDS, misfits, named
from toolloop.core.jsontext import JSON, encode
from toolloop.tools.failures import well_formed
from toolloop.tools.responses.files import File
from toolloop.tools.responses.jsonable import Unsendable, capped, to_json
from toolloop.tools.responses.types import (
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
        case TextResponse():
            return [well_formed(value.text)]
        case JsonResponse():
            return [_text_of(to_json(value.data, where), where)]
        case LinkResponse():
            return [_text_of(to_json({"name": value.name, "url": value.url}), where)]
        case FileResponse():
            return [File(value.name, value.mime_type, value.data)]
        case RawOutputs():
            return _mixture(value.blocks, where)
        case Path():
            return [value]
        case bytes() | bytearray() | memoryview():
            return [File(None, "application/octet-stream", bytes(value))]
    if isinstance(value, Iterator) and not isinstance(value, IOBase):
        return _list(capped(value, where), where)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):  # a named tuple is data
        return _list(value, where)
    return [_text_of(to_json(value, where), where)]


def _list(items: Sequence[Any], where: str) -> list[Part]:
    """Content if it is meant as content, else data."""
    if any(isinstance(item, Response) for item in items):
        return _mixture(items, where)
    data = to_json(items, where)
    if any(map(_is_telling, data)):
        return _mixture(data, where)
    blocks = [Block(f"{where}[{index}]", item) for index, item in enumerate(data) if _is_text(item)]
    # Judged before the blank ones are left out: rows of data must not lose any.
    if blocks and len(blocks) == len(data) and not any(map(flaws_of, blocks)):
        return list(blocks)
    return [_text_of(data, where)]


def _is_telling(item: JSON) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and kind in _TELLTALE and _TELLTALE[kind] in item


def _is_text(item: JSON) -> bool:
    return isinstance(item, dict) and item.get("type") == "text"


def _mixture(items: Iterable[Any], where: str) -> list[Part]:
    """Blocks as they are, and among them texts, files and responses."""
    parts: list[Part] = []
    for index, item in enumerate(items):
        here = f"{where}[{index}]"
        if isinstance(item, str | Response | Path | bytes | bytearray | memoryview):
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


def _text_of(value: JSON, where: str) -> str:
    try:
        return encode(value)
    except (ValueError, RecursionError) as error:  # an integer of more digits than Python writes
        raise Unsendable(f"{where} cannot be written as JSON: {error}") from error


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
