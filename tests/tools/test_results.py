"""`content_of`: texts and content blocks stay, lists are content or data, invalid blocks are refused by path."""

from __future__ import annotations

import base64
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import TextBlock
from anthropic.types.beta import BetaTextBlock

from tests.tools.answering import BY_CODE, OF_TOOLSET, PDF, answer, error, png, send, text
from toolloop.responses import (
    EmptyResponse,
    FileResponse,
    JsonResponse,
    LinkResponse,
    RawOutputs,
    TextResponse,
    Unsendable,
)
from toolloop.tools import content_of

SHORT = {"type": "ephemeral"}
SAID: dict[str, Any] = {"type": "text", "text": "said"}
BLANK = {"type": "text", "text": " \n"}
URL_IMAGE: dict[str, Any] = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
DOCUMENT: dict[str, Any] = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}
FOUND: dict[str, Any] = {"type": "search_result", "source": "s", "title": "t", "content": [SAID]}
REFERENCE = {"type": "tool_reference", "tool_name": "look"}
BROWSER = {"type": "browser_state", "tabs": []}
PICTURE = FileResponse("a.png", "image/png", png())


class Word(StrEnum):
    YES = "yes"


def base64_image(data: str | bytes = "iVBORw0KGgo=", media_type: str = "image/png") -> dict[str, Any]:
    data = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def test_text_stays_and_values_become_json() -> None:
    """Blank text is left out. A mapping by itself is data."""
    cases: list[tuple[object, str]] = [
        (None, "ok"),
        (EmptyResponse(), "ok"),
        ("", ""),
        (" \n", ""),
        ("text\n", "text\n"),
        ("half \ud800 pair", "half \N{REPLACEMENT CHARACTER} pair"),
        (TextResponse("text"), "text"),
        (Word.YES, "yes"),
        (True, "true"),
        (SAID, '{"type":"text","text":"said"}'),
        (RawOutputs([]), ""),
        (RawOutputs([BLANK]), ""),
        ([BLANK], ""),
    ]
    for value, content in cases:
        assert content_of(value) == content


