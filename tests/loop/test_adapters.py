"""A loop with the caller's own adapter: its words reach the model, and what no result may be becomes an error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.each import each
from tests.loop.concurrency import Gate, async_loop, cancelled_after, on_both_backends, run_async, sync_loop, told
from tests.loop.support import params, refused, results_in, scene, yielded
from toolloop import Answer, Texts, ToolRegistry, tool
from toolloop.errors import IllegalCommand
from toolloop.responses import AnthropicMessagesToolResponseAdapter
from toolloop.testing import call, reply

LOOKUP = {"name": "lookup", "input_schema": {"type": "object"}}
TEXT = {"type": "text", "text": "a"}


class Own:
    """An adapter that gives what it is told to."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self.make = make

    def to_plain_text(self, response: Any) -> str:
        return str(response)

    def create_messages(self, call: Any, response: Any) -> Any:
        return self.make(call["id"])


def answered(call_id: str, **fields: Any) -> list[Any]:
    return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, **fields}]}]


@tool
def work() -> str:
    """Work."""
    return "done"


def result_with(make: Callable[[str], Any]) -> dict[str, Any]:
    """The result that goes out for a tool under such an adapter; the API takes it."""
    script = [reply(calls=[("work", {})]), reply("fine")]
    with scene(script, tools=ToolRegistry([work], adapter=Own(make))) as at:
        at.turn().continue_loop()
        assert at.done().text == "fine"
        return dict(results_in(at.sent()[-1])[0])


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
    result = result_with(lambda call_id: answered(call_id, **fields))
    assert (result["content"], result.get("is_error")) == (content, is_error)


@each(
    "make",
    [
        lambda _: None,
        lambda _: [],
        lambda call_id: answered(call_id) * 2,
        lambda _: answered("another"),
        lambda call_id: answered(call_id, content=None),
        lambda call_id: answered(call_id, content=5),
        lambda call_id: answered(call_id, content="a", is_error="no"),
        lambda call_id: answered(call_id, content="a", cache_control={"type": "ephemeral"}),
        lambda call_id: answered(call_id, content="a", more=1),
        lambda call_id: answered(call_id, content=[{"type": "thinking", "thinking": "hm"}]),
        lambda call_id: answered(call_id, content=[{**TEXT, "author": "b"}]),
        lambda call_id: answered(call_id, content="", is_error=True),
        lambda call_id: answered(call_id, content=[{"type": "tool_reference", "tool_name": "nothing"}]),
        lambda call_id: 1 // 0,
    ],
)
def test_what_no_result_may_be_is_an_error_result(make: Callable[[str], Any]) -> None:
    """Nothing of it is dropped or changed in silence."""
    result = result_with(make)
    assert result["is_error"] is True
    assert result["content"].strip()


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
    with scene(script, tools=tools, texts=Texts(failed="{error} (sorry)")) as at:
        at.turn().continue_loop()
        at.done()
        contents = [result["content"] for result in results_in(at.sent()[-1])]
        assert contents == ["Done, with pleasure.", "Alas: it broke (sorry)"]


def test_references_to_tools_that_have_no_name_here_are_the_apis_affair() -> None:
    """What the tools of an MCP server are called, only the API knows."""

    @tool
    def find() -> list[Any]:
        """Find a tool."""
        return [{"type": "tool_reference", "tool_name": "mcp_thing"}]

    toolset = {"type": "mcp_toolset", "mcp_server_name": "server"}
    server = {"type": "url", "name": "server", "url": "https://example.org/mcp"}
    asked = params(tools=[toolset], mcp_servers=[server], betas=["mcp-client-2025-11-20"])
    with scene([reply(calls=[("find", {})]), reply("fine")], tools=[find], asked=asked) as at:
        (result,) = at.turn().results
        assert result is not None
        assert (result.content, result.is_error) == ([{"type": "tool_reference", "tool_name": "mcp_thing"}], False)


@each("is_error", ["no", 1, None])
def test_an_answer_is_an_error_or_not(is_error: Any) -> None:
    """Anything else is refused to who gives it."""
    with scene([reply(calls=[call("lookup", id="a")])], tools=[], asked=params(tools=[LOOKUP])) as at:
        at.turn()
        with refused(at.handle, IllegalCommand, "is_error"):
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
    executed = yielded(run_async("asyncio", handle.next_turn))
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
        executed = yielded(await handle.next_turn())
        assert [result and result.content for result in executed.results] == [
            Texts().left_behind.format(seconds="0.01")
        ]
        executed.continue_loop()
        gate.arrived.clear()
        await cancelled_after(handle, gate.arrived)
        gate.opened.set()
        executed = yielded(await handle.next_turn())
        assert [result and result.content for result in executed.results] == ['["read"]']

    run_async("asyncio", main)


@on_both_backends
def test_a_value_that_contains_itself_is_told_alike_by_both_handles(backend: str) -> None:
    """However deep a value goes, both say the same of it."""
    circle: list[Any] = []
    circle.append(circle)

    @tool(name="work")
    async def later() -> Any:
        """Give it."""
        return circle

    @tool(name="work")
    def now() -> Any:
        """Give it."""
        return circle

    script = [reply(calls=[("work", {})])]
    told_later = told(run_async(backend, async_loop(script, [later]).next_turn))
    assert told_later == told(sync_loop(script, [now]).next_turn())
    assert "Recursion" not in told_later[0]
