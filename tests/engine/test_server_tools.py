"""Tools of a real MCP server in a loop: its hints, and a list that it changes while the loop runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations as Hints

from tests.kit.world import ID, World, store_at
from toolloop import Ask
from toolloop.inbox import Inbox
from toolloop.testing import call, reply
from toolloop.tools.mcp import open_mcp
from toolloop.types import ToolAnnotations

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

    def add(self, tool: str, hints: Hints | None = None, description: str = "Use a note.") -> None:
        def use(name: str) -> str:
            self.ran.append(f"{tool} {name}")
            return f"{tool} {name}: done"

        self.server.add_tool(use, name=tool, description=description, annotations=hints)

    def remove(self, tool: str) -> None:
        self.server.remove_tool(tool)

    def change(self, tool: str, hints: Hints | None = None, description: str = "Use a note.") -> None:
        self.remove(tool)
        self.add(tool, hints, description)


def by_hints(call: Any, _view: Any) -> Ask | None:
    """A policy that trusts the server."""
    return None if call.annotations is not None and call.annotations.read_only_hint else Ask("it may change something")


def test_a_policy_sees_the_hints(tmp_path: Path) -> None:
    """Also an inbox in another process, and a handle: with the protocol's defaults, and none for other tools."""
    notes = Notes()
    with open_mcp(notes.server) as tools:
        world = World("sync", store_at("sqlite", tmp_path), [reply(calls=[READS, DELETES]), reply("done")], tools)
        world.config = {"on_tool_call": by_hints, "execution": "ready"}
        with world.open() as handle:
            (waits,) = handle.run().pending
            assert waits.annotations == ToolAnnotations()
            (shown,) = handle.view()["pending"]
        (seen,) = Inbox(store_at("sqlite", tmp_path)).show(ID)["pending"]
    defaults = {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": False, "open_world_hint": True}
    assert (shown["name"], shown["annotations"], seen) == ("delete", defaults, shown)


def test_a_lying_hint_never_sets_the_effect(tmp_path: Path) -> None:
    """A tool that says it is idempotent and read only may still not run twice, and needs the approval it needed."""
    notes = Notes(read=Hints(read_only_hint=True, idempotent_hint=True))
    with open_mcp(notes.server, needs_approval=True) as tools:
        world = World("sync", store_at("memory", tmp_path), [reply(calls=[READS]), reply("done")], tools)
        with world.open() as handle:
            (waits,) = handle.run().pending
            assert (waits.why, tools[0].effect) == ("approval", "once")
            assert not handle.state.root.setup.repeatable("read")
    assert notes.ran == []
