"""Files as content blocks: what a file is, is read from its bytes; what the API does not take is named in a text."""

from __future__ import annotations

import base64
import codecs
import io
import re
from collections.abc import Collection
from pathlib import Path
from stat import S_ISREG
from typing import Protocol

from toolloop.core.blocks import IMAGE_TYPES, MOST_IMAGE_CHARACTERS, media_type_of
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON
from toolloop.tools.failures import well_formed
from toolloop.tools.responses.types import file_name, mime_type_of

#: The most images of one result: no model takes fewer in a request (source: the API's page on vision).
MOST_IMAGES = 100

#: The most bytes that the files of one result may have as base64: a request has 32 MB (source: messages-api, rule 1),
#: and says more than this one result.
MOST_BYTES = 31 * 1024 * 1024

_MOST_TITLE = 500  # characters that the title of a document may have
_NEVER_TEXT = {"image", "audio", "video", "font"}
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:+-]+)", re.IGNORECASE)
# What a text of any kind does not hold, and bytes that are no text but happen to decode often do.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MARKS = (  # the longer ones first, for one begins like another
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_PDF = "application/pdf"

_Sent = tuple[dict[str, JSON] | str | None, str]  # what is sent, or None and why not


@frozen
class File:
    """A file that was read. `name` is None for mere bytes."""

    name: str | None
    mime_type: str
    data: bytes


class Naming(Protocol):
    """How a file is named that is not shown."""

    def name_file(self, name: str | None, mime_type: str, size: int, why: str) -> str:
        """The text for the model."""


def read_file(path: Path) -> File | str:
    """A file of the disk, or why it is not read: a text that goes after its name.

    Raises:
        OSError: it is not there, or must not be read.

    """
    about = path.stat()
    if path.is_dir():
        raise IsADirectoryError("it is a directory, not a file")
    if not S_ISREG(about.st_mode):
        raise OSError("it is no regular file")
    if about.st_size > MOST_BYTES:
        return f"it has {about.st_size:,} bytes, and a result takes {MOST_BYTES:,}"
    with path.open("rb") as opened:
        data = opened.read(MOST_BYTES + 1)  # what the system makes while it is read has no size before
    if len(data) > MOST_BYTES:
        return f"it has more than {MOST_BYTES:,} bytes, which is what a result takes"
    return File(path.name, mime_type_of(path.name), data)


def is_image(file: File) -> bool:
    """Whether it is of a kind of image that the API takes."""
    return media_type_of(file.data) in IMAGE_TYPES


def file_part(file: File, *, kinds: Collection[str], most_pixels: int, words: Naming) -> dict[str, JSON] | str:
    """A file as an image or document block, as its text, or as a text that names it.

    Args:
        file: the file.
        kinds: the kinds of blocks that may be sent.
        most_pixels: a side of an image.
        words: how it is named.

    """
    real = media_type_of(file.data)
    if real in IMAGE_TYPES:
        sent, why = _image(file.data, str(real), most_pixels)
    elif real == _PDF:
        sent, why = _document(file)
    else:
        sent, why = _text(file)
    if isinstance(sent, dict) and sent["type"] not in kinds:
        why = f"the result of this call may not hold {_a(str(sent['type']))}"
    elif sent is not None:
        return sent
    name = None if file.name is None else file_name(file.name, file.mime_type)
    return words.name_file(name, real or well_formed(file.mime_type), len(file.data), why)


def image_flaw(data: bytes, most_pixels: int) -> str | None:
    """Why the API would not take an image of a kind that it takes; None if it would, as far as that can be seen."""
    characters = 4 * -(-len(data) // 3)
    if characters > MOST_IMAGE_CHARACTERS:
        return f"it has {characters:,} bytes as base64, and an image may have {MOST_IMAGE_CHARACTERS:,}"
    size = image_size(data)
    if size is None:
        return "the image is damaged or cut off"
    if max(size) > most_pixels:
        return f"it is {size[0]} x {size[1]} pixels, and a side may have {most_pixels}"
    return None


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels; None where the image does not tell."""
    import imagesize  # type: ignore[import-untyped]  # noqa: PLC0415 - only images need it

    try:
        width, height = imagesize.get(io.BytesIO(data))
    except Exception:  # noqa: BLE001 - it raises many kinds of errors of a damaged image
        return None
    return (int(width), int(height)) if width > 0 and height > 0 else None


def _image(data: bytes, media_type: str, most_pixels: int) -> _Sent:
    if why := image_flaw(data, most_pixels):
        return None, why
    return {"type": "image", "source": _base64(media_type, data)}, ""


def _document(file: File) -> _Sent:
    source = _base64(_PDF, file.data)
    if len(source["data"]) > MOST_BYTES:
        return None, f"it has {len(source['data']):,} bytes as base64, and a result takes {MOST_BYTES:,}"
    block: dict[str, JSON] = {"type": "document", "source": source}
    if title := well_formed(file.name or "").strip()[:_MOST_TITLE].strip():
        block["title"] = title
    return block, ""


def _base64(media_type: str, data: bytes) -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}


def _text(file: File) -> _Sent:
    """Its text, or None and why it has none."""
    if not file.data:
        return None, "it is empty"
    root = file.mime_type.strip().lower().partition("/")[0]
    if root in _NEVER_TEXT:
        return None, "only jpeg, png, gif and webp images can be shown, and this is none of them, or damaged"
    text = _decoded(file.data, file.mime_type)
    if text is None:
        return (
            None,
            "it is not text in a known encoding" if root == "text" else "it is neither an image, a PDF nor text",
        )
    if root != "text" and _CONTROL.search(text):
        return None, "it is neither an image, a PDF nor text"
    return (well_formed(text), "") if text.strip() else (None, "it holds nothing but blank space")


def _decoded(data: bytes, mime_type: str) -> str | None:
    declared = _CHARSET.search(mime_type)
    marked = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)
    for encoding in (marked, declared and declared[1], "utf-8"):
        try:
            if encoding:
                return data.decode(encoding)
        except (LookupError, ValueError):  # an unknown encoding, or another one than it says
            continue
    return None


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "image" else f"a {kind}"
