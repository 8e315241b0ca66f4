"""Response types for tools, the adapter that turns responses into results, and a filter that shortens results."""

from toolloop._public import export as _export
from toolloop.tools.responses.adapter import (
    AnthropicMessagesToolResponseAdapter as AnthropicMessagesToolResponseAdapter,
    ToolResponseAdapter as ToolResponseAdapter,
)
from toolloop.tools.responses.failure_texts import Unsendable as Unsendable
from toolloop.tools.responses.filters import TruncateResults as TruncateResults
from toolloop.tools.responses.response_types import (
    EmptyResponse as EmptyResponse,
    FileResponse as FileResponse,
    JsonResponse as JsonResponse,
    LinkResponse as LinkResponse,
    RawOutputs as RawOutputs,
    TextResponse as TextResponse,
)

_export(globals())
