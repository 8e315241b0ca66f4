"""What an MCP server lists, read with care: one broken tool does not cost the others."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mcp import ClientSession
from mcp.types import PaginatedRequestParams
from pydantic import ValidationError

from toolloop.core.errors import BadTool
from toolloop.core.jsontext import JSON, well_formed
from toolloop.tools.mcp.answers import answer
from toolloop.tools.schema.words import shown

if TYPE_CHECKING:
    from mcp import Client

Listed = dict[str, JSON]

LOG = logging.getLogger("toolloop.tools")
# A server whose list has no end may not hold up the caller for ever.
_MOST_PAGES = 1000
# What the API takes as the name of a property of an input (source: its error for any other, as publicly reported).
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_REMEDY = "Name in only= the tools you want"


async def listed(session: ClientSession | Client) -> list[JSON]:
    """All tools of a session, page by page, as they are on the wire.

    Raises:
        BadTool: the list has no end, or is none.

    """
    found: list[JSON] = []
    cursor: JSON = None
    for _ in range(_MOST_PAGES):
        page = await _page(session, cursor)
        tools = page.get("tools")
        if not isinstance(tools, list):
            raise BadTool(f"the MCP server gives no list of tools, but {shown(tools)}", tool="")
        found += tools
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            return found
    raise BadTool(f"the MCP server's list of tools has no end: more than {_MOST_PAGES} pages", tool="")


async def _page(session: ClientSession | Client, cursor: str | None) -> Listed:
    try:
        if cursor is None:
            return answer(await session.list_tools())
        if isinstance(session, ClientSession):
            return answer(await session.list_tools(params=PaginatedRequestParams(cursor=cursor)))
        return answer(await session.list_tools(cursor=cursor))
    except ValidationError as error:
        # Only of a session of the caller's own, where `mcp` judges the list.
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadTool(
            f"mcp cannot read the MCP server's list of tools: {where}: {first['msg']}. "
            "Give open_mcp or aopen_mcp the server itself: there only= can leave a broken tool out",
            tool=where,
        ) from error


def chosen(found: Iterable[JSON], only: Iterable[str] | None) -> Iterator[Listed]:
    """The tools to take, in the server's order, with texts that any request can carry.

    A broken tool that `only` does not name is left out with a warning.

    Raises:
        BadTool: a tool to take is not there, is there twice, or is broken; the message says what to do.

    """
    tools = [(_name(each), each) for each in found]
    names = Counter(name for name, _ in tools if name is not None)
    wanted = None if only is None else set(only)
    for unknown in sorted((wanted or set()).difference(names)):
        raise BadTool(f"the MCP server has no tool {unknown!r}; it has: {', '.join(names) or 'none'}", tool=unknown)
    for index, (name, each) in enumerate(tools):
        why = _broken(each)
        if wanted is not None and name not in wanted:
            if why:
                LOG.warning("the MCP tool %s is left out: %s", _called(name, index), why)
            continue
        why = why or _refused(each) or ("it is listed twice" if names[name or ""] > 1 else None)
        if why:
            raise BadTool(f"the MCP tool {_called(name, index)} cannot be used: {why}. {_REMEDY}", tool=name or "")
        yield _mended(each)


def _name(tool: JSON) -> str | None:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else None


def _called(name: str | None, index: int) -> str:
    return f"at place {index + 1} of the list" if name is None else repr(name)


def _broken(tool: JSON) -> str | None:
    """Why it is no tool of MCP."""
    if _name(tool) is None:
        return "it has no name"
    if "inputSchema" not in tool:
        return "it has no inputSchema"
    schema = tool["inputSchema"]
    if not isinstance(schema, dict):
        return f"its inputSchema is {shown(schema)}, and that is an object"
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        return f"its inputSchema has the type {shown(kinds)}, and the input of a tool is an object"
    if not isinstance(schema.get("properties", {}), dict):
        return f"the properties of its inputSchema are {shown(schema['properties'])}, and that is an object"
    return None


def _refused(tool: Listed) -> str | None:
    """Why the API would refuse it, and with it every request."""
    for key in tool["inputSchema"].get("properties", {}):
        if not _KEY.fullmatch(key):
            return (
                f"its input has the property {shown(key)}, and the API takes 1 to 64 letters, digits, underscores, "
                "hyphens and dots there"
            )
    return None


def _mended(value: JSON) -> JSON:
    """The same, with every text well formed."""
    match value:
        case str():
            return well_formed(value)
        case dict():
            return {key: _mended(item) for key, item in value.items()}  # pydantic has mended the keys
        case list():
            return [_mended(item) for item in value]
    return value
