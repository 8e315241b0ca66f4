"""The response adapter: every row of its table, every line of its checklists, on its own and subclassed."""

from __future__ import annotations

import base64
import logging
from datetime import date
from pathlib import Path
from typing import Any

import attrs
import pytest
from anthropic.types import ToolUseBlock
from anthropic.types.beta import BetaToolUseBlock
from pydantic import BaseModel

from tests.tools.answering import (
    ADAPTER,
    BINARY,
    BY_CODE,
    CALL,
    IMAGES,
    OF_TOOLSET,
    PDF,
    answer,
    error,
    png,
    said,
    sent,
    text,
)
from toolloop.responses import (
    AnthropicMessagesToolResponseAdapter,
    EmptyResponse,
    FileResponse,
    JsonResponse,
    LinkResponse,
    RawOutputs,
    TextResponse,
)
from toolloop.tools import ToolError
from toolloop.tools.responses.raised import Content

LINK = '{"name":"Docs","url":"https://example.org"}'
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}


@attrs.frozen
class Box:
    width: int


class Person(BaseModel):
    name: str


TABLE: dict[str, tuple[Any, str, Any]] = {
    "str": ("words", "words", text("words")),
    "TextResponse": (TextResponse("words"), "words", text("words")),
    "JsonResponse": (JsonResponse({"a": [1]}), '{"a":[1]}', text('{"a":[1]}')),
    "dict": ({"a": 1}, '{"a":1}', text('{"a":1}')),
    "list": ([1, "a"], '[1,"a"]', text('[1,"a"]')),
    "number": (1.5, "1.5", text("1.5")),
    "bool": (False, "false", text("false")),
    "attrs": (Box(3), '{"width":3}', text('{"width":3}')),
    "pydantic": (Person(name="Ana"), '{"name":"Ana"}', text('{"name":"Ana"}')),
    "text file": (FileResponse("a.md", "text/markdown", b"# A"), "a.md", text("# A")),
    "other file": (
        FileResponse("a.zip", "application/zip", BINARY),
        "a.zip",
        text("The file 'a.zip' (application/zip, 6 bytes) is not shown: it is neither an image, a PDF nor text."),
    ),
    "LinkResponse": (LinkResponse("Docs", "https://example.org"), LINK, text(LINK)),
    "EmptyResponse": (EmptyResponse(), "ok", text("ok")),
    "None": (None, "ok", text("ok")),
    "RawOutputs": (RawOutputs([IMAGE, *text("a")]), "[image]\na", [IMAGE, *text("a")]),
    "blocks": ([*text("a"), IMAGE], "a\n[image]", [*text("a"), IMAGE]),
}


@pytest.mark.parametrize(("response", "plain", "content"), TABLE.values(), ids=TABLE)
def test_every_row_of_the_table(response: Any, plain: str, content: Any) -> None:
    """What is returned, its plain text, and what is sent. The user message holds the one result and nothing else."""
    assert ADAPTER.to_plain_text(response) == plain
    assert ADAPTER.create_messages(CALL, response) == [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": content}]}
    ]
    assert sent(response) == content


