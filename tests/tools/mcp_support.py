"""What the tests of MCP tools share: a server as a program of its own, and what it ran."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Unpack

from attrs import frozen
from mcp import StdioServerParameters

from toolloop import Tool
from toolloop.tools.mcp import McpOptions, open_mcp

PROGRAM = Path(__file__).with_name("mcp_server.py")


@frozen
class Server:
    """How to start the server, and the file into which it writes what it runs."""

    file: Path

    def program(self, *names: str) -> StdioServerParameters:
        """The program, with all tools or with these alone."""
        return StdioServerParameters(command=sys.executable, args=[str(PROGRAM), str(self.file), *names])

    def opened(self, *names: str, **options: Unpack[McpOptions]) -> AbstractContextManager[list[Tool[..., Any]]]:
        """The tools, for the sync handle."""
        return open_mcp(self.program(*names), **options)

    @property
    def ran(self) -> list[Any]:
        """The calls that reached the server: name and arguments."""
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []


def named(tools: Iterable[Tool[..., Any]]) -> Mapping[str, Tool[..., Any]]:
    """Tools by name."""
    return {tool.name: tool for tool in tools}