def test_content_blocks_stay_unchanged() -> None:
    """In a list, a tuple, a generator or `RawOutputs`; the content can be given again."""
    wrap_cases: list[Any] = [
        lambda block: [block],
        lambda block: (block,),
        lambda block: RawOutputs([block]),
        lambda block: iter([block]),
    ]
    block_cases: list[dict[str, Any]] = [
        SAID | {"cache_control": SHORT},
        URL_IMAGE,
        base64_image(),
        base64_image(png()),
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        DOCUMENT | {"title": "t", "context": "c", "citations": {"enabled": True}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
        FOUND,
        REFERENCE,
    ]
    for wrap in wrap_cases:
        for block in block_cases:
            assert send(wrap(block)) == [block]
            assert content_of(wrap(block)) == content_of(content_of(wrap(block))) == [block]


def test_content_is_a_copy_without_blank_text_blocks_and_lone_surrogates() -> None:
    """The tool may change its own list later."""
    blocks = [BLANK, URL_IMAGE, {"type": "text", "text": "\ud83d"}]
    content = content_of(blocks)
    assert content == [URL_IMAGE, {"type": "text", "text": "\N{REPLACEMENT CHARACTER}"}]
    assert content[0] is not URL_IMAGE
    assert len(blocks) == 3


def test_sdk_blocks_become_the_json_that_the_sdk_would_send() -> None:
    """Without the fields that were never set."""
    cases: list[Any] = [TextBlock, BetaTextBlock]
    for kind in cases:
        block = kind.construct(type="text", text="a")
        assert send([block]) == send(RawOutputs([block])) == text("a")


def test_a_list_of_blocks_and_responses_is_content() -> None:
    """In order."""
    blocks = send([TextResponse("Here:"), PICTURE, URL_IMAGE, LinkResponse("a", "b")])
    assert [block["type"] for block in blocks] == ["text", "image", "image", "text"]
    assert send([EmptyResponse(), EmptyResponse()]) == [*text("ok"), *text("ok")]


DATA: dict[str, tuple[Any, str]] = {
    "nothing": ([], "[]"),
    "texts": (["a", "b"], '["a","b"]'),
    "a response and a number": (
        [TextResponse("a"), LinkResponse("b", "c"), EmptyResponse(), JsonResponse({"d": 1}), 5],
        '["a",{"name":"b","url":"c"},null,{"d":1},5]',
    ),
    "paths": ([Path("a") / "b", Path("c")], '["a/b","c"]'),
    "bytes": ([b"a"], '["a"]'),
    "a text and a block": (["a", SAID], '["a",{"type":"text","text":"said"}]'),
    "a block and a number": ([URL_IMAGE | {"source": 1}, 5], '[{"type":"image","source":1},5]'),
    "rows of a type that is not a block": ([{"type": "dog", "name": "Rex"}], '[{"type":"dog","name":"Rex"}]'),
    "rows with a type that is not a text": ([{"type": ["text"]}], '[{"type":["text"]}]'),
    "rows with a text and more": (
        [SAID, {"type": "text", "text": "a", "author": "b"}],
        '[{"type":"text","text":"said"},{"type":"text","text":"a","author":"b"}]',
    ),
    "rows with a blank text and more": (
        [{"type": "text", "text": "", "author": "b"}],
        '[{"type":"text","text":"","author":"b"}]',
    ),
    "rows with a number": (
        [BLANK, {"type": "text", "text": 5}],
        '[{"type":"text","text":" \\n"},{"type":"text","text":5}]',
    ),
    "documents of a table": ([{"type": "document", "id": 5}], '[{"type":"document","id":5}]'),
}


def test_every_other_list_is_data() -> None:
    """One item that is neither a block nor a response is enough; nothing is lost, blank texts included."""
    for value, json in DATA.values():
        assert content_of(value) == json
        assert send(value) == text(json)
        assert content_of(iter(value)) == json


def test_raw_outputs_take_texts_files_and_responses(tmp_path: Path) -> None:
    """A path is its file."""
    path = tmp_path / "a.txt"
    path.write_text("in the file")
    outputs = RawOutputs(["Look:", path, b"bytes", TextResponse("b"), PICTURE, URL_IMAGE])
    assert send(outputs)[:4] == [*text("Look:"), *text("in the file"), *text("bytes"), *text("b")]
    assert [block["type"] for block in send(outputs)[4:]] == ["image", "image"]
    assert "No such file" in error(RawOutputs([tmp_path / "gone"]))


REFUSED: dict[str, tuple[Any, str]] = {
    "a call": (
        RawOutputs([{"type": "tool_use", "id": "a", "name": "b", "input": {}}]),
        "result[0] is a block of type tool_use",
    ),
    "a result of another call": (
        RawOutputs([SAID, {"type": "tool_result", "tool_use_id": "a"}]),
        "result[1] is a tool",
    ),
    "a block without a type": (RawOutputs([{"text": "a"}]), "result[0] is an object without a type"),
    "a row as raw output": (RawOutputs([{"type": "text", "text": 5}]), "result[0]"),
    "an unknown key": ([URL_IMAGE | {"alt": "x"}], "result[0]"),
    "an image without a source object": ([{"type": "image", "source": "x.png"}], "result[0]"),
    "an unknown media type": ([base64_image("QUFB", "image/bmp")], "result[0].source"),
    "invalid base64": ([base64_image("?")], "result[0].source"),
    "an image that is something else": ([base64_image("aGVsbG8gd29ybGQsIGhlbGxv")], "result[0].source"),
    "text beside a search result": ([SAID, FOUND], "a result holds either only those or none"),
    "a search result with a blank text": ([FOUND | {"content": [BLANK]}], "result[0].content[0]"),
    "a browser state for a plain tool": ([BROWSER], "result[0] is a block of type browser_state"),
    "a response inside data": ([{"a": PICTURE}], "it holds a FileResponse inside data"),
    "a response beside a text": (["caption", PICTURE], "combine several in RawOutputs([...])"),
}


def test_content_that_the_api_would_refuse_is_an_error_result() -> None:
    """The error names the place and the problem."""
    for value, says in REFUSED.values():
        told = error(value)
        assert told.startswith("The tool ran, but its result cannot be sent: ")
        assert says in told


def test_the_result_of_a_call_made_by_code_holds_only_text() -> None:
    """A file is named; any other block is refused."""
    assert send("text", asked=BY_CODE) == send([SAID | {"text": "text"}], asked=BY_CODE) == text("text")
    assert "cannot hold a block of type image" in send(PICTURE, asked=BY_CODE)[0]["text"]
    assert "may hold only text" in error([URL_IMAGE], asked=BY_CODE)


def test_the_result_of_a_toolset_member_holds_text_images_and_browser_states() -> None:
    """It repeats the name of the toolset."""
    assert answer([URL_IMAGE], asked=OF_TOOLSET)["toolset_name"] == "computer"
    pdf = FileResponse("a.pdf", "application/pdf", PDF)
    assert "cannot hold a block of type document" in send(pdf, asked=OF_TOOLSET)[0]["text"]
    assert "may hold only browser_state, image, text" in error([DOCUMENT], asked=OF_TOOLSET)
    assert send([BROWSER], asked=OF_TOOLSET) == [BROWSER]


def test_a_reference_to_an_unknown_tool_is_refused() -> None:
    """If the known names are given."""
    assert content_of([REFERENCE], known_tools={"look"}) == [REFERENCE]
    with pytest.raises(Unsendable, match=r"result\[0\] refers to the unknown tool 'look'"):
        content_of([REFERENCE], known_tools=set())


def test_the_content_of_an_error_may_not_be_empty() -> None:
    """The API refuses an error without text, and "ok" does not say what failed."""
    cases: list[Any] = ["", " ", None, [BLANK], RawOutputs([]), EmptyResponse()]
    for value in cases:
        with pytest.raises(ValueError, match="must not be empty; describe the error"):
            content_of(value, is_error=True)


def test_the_content_of_an_error_is_only_text() -> None:
    """Other blocks and files are named."""
    assert content_of([SAID, URL_IMAGE, FOUND], is_error=True) == [SAID, *text("[image]"), *text("[search_result]")]
    file = content_of(PICTURE, is_error=True)
    assert isinstance(file, str)
    assert file.startswith("a.png (image/png, ")
