"""What type checkers see of `sub_loop`: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

from toolloop import LoopConfig, Tool, ToolCall, ToolContext, ToolLoopHandle, ToolRegistry, sub_loop, tool
from toolloop._engine.sub_loops import SubLoop
from toolloop.providers import Provider
from toolloop.tools import as_tool

PARAMS: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 64}


@tool
def look(path: str) -> str:
    """Look."""
    return path


def params_of(given: dict[str, Any]) -> dict[str, Any]:
    return {**PARAMS, "system": given["topic"]}


def risky(call: ToolCall) -> bool:
    return bool(call.input)


child = sub_loop("child", "A child.", params=PARAMS)
other = sub_loop(
    "other",
    "Another.",
    params=params_of,
    tools=[look, child],
    config=LoopConfig(max_iterations=3),
    input_schema={"type": "object"},
    needs_approval=risky,
)
assert_type(child, SubLoop)
assert_type(child.registry, ToolRegistry)
assert_type(child.config, LoopConfig)
assert_type(as_tool(other), Tool[..., Any])
some_tool: Tool[..., Any] = child


def uses(provider: Provider, context: ToolContext) -> None:
    ToolLoopHandle(provider, params=PARAMS, tools=[child, look, other], context=context)
    ToolRegistry([child])
    sub_loop("child", "A child.", PARAMS)  # type: ignore[call-arg]
    sub_loop("child", "A child.")  # type: ignore[call-arg]
    sub_loop("child", params=PARAMS)  # type: ignore[call-arg]
    sub_loop("child", "A child.", params=lambda: PARAMS)  # type: ignore[arg-type, misc]
    sub_loop("child", "A child.", params=PARAMS, config={})  # type: ignore[arg-type]
    sub_loop("child", "A child.", params=PARAMS, tools=3)  # type: ignore[arg-type]
    child.config = LoopConfig()  # type: ignore[misc]
