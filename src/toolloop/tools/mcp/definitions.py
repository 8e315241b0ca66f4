"""What an MCP server lists, as tools of the API. Imported by `toolloop.tools.mcp` only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import field

from toolloop.core.errors import BadTool
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, encode
from toolloop.tools.function import Tool
from toolloop.tools.mcp.calls import CONTEXTS, Connection, McpCall
from toolloop.tools.mcp.listing import Listed, chosen
from toolloop.tools.mcp.options import Taken
from toolloop.tools.schema.given import COMBINED
from toolloop.tools.schema.json_schema import ForeignSchema
from toolloop.tools.schema.signature import check_name

_ODD = re.compile(r"[^a-zA-Z0-9_-]")


def defined(connection: Connection, found: Iterable[JSON], taken: Taken) -> list[Tool[..., Any]]:
    """The tools, in the server's order.

    Raises:
        BadTool: one of them cannot be a tool of the API, or would be there twice; or `only` names none of the server's.

    """
    tools: dict[str, Tool[..., Any]] = {}
    for each in chosen(found, taken.only):
        name = _name(each["name"], taken.prefix)
        if name in tools:
            raise BadTool(f"two tools of the MCP server would be named {name!r}: name one of them in only=", tool=name)
        intake = McpIntake(name, _description(each), each["inputSchema"])
        tools[name] = Tool(
            name=name,
            description=intake.description,
            function=McpCall(connection, each["name"]),
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
    annotations = tool.get("annotations")
    titles = annotations if isinstance(annotations, dict) else {}
    texts = (tool.get("description"), tool.get("title"), titles.get("title"))
    return next((text for text in texts if isinstance(text, str) and text), "")


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
        combined = {key: self.schema[key] for key in COMBINED if key in self.schema}
        schema = {key: value for key, value in self.schema.items() if key not in combined}
        told = [self.description] if self.description else []
        if combined:
            told.append(f"The input must also fit this JSON Schema: {encode(combined)}")
        described = {"description": "\n\n".join(told)} if told else {}
        return {"name": self.name, **described, "input_schema": {"type": "object"} | schema | {"type": "object"}}

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The arguments, or `InvalidInput`."""
        return {"arguments": self._judge.fit(given)}
