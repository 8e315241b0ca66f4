"""What type checkers see of `@tool`: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

from toolloop.tools import Tool, ToolContext, as_tool, tool


@tool
def bare(path: str, limit: int = 10) -> list[str]:
    return [path] * limit


@tool(needs_approval=lambda call: call.name == "x", effect="pure", cache_control={"type": "ephemeral"})
def with_options(path: str) -> str:
    return path


@tool()
async def asynchronous(path: str, *, context: ToolContext) -> int:
    return len(path) + context.iteration


assert_type(bare("a", limit=3), list[str])
assert_type(with_options("a"), str)
assert_type(as_tool(bare), Tool[..., Any])
assert_type(tool(len)([]), int)


def calls(context: ToolContext) -> None:
    later: Coroutine[Any, Any, int] = asynchronous("a", context=context)
    later.close()
    bare(3)  # type: ignore[arg-type]
    bare()  # type: ignore[call-arg]
    with_options("a", 1)  # type: ignore[call-arg]
    asynchronous("a")  # type: ignore[call-arg, unused-coroutine]
    bare.name = "other"  # type: ignore[misc]
    tool(effect="twice")  # type: ignore[call-overload]
    tool(timeout="3")  # type: ignore[call-overload]
