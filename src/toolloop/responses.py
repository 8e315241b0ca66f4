"""What tools return, the adapter that makes results of it, and a filter that shortens them."""

from toolloop.tools.responses.adapter import AnthropicMessagesToolResponseAdapter, ToolResponseAdapter
from toolloop.tools.responses.filters import TruncateResults
from toolloop.tools.responses.jsonable import Unsendable
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
