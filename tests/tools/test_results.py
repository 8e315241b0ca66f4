"""`content_of`: text stays, content blocks stay, and what the API would refuse is named."""

from __future__ import annotations

import base64
import pickle
from collections import UserString
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import TextBlock
from anthropic.types.beta import BetaTextBlock
from attrs import evolve, frozen

from tests.tools.answering import BY_CODE, OF_TOOLSET, PDF, answer, error, png, sent, text
from toolloop.responses import EmptyResponse, FileResponse, RawOutputs, TextResponse, Unsendable
from toolloop.tools import content_of
from toolloop.tools.responses.wording import Wording

SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
SAID: dict[str, Any] = {"type": "text", "text": "said"}
BLANK = {"type": "text", "text": " \n"}
URL_IMAGE: dict[str, Any] = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
DOCUMENT: dict[str, Any] = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}
FOUND: dict[str, Any] = {"type": "search_result", "source": "s", "title": "t", "content": [SAID]}
REFERENCE = {"type": "tool_reference", "tool_name": "look"}
BROWSER = {"type": "browser_state", "tabs": []}


class Word(StrEnum):
    YES = "yes"


def base64_image(data: str | bytes = "iVBORw0KGgo=", media_type: str = "image/png") -> dict[str, Any]:
    data = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, "ok"),
        (EmptyResponse(), "ok"),
        ("", ""),
        (" \n", ""),
        ("text\n", "text\n"),
        (TextResponse("text"), "text"),
        (Word.YES, "yes"),
        (UserString("text"), "text"),
        (RawOutputs([UserString("text")]), "text"),
        (True, "true"),
        ([], "[]"),
        ((), "[]"),
        ([{"type": "video"}], '[{"type":"video"}]'),
        ([{"type": ["text"]}], '[{"type":["text"]}]'),
        ([{"type": "text"}], '[{"type":"text"}]'),
        ([SAID, 1], '[{"type":"text","text":"said"},1]'),
        (SAID, '{"type":"text","text":"said"}'),
        (RawOutputs([]), ""),
        (RawOutputs([BLANK]), ""),
        ([BLANK], ""),
    ],
)
def test_text_stays_and_values_become_json(value: object, content: str) -> None:
    """Blank text is nothing."""
    assert content_of(value) == content


