"""MCP servers that send what they should not: what is good of it is taken, and the rest is named."""

from __future__ import annotations

import logging
import math
import threading
from typing import Any

import anyio
import pytest
from mcp import ClientSession, stdio_client

from tests.handle.concurrency import on_both_backends, run_async
from tests.handle.support import results_in, scene
from tests.tools.mcp_support import OBJECT, raw
from toolloop import ToolError
from toolloop.errors import BadTool
from toolloop.testing import reply
from toolloop.tools.mcp import McpOptions, aopen_mcp, mcp_tools, open_mcp

GOOD = {"name": "good", "inputSchema": OBJECT}
TEXT = {"type": "text", "text": "some words"}
# A pattern for which Python's `re` takes years, and the text for it.
SLOW = "(a+)+$"
SLOW_TEXT = "a" * 60 + "!"


def unshown(kind: str) -> str:
    return f"[{kind}: the tool ran, but this part of its result cannot be shown]"


RESULTS: dict[str, tuple[Any, str | list[str]]] = {
    "unknown_kind": ({"content": [{"type": "video", "data": "x"}, TEXT]}, [unshown("video"), "some words"]),
    "no_kind": ({"content": [TEXT, {"text": 1}]}, ["some words", unshown("content")]),
    "no_block": ({"content": [None]}, unshown("content")),
    "broken_image": ({"content": [{"type": "image", "data": 5}, TEXT]}, [unshown("image"), "some words"]),
    "broken_resource": ({"content": [{"type": "resource", "resource": [{"uri": "a"}]}]}, unshown("resource")),
    "broken_type": ({"content": [{"type": "audio", "data": "", "mimeType": {}}]}, unshown("audio")),
    "odd_extras": ({"content": [{**TEXT, "annotations": {"audience": ["nobody"]}, "more": 1}]}, "some words"),
    "bare_text": ({"content": "just text"}, "just text"),
    "one_block": ({"content": TEXT}, "some words"),
    "no_content": ({}, "ok"),
    "odd_structure": ({"content": [], "structuredContent": [1]}, "[1]"),
    "odd_failure": ({"content": [{"type": "video"}, TEXT], "isError": True}, f"{unshown('video')}\nsome words"),
}


def said(content: Any) -> Any:
    """The texts of a result."""
    return content if isinstance(content, str) else [block["text"] for block in content]


def test_what_is_good_of_a_result_is_shown_and_the_rest_is_named() -> None:
    """The model learns that the tool ran, and nothing of how `mcp` puts it."""
    tools = [{"name": name, "inputSchema": OBJECT} for name in RESULTS]
    server = raw(tools, {name: result for name, (result, _) in RESULTS.items()})
    script = [reply(calls=[(name, {}) for name in RESULTS]), reply("fine")]
    with open_mcp(server) as opened, scene(script, tools=opened) as story:
        story.turn().continue_loop()
        story.done()
        results = results_in(story.sent()[-1])
    found = {name: said(result["content"]) for name, result in zip(RESULTS, results, strict=True)}
    assert found == {name: content for name, (_, content) in RESULTS.items()}
    assert [result.get("is_error", False) for result in results] == [name == "odd_failure" for name in RESULTS]


@on_both_backends
def test_a_session_of_the_callers_own_says_at_least_that_the_tool_ran(backend: str) -> None:
    """There `mcp` judges the whole result, and gives nothing of it."""

    async def main() -> None:
        server = raw([GOOD], {"good": {"content": [TEXT, {"type": "video"}]}})
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            (good,) = await mcp_tools(session)
            with pytest.raises(ToolError, match=r"^The tool ran, but its result cannot be read.*had effects\.$"):
                await good({})

    run_async(backend, main)


@on_both_backends
def test_a_list_that_the_callers_own_session_cannot_read_is_refused(backend: str) -> None:
    """The message names the place and the way round."""

    async def main() -> None:
        server = raw([GOOD, {"name": "bad"}])
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            with pytest.raises(BadTool, match=r"tools\.1\.inputSchema.*open_mcp") as caught:
                await mcp_tools(session, only=["good"])
            assert "pydantic" not in str(caught.value)

    run_async(backend, main)


def test_no_pattern_of_a_servers_is_run_here() -> None:
    """Neither of its input nor of its output: the server judges both, and nothing hangs."""
    strict = {"type": "object", "properties": {"x": {"type": "string", "pattern": SLOW}}, "required": ["x"]}
    tool = {"name": "slow", "inputSchema": strict, "outputSchema": strict}
    server = raw([tool], {"slow": {"content": [TEXT], "structuredContent": {"x": SLOW_TEXT}}})
    calls: list[tuple[str, dict[str, Any]]] = [("slow", {"x": SLOW_TEXT}), ("slow", {"x": 1})]
    with open_mcp(server) as opened, scene([reply(calls=calls), reply("fine")], tools=opened) as story:
        story.turn().continue_loop()
        story.done()
        ran, refused = results_in(story.sent()[-1])
    assert ran["content"] == "some words"
    assert "x: expected a string, got 1" in refused["content"]


def silent(method: str) -> Any:
    """A server that never answers this."""
    server = raw([GOOD])
    server.args[-1] = server.args[-1].replace(f'"{method}"', '"something else"')
    return server


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
def test_a_server_that_does_not_answer_is_not_waited_for_for_ever(method: str) -> None:
    """What is raised says what to do, and nothing is left behind."""
    with (
        pytest.raises(TimeoutError, match=r"within 0\.5 seconds.*connect_timeout"),
        open_mcp(silent(method), connect_timeout=0.5),
    ):
        pass
    assert [thread.name for thread in threading.enumerate() if "portal" in thread.name] == []


