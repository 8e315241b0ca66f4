"""How large images are, and how many there are (source: the API's documentation of vision).

Its numbers: 600 images in a request, 100 for a model with a context of 200,000 tokens. What a loop counts before it
looks at a whole request, and what the fake API refuses, are the same.
"""

from __future__ import annotations

import binascii
import io
from collections.abc import Iterator
from typing import Any, Final

from toolloop.core.blocks import MANY_IMAGES, MOST_PIXELS, MOST_PIXELS_OF_MANY, media_type_of
from toolloop.history.models import FEWEST_IMAGES, MOST_IMAGES, most_images
from toolloop.history.reading import Block, Run, kind_of
from toolloop.history.rules import Findings, Level

_HEAD: Final = 1 << 18  # characters of base64; the size of a picture stands somewhere in them


def check_images(runs: list[Run], findings: Findings, *, model: object) -> None:
    """Check the images of a request together: their count, and the size of each."""
    images = [image for run in runs for spot in run.spots for image in _images(spot.path, spot.block)]
    taken = most_images(model) or (MOST_IMAGES if len(images) > MOST_IMAGES else FEWEST_IMAGES)
    if len(images) > taken:
        level: Level | None = None if most_images(model) or taken == MOST_IMAGES else "warning"
        by_whom = " by every model" if level else ""
        message = f"there are {len(images)} images; at most {taken} are taken{by_whom}"
        findings.add("image-limits", images[taken][0], message, level=level)
    most = MOST_PIXELS if len(images) <= MANY_IMAGES else MOST_PIXELS_OF_MANY
    for path, block in images:
        side = max(size_of(block) or (0,))
        if side > most:
            findings.add("image-limits", path, f"the image is {side} pixels long or wide; at most {most} are taken")


def large_images(message: Any) -> int:
    """How many images of a message are too large to stand among many."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    images = [image for block in blocks for _, image in _images("", block)]
    return sum(max(size_of(image) or (0,)) > MOST_PIXELS_OF_MANY for image in images)


def _images(path: str, block: Any, depth: int = 2) -> Iterator[tuple[str, Block]]:
    """The images in a block: itself, and those inside results, and inside documents inside these."""
    kind = kind_of(block)
    if kind == "image":
        yield path, block
    inside, where = (block.get("source"), ".source") if kind == "document" else (block, "")
    content = inside.get("content") if kind in ("document", "tool_result") and isinstance(inside, dict) else None
    for index, inner in enumerate(content if isinstance(content, list) and depth else ()):
        yield from _images(f"{path}{where}.content[{index}]", inner, depth - 1)


def size_of(image: Block) -> tuple[int, int] | None:
    """Width and height of an image that is in the request; None where they cannot be read."""
    source = image.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    if not isinstance(data, str):
        return None
    import imagesize  # type: ignore[import-untyped]  # noqa: PLC0415 - a request without images does without it

    try:
        start = binascii.a2b_base64(data[:_HEAD])
        width, height = imagesize.get(io.BytesIO(start)) if media_type_of(start) else (-1, -1)
    except Exception:  # noqa: BLE001 - whatever a broken picture does to the reader, the API is to judge it
        return None
    return (int(width), int(height)) if width > 0 and height > 0 else None
