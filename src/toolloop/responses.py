"""Response types for tools, the adapter that turns responses into results, and a filter that shortens results."""

from toolloop.tools.responses.adapter import AnthropicMessagesToolResponseAdapter, ToolResponseAdapter
from toolloop.tools.responses.errors import Unsendable
from toolloop.tools.responses.filters import TruncateResults
from toolloop.tools.responses.types import (
    EmptyResponse,
    FileResponse,
    JsonResponse,
    LinkResponse,
    RawOutputs,
    TextResponse,
)

__all__ = [
    "AnthropicMessagesToolResponseAdapter",
    "EmptyResponse",
    "FileResponse",
    "JsonResponse",
    "LinkResponse",
    "RawOutputs",
    "TextResponse",
    "ToolResponseAdapter",
    "TruncateResults",
    "Unsendable",
]
