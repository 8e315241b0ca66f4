"""Tools: functions, their schema and validation, the registry, what they return."""

# ruff: noqa: TC004 - what `__all__` names is imported by the door, when somebody asks for it
from typing import TYPE_CHECKING

from toolloop._doors import door

if TYPE_CHECKING:
    from toolloop.core.values import ToolEffect
    from toolloop.tools.context import ToolContext
    from toolloop.tools.failures import InvalidInput, ToolError
    from toolloop.tools.function import Tool, tool
    from toolloop.tools.registry import ToolRegistry
    from toolloop.tools.responses.content import content_of
    from toolloop.tools.responses.raised import describe_failure
    from toolloop.tools.sdk import as_tool

__all__ = [
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

door(
    __name__,
    {
        "toolloop.core.values": ("ToolEffect",),
        "toolloop.tools.context": ("ToolContext",),
        "toolloop.tools.failures": ("InvalidInput", "ToolError"),
        "toolloop.tools.function": ("Tool", "tool"),
        "toolloop.tools.registry": ("ToolRegistry",),
        "toolloop.tools.responses.content": ("content_of",),
        "toolloop.tools.responses.raised": ("describe_failure",),
        "toolloop.tools.sdk": ("as_tool",),
    },
)
