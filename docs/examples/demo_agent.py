"""The agent of the demo: its files, its tools, and a stand-in for the model that needs no key."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

from toolloop import Texts, ToolContext, ToolError, tool
from toolloop.testing import reply

README, NOTES = "README.md", "old-notes.txt"
FILES = {
    README: "# Lamplight\n\nA lamp that knows wehn it is dark.\n\nRun teh tests with `make test`.\n",
    NOTES: "Lamplight: a lamp that knows when it is dark.\nRun the tests with make test.\n",
}
SYSTEM = "You work in one folder with a few files. Paths are relative to it. Be brief."
TASK = f"Correct the typos in {README}. Then delete {NOTES} if {README} says all of it."


@tool(effect="pure")
def list_files(ctx: ToolContext) -> list[str]:
    """List the files of the folder."""
    return sorted(path.name for path in ctx.state.iterdir())


@tool(effect="pure")
def read_file(path: str, ctx: ToolContext) -> str:
    """Read a text file."""
    return _inside(ctx.state, path).read_text(encoding="utf-8")


@tool(needs_approval=True)
def write_file(path: str, text: str, ctx: ToolContext) -> str:
    """Write a text file, in place of what is there."""
    _inside(ctx.state, path).write_text(text, encoding="utf-8")
    return f"wrote {len(text)} characters to {path}"


@tool(needs_approval=True)
def delete_file(path: str, ctx: ToolContext) -> str:
    """Delete a file."""
    _inside(ctx.state, path).unlink()
    return f"deleted {path}"


TOOLS = (list_files, read_file, write_file, delete_file)


def tools_with_preview(folder: Path) -> list[Any]:
    """The same tools; a person who decides elsewhere sees what `write_file` would change."""

    def preview(given: dict[str, Any]) -> str:
        path = _inside(folder, given["path"])
        before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        names = given["path"], given["path"]
        return "\n".join(difflib.unified_diff(before, given["text"].splitlines(), *names, lineterm=""))

    shown = tool(write_file.function, needs_approval=True, preview=preview)
    return [shown if each is write_file else each for each in TOOLS]


def _inside(folder: Path, path: str) -> Path:
    folder = folder.resolve()
    target = (folder / path).resolve()
    if not target.is_relative_to(folder):
        raise ToolError(f"{path} is outside the folder")
    return target


def scripted_model(request: dict[str, Any]) -> dict[str, Any]:
    """What the stand-in answers. It goes by the results so far, so it knows what was denied, edited or answered."""
    rounds = _rounds(request["messages"])
    match rounds:
        case []:
            text = "I read both files at once."
            calls = [("read_file", {"path": README}), ("read_file", {"path": NOTES})]
        case [[(_, readme), _]]:
            text = f"{README} has two typos: “wehn” and “teh”. I would like to write it anew."
            fixed = _text(readme).replace("wehn", "when").replace("teh", "the")
            calls = [("write_file", {"path": README, "text": fixed})]
        case [_, [write]]:
            text = f"{_outcome(*write)} {NOTES} says nothing else, so I would like to delete it."
            calls = [("delete_file", {"path": NOTES})]
        case _:
            outcomes = [_outcome(*made) for made in (rounds[1][0], rounds[2][0])]
            text = "That is all I had to do:\n\n" + "\n".join(f"- {outcome}" for outcome in outcomes)
            calls = []
    usage = {"input_tokens": len(json.dumps(request)) // 4, "output_tokens": len(text + json.dumps(calls)) // 4}
    return reply(text, calls=calls, usage=usage)


def _rounds(messages: list[Any]) -> list[list[tuple[Any, Any]]]:
    """The calls of each round, with their results."""
    return [
        list(
            zip([block for block in asked["content"] if block["type"] == "tool_use"], answered["content"], strict=False)
        )
        for asked, answered in zip(messages[1::2], messages[2::2], strict=True)
    ]


def _outcome(call: dict[str, Any], result: dict[str, Any]) -> str:
    """What became of a call, as far as its result tells."""
    name, path, said = call["name"], call["input"]["path"], _text(result)
    denied = Texts().denied.partition("{reason}")[0]
    edit = said.partition("than the one you gave: ")[2]
    if said.startswith(denied):
        return f"{path} is as it was, because you denied {name}: “{said.removeprefix(denied)}”."
    if result.get("is_error"):
        return f"{name} failed: {said.splitlines()[0]}"
    if edit:
        return f"{name} ran on {json.loads(edit)['path']}, with your input instead of mine."
    if said.startswith(("wrote", "deleted")):
        return f"{path} is {'corrected' if name == 'write_file' else 'deleted'}."
    return f"{name} did not run, because you answered for it: “{said}”."


def _text(result: dict[str, Any]) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)
