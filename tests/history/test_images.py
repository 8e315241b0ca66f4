"""How large images are, as far as it can be read."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.history.bodies import HI, PNG, answered, assistant, body, call, image, png, result, user
from toolloop.history import check
from toolloop.history.images import large_images, size_of

JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(9) + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 9000, 40) + bytes(10)
)
GIF = b"GIF89a" + struct.pack("<HH", 9001, 1) + bytes(3)
WEBP = b"RIFF\x1a\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x27\x23\x00\x09\x00\x00"


def limits(request: dict[str, Any]) -> list[tuple[str, str]]:
    return [(found.path, found.level) for found in check(request["messages"]) if found.rule == "image-limits"]


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (png(3, 4), (3, 4)),
        (image(JPEG, "image/jpeg"), (40, 9000)),
        (image(GIF, "image/gif"), (9001, 1)),
        (image(WEBP, "image/webp"), (9000, 10)),
        (PNG, None),
        (image(b"not a picture"), None),
        (image(JPEG[:12], "image/jpeg"), None),
        (image("%"), None),
        (image(7), None),  # type: ignore[arg-type] # a broken block
        ({"type": "image", "source": {"type": "url", "url": "https://e.x/i.png"}}, None),
        ({"type": "image", "source": None}, None),
    ],
    ids=lambda part: str(part)[:60],
)
def test_the_size_is_read_where_it_stands_in_the_first_bytes(block: dict[str, Any], size: Any) -> None:
    """Of every type of image that the API takes; what cannot be read has none."""
    assert size_of(block) == size


@pytest.mark.parametrize("block", [image(JPEG, "image/jpeg"), image(GIF, "image/gif"), image(WEBP, "image/webp")])
def test_an_image_of_too_many_pixels_is_found_wherever_it_stands(block: dict[str, Any]) -> None:
    document = {"type": "document", "source": {"type": "content", "content": [PNG, block]}}
    found = limits(body(HI, assistant(call()), user(result(content=[block, document]), block, document)))
    assert [path for path, _ in found] == [
        "messages[2].content[0].content[0]",
        "messages[2].content[0].content[1].source.content[1]",
        "messages[2].content[1]",
        "messages[2].content[2].source.content[1]",
    ]


def test_of_many_images_each_has_to_be_smaller() -> None:
    """And of more than a hundred it is not certain that an unknown model takes them."""
    large = png(2001, 1)
    assert limits(answered(content=[PNG] * 19 + [large])) == []
    assert limits(answered(content=[PNG] * 20 + [large])) == [("messages[2].content[0].content[20]", "error")]
    assert limits(answered(content=[PNG] * 100)) == []
    assert limits(answered(content=[PNG] * 101)) == [("messages[2].content[0].content[100]", "warning")]
    assert limits(answered(content=[PNG] * 601)) == [("messages[2].content[0].content[600]", "error")]


def test_what_is_nested_deeper_than_the_api_allows_is_left_alone() -> None:
    """However deep: nothing raises."""
    block: dict[str, Any] = png(9000, 1)
    for _ in range(5000):
        block = {"type": "document", "source": {"type": "content", "content": [block]}}
    assert limits(answered(content=[block])) == []


def test_large_images_of_a_message_are_counted_wherever_they_stand() -> None:
    """Beside results, and inside them; a message of words has none."""
    large, small = png(2001, 1), png(2000, 1)
    assert large_images({"role": "user", "content": [large, small, result("a", [large, small])]}) == 2
    assert large_images(HI) == 0
    assert large_images({"model": "claude-opus-5-5"}) == 0
