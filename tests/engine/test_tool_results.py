"""Results of tools: adapters of the caller's own, misfits, and exceptions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from tests.kit.concurrency import Gate, async_loop, cancel_after, run_async
from tests.kit.each import each
from tests.kit.support import expect_completed, expect_refusal, expect_yielded, results_in
from tests.kit.tools import params, user
from tests.kit.world import open_over_http
from toolloop import Answer, Continue, Texts, ToolError, ToolLoopHandle, ToolRegistry, ToolResult, tool
from toolloop.errors import IllegalCommand
from toolloop.events import CallFinished
from toolloop.responses import AnthropicMessagesToolResponseAdapter, FileResponse
from toolloop.testing import call, reply

LOOKUP = {"name": "lookup", "input_schema": {"type": "object"}}
TEXT = {"type": "text", "text": "a"}


class Own:
    """An adapter that returns its script."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self.make = make

    def to_plain_text(self, response: Any) -> str:
        return str(response)

    def create_messages(self, call: Any, response: Any) -> Any:
        return self.make(call["id"])


def make_answered(call_id: str, **fields: Any) -> list[Any]:
    return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, **fields}]}]


def make_followed(call_id: str, *after: Any, **fields: Any) -> list[Any]:
    (message,) = make_answered(call_id, content="a", **fields)
    return [{**message, "content": [*message["content"], *after]}]


@tool
def work() -> str:
    """Work."""
    return "done"


def result_with(make: Callable[[str], Any]) -> dict[str, Any]:
    """The result that goes out for a tool under such an adapter; the API takes it."""
    script = [reply(calls=[("work", {})]), reply("fine")]
    with open_over_http(script, tools=ToolRegistry([work], adapter=Own(make))) as at:
        at.turn().continue_loop()
        assert at.expect_done().text == "fine"
        return dict(results_in(at.list_sent()[-1])[0])


@each(
    ("fields", "content", "is_error"),
    [
        ({"content": "mine"}, "mine", None),
        ({"content": [TEXT]}, "a", None),
        ({"content": [TEXT, TEXT]}, [TEXT, TEXT], None),
        ({"content": []}, "", None),
        ({}, "", None),
        ({"content": "no", "is_error": True}, "no", True),
        ({"content": "yes", "is_error": False, "toolset_name": None}, "yes", None),
    ],
)
def test_what_an_own_adapter_gives_goes_out(fields: dict[str, Any], content: Any, is_error: bool | None) -> None:
    """Its content, and whether it is an error."""
    result = result_with(lambda call_id: make_answered(call_id, **fields))
    assert (result["content"], result.get("is_error")) == (content, is_error)


@each(
    "make",
    [
        lambda _: None,
        lambda _: [],
        lambda call_id: make_answered(call_id) * 2,
        lambda _: make_answered("another"),
        lambda call_id: make_answered(call_id, content=None),
        lambda call_id: make_answered(call_id, content=5),
        lambda call_id: make_answered(call_id, content="a", is_error="no"),
        lambda call_id: make_answered(call_id, content="a", cache_control={"type": "for ever"}),
        lambda call_id: make_followed(call_id, make_answered(call_id)[0]["content"][0]),
        lambda call_id: make_followed(call_id, {"type": "thinking", "thinking": "hm", "signature": "s"}),
        lambda call_id: make_followed(call_id, {**TEXT, "author": "b"}),
        lambda call_id: make_followed(call_id, "words"),
        lambda call_id: make_answered(call_id, content="a", more=1),
        lambda call_id: make_answered(call_id, content=[{"type": "thinking", "thinking": "hm"}]),
        lambda call_id: make_answered(call_id, content=[{**TEXT, "author": "b"}]),
        lambda call_id: make_answered(call_id, content="", is_error=True),
        lambda call_id: make_answered(call_id, content=[{"type": "tool_reference", "tool_name": "nothing"}]),
        lambda call_id: 1 // 0,
    ],
)
def test_what_no_result_may_be_is_an_error_result(make: Callable[[str], Any]) -> None:
    """Nothing of it is dropped or changed in silence."""
    result = result_with(make)
    assert result["is_error"] is True
    assert result["content"].strip()


