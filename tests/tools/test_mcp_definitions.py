"""The definitions of MCP tools: names, prefixes, selection and schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, strategies as st
from mcp import Client
from mcp.server import Server, ServerRequestContext
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool as Listed,
    ToolAnnotations as Hints,
)

from tests.kit.effort import examples
from tests.kit.tools import transfer
from toolloop import Tool
from toolloop.errors import BadTool
from toolloop.tools.mcp import McpOptions, mcp_tools
from toolloop.types import ToolAnnotations

OBJECT: dict[str, Any] = {"type": "object"}
# The defaults of the protocol (source: MCP specification 2025-11-25, ToolAnnotations).
HINTS = {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": False, "open_world_hint": True}


def serve(tools: Sequence[Listed]) -> Server[Any]:
    """Make a server in this process that lists these tools."""

    async def list_tools(context: ServerRequestContext, asked: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=list(tools))

    async def call(context: ServerRequestContext, asked: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[])

    return Server("test", on_list_tools=list_tools, on_call_tool=call)


def take(
    *names: str, schema: dict[str, Any] | None = None, annotations: Any = None, **options: Any
) -> list[Tool[..., Any]]:
    """Return the tools of a server that lists these names."""

    async def main() -> list[Tool[..., Any]] | Exception:
        tools = [Listed(name=name, input_schema=schema or OBJECT, annotations=annotations) for name in names]
        chosen: McpOptions = options  # type: ignore[assignment] # wrong ones are the point of some tests
        async with Client(serve(tools)) as client:
            try:
                return await mcp_tools(client, **chosen)
            except Exception as error:  # noqa: BLE001 - the client would make a group of it
                return error

    made = anyio.run(main)
    if isinstance(made, Exception):
        raise made
    return made


def test_invalid_characters_in_names_become_underscores() -> None:
    """MCP allows dots and slashes, and does not enforce its own rule."""
    names = ["read", "files.read", "files/write", "ein Ümlaut", "a-b_c"]
    assert [tool.name for tool in take(*names)] == ["read", "files_read", "files_write", "ein__mlaut", "a-b_c"]


def test_only_takes_tools_by_the_servers_names_in_the_servers_order() -> None:
    """The prefix is not part of these names."""
    tools = take("a", "b.c", "d", only=["d", "b.c"], prefix="x_")
    assert [tool.name for tool in tools] == ["x_b_c", "x_d"]
    assert take("a", only=[]) == []


def test_options_hold_for_every_tool() -> None:
    """Approval, effect and time."""

    def needs(call: Any) -> bool:
        return True

    for tool in take("a", "b", needs_approval=needs, effect="pure", timeout=3):
        assert (tool.needs_approval, tool.effect, tool.timeout, tool.is_async) == (needs, "pure", 3, True)


def test_an_invalid_tool_or_option_is_refused_with_the_remedy() -> None:
    """The error names the tool."""
    cases: list[tuple[list[str], dict[str, Any], list[str]]] = [
        (["a"], {"only": ["a", "b"]}, ["'b'", "it has: a"]),
        (["a" * 60], {"prefix": "server_"}, ["1 to 64", "prefix", "only="]),
        (["a"], {"prefix": "no spaces "}, ["'no spaces a'", "prefix"]),
        ([""], {}, ["1 to 64"]),
        (["a"], {"effect": "twice"}, ['"pure"']),
        (["a"], {"timeout": -1}, ["timeout", "MCP"]),
        (["a"], {"schema": {"type": "object", "properties": {"a": {"type": "text"}}}}, ["'a'", "a valid JSON Schema"]),
        (["a"], {"schema": {"type": "object", "properties": {"b c": {}}}}, ["'a'", "'b c'", "only="]),
    ]
    for names, options, words in cases:
        with pytest.raises(BadTool) as caught:
            take(*names, **options)
        assert [word for word in words if word not in str(caught.value)] == []


def test_a_schema_is_always_that_of_an_object() -> None:
    """The API requires the type. The other keys stay unchanged, in their order."""
    (tool,) = take("a", schema={"$schema": "http://json-schema.org/draft-07/schema#", "title": "A", "type": "object"})
    assert tool.definition() == {
        "name": "a",
        "input_schema": {"type": "object", "$schema": "http://json-schema.org/draft-07/schema#", "title": "A"},
    }


def test_a_broken_tool_can_be_left_out() -> None:
    """`only` is applied first."""
    tools = [
        Listed(name="good", input_schema=OBJECT),
        Listed(name="bad", input_schema={**OBJECT, "properties": {"b c": {}}}),
    ]

    async def main() -> list[str]:
        async with Client(serve(tools)) as client:
            return [tool.name for tool in await mcp_tools(client, only=["good"])]

    assert anyio.run(main) == ["good"]


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(HINTS, st.none() | st.booleans())))
@examples(20)
def test_the_hints_of_the_server_are_those_that_it_gives(given: dict[str, bool | None]) -> None:
    """With the defaults of the protocol for the others. They never change the effect of the tool."""
    (tool,) = take("a", annotations=Hints.model_validate(given, by_name=True))
    wanted = HINTS | {name: value for name, value in given.items() if value is not None}
    assert tool.annotations == ToolAnnotations(**wanted)
    assert (tool.effect, tool.needs_approval) == ("once", False)
    assert tool.definition() == {"name": "a", "input_schema": OBJECT}


def test_a_server_without_annotations_has_the_defaults() -> None:
    """A tool of another kind has no hints at all."""
    (tool,) = take("a")
    assert tool.annotations == ToolAnnotations(**HINTS)
    assert transfer.annotations is None
