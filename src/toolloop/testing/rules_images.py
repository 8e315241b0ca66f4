"""Files inside a request: whether they are what they are said to be, and how large they may be.

The source is the API's documentation of vision, and its texts as they were reported.
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from toolloop.testing.refusals import Refusal
from toolloop.testing.runs import Block, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolloop.testing.models import Model

_MOST_BYTES = 5 * 1024 * 1024
_MOST_PIXELS = 8000
_MANY, _MOST_PIXELS_OF_MANY = 20, 2000


def images(body: dict[str, Any], model: Model) -> Refusal | None:
    """Every image and document that came as base64, one by one and together."""
    found = [part for part in _parts(body) if part[1]["type"] == "image"]
    for path, block in _parts(body):
        if block["source"]["type"] == "base64" and (refusal := _file(f"{path}.source.base64", block["source"])):
            return refusal
    if len(found) > model.most_images:
        return Refusal(f"messages: Too much media: 0 document pages + {len(found)} images > {model.most_images}")
    many = len(found) > _MANY
    most, where = (_MOST_PIXELS_OF_MANY, " for many-image requests") if many else (_MOST_PIXELS, "")
    for path, block in found:
        if max(_size(block["source"].get("data"))) > most:
            return Refusal(
                f"{path}.source.base64.data: At least one of the image dimensions exceed max allowed size{where}: "
                f"{most} pixels"
            )
    return None


def _parts(body: dict[str, Any]) -> Iterator[tuple[str, Block]]:
    for number, message in enumerate(body["messages"]):
        yield from _inside(f"messages.{number}.content", blocks_of(message.get("content")))


def _inside(where: str, blocks: list[Block]) -> Iterator[tuple[str, Block]]:
    for place, block in enumerate(blocks):
        path = f"{where}.{place}.{block['type']}"
        if block["type"] in {"image", "document"}:
            yield path, block
        inner = block.get("content") if block["type"] == "tool_result" else None
        if block["type"] == "document":
            path, inner = f"{path}.source.content", block["source"].get("content")
        if isinstance(inner, list):
            yield from _inside(f"{path}.content", inner)


def _file(path: str, source: dict[str, Any]) -> Refusal | None:
    declared, data = source["media_type"], source["data"]
    if not data:
        return Refusal(f"{path}.data: {declared.partition('/')[0]} cannot be empty")
    if declared.startswith("image/") and len(data) > _MOST_BYTES:
        return Refusal(f"{path}: image exceeds 5 MB maximum: {len(data)} bytes > {_MOST_BYTES} bytes")
    try:
        start = base64.b64decode(data, validate=True)[:1024]
    except ValueError:
        return Refusal(f"{path}.data: invalid base64 data")
    return _pdf(path, start) if declared == "application/pdf" else _image(path, declared, _media_type(start))


def _pdf(path: str, start: bytes) -> Refusal | None:
    # Readers pass over what comes before the mark.
    valid = _media_type(start) in {None, "application/pdf"} and b"%PDF-" in start
    return None if valid else Refusal(f"{path}.data: The PDF specified was not valid.")


def _image(path: str, declared: str, real: str | None) -> Refusal | None:
    if real is None:
        return Refusal("Could not process image")
    if real == declared:
        return None
    return Refusal(
        f"{path}.data: The image was specified using the {declared} media type, but the image appears to be a {real} "
        "image"
    )


def _media_type(start: bytes) -> str | None:
    """What these first bytes clearly are, if anything."""
    known = {
        start[:3] == b"\xff\xd8\xff": "image/jpeg",
        start[:8] == b"\x89PNG\r\n\x1a\n": "image/png",
        start[:6] in {b"GIF87a", b"GIF89a"}: "image/gif",
        start[:4] == b"RIFF" and start[8:12] == b"WEBP": "image/webp",
        start[:5] == b"%PDF-": "application/pdf",
    }
    return known.get(True)


def _size(data: str | None) -> tuple[int, int]:
    import imagesize  # type: ignore[import-untyped]  # noqa: PLC0415 - only for requests with images

    try:
        width, height = imagesize.get(io.BytesIO(base64.b64decode(data or "")))
    except Exception:  # noqa: BLE001 - what cannot be read is not judged here
        return 0, 0
    return int(width), int(height)
