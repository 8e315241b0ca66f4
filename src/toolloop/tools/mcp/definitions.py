"""What an MCP server lists, as tools of the API. Imported by `toolloop.tools.mcp` only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from attrs import field, frozen
from mcp import ClientSession
from mcp.types import PaginatedRequestParams

from toolloop.core.errors import BadTool
from toolloop.core.jsontext import JSON, encode
from toolloop.core.values import ToolEffect
from toolloop.tools.function import Tool
from toolloop.tools.mcp.calls import CONTEXTS, McpCall, wire
from toolloop.tools.mcp.json_schema import ForeignSchema
from toolloop.tools.options import check_effect, check_timeout
from toolloop.tools.schema.signature import check_name

if TYPE_CHECKING:
    from mcp import Client

Listed = dict[str, JSON]

# A server whose list has no end may not hold up the caller for ever.
_MOST_PAGES = 1000
# What the API does not take at the top of an input schema.
_COMBINED = ("anyOf", "oneOf", "allOf")
_ODD = re.compile(r"[^a-zA-Z0-9_-]")


class McpOptions(TypedDict, total=False):
    """How the tools of a server are taken: each option holds for all of them.

    Attributes:
        needs_approval: whether a call waits for the caller's word, or a predicate on the call; False if left out.
        effect: whether a call may run again, as for `tool`; `"once"` if left out.
        prefix: what each name begins with, so that two servers may have tools of one name.
        only: the tools to take, by the names that the server gives them; all of them if left out.
        timeout: seconds that a call may take; None leaves that to the loop.

    """

    needs_approval: bool | Callable[[Any], Any]
    effect: ToolEffect
    prefix: str
    only: Iterable[str] | None
    timeout: float | None


@frozen
class Taken:
    """The options, checked."""

    needs_approval: bool | Callable[[Any], Any] = False
    effect: ToolEffect = "once"
    prefix: str = ""
    only: Iterable[str] | None = None
    timeout: float | None = None


def checked(options: McpOptions) -> Taken:
    """The options, or `BadTool`. An unknown one is a `TypeError`, as for any call."""
    taken = Taken(**options)
    check_timeout(taken.timeout, "the MCP tools")
    check_effect(taken.effect, "the MCP tools")
    return taken


async def listed(session: ClientSession | Client) -> list[Listed]:
    """All tools of a session, page by page, as they are on the wire.

    Raises:
        BadTool: the list has no end.

    """
    found: list[Listed] = []
    page = wire(await session.list_tools())
    for _ in range(_MOST_PAGES):
        found += page["tools"]
        cursor = page.get("nextCursor")
        if not cursor:
            return found
        if isinstance(session, ClientSession):
            page = wire(await session.list_tools(params=PaginatedRequestParams(cursor=cursor)))
        else:
            page = wire(await session.list_tools(cursor=cursor))
    raise BadTool(f"the MCP server's list of tools has no end: more than {_MOST_PAGES} pages", tool="")


def defined(session: ClientSession | Client, found: Iterable[Listed], taken: Taken) -> list[Tool[..., Any]]:
    """The tools, in the server's order.

    Raises:
        BadTool: a name is none of the server's, is refused by the API, or would be there twice.

    """
    by_name = {each["name"]: each for each in found}
    wanted = set(by_name if taken.only is None else taken.only)
    for name in sorted(wanted - by_name.keys()):
        raise BadTool(f"the MCP server has no tool {name!r}; it has: {', '.join(by_name) or 'none'}", tool=name)
    tools: dict[str, Tool[..., Any]] = {}
    for each in (by_name[name] for name in by_name if name in wanted):
        name = _name(each["name"], taken.prefix)
        if name in tools:
            raise BadTool(f"two tools of the MCP server would be named {name!r}: name one of them in only=", tool=name)
        intake = McpIntake(name, _description(each), each["inputSchema"])
        tools[name] = Tool(
            name=name,
            description=intake.description,
            function=McpCall(session, each["name"]),
            needs_approval=taken.needs_approval,
            effect=taken.effect,
            is_async=True,
            intake=intake,
            contexts=CONTEXTS,
            timeout=taken.timeout,
        )
    return list(tools.values())


def _name(given: str, prefix: str) -> str:
    name = prefix + _ODD.sub("_", given)
    try:
        return check_name(name)
    except BadTool:
        raise BadTool(
            f"the MCP tool {given!r} would be named {name!r}: the API takes 1 to 64 letters, digits, underscores and "
            "hyphens. Give another prefix, or name in only= the tools you want",
            tool=given,
        ) from None


def _description(tool: Listed) -> str:
    annotations = tool.get("annotations") or {}
    return str(tool.get("description") or tool.get("title") or annotations.get("title") or "")


@frozen
class McpIntake:
    """The intake of an MCP tool: the server's schema as it is, as far as the API takes it.

    Attributes:
        name: the tool's name in the loop.
        description: what the server says of it.
        schema: the server's JSON Schema of the input.

    """

    name: str
    description: str
    schema: Mapping[str, JSON]
    _judge: ForeignSchema = field(init=False)

    @_judge.default
    def _made(self) -> ForeignSchema:
        return ForeignSchema(self.name, self.schema)

    def definition(self) -> JSON:
        """What goes into `tools`. What the API does not take of the schema goes into the description."""
        combined = {key: self.schema[key] for key in _COMBINED if key in self.schema}
        schema = {key: value for key, value in self.schema.items() if key not in combined}
        told = [self.description] if self.description else []
        if combined:
            told.append(f"The input must also fit this JSON Schema: {encode(combined)}")
        described = {"description": "\n\n".join(told)} if told else {}
        return {"name": self.name, **described, "input_schema": {"type": "object"} | schema | {"type": "object"}}

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The arguments, or `InvalidInput`."""
        return {"arguments": self._judge.fit(given)}