@pytest.mark.parametrize("media_type", IMAGES)
def test_the_row_of_image_files(media_type: str) -> None:
    """jpeg, png, gif and webp are image blocks; the plain text is the name."""
    response = FileResponse("a.img", media_type, IMAGES[media_type])
    data = base64.b64encode(response.data).decode()
    assert ADAPTER.to_plain_text(response) == "a.img"
    assert sent(response) == [{"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}]


def test_the_rows_of_pdf_files_and_paths(tmp_path: Path) -> None:
    """A PDF is a document block; a path is its file."""
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    for response in (FileResponse("a.pdf", "application/pdf", PDF), path):
        assert ADAPTER.to_plain_text(response) == "a.pdf"
        assert [block["type"] for block in sent(response)] == ["document"]


# --- the two checklists that the adapter comes from ------------------------------------------------------------------


def test_own_instance_or_subclass_must_still_emit_valid_tool_result_schema() -> None:
    """A subclass whose every word is bad still gives a result that the API takes."""

    class Bad(AnthropicMessagesToolResponseAdapter):
        empty_text = " "

        def name_file(self, name: str | None, mime_type: str, size: int, why: str) -> str:
            return ""

        def cut_note(self, left_out: int, whole: int) -> str:
            return ""

        def describe(self, error: BaseException) -> Content:
            return [{"type": "text", "text": "\ud800"}, IMAGE]

    bad = Bad(max_chars=1)
    assert sent(None, adapter=bad) == ""
    assert sent(FileResponse("a.zip", "application/zip", BINARY), adapter=bad) == ""
    assert said("long", adapter=bad) == "[Cut: 4 of 4 characters are left out.]"
    assert error(ValueError("no"), adapter=bad) == "[Cut: 8 of 8 characters are left out.]"


@pytest.mark.parametrize("raises", ["name_file", "cut_note", "describe"])
def test_a_method_of_a_subclass_that_raises_is_an_error_result(raises: str) -> None:
    """Not a crash: the call must get its result."""

    def fail(*_: Any) -> Any:
        raise LookupError("no word for it")

    broken = type("Broken", (AnthropicMessagesToolResponseAdapter,), {raises: fail})(max_chars=30)
    for response in (FileResponse("a.zip", "application/zip", BINARY), "x" * 60, ValueError("no" * 60)):
        assert answer(response, adapter=broken)["content"]
    assert error(ValueError("no"), adapter=broken).strip()


def test_a_subclass_says_it_in_its_own_words() -> None:
    """Each text is a small method, or an attribute."""

    class Terse(AnthropicMessagesToolResponseAdapter):
        empty_text = "Done."

        def name_file(self, name: str | None, mime_type: str, size: int, why: str) -> str:
            return f"<{name} {mime_type} {size}: {why}>"

        def cut_note(self, left_out: int, whole: int) -> str:
            return f"[{left_out}/{whole}]"

        def describe(self, error: BaseException) -> Content:
            return f"Oh no: {type(error).__name__}"

    terse = Terse(max_chars=12)
    assert said(None, adapter=terse) == terse.to_plain_text(None) == "Done."
    assert said("x" * 20, adapter=terse) == "xxxxx[15/20]"
    assert error(KeyError("x"), adapter=terse) == "Oh no[10/15]"
    assert error(object(), adapter=Terse()) == "Oh no: Unsendable"
    assert said(FileResponse("a", "image/bmp", b"BM"), adapter=Terse()).startswith("<a.bmp image/bmp 2: only jpeg")


def test_raw_outputs_are_passed_through_bypassing_plain_text() -> None:
    """As blocks of the Messages API; the plain text of them is for hosts and logs alone."""
    blocks = [*text("a"), IMAGE]
    assert sent(RawOutputs(blocks)) == blocks
    assert ADAPTER.to_plain_text(RawOutputs(blocks)) == "a\n[image]"


@pytest.mark.parametrize("call_id", [None, "", " ", 5, b"toolu_1"])
def test_an_error_is_raised_if_the_tool_use_block_has_no_id(call_id: Any) -> None:
    """A result without one answers no call."""
    for call in ({**CALL, "id": call_id}, ToolUseBlock.model_construct(**{**CALL, "id": call_id})):
        with pytest.raises(ValueError, match="the tool_use block has no id"):
            ADAPTER.create_messages(call, "text")


@pytest.mark.parametrize("call", [{"type": "tool_use", "name": "a"}, {}, None, "toolu_1"])
def test_an_error_is_raised_if_the_id_is_missing(call: Any) -> None:
    """Of a mapping, and of something that is no block at all."""
    with pytest.raises(ValueError, match="has no id"):
        ADAPTER.create_messages(call, "text")


def test_an_error_is_raised_for_a_block_that_no_tool_result_answers() -> None:
    """A call that the server answers itself, for one."""
    with pytest.raises(ValueError, match="not a block of the type 'server_tool_use'"):
        ADAPTER.create_messages({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}, "text")


@pytest.mark.parametrize("call_id", ["a b", "é", "\ud800", "a\n", "toolu.1"])
def test_an_error_is_raised_for_an_id_that_no_tool_use_may_have(call_id: str) -> None:
    """The API refuses a result of it."""
    with pytest.raises(ValueError, match="an id has only letters, digits, _ and -"):
        ADAPTER.create_messages({**CALL, "id": call_id}, "text")


@pytest.mark.parametrize("call_id", ["srvtoolu_1", "mcptoolu_1"])
def test_an_error_is_raised_for_the_id_of_a_call_that_the_server_answers(call_id: str) -> None:
    """Also where nothing says what kind of block it is."""
    with pytest.raises(ValueError, match=f"the server answers the call {call_id} itself"):
        ADAPTER.create_messages({"id": call_id, "name": "web_search"}, "text")


@pytest.mark.parametrize("kind", [ToolUseBlock, BetaToolUseBlock])
def test_the_adapter_is_usable_stand_alone(kind: Any) -> None:
    """With a block of the SDK, nothing else at hand; caller and toolset of it are heeded."""
    assert answer("text", asked=CALL) == ADAPTER.create_messages(kind.model_validate(CALL), "text")[0]["content"][0]
    by_code = kind.model_validate(BY_CODE)
    (block,) = ADAPTER.create_messages(by_code, [IMAGE])[0]["content"]
    assert block["is_error"] is True
    (block,) = ADAPTER.create_messages(kind.model_construct(**OF_TOOLSET), "text")[0]["content"]
    assert block["toolset_name"] == "computer"


@pytest.mark.parametrize(
    ("response", "kind", "is_error"),
    [
        ("secret", "str", False),
        (FileResponse("secret", "a/b", b"secret"), "FileResponse", False),
        (ValueError("secret"), "ValueError", True),
        (object(), "object", True),
    ],
)
def test_a_log_event_is_emitted_when_tools_are_called(
    response: Any, kind: str, is_error: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One per call, with its parts as attributes, and nothing of the contents."""
    caplog.set_level(logging.DEBUG, "toolloop")
    block = answer(response)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("toolloop.tools", "INFO")
    told = {key: vars(record)[key] for key in ("tool", "call_id", "response_type", "is_error")}
    assert told == {"tool": "look", "call_id": "toolu_1", "response_type": kind, "is_error": is_error}
    assert vars(record)["size"] >= len(block["content"][0]["text"])
    assert record.getMessage().startswith(f"a tool call got its result: look, {kind}, ")
    assert "secret" not in caplog.text


def test_failure_is_an_error_with_its_text_and_success_says_nothing_of_errors() -> None:
    """`is_error` is there only where something failed."""
    assert answer(ToolError("full")) == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": text("full"),
        "is_error": True,
    }
    assert "is_error" not in answer("fine")


def test_results_go_in_the_content_array_of_one_user_message() -> None:
    """So that a loop may put those of several calls into one message."""
    ((message,), (other,)) = (ADAPTER.create_messages({**CALL, "id": name}, name) for name in ("one", "two"))
    assert message.keys() == other.keys() == {"role", "content"}
    assert message["role"] == "user"
    assert [block["tool_use_id"] for block in message["content"] + other["content"]] == ["one", "two"]


def test_content_may_be_an_array_of_text_image_search_result_and_document_blocks() -> None:
    """Search results only among themselves; what is blank is no block, and then the content is an empty string."""
    found = {"type": "search_result", "source": "s", "title": "t", "content": text("a")}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}
    for blocks in ([*text("a"), IMAGE, document], [found, found]):
        assert sent(blocks) == blocks
    assert sent(" ") == sent([*text("\n"), *text("")]) == ""


def test_the_id_of_the_result_is_that_of_the_call() -> None:
    """Exactly, whatever it looks like."""
    assert answer("text", asked={**CALL, "id": "call_0-Z"})["tool_use_id"] == "call_0-Z"


# --- the limit of size -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        (0, ValueError, "max_chars is 0"),
        (-1, ValueError, "max_chars is -1"),
        (True, TypeError, "max_chars is a bool"),
        (1.5, TypeError, "is a float"),
        ("1", TypeError, "is a str"),
    ],
)
def test_a_bad_limit_is_refused_by_name(bad: Any, kind: type[Exception], says: str) -> None:
    """At once."""
    with pytest.raises(kind, match=says):
        AnthropicMessagesToolResponseAdapter(max_chars=bad)


def test_a_text_over_the_limit_is_cut_with_a_note_that_says_how_much() -> None:
    """The note counts too, where there is room for it."""
    adapter = AnthropicMessagesToolResponseAdapter(max_chars=1000)
    told = said("x" * 5000, adapter=adapter)
    kept = told.count("x")
    assert len(told) <= 1000
    assert told == "x" * kept + f"\n[Cut: {5000 - kept:,} of 5,000 characters are left out.]"
    assert said("x" * 1000, adapter=adapter) == "x" * 1000
    assert len(error(ToolError("x" * 5000), adapter=adapter)) <= 1000


def test_data_over_the_limit_is_cut_as_text() -> None:
    """Half of its JSON is still of use."""
    adapter = AnthropicMessagesToolResponseAdapter(max_chars=100)
    assert said(list(range(1000)), adapter=adapter).startswith("[0,1,2,")


def test_the_limit_counts_over_all_text_blocks() -> None:
    """Those that are beyond it go, other blocks stay, and cache marks stay with what is kept."""
    adapter = AnthropicMessagesToolResponseAdapter(max_chars=100)
    mark = {"cache_control": {"type": "ephemeral"}}
    blocks = [*text("a" * 20), {**text("b" * 200)[0], **mark}, IMAGE, *text("c"), *text("d" * 500)]
    first, second, third = sent(blocks, adapter=adapter)
    assert (first, third) == (text("a" * 20)[0], IMAGE)
    assert second["text"].startswith("bbb")
    assert second["text"].endswith("of 721 characters are left out.]")
    assert second["cache_control"] == {"type": "ephemeral"}
    assert len(first["text"]) + len(second["text"]) <= 100


def test_texts_inside_search_results_and_documents_count() -> None:
    """A source that is cut says so in its own words, and one beyond the limit has nothing but the note."""
    adapter = AnthropicMessagesToolResponseAdapter(max_chars=100)
    found = [{"type": "search_result", "source": "s", "title": "t", "content": text("a" * 90)} for _ in range(2)]
    first, second = sent(found, adapter=adapter)
    note = second["content"][0]["text"]
    assert note.startswith("[Cut: ")
    assert first["content"][0]["text"] == "a" * (100 - len(note) - 1) + "\n" + note
    sources = ({"type": "text", "media_type": "text/plain"}, "data"), ({"type": "content"}, "content")
    for source, key in sources:
        (document,) = sent([{"type": "document", "source": {**source, key: "b" * 300}}], adapter=adapter)
        assert document["source"][key].endswith("of 300 characters are left out.]")
        assert len(document["source"][key]) <= 100
    (document,) = sent(
        [{"type": "document", "source": {"type": "content", "content": text("c" * 300)}}], adapter=adapter
    )
    assert document["source"]["content"][0]["text"].endswith("of 300 characters are left out.]")


@pytest.mark.parametrize("response", ["x" * 50, text("x" * 50), RawOutputs([IMAGE, *text(" " * 5 + "x" * 50)])])
def test_a_limit_without_room_for_the_note_leaves_the_note(response: Any) -> None:
    """Silence would be a lie."""
    content = sent(response, adapter=AnthropicMessagesToolResponseAdapter(max_chars=3))
    assert "characters are left out.]" in content[-1]["text"]


def test_without_a_limit_nothing_is_cut() -> None:
    """By default it is 200,000 characters."""
    long = "x" * 300_000
    assert said(long, adapter=AnthropicMessagesToolResponseAdapter(max_chars=None)) == long
    assert len(said(long)) <= 200_000


# --- exceptions as responses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("exc", [ValueError("no"), KeyboardInterrupt(), ExceptionGroup("many", [OSError("a")])])
def test_an_exception_is_an_error_result(exc: BaseException) -> None:
    """So that the adapter is of use to who catches it."""
    assert type(exc).__name__ in error(exc)
    assert type(exc).__name__ in ADAPTER.to_plain_text(exc)


def test_the_same_response_gives_the_same_bytes() -> None:
    """From call to call."""
    for response in ({"b", "a"}, {"d": date(2024, 1, 1)}, png(), object(), ValueError(object())):
        assert ADAPTER.create_messages(CALL, response) == ADAPTER.create_messages(CALL, response)
