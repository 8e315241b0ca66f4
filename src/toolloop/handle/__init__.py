"""The handles: what a caller holds to drive a loop."""

from toolloop.handle.asynchronous import AsyncToolLoopHandle
from toolloop.handle.config import LoopConfig, LoopContext
from toolloop.handle.runner import AsyncToolRunner, ToolRunner
from toolloop.handle.sub_loops import sub_loop
from toolloop.handle.sync import ToolLoopHandle
from toolloop.handle.turns import Completed, Error, ToolLoopResult, Yielded
from toolloop.handle.views import ToolCall, ToolResult, View

__all__ = [
    "AsyncToolLoopHandle",
    "AsyncToolRunner",
    "Completed",
    "Error",
    "LoopConfig",
    "LoopContext",
    "ToolCall",
    "ToolLoopHandle",
    "ToolLoopResult",
    "ToolResult",
    "ToolRunner",
    "View",
    "Yielded",
    "sub_loop",
]
