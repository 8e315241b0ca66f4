"""Checks that a handle can call, or await, everything that it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from toolloop.compaction.strategy import Strategy
from toolloop.face.loop_params import as_registry
from toolloop.loop.sub_loops import SubLoop
from toolloop.machine.errors import BadTool
from toolloop.tools import Tool, ToolRegistry
from toolloop.tools.function import is_async as is_declared_async


def registry_of(tools: Any, *, is_async: bool) -> ToolRegistry:
    """Return the tools as a registry.

    Args:
        tools: the tools, as a handle takes them.
        is_async: whether the handle is async.

    Raises:
        BadTool: two have one name, one is async and the handle is not, or something is not a tool.
        TypeError: as for `check_strategies`, of a `sub_loop` among them.

    """
    registry = as_registry(tools)
    for tool in _with_inner_tools(registry):
        if isinstance(tool, SubLoop):
            check_strategies(tool.config.strategies(), is_async=is_async)
        if not is_async:
            _refuse_async(tool)
    return registry


def check_strategies(strategies: Sequence[Strategy], *, is_async: bool) -> None:
    """Refuse strategies of compaction whose summaries a handle cannot wait for.

    Raises:
        TypeError: an async provider or function writes them, and the handle is sync; or a sync provider does, and the
            handle is async.

    """
    if not strategies:
        return
    from toolloop.compaction.summarize import Summarize  # noqa: PLC0415 - most loops never summarize

    for strategy in strategies:
        if isinstance(strategy, Summarize):
            if strategy.function is not None and strategy.awaits and not is_async:
                raise TypeError(
                    "the function of Summarize is async, and ToolLoopHandle is not: use AsyncToolLoopHandle"
                )
            strategy.provider_for(is_async=is_async)


def _with_inner_tools(registry: ToolRegistry) -> Iterator[Tool[..., Any]]:
    """Yield each tool; after a `sub_loop` the tools of its own loop."""
    for tool in registry:
        yield tool
        if isinstance(tool, SubLoop):
            yield from _with_inner_tools(tool.registry)


def _refuse_async(tool: Tool[..., Any]) -> None:
    if tool.is_async:
        raise BadTool(
            f"the tool {tool.name!r} is async, and ToolLoopHandle is not: use AsyncToolLoopHandle", tool=tool.name
        )
    if callable(tool.needs_approval) and is_declared_async(tool.needs_approval):
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
