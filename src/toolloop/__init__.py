"""A caller-driven, resumable tool loop for the Messages API of Claude.

Start with `ToolLoopHandle`; the README has a whole program. What is not here lives in its module: `toolloop.errors`,
`.terminations`, `.events`, `.history`, `.machine`, `.providers`, `.stores`, `.tools`, `.testing`.
"""

# ruff: noqa: TC004 - what `__all__` names is imported by the door, when somebody asks for it
from typing import TYPE_CHECKING

from toolloop._doors import door

if TYPE_CHECKING:
    from toolloop.core.setup import Budget, LoopDetection
    from toolloop.core.texts import Texts
    from toolloop.core.usage import IterationUsage, Usage
    from toolloop.core.values import Answer, Approve, Ask, Continue, Deny, Grant, InjectMessages, Rerun, Stop
    from toolloop.handle.asynchronous import AsyncToolLoopHandle
    from toolloop.handle.config import LoopConfig, LoopContext
    from toolloop.handle.runner import AsyncToolRunner, ToolRunner
    from toolloop.handle.sub_loops import sub_loop
    from toolloop.handle.sync import ToolLoopHandle
    from toolloop.handle.turns import Completed, Error, ToolLoopResult, Yielded
    from toolloop.handle.views import ToolCall, ToolResult, View
    from toolloop.stores.memory import MemoryStore
    from toolloop.stores.sqlite import SqliteStore
    from toolloop.tools.context import ToolContext
    from toolloop.tools.failures import ToolError
    from toolloop.tools.function import Tool, tool
    from toolloop.tools.registry import ToolRegistry

__all__ = [
    "Answer",
    "Approve",
    "Ask",
    "AsyncToolLoopHandle",
    "AsyncToolRunner",
    "Budget",
    "Completed",
    "Continue",
    "Deny",
    "Error",
    "Grant",
    "InjectMessages",
    "IterationUsage",
    "LoopConfig",
    "LoopContext",
    "LoopDetection",
    "MemoryStore",
    "Rerun",
    "SqliteStore",
    "Stop",
    "Texts",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolLoopHandle",
    "ToolLoopResult",
    "ToolRegistry",
    "ToolResult",
    "ToolRunner",
    "Usage",
    "View",
    "Yielded",
    "sub_loop",
    "tool",
]

door(
    __name__,
    {
        "toolloop.core.setup": ("Budget", "LoopDetection"),
        "toolloop.core.texts": ("Texts",),
        "toolloop.core.usage": ("IterationUsage", "Usage"),
        "toolloop.core.values": (
            "Answer",
            "Approve",
            "Ask",
            "Continue",
            "Deny",
            "Grant",
            "InjectMessages",
            "Rerun",
            "Stop",
        ),
        "toolloop.handle.asynchronous": ("AsyncToolLoopHandle",),
        "toolloop.handle.config": ("LoopConfig", "LoopContext"),
        "toolloop.handle.runner": ("AsyncToolRunner", "ToolRunner"),
        "toolloop.handle.sub_loops": ("sub_loop",),
        "toolloop.handle.sync": ("ToolLoopHandle",),
        "toolloop.handle.turns": ("Completed", "Error", "ToolLoopResult", "Yielded"),
        "toolloop.handle.views": ("ToolCall", "ToolResult", "View"),
        "toolloop.stores.memory": ("MemoryStore",),
        "toolloop.stores.sqlite": ("SqliteStore",),
        "toolloop.tools.context": ("ToolContext",),
        "toolloop.tools.failures": ("ToolError",),
        "toolloop.tools.function": ("Tool", "tool"),
        "toolloop.tools.registry": ("ToolRegistry",),
    },
    modules=("history", "providers", "stores", "tools"),
)
