"""The response adapter: each row of the table in the design, alone and subclassed."""

from __future__ import annotations

import logging
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
    OF_TOOLSET,
    PDF,
    answer,
    answer_and_after,
    error,
    read_said,
    send,
    text,
)
from toolloop import ToolRegistry
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

LINK = '{"name":"Docs","url":"https://example.org"}'
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
ZIP = FileResponse("a.zip", "application/zip", BINARY)


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
    "NaN": ({"a": float("nan")}, '{"a":null}', text('{"a":null}')),
    "list": ([1, "a"], '[1,"a"]', text('[1,"a"]')),
    "number": (1.5, "1.5", text("1.5")),
    "bool": (False, "false", text("false")),
    "attrs": (Box(3), '{"width":3}', text('{"width":3}')),
    "pydantic": (Person(name="Ana"), '{"name":"Ana"}', text('{"name":"Ana"}')),
    "text file": (FileResponse("a.md", "text/markdown", b"# A"), "a.md", text("# A")),
    "other file": (
        ZIP,
        "a.zip",
        text(
            "a.zip (application/zip, 6 bytes) is not shown: "
            "it is empty, or not a jpeg, png, gif or webp image, a PDF or text."
        ),
    ),
    "LinkResponse": (LinkResponse("Docs", "https://example.org"), LINK, text(LINK)),
    "EmptyResponse": (EmptyResponse(), "ok", text("ok")),
    "None": (None, "ok", text("ok")),
    "RawOutputs": (RawOutputs([IMAGE, *text("a")]), "[image]\na", [IMAGE, *text("a")]),
    "blocks": ([*text("a"), IMAGE], "a\n[image]", [*text("a"), IMAGE]),
}


def test_each_row_of_the_table() -> None:
    """Each kind has a plain text and one user message with one result."""
    for response, plain, content in TABLE.values():
        assert ADAPTER.to_plain_text(response) == plain
        assert ADAPTER.create_messages(CALL, response) == [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": content}]}
        ]
        assert send(response) == content


# --- subclasses ------------------------------------------------------------------------------------------------------


class Loud(AnthropicMessagesToolResponseAdapter):
    def to_plain_text(self, response: Any) -> str:
        return super().to_plain_text(response).upper() + "!"


def test_the_texts_of_a_result_are_made_by_to_plain_text() -> None:
    """Overriding the method changes the text that the model reads, also that of an error."""
    cases: list[Any] = [
        "words",
        TextResponse("words"),
        {"a": 1},
        LinkResponse("a", "b"),
        None,
        [1],
        Box(3),
        ValueError("no"),
    ]
    for response in cases:
        (block,) = answer(response, adapter=Loud())["content"]
        assert block["text"] == Loud().to_plain_text(response) == ADAPTER.to_plain_text(response).upper() + "!"


def test_a_subclass_with_bad_texts_emits_valid_results() -> None:
    """An error is never blank, and no result holds a lone surrogate."""
    cases: list[Any] = ["", " \n", "\ud800", None, 5]
    for plain in cases:

        class Bad(AnthropicMessagesToolResponseAdapter):
            def to_plain_text(self, response: Any) -> str:
                return plain  # type: ignore[no-any-return]  # noqa: B023 - used at once

        assert answer("text", adapter=Bad()).keys() >= {"content"}
        assert error(ValueError("no"), adapter=Bad()).strip()


def test_a_text_that_raises_is_an_error_result() -> None:
    """The call gets a result in any case."""

    class Broken(AnthropicMessagesToolResponseAdapter):
        def to_plain_text(self, response: Any) -> str:
            raise LookupError("missing text")

    assert "LookupError: missing text" in error("text", adapter=Broken())
    assert error(ValueError("no"), adapter=Broken()) == "ValueError: no"


def test_an_adapter_with_async_methods_is_refused_at_construction() -> None:
    """The constructor refuses a subclass, the registry any other adapter."""
    for name in ("create_messages", "to_plain_text"):

        async def method(*_: Any) -> Any: ...

        with pytest.raises(TypeError, match=rf"Later\.{name} is async; declare it with def"):
            type("Later", (AnthropicMessagesToolResponseAdapter,), {name: method})()
        both = {"create_messages": lambda *_: [], "to_plain_text": lambda *_: "", name: method}
        with pytest.raises(TypeError, match=rf"Own\.{name} is async"):
            ToolRegistry([], adapter=type("Own", (), both)())


