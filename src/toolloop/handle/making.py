"""What a loop is made of, looked at before it is taken: tools, what they open, request parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from toolloop.core.errors import BadTool, IllegalCommand
from toolloop.core.jsontext import JSON
from toolloop.handle.params import refuse_bad
from toolloop.tools import Tool, ToolRegistry, as_tool
from toolloop.tools.sdk import SdkClosing


def to_open(registry: ToolRegistry) -> tuple[Any, ...]:
    """What the tools of a loop open, each once, in the order of the tools."""
    return tuple({id(tool.opens): tool.opens for tool in registry if tool.opens is not None}.values())


def refuse_unopened(registry: ToolRegistry) -> None:
    """Refuse to drive a loop outside of `with handle:` if a tool is to be opened there.

    Raises:
        IllegalCommand: names the tool.

    """
    for tool in registry:
        if tool.opens is not None and not isinstance(tool.opens, SdkClosing):  # those of the SDK open by themselves
            raise IllegalCommand(
                f"next_turn(): the tool {tool.name!r} has a context manager, which opens and closes with the loop. "
                "Drive the loop inside `with handle:` (`async with handle:` of an async one)",
                state="not opened",
                asked="next_turn()",
                allowed=("with handle: ...",),
            )


def registry_of(tools: Any, *, is_async: bool) -> ToolRegistry:
    """The tools as a registry.

    Raises:
        BadTool: two of one name, an async tool under the sync handle, something that is no tool.

    """
    if isinstance(tools, Tool) or not isinstance(tools, Iterable):
        raise TypeError(f"tools is a {type(tools).__name__}; give a list of tools, or a ToolRegistry")
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry([as_tool(tool) for tool in tools])
    for tool in registry:
        if tool.is_async and not is_async:
            raise BadTool(
                f"the tool {tool.name!r} is async, and ToolLoopHandle is not: use AsyncToolLoopHandle", tool=tool.name
            )
        if tool.opens is not None and not is_async and not hasattr(tool.opens, "__enter__"):
            raise BadTool(
                f"what the tool {tool.name!r} opens is an async context manager: use AsyncToolLoopHandle",
                tool=tool.name,
            )
        if inspect.iscoroutinefunction(tool.needs_approval) and not is_async:
            raise BadTool(
                f"needs_approval of the tool {tool.name!r} is async; use AsyncToolLoopHandle, or an ordinary function",
                tool=tool.name,
            )
    return registry


def all_params(stored: Mapping[str, JSON], registry: ToolRegistry) -> dict[str, JSON]:
    """The parameters with the loop's own tools among them."""
    tools = [*registry.definitions(), *(stored.get("tools") or ())]
    return {**stored, "tools": tools or None}


def check_request(stored: Mapping[str, JSON], registry: ToolRegistry, *, asked: str) -> None:
    """Refuse what the API is certain to refuse of a request, its messages aside.

    Raises:
        BadTool: two tools of one name, whether the loop defines them or the parameters do.
        ValueError: a parameter that the API refuses.

    """
    refuse_bad(all_params(stored, registry), asked=asked)
    seen = set(registry.names)
    for tool in stored.get("tools") or ():
        name = tool.get("name") if isinstance(tool, dict) else None
        if name in seen:
            raise BadTool(f"two tools have the name {name!r}; at least one of them is in params['tools']", tool=name)
        seen |= {name} if isinstance(name, str) else set()
