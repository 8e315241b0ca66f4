"""How the tools that an MCP server lists become the API's: names, prefixes, choices, schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.server import Server, ServerRequestContext
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams
from mcp.types import Tool as Listed

from tests.tools.mcp_server import EITHER, TOOLS
from toolloop import Tool, ToolRegistry
from toolloop.errors import BadTool
from toolloop.tools.mcp import McpOptions, mcp_tools

OBJECT: dict[str, Any] = {"type": "object"}


def serving(tools: Sequence[Listed], *, endless: bool = False) -> Server[Any]:
    """A server in the same process that lists these tools, on one page or on endless ones."""

    async def listed(context: ServerRequestContext, asked: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=list(tools), next_cursor="again" if endless else None)

    async def call(context: ServerRequestContext, asked: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[])

    return Server("test", on_list_tools=listed, on_call_tool=call)


def taken(
    *names: str, schema: dict[str, Any] | None = None, said: str | None = None, endless: bool = False, **options: Any
) -> list[Tool[..., Any]]:
    """The tools of a server that has tools of these names."""

    async def main() -> list[Tool[..., Any]] | Exception:
        tools = [Listed(name=name, description=said, input_schema=schema or OBJECT) for name in names]
        chosen: McpOptions = options  # type: ignore[assignment] # wrong ones are the point of some tests
        async with Client(serving(tools, endless=endless)) as client:
            try:
                return await mcp_tools(client, **chosen)
            except Exception as error:  # noqa: BLE001 - the client would make a group of it
                return error

    made = anyio.run(main)
    if isinstance(made, Exception):
        raise made
    return made


def test_what_the_api_takes_in_no_name_becomes_an_underscore() -> None:
    """MCP allows dots and slashes, and does not enforce even that."""
    names = ["read", "files.read", "files/write", "ein Ümlaut", "a-b_c"]
    assert [tool.name for tool in taken(*names)] == ["read", "files_read", "files_write", "ein__mlaut", "a-b_c"]


def test_a_prefix_lets_two_servers_have_tools_of_one_name() -> None:
    """Without it the registry refuses them."""
    one, two = taken("read", "write", prefix="one_"), taken("read", prefix="two_")
    assert ToolRegistry([*one, *two]).names == ("one_read", "one_write", "two_read")
    with pytest.raises(BadTool, match="read"):
        ToolRegistry([*taken("read"), *taken("read")])


def test_only_takes_tools_by_the_servers_names_in_the_servers_order() -> None:
    """The prefix is the caller's own affair."""
    tools = taken("a", "b.c", "d", only=["d", "b.c"], prefix="x_")
    assert [tool.name for tool in tools] == ["x_b_c", "x_d"]
    assert taken("a", only=[]) == []


def test_options_hold_for_every_tool() -> None:
    """Approval, effect and time."""

    def needs(call: Any) -> bool:
        return True

    for tool in taken("a", "b", needs_approval=needs, effect="pure", timeout=3):
        assert (tool.needs_approval, tool.effect, tool.timeout, tool.is_async) == (needs, "pure", 3, True)


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (["a"], {"only": ["a", "b"]}, ["'b'", "it has: a"]),
        (["a.b", "a_b"], {}, ["'a_b'", "only="]),
        (["a" * 60], {"prefix": "server_"}, ["1 to 64", "prefix", "only="]),
        (["a"], {"prefix": "no spaces "}, ["'no spaces a'", "prefix"]),
        ([""], {}, ["1 to 64"]),
        (["a"], {"effect": "twice"}, ['"pure"']),
        (["a"], {"timeout": -1}, ["timeout", "MCP"]),
        (["a"], {"endless": True}, ["no end"]),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(names: list[str], options: dict[str, Any], words: list[str]) -> None:
    """And names the tool."""
    with pytest.raises(BadTool) as caught:
        taken(*names, **options)
    assert [word for word in words if word not in str(caught.value)] == []


def test_an_option_that_there_is_not_is_refused() -> None:
    """As in any call."""
    with pytest.raises(TypeError, match="approval"):
        taken("a", approval=True)


def test_what_the_api_takes_in_no_schema_goes_into_the_description() -> None:
    """The API refuses a choice at the top of a schema. It is judged all the same."""
    (tool,) = taken("either", schema=EITHER)
    definition = tool.definition()
    assert definition["input_schema"] == {"type": "object", "properties": EITHER["properties"]}
    assert definition["description"].endswith('{"anyOf":[{"required":["path"]},{"required":["url"]}]}')
    assert tool.prepare({"url": "x"}) == {"arguments": {"url": "x"}}


def test_a_schema_is_always_that_of_an_object() -> None:
    """The API asks for it, and the rest stays as it is, in its order."""
    (tool,) = taken("a", schema={"$schema": "http://json-schema.org/draft-07/schema#", "title": "A", "type": "object"})
    assert tool.definition() == {
        "name": "a",
        "input_schema": {"type": "object", "$schema": "http://json-schema.org/draft-07/schema#", "title": "A"},
    }


def test_half_a_surrogate_pair_does_not_reach_the_api() -> None:
    """It would refuse the whole request: the character for what is unknown is there instead."""
    half = "half \ud83d of a pair"
    schema = {"type": "object", "properties": {"x": {"description": half, "enum": [half, "\ud83d\ude00"]}}}
    (tool,) = taken("a", said=half, schema=schema)
    whole = "half \ufffd of a pair"
    assert tool.definition() == {
        "name": "a",
        "description": whole,
        "input_schema": {
            "type": "object",
            "properties": {"x": {"description": whole, "enum": [whole, "😀"]}},
        },
    }


def test_definitions_are_the_same_from_time_to_time() -> None:
    """Byte for byte."""
    first, second = (taken(*(tool.name for tool in TOOLS), schema=EITHER) for _ in range(2))
    assert [str(tool.definition()) for tool in first] == [str(tool.definition()) for tool in second]