def test_text_after_a_result_and_cache_marks_go_out() -> None:
    """Also after a sleep; blank text is left out, and the texts stand after all results."""
    mark = {"type": "ephemeral"}
    note = {"type": "text", "text": "Mind the gap.", "cache_control": mark}
    own = Own(lambda call_id: make_followed(call_id, note, {"type": "text", "text": " "}, cache_control=mark))
    asks = reply(calls=[call("work", id="toolu_1"), call("work", id="toolu_2")])
    tools = ToolRegistry([work], adapter=own)
    with open_over_http([asks, reply("fine")], tools=tools) as at:
        at.turn()
        with at.api.client() as client:
            copy = ToolLoopHandle.restore(at.handle.snapshot(), client, tools=tools)
            copy.resume(Continue())
            assert expect_completed(copy.run()).text == "fine"
        results = [{"type": "tool_result", "tool_use_id": name, "content": "a"} for name in ("toolu_1", "toolu_2")]
        marked = [{**result, "cache_control": mark} for result in results]
        assert at.list_sent()[-1] == user([*marked, note, note])


def test_the_plain_text_of_a_result_reaches_hosts_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """In `results`, in the call, and in its event; the name of a file, and else what the model reads."""

    @tool
    def file() -> FileResponse:
        """Give a file."""
        return FileResponse("notes.txt", "text/plain", b"secret words")

    @tool
    def rows() -> Any:
        """Give rows."""
        return iter([1, 2])

    @tool
    def fail() -> None:
        """Fail."""
        raise ToolError("it broke")

    class Long(AnthropicMessagesToolResponseAdapter):
        def to_plain_text(self, response: Any) -> str:
            return "x" * 300_000 if response is None else super().to_plain_text(response)

    @tool
    def long() -> None:
        """Say much."""

    calls: list[Any] = [("file", {}), ("rows", {}), ("fail", {}), ("long", {})]
    caplog.set_level(logging.DEBUG)
    with open_over_http(
        [reply(calls=calls), reply("fine")], tools=ToolRegistry([file, rows, fail, long], adapter=Long())
    ) as at:
        turn = at.turn()
        results = [result for result in turn.results if result is not None]
        shown = [result.plain_text for result in results]
        assert shown[:3] == ["notes.txt", "[1,2]", "it broke"]
        assert len(shown[3]) == 4096
        assert [one.result for one in turn.calls] == results
        told = {event.call_id: event.plain_text for event in turn.events if isinstance(event, CallFinished)}
        assert [told[one.id] for one in turn.calls] == shown
        assert [result.content for result in results][:3] == ["secret words", "[1,2]", "it broke"]
    logged = [f"{record.getMessage()}{vars(record)}" for record in caplog.records if record.name == "toolloop"]
    assert any("CallFinished" in line for line in logged)
    assert not [line for line in logged for word in ("notes.txt", "[1,2]", "it broke") if word in line]


def test_a_filter_that_changes_a_result_changes_its_plain_text() -> None:
    """What it took out is not shown to hosts either."""

    @tool
    def file() -> FileResponse:
        """Give a file."""
        return FileResponse("secret.txt", "text/plain", b"words")

    with open_over_http(
        [reply(calls=[call("file", id="a")])], tools=[file], result_filters=[lambda _call, _text: "gone"]
    ) as at:
        assert at.turn().results == (ToolResult("a", "gone", plain_text="gone"),)


def test_words_of_a_subclass_reach_the_model() -> None:
    """Of an exception, too; `Texts` has the last word."""

    class Polite(AnthropicMessagesToolResponseAdapter):
        def to_plain_text(self, response: Any) -> str:
            if isinstance(response, BaseException):
                return f"Alas: {response}"
            return "Done, with pleasure." if response is None else super().to_plain_text(response)

    @tool
    def clear() -> None:
        """Clear the table."""

    @tool
    def fail() -> None:
        """Fail."""
        raise OSError("it broke")

    script = [reply(calls=[("clear", {}), ("fail", {})]), reply("fine")]
    tools = ToolRegistry([clear, fail], adapter=Polite())
    with open_over_http(script, tools=tools, texts=Texts(failed="{error} (sorry)")) as at:
        at.turn().continue_loop()
        at.expect_done()
        contents = [result["content"] for result in results_in(at.list_sent()[-1])]
        assert contents == ["Done, with pleasure.", "Alas: it broke (sorry)"]


@each("is_error", ["no", 1, None])
def test_an_answer_is_an_error_or_not(is_error: Any) -> None:
    """Anything else is refused to who gives it."""
    with open_over_http([reply(calls=[call("lookup", id="a")])], tools=[], asked=params(tools=[LOOKUP])) as at:
        at.turn()
        with expect_refusal(at.handle, IllegalCommand, "is_error"):
            at.handle.decide({"a": Answer("x", is_error=is_error)})


