"""Images that stand inside content blocks as base64: they are held to what images by themselves are."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from toolloop.core.blocks import IMAGE_TYPES, media_type_of
from toolloop.core.jsontext import JSON
from toolloop.tools.responses.files import image_flaw
from toolloop.tools.responses.parts import Block

_HEAD = 12  # the longest mark by which a kind of image is known: that of webp


def mended(block: Block) -> Block:
    """An image with the media type that its bytes have: with another one the API refuses it."""
    source: Any = block.fields.get("source")
    data = _bytes_of(source) if block.fields["type"] == "image" else None
    real = media_type_of(data) if data else None
    if real not in IMAGE_TYPES or source.get("media_type") == real:
        return block
    return Block(block.where, {**block.fields, "source": {**source, "media_type": real}})


def image_flaws(block: Block, most_pixels: int) -> Iterator[str]:
    """What is wrong with the images in a block whose shape is right.

    One of which there is no more than the mark of its kind is left to the API: nothing in it is damaged.
    """
    for path, source in _sources(block.fields):
        data = _bytes_of(source)
        if data and len(data) > _HEAD and (why := image_flaw(data, most_pixels)):
            yield f"{block.where}.{path}: {why}"


def _sources(block: dict[str, JSON]) -> Iterator[tuple[str, Any]]:
    """The sources of the images that a block is or holds, and where they are."""
    source: Any = block.get("source")
    if block["type"] == "image":
        yield "source", source
    elif block["type"] == "document" and isinstance(source.get("content"), list):
        for index, each in enumerate(source["content"]):
            yield f"source.content[{index}].source", each.get("source")


def _bytes_of(source: Any) -> bytes | None:
    """The bytes of a source that holds its own."""
    data = source.get("data") if isinstance(source, dict) and source.get("type") == "base64" else None
    try:
        return base64.b64decode(data) if isinstance(data, str) else None
    except (binascii.Error, ValueError):
        return None
