"""An MCP server whose tools a test changes, and loops with its tools."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations as Hints

from tests.kit.world import ID
from toolloop import ToolLoopHandle
from toolloop.events import DriftAdopted
from toolloop.testing import ScriptedProvider, call

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Tidy up"}]}
READ_ONLY = Hints(read_only_hint=True, destructive_hint=False, open_world_hint=False)
READS = call("read", {"name": "a"}, id="c1")
DELETES = call("delete", {"name": "a"}, id="c2")


class Notes:
    """An MCP server whose tools a test changes, and the calls that reached it."""

    def __init__(self, **hints: Hints | None) -> None:
        self.ran: list[str] = []
        self.server = MCPServer("notes")
        for name, given in (hints or {"read": READ_ONLY, "delete": None}).items():
            self.add(name, given)

    def add(
        self, tool: str, hints: Hints | None = None, description: str = "Use a note.", is_forced: bool = False
    ) -> None:
        def use(name: str) -> str:
            self.ran.append(f"{tool} {name}")
            return f"{tool} {name}: done"

        def force(name: str, force: bool = False) -> str:
            return use(name)

        function = force if is_forced else use
        self.server.add_tool(function, name=tool, description=description, annotations=hints)

    def remove(self, tool: str) -> None:
        self.server.remove_tool(tool)

    def change(self, tool: str, hints: Hints | None = None, **more: Any) -> None:
        self.remove(tool)
        self.add(tool, hints, **more)


def tools_sent(provider: ScriptedProvider) -> list[list[str]]:
    return [[tool["name"] for tool in request["tools"]] for request in provider.requests]


def open_loop(store: Any, provider: ScriptedProvider, tools: Any, **more: Any) -> ToolLoopHandle:
    return ToolLoopHandle.open(store, ID, provider, params=PARAMS, tools=tools, **more)


def read_adopted(handle: ToolLoopHandle, text: str = "and now?") -> tuple[str, ...]:
    """Drive the next user turn, and return the changes that it began with."""
    seen: list[Any] = []
    handle.say(text)
    with handle.stream() as stream:
        seen += stream
    return tuple(change for event in seen if isinstance(event, DriftAdopted) for change in event.changes)
