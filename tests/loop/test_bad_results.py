"""Malformed tool results and exceptions: the model gets a result that the API accepts, and the loop goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from tests.each import each
from tests.loop.support import params, refused, results_in, scene
from toolloop import Continue, ToolError, tool
from toolloop.errors import IllegalCommand
from toolloop.testing import call, reply

SAID = {"type": "text", "text": "said"}
LOOKUP = {"name": "lookup", "input_schema": {"type": "object"}}
SHORT = {"type": "ephemeral"}


def image(**source: Any) -> list[Any]:
    return [{"type": "image", "source": source}]


def document(source: Any, **more: Any) -> list[Any]:
    return [{"type": "document", "source": source, **more}]


def found(content: Any) -> dict[str, Any]:
    return {"type": "search_result", "source": "s", "title": "t", "content": content}


# Rows of a program that happen to have a "type" and a "text".
ROWS: dict[str, list[dict[str, Any]]] = {
    "no text": [{"type": "text", "text": None}],
    "a number": [{"type": "text", "text": 5}],
    "another column": [{"type": "text", "text": "a", "author": "b"}],
    "a cache mark that is none": [{**SAID, "cache_control": "x"}],
    "a cache mark of another type": [{**SAID, "cache_control": {"type": "x"}}],
    "text that is a block, and a row": [SAID, {"type": "text", "text": "a", "author": "b"}],
}
# Blocks that the API refuses in a result: what they are is clear, and what is wrong with them can be said.
MISFITS: dict[str, list[Any]] = {
    "a document without a source object": document("wikipedia"),
    "an image without a source object": [{"type": "image", "source": "x.png"}],
    "text beside a search result": [SAID, found([SAID])],
    "a search result whose content is no list": [found("text")],
}
# Likewise, in the depth of a block.
DEEP_MISFITS: dict[str, list[Any]] = {
    "an image of another kind": image(type="base64", media_type="image/bmp", data="aaaa"),
    "an image without data": image(type="base64", media_type="image/png"),
    "a document of another kind": document({"type": "base64", "media_type": "application/zip", "data": "aaaa"}),
    "a document without a kind of source": document({}),
    "a document whose address is none": document({"type": "url", "url": 5}),
    "a document whose title is none": document({"type": "text", "media_type": "text/plain", "data": "x"}, title=5),
    "an image in a search result": [found(image(type="base64", media_type="image/png", data="aaaa"))],
    "a reference to a tool that is not there": [{"type": "tool_reference", "tool_name": "nothing"}],
    "a reference to no name": [{"type": "tool_reference", "tool_name": 5}],
}
ALL_MISFITS = MISFITS | DEEP_MISFITS


def result_of(function: Callable[[], Any]) -> dict[str, Any]:
    """The result that goes out for a tool that does this. The API takes it, and the loop ends naturally."""

    @tool
    def odd() -> Any:
        """Do something odd."""
        return function()

    with scene([reply(calls=[("odd", {})]), reply("fine")], tools=[odd]) as at:
        assert at.turn().reason == "tools_executed"
        at.handle.resume(Continue())
        assert at.done().text == "fine"
        (result,) = results_in(at.sent()[-1])
        return dict(result)


@each("value", ROWS.values())
def test_rows_that_only_look_like_text_blocks_go_out_as_json(value: list[Any]) -> None:
    """They are what the tool has to say, so nothing of them is lost, and it is no error."""
    result = result_of(lambda: value)
    assert (json.loads(result["content"]), result.get("is_error")) == (value, None)


def test_a_row_with_a_blank_text_is_not_lost() -> None:
    """Blank text leaves content blocks, not data."""
    rows = [{"type": "text", "text": "", "author": "a"}, {"type": "text", "text": "b", "author": "b"}]
    assert json.loads(result_of(lambda: rows)["content"]) == rows


@each("value", ALL_MISFITS.values())
def test_blocks_that_the_api_would_refuse_are_an_error_result(value: list[Any]) -> None:
    """The model is told what was wrong with them; the request with that result is accepted."""
    result = result_of(lambda: value)
    assert result["is_error"] is True
    assert result["content"].strip()


@each("value", ALL_MISFITS.values())
def test_an_answer_of_such_blocks_is_refused_to_who_gives_it(value: list[Any]) -> None:
    """At the door, before anything is recorded; another answer is taken."""
    script = [reply(calls=[call("lookup", id="toolu_1")]), reply("fine")]
    with scene(script, tools=[], asked=params(tools=[LOOKUP])) as at:
        turn = at.turn()
        with refused(at.handle, IllegalCommand, "toolu_1", "cannot be sent"):
            turn.answer("toolu_1", value)
        turn.answer("toolu_1", "in words")
        assert at.handle.run().unwrap().text == "fine"


@each("value", ROWS.values())
def test_an_answer_of_rows_goes_out_as_json(value: list[Any]) -> None:
    """What holds for a tool holds for a person."""
    with scene([reply(calls=[("lookup", {})]), reply("fine")], tools=[], asked=params(tools=[LOOKUP])) as at:
        turn = at.turn()
        turn.answer(turn.pending[0], value)
        assert at.handle.run().unwrap().text == "fine"
        assert json.loads(results_in(at.sent()[-1])[0]["content"]) == value


@each(
    "value",
    [
        [SAID],
        [{**SAID, "cache_control": SHORT}],
        [SAID, *image(type="base64", media_type="image/png", data="iVBORw0KGgo=")],
        image(type="url", url="https://example.org/x.png"),
        document({"type": "text", "media_type": "text/plain", "data": "x"}, title="t"),
        document({"type": "url", "url": "https://example.org/x.pdf"}),
        [found([SAID])],
        [{"type": "tool_reference", "tool_name": "odd"}],
    ],
)
def test_blocks_that_the_api_takes_go_out_as_they_are(value: list[Any]) -> None:
    """To the last key."""
    result = result_of(lambda: value)
    assert (result["content"], result.get("is_error")) == (value, None)


class Lazy(Mapping[str, Any]):
    """Rows that are read when they are asked for."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getitem__(self, key: str) -> Any:
        raise self._error

    def __iter__(self) -> Iterator[str]:
        return iter(["row"])

    def __len__(self) -> int:
        return 1


