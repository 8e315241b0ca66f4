"""What an MCP server returned, as what a tool returns."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from urllib.parse import unquote

from toolloop.core.jsontext import JSON, encode
from toolloop.tools.failures import ToolError, shortened
from toolloop.tools.responses.types import (
    EmptyResponse,
    FileResponse,
    JsonResponse,
    LinkResponse,
    RawOutputs,
    file_name,
)

# What one content block of an MCP result is in the loop; the adapter judges files, and words all but texts.
Part = str | FileResponse | LinkResponse
# How much the model is shown of the name of an unknown kind of content.
_KIND = 80


def value_of(result: Mapping[str, JSON]) -> object:
    """What a tool returns for a `CallToolResult` of the wire.

    Structured content counts only where there is no other: servers repeat it as text (source: MCP specification).

    Raises:
        ToolError: the server says that the tool failed; with what it says.

    """
    contents = result.get("content") or []
    parts = [_part(content) for content in (contents if isinstance(contents, list) else [contents])]
    structured = result.get("structuredContent")
    if result.get("isError"):
        said = [_said(part) for part in parts]
        if not said and structured is not None:
            said = [encode(structured)]
        raise ToolError("\n".join(said).strip() or "The MCP server says that the tool failed, and not why.")
    match parts:
        case []:
            return EmptyResponse() if structured is None else JsonResponse(structured)
        case [part]:
            return part
    return RawOutputs(parts)


def _said(part: Part) -> str:
    """A part in an error, which holds nothing but text (source: anthropic-sdk 2.11)."""
    match part:
        case FileResponse():
            return f"[{file_name(part.name, part.mime_type)}]"
        case LinkResponse():
            return f"{part.name}: {part.url}"
    return part


def _part(content: JSON) -> Part:
    match content:
        # A bare text is no MCP, but plain enough.
        case str(text) | {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(blob), "mimeType": str(mime_type)}:
            return _file(kind, mime_type, blob)
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(blob)} as resource}:
            return _file(_last(uri), str(resource.get("mimeType") or ""), blob)
        case {"type": "resource_link", "uri": str(uri), "name": str(name)} if uri.strip():
            return LinkResponse(name, uri)
    kind = content.get("type") if isinstance(content, dict) else None
    named = shortened(kind.strip(), _KIND) if isinstance(kind, str) else ""
    return f"[{named or 'content'}: the tool ran, but this part of its result cannot be shown]"


def _file(name: str, mime_type: str, blob: str) -> Part:
    mime_type = mime_type.strip() or "application/octet-stream"
    try:
        return FileResponse(name, mime_type, base64.b64decode("".join(blob.split()), validate=True))
    except ValueError:
        return f"[{name}: {mime_type} that cannot be read: its data is not base64]"


def _last(uri: str) -> str:
    """What a person would call the file of a URI: its last part."""
    place = re.split(r"[?#]", uri, maxsplit=1)[0]
    return unquote(place.rstrip("/").rpartition("/")[2]).strip() or "resource"
