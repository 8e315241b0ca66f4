"""An MCP server over stdio, run as a program: `mcp_server.py FILE [one of the tools' names]...`.

It writes each call that it runs into the file, one JSON text a line, before it does anything. With names given, it has
only these tools.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n%%EOF\n"
PAGE = 3


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


# Content blocks as they are on the wire.
CONTENTS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": "some words"},
    "image": {"type": "image", "data": encode(PNG), "mimeType": "image/png"},
    "misnamed": {"type": "image", "data": encode(PNG), "mimeType": "image/jpeg"},
    "audio": {"type": "audio", "data": encode(b"RIFF"), "mimeType": "audio/wav"},
    "text file": {"type": "resource", "resource": {"uri": "file:///a/notes.txt", "text": "a note"}},
    "pdf": {
        "type": "resource",
        "resource": {"uri": "file:///a/the%20report.pdf", "blob": encode(PDF), "mimeType": "application/pdf"},
    },
    "picture file": {
        "type": "resource",
        "resource": {"uri": "file:///a/p.png", "blob": encode(PNG), "mimeType": "image/png"},
    },
    "zip": {"type": "resource", "resource": {"uri": "https://example.com/", "blob": encode(b"PK\3\4\0")}},
    "link": {"type": "resource_link", "name": "the page", "uri": "https://example.com/page"},
}
ANY_INPUT: dict[str, Any] = {"type": "object"}
ECHO = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "description": "What to say."},
        "times": {"type": "integer", "default": 1},
        "tone": {"enum": ["loud", "low", None]},
    },
    "required": ["text"],
    "additionalProperties": False,
}
EITHER = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "url": {"type": "string"}},
    "anyOf": [{"required": ["path"]}, {"required": ["url"]}],
}
TOOLS = [
    Tool(name="echo", description="Say it back.", input_schema=ECHO),
    Tool(name="contents", title="Contents of each kind", input_schema=ANY_INPUT),
    Tool(name="structured", input_schema=ANY_INPUT),
    Tool(name="refuse", input_schema=ANY_INPUT),
    Tool(name="files/read.one", description="Read a file.", input_schema=ANY_INPUT),
    Tool(name="either", description="Take one of two.", input_schema=EITHER),
    Tool(name="nowhere", input_schema={"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}),
    Tool(name="climb", description="Tell how far it is.", input_schema=ANY_INPUT),
    Tool(name="hang", description="Never end.", input_schema=ANY_INPUT),
    Tool(name="ended", description="Wait until `hang` was cancelled.", input_schema=ANY_INPUT),
    Tool(name="protest", description="Fail in the protocol.", input_schema=ANY_INPUT),
    Tool(name="die", description="Take the server down.", input_schema=ANY_INPUT),
]


class Recorder:
    """The tools, and the file into which each call is written."""

    def __init__(self, file: Path, names: list[str]) -> None:
        self._file = file
        self._tools = [tool for tool in TOOLS if tool.name in names or not names]
        self._cancelled = anyio.Event()

    async def list_tools(self, context: ServerRequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
        start = int(params.cursor) if params is not None and params.cursor else 0
        after = start + PAGE
        more = str(after) if after < len(self._tools) else None
        return ListToolsResult(tools=self._tools[start:after], next_cursor=more)

    async def call(self, context: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
        given = params.arguments or {}
        with self._file.open("a") as file:
            file.write(json.dumps([params.name, given]) + "\n")
        match params.name:
            case "contents":
                result = {"content": [CONTENTS[kind] for kind in given["kinds"]], "isError": given.get("error", False)}
                return CallToolResult.model_validate(result)
            case "structured":
                return CallToolResult(content=given.get("content", []), structured_content={"b": 1, "a": [None, 2.5]})
            case "refuse":
                return CallToolResult(content=[TextContent(text="the disk is full")], is_error=True)
            case "climb":
                await context.session.report_progress(1, 2, "half way")
                await context.session.report_progress(2, 2)
            case "hang":
                await context.session.report_progress(0)
                await self._hang()
            case "ended":
                await self._cancelled.wait()
            case "protest":
                raise MCPError(code=-32602, message="no such thing")
            case "die":
                os._exit(1)
        return CallToolResult(content=[TextContent(text=f"{params.name}: {json.dumps(given)}")])

    async def _hang(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._cancelled.set()


def make_server(file: Path, names: list[str]) -> Server[Any]:
    """Make the server, for a program or for the process of a test."""
    recorder = Recorder(file, names)
    return Server("test", on_list_tools=recorder.list_tools, on_call_tool=recorder.call)


async def main(*arguments: str) -> None:
    file, *names = arguments
    server = make_server(Path(file), names)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
