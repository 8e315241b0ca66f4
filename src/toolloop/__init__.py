"""A caller-driven, resumable tool loop for the Messages API of Claude.

Start with `ToolLoopHandle`; the README has a whole program. What is not here lives in its module: `toolloop.errors`,
`.terminations`, `.events`, `.history`, `.machine`, `.providers`, `.stores`, `.tools`, `.testing`.
"""

from toolloop.core.setup import Budget, LoopDetection
from toolloop.core.texts import Texts
from toolloop.core.usage import IterationUsage, Usage
from toolloop.core.values import Answer, Approve, Ask, Continue, Deny, Grant, InjectMessages, Rerun, Stop
from toolloop.handle import (
    AsyncToolLoopHandle,
    AsyncToolRunner,
    Completed,
    Error,
    LoopConfig,
    LoopContext,
    ToolCall,
    ToolLoopHandle,
    ToolLoopResult,
    ToolResult,
    ToolRunner,
    View,
    Yielded,
    sub_loop,
)
from toolloop.stores.memory import MemoryStore
from toolloop.stores.sqlite import SqliteStore
from toolloop.tools import Tool, ToolContext, ToolError, ToolRegistry, tool

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
