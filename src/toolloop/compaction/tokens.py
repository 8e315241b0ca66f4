"""Estimate the tokens of a history without a request.

The constants are measured in recorded requests (`tests/recorded/conformance/test_recorded_tokens.py`). In these, the
maximum error is 25 % for a whole request (16 % on average), 25 % for a round and 15 % for server searches. Of 129 other
requests, 23 were more than 25 % off, and the worst 41 % too low. Thinking of closed turns is counted, although older
models drop it. Newer models count up to a third more tokens for the same text (source: the documentation). For an exact
count, ask the API: `client.messages.count_tokens`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import field, frozen

from toolloop._messages.reading import is_server_result, is_summary, role_of
from toolloop._public import set_module
from toolloop.machine.values.jsontext import JSON, decode, encode

# Tokens, measured in the recordings: tests/recorded/conformance/test_recorded_tokens.py.
_MESSAGE: Final = 4
_CALL: Final = 38
_RESULT: Final = 16
_WITH_TOOLS: Final = 390  # the text that the API adds with the first tool
_SERVER_TOOL: Final = 1_700  # the text that the API adds for its web search and code execution
_API_TOOL: Final = 600  # the text for another tool of the API: 250 to 750 according to the documentation
_REFERENCE: Final = 80  # the definition of a tool that was deferred until a reference
_IMAGE: Final = 1_600  # the maximum for an image (source: the documentation on vision)
_PAGE: Final = 2_500  # a page of a PDF: text and image
_PAGE_CHARACTERS: Final = 67_000  # the base64 characters of a page

_WORDS: Final = b"abcdefghijklmnopqrstuvwxyz "
_ASCII: Final = bytes(range(128))


@set_module("toolloop.history")
def estimate_tokens(messages: Any, *, system: Any = None, tools: Any = None, output_config: Any = None) -> int:
    """Estimate the input tokens of a request without sending it. Deterministic; never raises for JSON values.

    The estimate is the sum of the messages from the last compaction block on, the system prompt, the tools, and the
    schema of a structured output.

    Args:
        messages: plain JSON values.
        system: the system prompt, as in a request.
        tools: the tool definitions, as in a request.
        output_config: as in a request; its schema counts.

    """
    listed = messages if isinstance(messages, (list, tuple)) else ()
    start = max((at for at, message in enumerate(listed) if compacts(message)), default=0)
    beside = content_tokens(system) + _tools(tools) + _schema(output_config)
    return sum(map(message_tokens, listed[start:])) + beside


def message_tokens(message: Any) -> int:
    """Estimate the tokens of a message, from its last compaction block on."""
    if not isinstance(message, dict):
        return 0
    content = message.get("content")
    if isinstance(content, list):
        content = content[max((at for at, block in enumerate(content) if is_summary(block)), default=0) :]
    return _MESSAGE + content_tokens(content)


def compacts(message: Any) -> bool:
    """Return whether a message has a successful compaction block, so that earlier content does not count."""
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(map(is_summary, content))


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text from its kinds of characters.

    A token is five lowercase letters, two other ASCII characters, or three bytes of other scripts.
    """
    data = text.encode("utf-8", "surrogatepass")
    rest = data.translate(None, _WORDS)
    wide = 0 if text.isascii() else len(rest.translate(None, _ASCII))
    return (6 * (len(data) - len(rest)) + 15 * (len(rest) - wide) + 10 * wide + 29) // 30


def content_tokens(content: Any) -> int:
    """Estimate the tokens of a text or a list of blocks."""
    if isinstance(content, str):
        return text_tokens(content)
    return sum(map(_block, content)) if isinstance(content, list) else 0


def _block(block: Any) -> int:  # noqa: PLR0911 - one row for each kind of block
    match block:
        case {"type": "text", "text": content} | {"type": "compaction", "content": content}:
            return content_tokens(content)
        case {"type": "thinking", "thinking": str(words)} if words:  # the signature does not count
            return text_tokens(words)
        case {"type": "thinking", "signature": str(hidden)} | {"type": "redacted_thinking", "data": str(hidden)}:
            return max(len(hidden) * 3 // 4 - 180, 0) // 5  # base64 of the text and about 180 bytes
        case {"type": "tool_use" | "server_tool_use" | "mcp_tool_use"}:
            return _CALL + _json([block.get("name"), block.get("input")])
        case {"type": "tool_result" | "mcp_tool_result"}:
            return _RESULT + content_tokens(block.get("content"))
        case {"type": "image"}:
            return _IMAGE
        case {"type": "tool_reference"}:
            return _REFERENCE
        case {"type": "search_result" | "document"}:
            texts = (block.get(key) for key in ("title", "context", "content"))
            return sum(map(content_tokens, texts)) + _source(block.get("source"))
        case {"type": str(kind)}:  # a block of an unknown type counts as text
            return _RESULT + _found(block.get("content")) if is_server_result(kind) else _json(block)
    return 0


def _source(source: Any) -> int:
    match source:
        case str():
            return text_tokens(source)
        case {"type": "text", "data": content} | {"type": "content", "content": content}:
            return content_tokens(content)
        case {"type": "base64", "data": str(data)}:
            return _PAGE * (len(data) // _PAGE_CHARACTERS + 1)
    return _PAGE  # the length is unknown


def _found(value: Any) -> int:
    """Estimate a result of a server tool. Four letters of encrypted text are a token."""
    match value:
        case str():
            return text_tokens(value)
        case list():
            return sum(map(_found, value))
        case {"type": "document" | "image"}:
            return _block(value)
        case dict():
            texts = value.items()
            return sum(len(str(item)) // 4 if key.startswith("encrypted_") else _found(item) for key, item in texts)
    return 1


def _json(value: Any) -> int:
    """Estimate a value as text, without the punctuation of JSON."""
    return text_tokens(json.dumps(value, ensure_ascii=False, separators=(" ", " ")))


def _tools(tools: Any) -> int:
    listed = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, (list, tuple)) else []
    return _WITH_TOOLS + sum(map(_tool, listed)) if listed else 0


def _schema(output_config: Any) -> int:
    match output_config:
        case {"format": {"schema": dict(schema)}}:
            return _json(schema)
    return 0


def _tool(tool: dict[str, Any]) -> int:
    match tool:
        case {"defer_loading": True}:
            return 0  # not loaded until a reference names it
        case {"type": str(kind)} if kind != "custom":
            return _SERVER_TOOL if kind.startswith(("web_", "code_execution_")) else _API_TOOL
    return _json([tool.get("name"), tool.get("description"), tool.get("input_schema")])


@frozen(eq=False)
class Outline:
    """A message and its estimated size, made by `outline`.

    Args:
        text: the JSON text of the message.
        role: the role, or None if the value is not a message.
        tokens: the estimated tokens, from the last compaction block on.
        compacts: whether it has a compaction block of the API, so that earlier messages do not count.

    """

    text: str
    role: str | None
    tokens: int
    compacts: bool = False
    _message: JSON = field(default=None, repr=False)

    def message(self) -> JSON:
        """Return the message, decoded."""
        return decode(self.text) if self._message is None else self._message


def outline(text: str) -> Outline:
    """Measure a message, given as its JSON text."""
    message = decode(text)
    return Outline(text, role_of(message), message_tokens(message), compacts(message))


def outline_of(message: JSON) -> Outline:
    """Measure a message, given as plain JSON values, which are kept."""
    return Outline(encode(message), role_of(message), message_tokens(message), compacts(message), message)
