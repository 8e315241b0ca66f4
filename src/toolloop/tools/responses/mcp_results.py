"""Read the results of MCP tools. Needs the extra `mcp`."""

from __future__ import annotations

import base64
from typing import Any

from mcp import types

from toolloop.tools.responses.content import plain_text_of
from toolloop.tools.responses.response_types import EmptyResponse, FileResponse, JsonResponse, LinkResponse, RawOutputs
from toolloop.tools.tool_errors import ToolError


def read_result(result: types.CallToolResult) -> object:
    """Return the result as a tool would. Structured content is used only alone, because servers repeat it as text.

    Raises:
        ToolError: the server reports that the tool failed. It has the server's text.

    """
    parts = [_read_part(each) for each in result.content]
    if not parts and result.structured_content is not None:
        parts = [JsonResponse(result.structured_content)]
    if result.is_error:  # an error result holds only text (source: anthropic-sdk 2.11)
        text = "\n".join(map(plain_text_of, parts)).strip()
        raise ToolError(text or "The MCP server reports that the tool failed, without a reason.")
    if len(parts) > 1:
        return RawOutputs(parts)
    return parts[0] if parts else EmptyResponse()


def _read_part(content: types.ContentBlock) -> Any:
    match content:
        case types.TextContent():
            return content.text
        case types.ImageContent() | types.AudioContent():
            return _make_file(content.type, content.mime_type, content.data)
        case types.ResourceLink():
            return LinkResponse(content.name, str(content.uri))
    resource = content.resource
    if isinstance(resource, types.TextResourceContents):
        return resource.text
    return _make_file(str(resource.uri).rpartition("/")[2] or "resource", resource.mime_type, resource.blob)


def _make_file(name: str, mime_type: str | None, blob: str) -> FileResponse:
    return FileResponse(name, mime_type or "application/octet-stream", base64.b64decode(blob))