@on_both_backends
@pytest.mark.parametrize("method", ["initialize", "tools/list"])
def test_nor_is_it_by_async_code(backend: str, method: str) -> None:
    """In asyncio and in trio."""

    async def main() -> None:
        with pytest.raises(TimeoutError, match="connect_timeout"):
            async with aopen_mcp(silent(method), connect_timeout=0.5):
                pass

    run_async(backend, main)


@on_both_backends
def test_a_session_of_the_callers_own_has_so_much_time_to_list_its_tools(backend: str) -> None:
    """And can be used thereafter."""

    async def main() -> None:
        async with stdio_client(silent("tools/list")) as streams, ClientSession(*streams) as session:
            await session.initialize()
            with pytest.raises(TimeoutError, match="connect_timeout"):
                await mcp_tools(session, connect_timeout=0.1)

    run_async(backend, main)


@on_both_backends
@pytest.mark.parametrize("options", [{}, {"connect_timeout": 50}, {"connect_timeout": None}])
def test_once_connected_there_is_no_limit(backend: str, options: McpOptions) -> None:
    """The caller's block may take as long as it likes; and a minute is the limit if none is given."""

    async def main() -> None:
        async with aopen_mcp(raw([GOOD]), **options) as tools:
            assert anyio.current_effective_deadline() == math.inf
            assert [tool.name for tool in tools] == ["good"]

    anyio.run(main, backend=backend)  # not `run_async`, which has a limit of its own


def opened(tools: list[Any], **options: Any) -> list[str]:
    """The names of the tools that are taken of such a list."""
    with open_mcp(raw(tools), **options) as taken:
        return [tool.name for tool in taken]


BROKEN: list[tuple[Any, list[str]]] = [
    ({"name": "bad"}, ["'bad'", "no inputSchema"]),
    ({"name": "bad", "inputSchema": None}, ["'bad'", "null"]),
    ({"name": "bad", "inputSchema": {"type": "string"}}, ["'bad'", '"string"']),
    ({"name": "bad", "inputSchema": {"type": "object", "properties": []}}, ["'bad'", "properties", "[]"]),
    ({"inputSchema": OBJECT}, ["at place 2", "no name"]),
    ({"name": 3, "inputSchema": OBJECT}, ["at place 2", "no name"]),
    ("bad", ["at place 2", "no name"]),
]


@pytest.mark.parametrize(("tool", "words"), BROKEN)
def test_a_broken_tool_is_named_or_left_out(tool: Any, words: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """It costs nobody the others: `only` can leave it out, which is logged."""
    with pytest.raises(BadTool) as caught:
        opened([GOOD, tool])
    assert [word for word in [*words, "only="] if word not in str(caught.value)] == []
    with caplog.at_level(logging.WARNING, "toolloop.tools"):
        assert opened([GOOD, tool], only=["good"]) == ["good"]
    assert [word for word in words if word not in caplog.text] == []


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "object", "properties": {"filter[x]": {}}}, '"filter[x]"'),
        ({"type": "object", "properties": {"bad key!": {}}}, '"bad key!"'),
        ({"type": "object", "properties": {"k" * 65: {}}}, "k" * 65),
        ({"type": "object", "properties": {"": {}}}, '""'),
    ],
)
def test_what_the_api_would_refuse_is_refused_with_the_tools_name(schema: dict[str, Any], word: str) -> None:
    """For it would refuse every request with such a tool."""
    bad = {"name": "bad", "inputSchema": schema}
    with pytest.raises(BadTool, match="'bad' cannot be used") as caught:
        opened([GOOD, bad])
    assert word in str(caught.value)
    assert "only=" in str(caught.value)
    assert opened([GOOD, bad], only=["good"]) == ["good"]


def test_names_that_the_api_takes_are_taken() -> None:
    """Dots and hyphens too; and below the first level, whatever there is."""
    schema = {"type": "object", "properties": {"a.b-c_1": {"properties": {"filter[x]": {}}}, "k" * 64: {}}}
    assert opened([{"name": "good", "inputSchema": schema}]) == ["good"]


@pytest.mark.parametrize("schema", [{}, {"type": ["object", "null"]}, {"type": "object", "properties": {}}])
def test_a_schema_that_an_object_fits_is_good_enough(schema: dict[str, Any]) -> None:
    """Whatever `mcp` says of it."""
    assert opened([{"name": "loose", "inputSchema": schema}]) == ["loose"]


def test_two_tools_of_one_name_are_refused() -> None:
    """Nobody knows which of them the server would run."""
    twice = {"name": "twice", "inputSchema": OBJECT}
    with pytest.raises(BadTool, match=r"'twice' cannot be used: it is listed twice.*only="):
        opened([twice, GOOD, {**twice, "description": "another"}])
    assert opened([twice, GOOD, twice], only=["good"]) == ["good"]


@pytest.mark.parametrize("answer", [{}, {"tools": None}, {"tools": {"name": "x"}}])
def test_a_list_that_is_none_is_refused(answer: dict[str, Any]) -> None:
    """Not taken for an empty one."""
    with pytest.raises(BadTool, match="no list of tools"), open_mcp(raw([], **{"tools/list": answer})):
        pass