# --- ready results and blocks of newer types --------------------------------------------------------------------------


def make_ready(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **more}


def test_a_ready_result_of_the_call_stands_for_the_result() -> None:
    """The other blocks follow it, as they were given; nothing follows the result of a call made by code."""
    assert send(RawOutputs([make_ready("a")])) == text("a")
    given = [*text("b"), make_ready([*text("a"), IMAGE]), IMAGE, "c", JsonResponse({"d": 1}), *text(" ")]
    assert answer_and_after(RawOutputs(given)) == (
        make_ready([*text("a"), IMAGE]),
        [*text("b"), IMAGE, *text("c"), *text('{"d":1}')],
    )
    assert send(RawOutputs([make_ready("a"), *text("b")]), asked=BY_CODE) == [*text("a"), *text("b")]
    assert error(RawOutputs([make_ready("no", is_error=True)])) == "no"
    assert "the content of an error must not be empty" in error(RawOutputs([make_ready([], is_error=True)]))
    assert "a tool_result of a call other than toolu_1" in error(RawOutputs([make_ready("a", tool_use_id="toolu_2")]))


def test_blocks_of_newer_types_are_passed_on_by_raw_outputs() -> None:
    """A list of such mappings is data."""
    newer = {"type": "hologram", "source": {"a": 1}}
    assert send(RawOutputs([newer, *text("a")])) == [newer, *text("a")]
    assert send([newer]) == text('[{"type":"hologram","source":{"a":1}}]')
    assert "may hold only text" in error(RawOutputs([newer]), asked=BY_CODE)


def test_a_block_that_a_result_may_not_hold_follows_it() -> None:
    """Where the user message may hold it; nothing follows the result of a call made by code."""
    upload = {"type": "container_upload", "file_id": "file_1"}
    page = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}
    newer = {"type": "hologram", "source": {"a": 1}}
    given = RawOutputs([upload, *text("a"), page, newer])
    assert answer_and_after(given) == ({**make_ready([*text("a"), page, newer])}, [upload])
    block, after = answer_and_after(given, asked=OF_TOOLSET)
    assert (block["content"], after) == (text("a"), [upload, page, newer])
    assert "may hold only text" in error(given, asked=BY_CODE)
    assert "not base64" in error(
        RawOutputs([{**page, "source": {"type": "base64", "media_type": "application/pdf", "data": "?"}}]),
        asked=OF_TOOLSET,
    )


def test_the_cache_mark_of_a_ready_result_is_kept() -> None:
    """A mark that the API would refuse is an error result."""
    mark = {"type": "ephemeral"}
    assert answer(RawOutputs([make_ready("a", cache_control=mark)])) == make_ready(text("a"), cache_control=mark)
    assert "it may be ephemeral" in error(RawOutputs([make_ready("a", cache_control={"type": "for ever"})]))
    assert ADAPTER.to_plain_text(RawOutputs([make_ready("a"), make_ready([*text("b"), IMAGE])])) == "a\nb\n[image]"


# --- the call --------------------------------------------------------------------------------------------------------


def test_a_call_without_an_id_raises() -> None:
    """A result needs the id of its call."""
    cases: list[Any] = [None, "", " ", 5, b"toolu_1"]
    for call_id in cases:
        for call in ({**CALL, "id": call_id}, ToolUseBlock.model_construct(**{**CALL, "id": call_id}), None):
            with pytest.raises(ValueError, match="expected a tool_use block with an id"):
                ADAPTER.create_messages(call, "text")


def test_the_adapter_works_alone() -> None:
    """It takes blocks of the SDK with their caller and toolset."""
    cases: list[Any] = [ToolUseBlock, BetaToolUseBlock]
    for kind in cases:
        assert answer("text", asked=CALL) == ADAPTER.create_messages(kind.model_validate(CALL), "text")[0]["content"][0]
        (block,) = ADAPTER.create_messages(kind.model_validate(BY_CODE), [IMAGE])[0]["content"]
        assert block["is_error"] is True
        (block,) = ADAPTER.create_messages(kind.model_construct(**OF_TOOLSET), "text")[0]["content"]
        assert block["toolset_name"] == "computer"


# --- the log ---------------------------------------------------------------------------------------------------------


