"""Convert files to content blocks: images, PDFs and texts are shown, other files are named."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from toolloop._messages.blocks import IMAGE_TYPES, MOST_IMAGE_CHARACTERS, media_type_of
from toolloop.machine.values.jsontext import JSON, make_well_formed
from toolloop.tools.responses.failure_texts import Unsendable
from toolloop.tools.responses.response_types import FileResponse, mime_type_of

_MOST_BYTES = 23 * 1024 * 1024  # a request may have 32 MB, and base64 adds a third (source: messages-api, rule 1)
_MOST_TITLE = 500  # characters of a document's title
_NEVER_TEXT = {"image", "audio", "video", "font"}
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:+-]+)", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # not in texts, but common in bytes that decode by chance
_PDF = "application/pdf"


def block_of_file(given: Any, kinds: Collection[str], label: str) -> dict[str, JSON] | str:
    """Return a file as an image or document block, as its text, or as a text that names it.

    Args:
        given: a `FileResponse`, a path or bytes.
        kinds: the types of blocks that the result may hold.
        label: the file's name for the model.

    Raises:
        Unsendable: the path cannot be read.

    """
    if isinstance(given, Path):
        given = _read(given)
    name, mime_type, data = (
        (given.name, given.mime_type, given.data)
        if isinstance(given, FileResponse)
        else (None, "application/octet-stream", bytes(given))
    )
    kind = media_type_of(data)
    why = ""
    block: dict[str, JSON] | str = ""
    if len(data) > _MOST_BYTES:
        why = f"it has more than {_MOST_BYTES:,} bytes, the limit for a result"
    elif kind in IMAGE_TYPES or kind == _PDF:
        block = _make_media_block(str(kind), data, name)
        if block["type"] not in kinds:
            why = f"the result of this call cannot hold a block of type {block['type']}"
        elif kind != _PDF and len(block["source"]["data"]) > MOST_IMAGE_CHARACTERS:
            why = f"it has more than {MOST_IMAGE_CHARACTERS:,} bytes as base64, the limit for an image"
    else:
        block = _decode_text(data, mime_type)
        why = "" if block.strip() else "it is empty, or not a jpeg, png, gif or webp image, a PDF or text"
    if not why:
        return block
    return make_well_formed(f"{label} ({kind or mime_type}, {len(data):,} bytes) is not shown: {why}.")


def _read(path: Path) -> FileResponse | bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unsendable(make_well_formed(f"the file {str(path)!r} cannot be read: {reason}")) from error
    return FileResponse(path.name, mime_type_of(path.name), data) if path.name.strip() else data


def _make_media_block(kind: str, data: bytes, name: str | None) -> dict[str, JSON]:
    source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
    if kind != _PDF:
        return {"type": "image", "source": source}
    block: dict[str, JSON] = {"type": "document", "source": source}
    if title := make_well_formed(name or "").strip()[:_MOST_TITLE]:
        block["title"] = title
    return block


def _decode_text(data: bytes, mime_type: str) -> str:
    """Return the text of a file, or a blank text if it is not text."""
    root = mime_type.strip().lower().partition("/")[0]
    if root in _NEVER_TEXT:
        return ""
    declared = _CHARSET.search(mime_type)
    marked = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else None
    for encoding in (marked, declared and declared[1], "utf-8-sig"):
        try:
            text = data.decode(encoding) if encoding else None
        except (LookupError, ValueError):  # the encoding is unknown or wrong
            continue
        if text is not None:
            return "" if root != "text" and _CONTROL.search(text) else make_well_formed(text)
    return ""
