"""Helpers for the tests of MCP tools: the server, and the calls that reached it."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Unpack

from attrs import frozen
from mcp import StdioServerParameters

from tests.tools.mcp_server import make_server
from toolloop import Tool
from toolloop.tools.mcp import McpOptions, open_mcp

PROGRAM = Path(__file__).with_name("mcp_server.py")


@frozen
class Server:
    """The server, and the file into which it writes each call."""

    file: Path

    def program(self, *names: str) -> StdioServerParameters:
        """The program, with all tools or with these alone."""
        return StdioServerParameters(command=sys.executable, args=[str(PROGRAM), str(self.file), *names])

    def local(self, *names: str) -> Any:
        """The server in this process, which starts at once."""
        return make_server(self.file, list(names))

    def open(self, *names: str, **options: Unpack[McpOptions]) -> AbstractContextManager[list[Tool[..., Any]]]:
        """The tools of the server in this process, for the sync handle."""
        return open_mcp(self.local(*names), **options)

    @property
    def ran(self) -> list[Any]:
        """The calls that reached the server: name and arguments."""
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []
