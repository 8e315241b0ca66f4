"""What clients may bring to a conversation, and what they get of it."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Final

from ag_ui.core import Tool
from attrs import frozen

from toolloop._interface.loop_params import may_be_brought

SHOWS: Final = ("text", "reasoning", "calls", "results", "nested", "usage")
_WORDS = {"denied": "denied", "expired": "denied", "not_run": "denied"}  # of calls that did not run, by outcome
Event = dict[str, Any]  # an event or a message of AG-UI, as JSON


@frozen
class Terms:
    """What clients may bring, and what they get.

    Attributes:
        parts: those of `SHOWS` that they get.
        taken: the names of the tools of the server.
        patterns: the names of tools that a front end may bring, with `*` and `?` as in a shell.
        secret: the tools with secret parameters. Their inputs are not streamed.
        brought: the tools that front ends brought to this conversation, as its loop has recorded it.

    """

    parts: frozenset[str]
    taken: frozenset[str]
    patterns: tuple[str, ...]
    secret: frozenset[str]
    brought: frozenset[str] = frozenset()

    def has_call(self, tool: str) -> bool:
        """Return whether the calls of a tool are shown."""
        return "calls" in self.parts or tool in self.brought

    def has_input(self, tool: str) -> bool:
        """Return whether the inputs of a tool are shown as they come. It may have secrets if it is not known."""
        is_known = tool in self.taken or tool in self.brought
        return is_known and tool not in self.secret and self.has_call(tool)

    def result(self, tool: str, text: str, outcome: str, *, is_error: bool) -> str:
        """Return what a client gets of a result: the text, or a word for how the call ended."""
        is_shown = "results" in self.parts or tool in self.brought
        return text if is_shown else _WORDS.get(outcome, "failed" if is_error else "done")

    def definitions(self, tools: Iterable[Tool]) -> tuple[dict[str, Event], list[str]]:
        """Return the definitions of the tools that a client brings, by name, and the names of those not taken."""
        found, refused = dict[str, Event](), list[str]()
        for each in tools:
            schema = each.parameters or {"type": "object", "properties": {}}
            definition = {"name": each.name, "description": each.description, "input_schema": schema}
            is_free = each.name not in found and each.name not in self.taken
            is_named = any(fnmatchcase(each.name, pattern) for pattern in self.patterns)
            if is_free and is_named and may_be_brought(definition):
                found[each.name] = definition
            else:
                refused.append(each.name)
        return found, refused
