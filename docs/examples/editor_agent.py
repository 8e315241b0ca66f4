"""The assistant in an editor that speaks the Agent Client Protocol: it asks before it edits a file or runs a command.

python -m toolloop.acp editor_agent:assistant     # started by the editor; see docs/howto/editors.md
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anthropic import AsyncAnthropic

from toolloop import Budget, Grant, LoopConfig, SqliteStore, ToolError, tool
from toolloop.acp import AcpLoops, AcpSession
from toolloop.compaction import MaskResults

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 8192, "system": "You help in an editor. Be brief."}
KINDS = {"ls": "search", "read": "read", "edit": "edit", "shell": "execute"}


def tools_in(folder: Path) -> list[Any]:
    """Return the tools for the files of a folder."""

    def inside(path: str) -> Path:
        if not (folder / path).resolve().is_relative_to(folder):
            raise ToolError(f"{path} is outside the folder {folder}")
        return folder / path

    @tool(effect="pure")
    def ls(path: str = ".") -> list[str]:
        """List a folder. The names of folders end with a slash."""
        return sorted(each.name + "/" * each.is_dir() for each in inside(path).iterdir())

    @tool(effect="pure")
    def read(path: str) -> str:
        """Read a text file."""
        return inside(path).read_text("utf-8")

    @tool(needs_approval=True, diff=("old", "new"), path="path")
    def edit(path: str, old: str, new: str) -> str:
        """Replace a text that stands once in a file. An empty old text creates the file."""
        text = inside(path).read_text("utf-8") if old else ""
        if old and text.count(old) != 1:
            raise ToolError(f"the old text stands {text.count(old)} times in {path}")
        inside(path).write_text(text.replace(old, new) if old else new, "utf-8")
        return f"edited {path}"

    @tool(needs_approval=True)
    def shell(command: str) -> str:
        """Run a command in the shell, for at most five minutes. The end of a long output is kept."""
        options: dict[str, Any] = {"capture_output": True, "stdin": subprocess.DEVNULL, "errors": "replace"}
        ran = subprocess.run(command, shell=True, check=False, cwd=folder, timeout=300, **options)  # noqa: S602 - a person approves it
        return f"exit code {ran.returncode}\n{(ran.stdout + ran.stderr)[-20_000:]}"

    return [ls, read, edit, shell]


def describe(name: str, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind of a call, by which an editor chooses the icon."""
    return {"kind": KINDS[name]}


def assistant(session: AcpSession) -> AcpLoops:
    """Return the parts of a session. All sessions are in one file of the home folder."""
    return AcpLoops(
        SqliteStore(Path.home() / ".editor-agent.db"),
        AsyncAnthropic(),
        tools_in(Path(session.folder).resolve()),
        PARAMS,
        config=LoopConfig(
            max_iterations=100,
            budget=Budget(total_tokens=2_000_000),
            compaction=MaskResults(keep_rounds=3, at_tokens=50_000),
        ),
        describe=describe,
        always={"edit": Grant(match={"path": "docs/**"})},
    )
