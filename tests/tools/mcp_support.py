"""What the tests of MCP tools share: a server as a program of its own, and what it ran."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Unpack

import pytest
from attrs import frozen
from mcp import StdioServerParameters

from toolloop import Tool
from toolloop.tools import InvalidInput
from toolloop.tools.mcp import McpOptions, open_mcp
from toolloop.tools.schema.json_schema import ForeignSchema

PROGRAM = Path(__file__).with_name("mcp_server.py")
RAW_PROGRAM = Path(__file__).with_name("mcp_raw_server.py")
OBJECT: dict[str, Any] = {"type": "object"}


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


def raw(tools: Sequence[Any], calls: Mapping[str, Any] | None = None, **answers: Any) -> StdioServerParameters:
    """A server that sends just this: its list of tools, the results of calls, and other answers than it should."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "raw", "version": "1"}}
    said = {"initialize": hello, "tools/list": {"tools": tools}, "calls": calls or {}} | answers
    return StdioServerParameters(command=sys.executable, args=[str(RAW_PROGRAM), json.dumps(said)])


def problems(schema: dict[str, Any], value: Any) -> list[str]:
    """What the model is told, a text for each field."""
    with pytest.raises(InvalidInput) as caught:
        ForeignSchema("tool", schema).fit(value)
    return list(caught.value.problems)


def of(name: str, **rules: Any) -> dict[str, Any]:
    """A schema with one property."""
    return {"type": "object", "properties": {name: rules}}