def test_a_lazy_result_of_an_async_tool_is_read_in_a_thread(tmp_path: Path) -> None:
    """A file, a generator: reading it holds up no event loop."""
    (tmp_path / "a.txt").write_text("from a file")
    threads: list[threading.Thread] = []

    def count() -> Iterator[int]:
        for number in range(2):
            threads.append(threading.current_thread())
            yield number

    @tool
    async def numbers() -> Any:
        """Count."""
        return count()

    @tool
    async def file() -> Path:
        """Give a file."""
        return tmp_path / "a.txt"

    handle = async_loop([reply(calls=[("numbers", {}), ("file", {})])], [numbers, file])
    executed = expect_yielded(run_async("asyncio", handle.next_turn))
    assert [result and result.content for result in executed.results] == ["[0,1]", "from a file"]
    assert threading.current_thread() not in threads


def test_a_result_that_is_not_read_in_time_is_left_behind() -> None:
    """The limit is for the whole call, and the turn can be cancelled meanwhile; a late end counts then."""
    gate = Gate()

    def slowly() -> Any:
        gate.stand()
        yield "read"

    @tool(timeout=0.01)
    async def limited() -> Any:
        """Give something slow."""
        return slowly()

    @tool
    async def patient() -> Any:
        """Give something slow."""
        return slowly()

    script = [reply(calls=[("limited", {})]), reply(calls=[("patient", {})])]
    handle = async_loop(script, [limited, patient])

    async def main() -> None:
        executed = expect_yielded(await handle.next_turn())
        assert [result and result.content for result in executed.results] == [
            Texts().left_behind.format(seconds="0.01")
        ]
        executed.continue_loop()
        gate.arrived.clear()
        await cancel_after(handle, gate.arrived)
        gate.opened.set()
        executed = expect_yielded(await handle.next_turn())
        assert [result and result.content for result in executed.results] == ['["read"]']

    run_async("asyncio", main)


SAID = {"type": "text", "text": "said"}


def image(**source: Any) -> list[Any]:
    return [{"type": "image", "source": source}]


def document(source: Any, **more: Any) -> list[Any]:
    return [{"type": "document", "source": source, **more}]


def make_found(content: Any) -> dict[str, Any]:
    return {"type": "search_result", "source": "s", "title": "t", "content": content}


# Blocks that the API refuses in a result: what they are is clear, and what is wrong with them can be said.
MISFITS: dict[str, list[Any]] = {
    "a document without a source object": document("wikipedia"),
    "an image without a source object": [{"type": "image", "source": "x.png"}],
    "text beside a search result": [SAID, make_found([SAID])],
    "a search result whose content is not a list": [make_found("text")],
}
# Likewise, in the depth of a block.
DEEP_MISFITS: dict[str, list[Any]] = {
    "an image of another kind": image(type="base64", media_type="image/bmp", data="aaaa"),
    "an image without data": image(type="base64", media_type="image/png"),
    "a document of another kind": document({"type": "base64", "media_type": "application/zip", "data": "aaaa"}),
    "a document without a kind of source": document({}),
    "a document whose address is none": document({"type": "url", "url": 5}),
    "a document whose title is none": document({"type": "text", "media_type": "text/plain", "data": "x"}, title=5),
    "an image in a search result": [make_found(image(type="base64", media_type="image/png", data="aaaa"))],
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

    with open_over_http([reply(calls=[("odd", {})]), reply("fine")], tools=[odd]) as at:
        assert at.turn().reason == "tools_executed"
        at.handle.resume(Continue())
        assert at.expect_done().text == "fine"
        (result,) = results_in(at.list_sent()[-1])
        return dict(result)


@each("value", ALL_MISFITS.values())
def test_blocks_that_the_api_would_refuse_are_an_error_result(value: list[Any]) -> None:
    """The model gets a description of the problem; the request with that result is accepted."""
    result = result_of(lambda: value)
    assert result["is_error"] is True
    assert result["content"].strip()


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
    "a dict that changes": (lambda: Lazy(RuntimeError("dictionary changed size")), "dictionary changed size"),
    "a field that cannot be read": (lambda: Reluctant("x"), "PermissionError"),
    "an object that cannot be dumped": (Dumped, "no such field"),
    "half of it deep inside": (lambda: {"rows": [1, Lazy(ValueError("gone"))]}, "gone"),
}


@each(("make", "word"), UNREADABLE.values())
def test_a_value_that_raises_while_it_is_read_is_an_error_result(make: Callable[[], Any], word: str) -> None:
    """The call has ended and is reported with its end: it is not uncertain, and `next_turn` does not raise."""
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


def make_raising(error: Exception) -> Any:
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
def test_an_exception_whose_text_fails_still_names_its_type(error: Exception, word: str) -> None:
    """A tool's own exception is an error result, whatever is wrong with the exception itself."""
    result = result_of(lambda: make_raising(error))
    assert result["is_error"] is True
    assert word in str(result["content"])