@frozen
class Reluctant:
    """A value whose field cannot be read."""

    secret: str

    def __getattribute__(self, name: str) -> Any:
        if name == "secret":
            raise PermissionError("it is not to be read")
        return super().__getattribute__(name)


class Dumped:
    """An object with a `to_dict` that fails."""

    def to_dict(self, **_: Any) -> Any:
        raise LookupError("no such field")


UNREADABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "a mapping that lost its key": (lambda: Lazy(KeyError("row")), "KeyError"),
    "a dict that somebody changes": (lambda: Lazy(RuntimeError("dictionary changed size")), "dictionary changed size"),
    "a field that cannot be read": (lambda: Reluctant("x"), "PermissionError"),
    "an object that cannot be dumped": (Dumped, "no such field"),
    "half of it deep inside": (lambda: {"rows": [1, Lazy(ValueError("gone"))]}, "gone"),
}


@each(("make", "word"), UNREADABLE.values())
def test_a_value_that_raises_while_it_is_read_is_an_error_result(make: Callable[[], Any], word: str) -> None:
    """The call ended, and is told as it ended: it is not uncertain, and nothing comes out of `next_turn`."""
    result = result_of(make)
    assert result["is_error"] is True
    assert word in result["content"]


class CodedError(ToolError):
    """The usual slip: no `super().__init__`."""

    def __init__(self, code: int) -> None:
        self.code = code


class MuteError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


def raising(error: Exception) -> Any:
    raise error


FAILURES: dict[str, tuple[Exception, str]] = {
    "a ToolError that forgot its content": (CodedError(3), "CodedError"),
    "a ToolError of nothing": (ToolError(None), "ToolError"),  # type: ignore[arg-type]
    "a ToolError of a number": (ToolError(5), "5"),  # type: ignore[arg-type]
    "a ToolError of no blocks": (ToolError([5]), "5"),  # type: ignore[list-item]
    "a ToolError that is empty": (ToolError(""), "ToolError"),
    "a ToolError of blank blocks": (ToolError([{"type": "text", "text": " "}]), "ToolError"),
    "an error without words": (MuteError(), "MuteError"),
    "half a surrogate pair": (OSError("\ud800"), "OSError"),
}


@each(("error", "word"), FAILURES.values())
def test_an_exception_that_cannot_be_told_still_names_its_type(error: Exception, word: str) -> None:
    """A tool's own exception is an error result, whatever is wrong with the exception itself."""
    result = result_of(lambda: raising(error))
    assert result["is_error"] is True
    assert word in str(result["content"])
