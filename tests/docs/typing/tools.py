"""What type checkers see of `@tool`: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Coroutine
from datetime import date
from typing import Any, assert_type

from toolloop.testing import tool_context
from toolloop.tools import Tool, ToolContext, as_tool, tool


@tool
def bare(path: str, limit: int = 10) -> list[str]:
    """Repeat a path."""
    return [path] * limit


@tool(needs_approval=lambda call: call.name == "x", effect="pure", cache_control={"type": "ephemeral"})
def with_options(path: str) -> str:
    """Return a path."""
    return path


@tool()
async def asynchronous(path: str, *, context: ToolContext) -> int:
    """Measure a path."""
    return len(path) + context.iteration


assert_type(bare("a", limit=3), list[str])
assert_type(with_options("a"), str)
assert_type(as_tool(bare), Tool[..., Any])
assert_type(tool(len)([]), int)


class Bank:
    def pay(self, euros: int) -> str:
        """Pay."""
        return f"{euros} euros"


class SavingsBank(Bank):
    """A state of a subclass is one of the class."""


def is_large(euros: int) -> bool:
    return euros > 100


async def is_late(day: date) -> bool:
    return day.year > 2026


def show(euros: int, day: date) -> str:
    return f"{euros} on {day}"


@tool(needs_approval=is_large, preview=show, typed=True)
def pay(euros: int, day: date, context: ToolContext[Bank]) -> str:
    """Pay."""
    assert_type(context.state, Bank)
    context.state.pray(euros)  # type: ignore[attr-defined]
    return context.state.pay(euros)


def states(context: ToolContext, savings: ToolContext[SavingsBank], other: ToolContext[date]) -> None:
    assert_type(context.state, Any)
    assert_type(tool_context(Bank()), ToolContext[Bank])
    assert_type(tool_context().state, Any)
    pay(5, date.min, context)
    pay(5, date.min, savings)
    pay(5, date.min, tool_context(Bank(), cancelled=True))
    pay(5, date.min, other)  # type: ignore[arg-type]
    tool(pay.function, needs_approval=is_late, preview=lambda euros: f"{euros}", typed=True)
    tool(pay.function, needs_approval=lambda call: call.name == "x", preview=str, typed=False)
    tool(needs_approval=is_late)  # type: ignore[arg-type]
    tool(preview=lambda euros: 5, typed=True)  # type: ignore[call-overload]


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
