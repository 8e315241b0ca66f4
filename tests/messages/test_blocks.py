"""What a content block may hold, and what is said of one that holds something else."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given, strategies as st

from toolloop._messages.blocks import (
    IMAGE_TYPES,
    MOST_IMAGE_CHARACTERS,
    RESULT_KINDS,
    find_misfits,
    is_known,
    list_result_kinds,
    media_type_of,
)

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0 and so on").decode()
PDF = base64.b64encode(b"%PDF-1.75").decode()
RIFF = base64.b64encode(b"RIFF1234AVI ").decode()
LARGE = "/9j/" + "A" * MOST_IMAGE_CHARACTERS
MARK = {"type": "ephemeral", "ttl": "1h"}


def image(data: Any = PNG, media_type: Any = "image/png", **fields: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}, **fields}


def document(**source: Any) -> dict[str, Any]:
    return {"type": "document", "source": source}


def make_found(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "search_result", "source": "s", "title": "t", "content": list(content), **fields}


def text(words: Any = "x", **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


FITTING: list[dict[str, Any]] = [
    text(),
    text(cache_control=MARK, citations=[{"type": "char_location"}]),
    text(cache_control=None, citations=None),
    image(),
    image(cache_control={"type": "ephemeral"}),
    image(base64.b64encode(b"RIFF1234WEBP").decode(), "image/webp"),
    image(base64.b64encode(b"GIF89a").decode(), "image/gif", transformations={}),
    {"type": "image", "source": {"type": "url", "url": "https://x"}},
    {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
    document(type="base64", media_type="application/pdf", data=PDF),
    document(type="base64", media_type="application/pdf", data=PDF + "A" * MOST_IMAGE_CHARACTERS),
    document(type="base64", media_type="application/pdf", data=base64.b64encode(b" " * 1019 + b"%PDF-").decode()),
    document(type="text", media_type="text/plain", data=""),
    document(type="content", content="words"),
    document(type="content", content=[text(), image()]),
    {**document(type="url", url="https://x"), "title": "t", "context": None, "citations": {"enabled": True}},
    make_found(text(), citations={}),
    make_found(),
    {"type": "tool_reference", "tool_name": "add"},
    {"type": "browser_state", "tabs": [{"id": 1}], "state_changes": [{}]},
]

MISFITS: list[tuple[Any, str, str]] = [
    ("x", "", "the block is a string, not an object"),
    (None, "", "the block is null, not an object"),
    ({}, "", "the block has no type"),
    ({"type": "tool_use"}, "", "the block has the type 'tool_use'; it may be text, image"),
    ({"type": "text"}, "", "the block has no 'text'"),
    (text(3), "", "'text' is a number, not a string"),
    (text(""), "", "the text block is blank"),
    (text(" \n"), "", "the text block is blank"),
    (text(title="x"), "", "a text block has no key 'title'"),
    (text(citations="x"), "", "'citations' is a string, not a list"),
    (text(citations=[1]), "", "'citations[0]' is a number, not an object"),
    (text(cache_control=True), "", "'cache_control' is true or false, not an object"),
    (text(cache_control={}), "cache_control", "'cache_control' has no 'type'"),
    (text(cache_control={"type": "lasting"}), "cache_control", "'type' is 'lasting'; it may be ephemeral"),
    (text(cache_control={"type": "ephemeral", "ttl": 5}), "cache_control", "'ttl' is a number, not a string"),
    (text(cache_control={**MARK, "x": 1}), "cache_control", "'cache_control' has no key 'x'"),
    ({"type": "image"}, "", "the block has no 'source'"),
    ({"type": "image", "source": {"data": PNG}}, "source", "'source' has no type; it may be base64, url, file"),
    ({"type": "image", "source": {"type": "text"}}, "source", "'source' has the type 'text'; it may be base64"),
    ({"type": "image", "source": {"type": "url"}}, "source", "'source' has no 'url'"),
    ({"type": "image", "source": {"type": "file", "file_id": 1}}, "source", "'file_id' is a number, not a string"),
    (image(media_type="image/bmp"), "source", "'media_type' is 'image/bmp'; it may be image/jpeg, image/png"),
    (image(media_type=None), "source", "'media_type' is null, not a string"),
    (image(7), "source", "'data' is a number, not a string"),
    (image(""), "source", "'data' is empty"),
    (image("AAA"), "source", "'data' is not base64: Incorrect padding"),
    (image("AA A"), "source", "'data' is not base64: Only base64 data is allowed"),
    (image("ä=="), "source", "'data' is not base64"),
    (image(JPEG), "source", "'media_type' is 'image/png', but the bytes are image/jpeg"),
    (image(PDF), "source", "'media_type' is 'image/png', but the bytes are application/pdf"),
    (image("AAAA"), "source", "'media_type' is 'image/png', but the bytes are of another type"),
    (image(RIFF, "image/webp"), "source", "'media_type' is 'image/webp', but the bytes are of another type"),
    (image(LARGE, "image/jpeg"), "source", "the image has 5242884 characters of base64"),
    (document(type="base64", media_type="application/pdf", data="eA=="), "source", "the bytes are of another type"),
    (document(type="base64", media_type="image/png", data=PNG), "source", "it may be application/pdf"),
    (document(type="base64", media_type="application/pdf", data=PNG), "source", "the bytes are image/png"),
    (document(type="text", media_type="text/html", data="x"), "source", "it may be text/plain"),
    (document(type="content", content=[make_found()]), "source.content[0]", "has the type 'search_result'"),
    (document(type="content", content=[image("%")]), "source.content[0].source", "'data' is not base64"),
    (document(type="content", content=7), "source", "'content' is a number, not a list"),
    ({**document(type="url", url="u"), "title": 7}, "", "'title' is a number, not a string"),
    (make_found(citations={"enabled": "yes"}), "citations", "'enabled' is a string, not true"),
    (make_found(text(" ")), "content[0]", "the text block is blank"),
    (make_found(image()), "content[0]", "'content[0]' has the type 'image'; it may be text"),
    (make_found("words"), "", "'content[0]' is a string, not an object"),
    ({"type": "tool_reference", "tool_name": None}, "", "'tool_name' is null, not a string"),
    ({"type": "browser_state", "tabs": None}, "", "'tabs' is null, not a list"),
    (text(**{"k" * 1000: 1}), "", "a text block has no key 'kkk"),
]  # fmt: skip


def test_a_block_as_the_api_takes_it_has_no_misfits() -> None:
    assert [block for block in FITTING if find_misfits(block)] == []


def test_what_is_wrong_is_said_where_it_is() -> None:
    """One misfit, at its path inside the block; a value is never quoted at length."""
    for block, path, words in MISFITS:
        ((at, said),) = find_misfits(block)
        assert (at, words in said, len(said) < 200) == (path, True, True), (block, said)


def test_paths_start_at_the_path_of_the_block() -> None:
    assert find_misfits(make_found(text("")), "here") == [("here.content[0]", "the text block is blank")]
    assert find_misfits(image(""), "here")[0][0] == "here.source"
    assert find_misfits("x", "here")[0][0] == "here"


def test_all_that_is_wrong_is_said() -> None:
    broken = image("", "image/bmp", colour="red")
    assert [path for path, _ in find_misfits(broken)] == ["source", "source", ""]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "source", "content", "data", "text", "tabs", "ttl"]), inner)
    ),
    max_leaves=8,
)


@given(JSON, st.sampled_from(sorted(RESULT_KINDS)))
def test_whatever_the_block_is_it_is_judged(value: Any, kind: str) -> None:
    """Nothing raises, and each misfit has a text."""
    block = {**value, "type": kind} if isinstance(value, dict) else value
    assert all(said for _, said in find_misfits(block))


STARTS = st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF....WEBP", b"%PDF-"])


@given(STARTS, st.binary(max_size=20), st.sampled_from(IMAGE_TYPES))
def test_the_first_bytes_of_an_image_are_those_of_its_type(start: bytes, rest: bytes, media_type: str) -> None:
    """Whatever comes after them."""
    block = image(base64.b64encode(start + rest).decode(), media_type)
    assert bool(find_misfits(block)) == (media_type_of(start + rest) != media_type)


def test_some_calls_take_fewer_kinds_of_blocks() -> None:
    """What code asked for is text; a toolset shows things; only a toolset tells the state of a browser."""
    assert (
        list_result_kinds(by_code=True, toolset=None) == list_result_kinds(by_code=True, toolset="browser") == {"text"}
    )
    assert list_result_kinds(by_code=False, toolset="browser") == {"text", "image", "browser_state"}
    assert list_result_kinds(by_code=False, toolset=None) == RESULT_KINDS - {"browser_state"}


def test_a_type_is_known_if_its_places_are() -> None:
    """The results of server tools have one ending; also those of later ones stand with the assistant."""
    kinds = ("text", "container_upload", "fallback", "new_tool_result", "hologram")
    assert [kind for kind in kinds if is_known(kind)] == list(kinds[:-1])
