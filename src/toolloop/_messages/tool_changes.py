"""The tools that messages define, add or remove: the only reader of these blocks.

They are blocks of system messages, and entries of a compaction by the server: what the compacted messages changed, with
definitions by value (source: the SDK's `BetaCompactionBlockParam`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from attrs import frozen

from toolloop._messages.reading import Run, is_summary, kind_of, read_text, runs_of
from toolloop.machine.values.jsontext import decode

ADDITION: Final = "tool_addition"
_REMOVAL: Final = "tool_removal"
_MARKS: Final = (f'"{ADDITION}"', f'"{_REMOVAL}"')
# The types of entries in `tools` that stand for many tools; an MCP toolset is run by the server (anthropic-sdk 2.14).
_TOOLSET: Final = re.compile(r"(?!mcp_)(\w+?)_toolset_\d{8}")


@frozen
class ToolChange:
    """A tool that a message adds or removes.

    Attributes:
        path: where, such as `messages[4].content[1]`.
        kind: `tool_addition` or `tool_removal`.
        tool: a reference to the tool, or a `tool_definition`.
        is_compacted: whether a compaction of the server has it, as the server made it.

    """

    path: str
    kind: str
    tool: dict[str, Any]
    is_compacted: bool = False

    @property
    def definition(self) -> dict[str, Any]:
        """Return the definition that it has by value; empty if it refers to a tool."""
        definition = self.tool.get("definition") if kind_of(self.tool) == "tool_definition" else None
        return definition if isinstance(definition, dict) else {}


def find_changes(runs: Iterable[Run]) -> Iterator[ToolChange]:
    """Yield the changes of tools in a history, oldest first."""
    for run in runs:
        for spot in run.spots:
            if run.role == "system":
                yield from _read(spot.path, spot.block)
            elif spot.kind == "compaction" and is_summary(spot.block):
                entries = spot.block.get("tool_changes")
                for at, entry in enumerate(entries if isinstance(entries, list) else ()):
                    yield from _read(f"{spot.path}.tool_changes[{at}]", entry, is_compacted=True)


def _read(path: str, block: Any, *, is_compacted: bool = False) -> Iterator[ToolChange]:
    kind = kind_of(block)
    if kind in (ADDITION, _REMOVAL) and isinstance(tool := block.get("tool"), dict):
        yield ToolChange(path, kind, tool, is_compacted)


def may_change_tools(texts: Iterable[str]) -> bool:
    """Return whether one of these messages, as JSON texts, may change tools. Most do not, and need not be decoded."""
    return any(mark in text for text in texts for mark in _MARKS)


def may_add_tools(texts: Iterable[str]) -> bool:
    """Return whether one of these messages, as JSON texts, may add tools."""
    return any(_MARKS[0] in text for text in texts)


def list_defined(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the definitions of the tools that messages add, without those that are removed again."""
    found: dict[str, dict[str, Any]] = {}
    known: dict[str, dict[str, Any]] = {}
    for change in find_changes(runs_of(messages)):
        definition = change.definition
        name = read_text(definition or change.tool, "name") or str(definition.get("type"))
        known |= {name: definition} if definition else {}
        if change.kind == _REMOVAL:
            found.pop(name, None)
        elif name in known:  # a reference may add again what was removed
            found[name] = known[name]
    return list(found.values())


def list_names_ever_defined(messages: Iterable[Any]) -> set[Any]:
    """Return the names of all tools that messages define: a request may have none of them.

    One that was removed again counts, too: it may be added again by its name.
    """
    return {change.definition.get("name") for change in find_changes(runs_of(messages)) if change.definition}


def decode_changing(texts: Iterable[str]) -> Iterator[Any]:
    """Yield those of some messages, as JSON texts, that may change tools."""
    yield from (decode(text) for text in texts if may_change_tools((text,)))


def toolset_of(definition: Any) -> str | None:
    """Return the name of the toolset that an entry of `tools` defines, such as `computer`; None for other entries."""
    found = _TOOLSET.fullmatch(kind_of(definition) or "")
    return found[1] if found else None
