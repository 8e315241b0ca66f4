"""The tools of a loop and of the loops inside its calls: looked at before they are taken, opened and closed with it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from toolloop.core.errors import BadTool, IllegalCommand
from toolloop.handle.beginning import as_registry
from toolloop.handle.sub_loops import SubLoop
from toolloop.handle.writers import refuse_misfits
from toolloop.tools import Tool, ToolRegistry
from toolloop.tools.sdk import SdkClosing


def _all_tools(registry: ToolRegistry) -> Iterator[Tool[..., Any]]:
    """The tools of a loop, each before those of the loop that it is."""
    for tool in registry:
        yield tool
        if isinstance(tool, SubLoop):
            yield from _all_tools(tool.registry)


def to_open(registry: ToolRegistry) -> tuple[Any, ...]:
    """What the tools of a loop open, each once, in the order of the tools."""
    return tuple({id(tool.opens): tool.opens for tool in _all_tools(registry) if tool.opens is not None}.values())


def refuse_unopened(registry: ToolRegistry) -> None:
    """Refuse to drive a loop outside of `with handle:` if a tool is to be opened there.

    Raises:
        IllegalCommand: names the tool.

    """
    for tool in _all_tools(registry):
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
        TypeError: a loop among them has summaries written by somebody whom the handle cannot wait for.

    """
    registry = as_registry(tools)
    for tool in _all_tools(registry):
        if isinstance(tool, SubLoop):
            refuse_misfits(tool.config.strategies(), is_async=is_async)
    if not is_async:
        for tool in _all_tools(registry):
            _refuse_async(tool)
    return registry


def _refuse_async(tool: Tool[..., Any]) -> None:
    if tool.is_async:
        raise BadTool(
            f"the tool {tool.name!r} is async, and ToolLoopHandle is not: use AsyncToolLoopHandle", tool=tool.name
        )
    if tool.opens is not None and not hasattr(tool.opens, "__enter__"):
        raise BadTool(
            f"what the tool {tool.name!r} opens is an async context manager: use AsyncToolLoopHandle", tool=tool.name
        )
    if inspect.iscoroutinefunction(tool.needs_approval):
        raise BadTool(
            f"needs_approval of the tool {tool.name!r} is async; use AsyncToolLoopHandle, or an ordinary function",
            tool=tool.name,
        )
    if isinstance(tool, SubLoop) and tool.config.has_async():
        raise BadTool(
            f"a callable in the config of the sub_loop {tool.name!r} is async, and ToolLoopHandle is not: use "
            "AsyncToolLoopHandle, or an ordinary function",
            tool=tool.name,
        )