@pytest.mark.parametrize(
    "block",
    [
        SAID | {"cache_control": SHORT},
        URL_IMAGE,
        base64_image(),
        base64_image(png()),
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        DOCUMENT | {"title": "t", "context": "c", "citations": {"enabled": True}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
        FOUND,
        REFERENCE,
    ],
)
@pytest.mark.parametrize(
    "wrap",
    [lambda block: [block], lambda block: (block,), lambda block: RawOutputs([block]), lambda block: iter([block])],
)
def test_content_blocks_stay_as_they_are(block: dict[str, Any], wrap: Any) -> None:
    """To the last key, in a list, a tuple, a generator or `RawOutputs`."""
    assert sent(wrap(block)) == [block]
    assert content_of(wrap(block)) == [block]


def test_content_is_a_copy_without_blank_text_blocks_and_half_pairs() -> None:
    """What the tool keeps may change later."""
    blocks = [BLANK, URL_IMAGE, {"type": "text", "text": "\ud83d"}]
    content = content_of(blocks)
    assert content == [URL_IMAGE, {"type": "text", "text": "\N{REPLACEMENT CHARACTER}"}]
    assert content[0] is not URL_IMAGE
    assert len(blocks) == 3


@pytest.mark.parametrize("kind", [TextBlock, BetaTextBlock])
def test_blocks_of_the_sdk_are_taken_as_the_sdk_would_send_them(kind: Any) -> None:
    """Fields that were never set stay out."""
    block = kind.construct(type="text", text="a")
    assert sent([block]) == sent(RawOutputs([block])) == text("a")


def test_a_list_may_mix_texts_responses_and_blocks() -> None:
    """One after another, as they stand; `RawOutputs` likewise."""
    parts = ["Here:", FileResponse("a.png", "image/png", png()), URL_IMAGE, TextResponse("and"), None]
    blocks = sent(parts[:-1])
    assert [block["type"] for block in blocks] == ["text", "image", "image", "text"]
    assert sent(RawOutputs(parts[:-1])) == blocks
    assert "result[4] is null, not a content block" in error(parts)
    assert sent(["caption", URL_IMAGE]) == [*text("caption"), URL_IMAGE]
    assert sent([EmptyResponse(), EmptyResponse()]) == [*text("ok"), *text("ok")]


@pytest.mark.parametrize("file", [png(), bytearray(png()), memoryview(png()), PDF])
@pytest.mark.parametrize("kind", [list, tuple, RawOutputs])
def test_a_list_with_a_picture_among_texts_is_content(file: Any, kind: Any) -> None:
    """An image or a PDF is of no use as data; so a caption and its picture are just that."""
    (picture,) = sent(file)
    assert sent(kind([file])) == [picture]
    assert sent(kind(["caption", file, b"text"])) == [*text("caption"), picture, *text("text")]


@pytest.mark.parametrize("content", [TextResponse("a"), SAID, URL_IMAGE])
def test_a_path_or_bytes_among_content_are_a_file(content: Any, tmp_path: Path) -> None:
    """In a list that is content anyway, and in `RawOutputs`."""
    path = tmp_path / "a.txt"
    path.write_text("in the file")
    files = [*text("in the file"), *text("bytes")]
    (block,) = sent([content])
    assert sent([content, path, b"bytes"]) == sent(RawOutputs([content, path, b"bytes"])) == [block, *files]
    assert sent([path, content]) == [files[0], block]
    assert sent(RawOutputs([path])) == text("in the file")
    assert "No such file" in error([content, tmp_path / "gone"])


def test_a_list_of_nothing_but_paths_bytes_and_texts_is_data() -> None:
    """So a tool may list the files that there are, and the keys of a store."""
    assert content_of([Path("a") / "b", Path("c")]) == '["a/b","c"]'
    assert content_of(["a", Path("b")]) == '["a","b"]'
    assert content_of([b"a", b"\xff"]) == '["a","data:application/octet-stream;base64,/w=="]'
    assert str(content_of((1, png()))).startswith('[1,"data:image/png;base64,')
    assert content_of([]) == "[]"


ROWS: dict[str, list[Any]] = {
    "no text": [{"type": "text", "text": None}],
    "a number": [{"type": "text", "text": 5}],
    "another column": [{"type": "text", "text": "a", "author": "b"}],
    "a block and a row": [SAID, {"type": "text", "text": "a", "author": "b"}],
    "a blank row and a row": [BLANK, {"type": "text", "text": 5}],
    "a blank row with a column": [{"type": "text", "text": "", "author": "b"}],
    "documents of a table": [{"type": "document", "id": 5}],
    "steps of a transcript": [SAID, {"type": "thinking", "thinking": "hm", "signature": "x"}],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_rows_that_only_look_like_blocks_go_out_as_json(rows: list[Any]) -> None:
    """Nothing of them is lost, blank ones included."""
    assert sent(rows) == text(str(content_of(rows)))
    assert content_of(content_of(rows)) == content_of(rows)
    assert str(content_of(rows)).startswith('[{"type":')


MISFITS: dict[str, tuple[Any, str]] = {
    "a call": (
        RawOutputs([{"type": "tool_use", "id": "a", "name": "b", "input": {}}]),
        'result[0] is a block of the type "tool_use"',
    ),
    "a result": (
        RawOutputs([SAID, {"type": "tool_result", "tool_use_id": "a"}]),
        'result[1] is a block of the type "tool_result"',
    ),
    "thinking beside an image": (
        [URL_IMAGE, {"type": "thinking", "thinking": "hm", "signature": "x"}],
        'result[1] is a block of the type "thinking"',
    ),
    "a row as raw output": (RawOutputs([{"type": "text", "text": 5}]), "result[0]: 'text' is a number"),
    "an unknown key": ([URL_IMAGE | {"alt": "x"}], "result[0]: a image block has no key 'alt'"),
    "an image without a source object": ([{"type": "image", "source": "x.png"}], "result[0]: 'source' is a string"),
    "an unknown media type": ([base64_image("QUFB", "image/bmp")], "result[0].source: 'media_type' is 'image/bmp'"),
    "half of a base64": ([base64_image("A")], "result[0].source: 'data' is not base64"),
    "no base64": ([base64_image("?")], "result[0].source: 'data' is not base64"),
    "an image that is none": (
        [base64_image("aGVsbG8gd29ybGQsIGhlbGxv")],
        "result[0].source: 'media_type' is 'image/png'",
    ),
    "an image that is cut off": ([base64_image(png()[:20])], "result[0].source: the image is damaged or cut off"),
    "an image without pixels": ([base64_image(png(0, 0))], "result[0].source: the image is damaged or cut off"),
    "a damaged image in a document": (
        RawOutputs(
            [SAID, {"type": "document", "source": {"type": "content", "content": [SAID, base64_image(png()[:20])]}}]
        ),
        "result[1].source.content[1].source: the image is damaged or cut off",
    ),
    "a PDF that is none": (
        [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGVsbG8="}}],
        "result[0].source: 'media_type' is 'application/pdf'",
    ),
    "a number that is too long": (
        RawOutputs([SAID | {"text": "a", "cache_control": 10**5000}]),
        "result[0].cache_control cannot be written as JSON: Exceeds the limit",
    ),
    "an image and a number": ([URL_IMAGE, 5], "result[1] is a number, not a content block"),
    "an image and a blank type": ([URL_IMAGE, {"type": None}], "result[1] is a block of the type null"),
    "text beside a search result": ([SAID, FOUND], "if one block is a search_result, all must be"),
    "a search result without words": (
        [FOUND | {"content": [BLANK]}],
        "result[0].content[0]: the text block has no words",
    ),
    "some cited": (
        [FOUND, FOUND | {"citations": {"enabled": True}}],
        "citations enabled for some documents",
    ),
    "five cache marks": ([SAID | {"cache_control": SHORT}] * 5, "result has 5 cache marks, and a request takes 4"),
    "cache marks inside": (
        [FOUND | {"content": [SAID | {"cache_control": SHORT}] * 5}],
        "result has 5 cache marks",
    ),
    "a lasting mark after a short one": (
        [SAID | {"cache_control": SHORT}, SAID | {"cache_control": LONG}],
        "those that last longer must come first",
    ),
    "the state of no browser": ([BROWSER], "result[0] is a block of the type browser_state"),
    "files of more than a request": (
        [
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x" * 2_200_000},
            }
        ]
        * 2,
        "result holds files of 35,200,000 bytes as base64, and a result takes 32,505,856",
    ),
    "a hundred and one images": ([URL_IMAGE] * 101, "result holds 101 images, and a request takes 100"),
}


@pytest.mark.parametrize(("value", "says"), MISFITS.values(), ids=MISFITS)
def test_blocks_that_the_api_would_refuse_are_an_error_result(value: Any, says: str) -> None:
    """It says what is wrong, and where."""
    assert says in error(value)


@pytest.mark.parametrize(
    "blocks",
    [
        [SAID | {"cache_control": LONG}, SAID | {"cache_control": SHORT}, SAID],
        [SAID | {"cache_control": SHORT}] * 4,
        [FOUND] * 3,
        [URL_IMAGE] * 100,
    ],
)
def test_what_is_just_allowed_goes_out(blocks: list[Any]) -> None:
    """Four cache marks in order, search results among themselves, a hundred images."""
    assert sent(blocks) == blocks


def test_an_image_gets_the_media_type_that_its_bytes_have() -> None:
    """With another one the API refuses it, and nothing is lost by telling the truth."""
    assert sent([base64_image(media_type="image/webp")]) == [base64_image()]
    assert sent([base64_image(media_type="image/bmp")])


def test_a_call_made_by_code_takes_text_alone() -> None:
    """A file is named instead; a block that is no text is an error result."""
    assert sent("text", asked=BY_CODE) == sent([SAID | {"text": "text"}], asked=BY_CODE) == text("text")
    assert "may not hold an image" in sent(FileResponse("a.png", "image/png", png()), asked=BY_CODE)[0]["text"]
    assert "the result of this call may hold only text" in error([URL_IMAGE], asked=BY_CODE)


def test_a_member_of_a_toolset_takes_text_and_images_and_echoes_its_name() -> None:
    """A PDF is named instead; a document block is an error result; a browser tells its state, once."""
    assert answer([URL_IMAGE], asked=OF_TOOLSET)["toolset_name"] == "computer"
    assert "may not hold a document" in sent(FileResponse("a.pdf", "application/pdf", PDF), asked=OF_TOOLSET)[0]["text"]
    assert "may hold only browser_state and image and text" in error([DOCUMENT], asked=OF_TOOLSET)
    assert sent([BROWSER], asked=OF_TOOLSET) == [BROWSER]
    assert "more than one browser_state" in error([BROWSER, BROWSER], asked=OF_TOOLSET)


def test_a_reference_to_a_tool_that_is_not_known_is_refused() -> None:
    """Where the known ones are given."""
    assert content_of([REFERENCE], known_tools={"look"}) == [REFERENCE]
    with pytest.raises(ValueError, match=r"result\[0\] refers to the tool 'look', which is not known"):
        content_of([REFERENCE], known_tools=set())


def test_what_is_wrong_survives_pickling() -> None:
    """A value may be judged in another process."""
    with pytest.raises(Unsendable) as raised:
        content_of(object())
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (Unsendable, str(raised.value))


@pytest.mark.parametrize("value", ["", " ", None, [BLANK], RawOutputs([]), EmptyResponse()])
def test_the_content_of_an_error_may_not_be_empty(value: Any) -> None:
    """The API refuses an error without words, and "ok" is none."""
    with pytest.raises(ValueError, match="may not be empty; say what went wrong"):
        content_of(value, is_error=True)


def test_the_content_of_an_error_is_text_alone() -> None:
    """Other blocks are named in words, and so is a file."""
    content = content_of([SAID, URL_IMAGE, FOUND], is_error=True)
    assert content == [SAID, *text("[image]"), *text("[search_result]")]
    file = content_of(FileResponse("a.png", "image/png", png()), is_error=True)
    assert isinstance(file, str)
    assert file.startswith("The file 'a.png' (image/png, ")


@frozen
class Custom(Wording):
    """Other words, and one that cannot be said."""

    empty_text: str = "done"

    def name_file(self, name: str | None, mime_type: str, size: int, why: str) -> str:
        return "\ud800"


def test_the_words_may_be_others() -> None:
    """Whatever they are, they can be sent."""
    assert content_of(None, words=Custom()) == "done"
    assert content_of(None, words=evolve(Custom(), empty_text="")) == ""
    assert content_of(FileResponse("a.zip", "application/zip", b"\0"), words=Custom()) == "\N{REPLACEMENT CHARACTER}"
