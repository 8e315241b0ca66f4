"""Tools: functions, their schema and validation, the registry, and their results.

Not here: loops and histories; a tool gets an input and returns a value.
"""

from toolloop._public import export as _export
from toolloop.machine.values.setup import ToolEffect as ToolEffect
from toolloop.tools.context import Context as Context, ToolContext as ToolContext
from toolloop.tools.function import Tool as Tool, tool as tool
from toolloop.tools.registry import ToolRegistry as ToolRegistry
from toolloop.tools.responses.content import content_of as content_of
from toolloop.tools.responses.failure_texts import describe_failure as describe_failure
from toolloop.tools.sdk_tools import as_tool as as_tool, toolset as toolset
from toolloop.tools.secrets import hide_secrets as hide_secrets
from toolloop.tools.tool_errors import InvalidInput as InvalidInput, ToolError as ToolError

_export(globals())
