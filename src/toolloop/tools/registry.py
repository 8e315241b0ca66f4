"""`ToolRegistry`: the tools of a loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from toolloop._public import set_module
from toolloop.errors import BadTool
from toolloop.tools.function import Tool
from toolloop.tools.responses.adapter import AnthropicMessagesToolResponseAdapter, ToolResponseAdapter, check_adapter
from toolloop.tools.sdk_tools import SdkTool, SdkToolset, as_tools

if TYPE_CHECKING:
    from toolloop.machine.values.jsontext import JSON


@set_module("toolloop")
class ToolRegistry:
    """An immutable collection of tools, by name, in the given order.

    Args:
        tools: functions made with `@tool`, objects made with `anthropic.beta_tool`, or toolsets of the SDK; see
            `toolset`.
        adapter: makes results from return values; an `AnthropicMessagesToolResponseAdapter` if left out.

    Raises:
        BadTool: an object is not a tool, or two tools have the same name.
        TypeError: `adapter` is not a response adapter.

    Attributes:
        adapter: the object that makes results from return values.

    """

    __slots__ = ("_tools", "adapter")

    def __init__(
        self, tools: Iterable[Tool[..., Any] | SdkTool | SdkToolset] = (), adapter: ToolResponseAdapter | None = None
    ) -> None:
        """Store the tools."""
        self.adapter: ToolResponseAdapter = (
            AnthropicMessagesToolResponseAdapter() if adapter is None else check_adapter(adapter)
        )
        self._tools: dict[str, Tool[..., Any]] = {}
        for each in (member for given in tools for member in as_tools(given)):
            if each.name in self._tools:
                raise BadTool(
                    f"two tools are named {each.name!r}, but names must be unique. Rename one with "
                    "@tool(name=...), or pass a prefix for the tools of an MCP server",
                    tool=each.name,
                )
            self._tools[each.name] = each

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._tools)

    def get(self, name: str) -> Tool[..., Any] | None:
        """Return the tool with a name, or None."""
        return self._tools.get(name)

    def definitions(self) -> list[dict[str, JSON]]:
        """Return new copies of the definitions for `tools`, in order, with the same bytes in each run.

        Raises:
            BadTool: an annotation of a function has no schema.

        """
        return list_definitions(self)

    def only(self, *names: str) -> ToolRegistry:
        """Return a registry with only these tools, in this registry's order.

        Raises:
            BadTool: a name is unknown.

        """
        self._check(names)
        return ToolRegistry((each for each in self if each.name in names), self.adapter)

    def without(self, *names: str) -> ToolRegistry:
        """Return a registry without these tools.

        Raises:
            BadTool: a name is unknown.

        """
        self._check(names)
        return ToolRegistry((each for each in self if each.name not in names), self.adapter)

    def _check(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._tools:
                raise BadTool(f"unknown tool {name!r}; available: {', '.join(self.names) or 'none'}", tool=name)

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"<ToolRegistry: {', '.join(self.names) or 'no tools'}>"


def list_definitions(tools: Iterable[Tool[..., Any]]) -> list[dict[str, JSON]]:
    """Return the definitions of tools. A toolset has one, at the place of its first member."""
    found: dict[tuple[str, ...], Tool[..., Any]] = {}
    for each in tools:
        toolset, dot, _ = each.name.partition(".")
        found.setdefault((toolset, dot), each)
    return [each.definition() for each in found.values()]


Tools = ToolRegistry | Iterable[Tool[..., Any] | SdkTool | SdkToolset]