def test_each_call_logs_one_event(caplog: pytest.LogCaptureFixture) -> None:
    """The record has attributes but no contents."""
    cases: list[tuple[Any, str, bool]] = [
        ("secret", "str", False),
        (FileResponse("secret", "a/b", b"secret"), "FileResponse", False),
        (ValueError("secret"), "ValueError", True),
        (object(), "object", True),
    ]
    caplog.set_level(logging.DEBUG, "toolloop")
    for response, kind, is_error in cases:
        caplog.clear()
        block = answer(response)
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("toolloop.tools", "INFO")
        told = {key: vars(record)[key] for key in ("tool", "call_id", "response_type", "is_error")}
        assert told == {"tool": "look", "call_id": "toolu_1", "response_type": kind, "is_error": is_error}
        assert vars(record)["size"] >= len(block["content"][0]["text"])
        assert record.getMessage().startswith(f"tool call answered: look, {kind}, ")
        assert "secret" not in caplog.text


def test_a_log_handler_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The result is the same as without it."""

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the disk is full")

    caplog.set_level(logging.INFO, "toolloop")
    handler = Raising()
    logging.getLogger("toolloop.tools").addHandler(handler)
    try:
        assert read_said("text") == "text"
        assert error(ValueError("no")) == "ValueError: no"
    finally:
        logging.getLogger("toolloop.tools").removeHandler(handler)


# --- errors and long texts -------------------------------------------------------------------------------------------


def test_a_text_over_the_limit_is_cut_with_a_note() -> None:
    """By default at 200,000 characters; other blocks and cache marks stay."""
    adapter = AnthropicMessagesToolResponseAdapter(max_chars=10)
    note = "\n[Cut: 20 of 30 characters left out.]"
    assert read_said("x" * 30, adapter=adapter) == "x" * 10 + note
    assert read_said("x" * 10, adapter=adapter) == "x" * 10
    assert error(ToolError("x" * 30), adapter=adapter) == "x" * 10 + note
    assert read_said(list(range(100)), adapter=adapter).startswith("[0,1,2,3,4\n[Cut: ")
    marked = {**text("x" * 30)[0], "cache_control": {"type": "ephemeral"}}
    assert send([marked, IMAGE], adapter=adapter) == [{**marked, "text": "x" * 10 + note}, IMAGE]
    assert read_said("x" * 300_000).endswith("[Cut: 100,000 of 300,000 characters left out.]")
    assert len(read_said("x" * 300_000, adapter=AnthropicMessagesToolResponseAdapter(max_chars=None))) == 300_000


def test_a_known_block_that_no_result_may_hold_is_an_error_result() -> None:
    """The request would be refused: only blocks of unknown types pass."""
    for kind in ("tool_addition", "thinking", "server_tool_use", "web_tool_result"):
        told = answer(RawOutputs([{"type": kind, "file_id": "f"}]))
        assert told["is_error"] is True
        assert f"block of type {kind}" in told["content"][0]["text"]


def test_a_result_with_more_cache_marks_than_a_request_takes_is_an_error_result() -> None:
    """The next request could not be sent."""
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    assert "is_error" not in answer(RawOutputs([marked] * 4))
    assert "it has 5 cache marks" in answer(RawOutputs([marked] * 5))["content"][0]["text"]


def test_the_rows_of_pdf_files_and_paths(tmp_path: Path) -> None:
    """A PDF becomes a document block; a path stands for its file."""
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    for response in (FileResponse("a.pdf", "application/pdf", PDF), path):
        assert ADAPTER.to_plain_text(response) == "a.pdf"
        assert [block["type"] for block in send(response)] == ["document"]


def test_a_server_call_raises() -> None:
    """The server answers it itself, so the API would refuse the result."""
    with pytest.raises(ValueError, match="for a block of type 'server_tool_use'"):
        ADAPTER.create_messages({"type": "server_tool_use", "id": "srvtoolu_1", "name": "a"}, "text")


def test_a_limit_that_is_not_positive_is_refused() -> None:
    """The constructor raises."""
    for bad in (0, -1):
        with pytest.raises(ValueError, match="max_chars"):
            AnthropicMessagesToolResponseAdapter(max_chars=bad)


def test_a_ready_result_needs_a_text_or_a_list_as_content() -> None:
    cases: list[Any] = [5, {"type": "text", "text": "hello"}]
    for content in cases:
        told = answer(RawOutputs([{"type": "tool_result", "tool_use_id": CALL["id"], "content": content}]))
        assert "result[0].content is neither a text nor a list" in told["content"][0]["text"]
