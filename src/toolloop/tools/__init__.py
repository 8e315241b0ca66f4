"""Tools: functions, their schema and validation, the registry, and their results."""

from toolloop.machine.values.setup import ToolEffect
from toolloop.tools.context import Context, ToolContext
from toolloop.tools.failures import InvalidInput, ToolError
from toolloop.tools.function import Tool, tool
from toolloop.tools.registry import ToolRegistry
from toolloop.tools.responses.content import content_of
from toolloop.tools.responses.errors import describe_failure
from toolloop.tools.sdk_tools import as_tool

__all__ = [
    "Context",
    "InvalidInput",
    "Tool",
    "ToolContext",
    "ToolEffect",
    "ToolError",
    "ToolRegistry",
    "as_tool",
    "content_of",
    "describe_failure",
    "tool",
]
