"""How many tokens a history has, about, without asking anybody.

Measured on the recorded requests, from which the constants come (`tests/conformance/test_recorded_tokens.py`): a whole
request is met within 25 % (on average 16 %), what a round adds within 25 %, searches of the server within 15 %.
Thinking of closed turns is counted although older models drop it, and newer models see up to a third more tokens in the
same words (source: the documentation). The API counts exactly: `AnthropicProvider.count_tokens`.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolloop.history.images import size_of
from toolloop.history.reading import is_server_result, is_summary, kind_of

# All of these are tokens. What the recordings say of each: tests/conformance/test_recorded_tokens.py.
_MESSAGE: Final = 4
_CALL: Final = 38
_RESULT: Final = 16
_WITH_TOOLS: Final = 390  # words of the API itself, that come with the first tool
_SERVER_TOOL: Final = 1_700  # what the API says of its web search and code execution
_API_TOOL: Final = 600  # of its other tools: between 250 and 750 by the documentation
_REFERENCE: Final = 80  # the definition of a tool that was deferred till here
_PIXELS: Final = 750  # of an image, to the token (source: the documentation of vision)
_LONGEST: Final = 1_568  # pixels; what is larger is made smaller first
_MOST_OF_IMAGE: Final = 1_600  # also what one costs whose size is not known
_PAGE: Final = 2_500  # of a PDF: words and picture
_PAGE_BYTES: Final = 50_000

_WORDS: Final = b"abcdefghijklmnopqrstuvwxyz "
_ASCII: Final = bytes(range(128))
_PAGES: Final = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")


def estimate_tokens(messages: Any, *, system: Any = None, tools: Any = None) -> int:
    """Estimate how many input tokens a request has. Deterministic; asks nobody; no JSON makes it raise.

    It is the sum of what each message has, from the last compaction block on, and of what system prompt and tools have.

    Args:
        messages: plain JSON values.
        system: the system prompt, as in a request.
        tools: the definitions of the tools, as in a request.

    """
    listed = messages if isinstance(messages, Sequence) and not isinstance(messages, str | bytes) else ()
    start = next((at for at in range(len(listed) - 1, -1, -1) if compacts(listed[at])), 0)
    counted = sum(message_tokens(listed[at]) for at in range(start, len(listed)))
    return counted + _whole(system) + _tools(tools)


def message_tokens(message: Any) -> int:
    """Estimate how many tokens a message has, from its last compaction block on."""
    if not isinstance(message, dict):
        return 0
    content = message.get("content")
    if isinstance(content, list):
        content = content[_start(content) or 0 :]
    return _MESSAGE + _whole(content)


def compacts(message: Any) -> bool:
    """Whether a message has a compaction block, so that what is before it does not count (one that failed is none)."""
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and _start(content) is not None


def _start(blocks: list[Any]) -> int | None:
    """The index of the last block that stands for all before it."""
    return next((at for at in range(len(blocks) - 1, -1, -1) if is_summary(blocks[at])), None)


def text_tokens(text: str) -> int:
    """Estimate how many tokens a text has: by its kinds of characters, each counted at the speed of C.

    Five small letters are a token, two other signs, three bytes of other scripts (so one character of Chinese).
    """
    data = text.encode("utf-8", "surrogatepass")
    rest = data.translate(None, _WORDS)
    wide = 0 if text.isascii() else len(rest.translate(None, _ASCII))
    return (6 * (len(data) - len(rest)) + 15 * (len(rest) - wide) + 10 * wide + 29) // 30


def _whole(content: Any) -> int:
    try:
        return _content(content)
    except RecursionError:  # no JSON: it holds itself, or is too deep for any reader
        return 0


def _content(content: Any) -> int:
    if isinstance(content, str):
        return text_tokens(content)
    return sum(map(_block, content)) if isinstance(content, list | tuple) else 0


def _block(block: Any) -> int:
    kind = kind_of(block)
    if kind is None:
        return 0
    if kind in _COUNTED:
        return _COUNTED[kind](block)
    # Of a kind that nobody here knows all counts as words.
    return _RESULT + _found(block.get("content")) if is_server_result(kind) else _json(block)


def _thinking(block: dict[str, Any]) -> int:
    # Words that are not shown stand in the signature; that of words which are shown costs nothing.
    return _text(block.get("thinking")) or _hidden(block.get("signature"))


def _call(block: dict[str, Any]) -> int:
    return _CALL + _text(block.get("name")) + _json(block.get("input"))


def _result(block: dict[str, Any]) -> int:
    return _RESULT + _content(block.get("content"))


def _document(block: dict[str, Any]) -> int:
    return _text(block.get("title")) + _text(block.get("context")) + _source(block.get("source"))


def _search_result(block: dict[str, Any]) -> int:
    return _text(block.get("title")) + _text(block.get("source")) + _content(block.get("content"))


def _found(value: Any) -> int:
    """What a tool of the server found: words, documents, and words that are encrypted: four letters to the token."""
    match value:
        case str():
            return text_tokens(value)
        case list():
            return sum(map(_found, value))
        case {"type": "document" | "image"}:
            return _block(value)
        case dict():
            return sum(
                len(inner) // 4 if _is_encrypted(key) and isinstance(inner, str) else _found(inner)
                for key, inner in value.items()
            )
    return 1


def _is_encrypted(key: Any) -> bool:
    return isinstance(key, str) and key.startswith("encrypted_")


def _text(value: Any) -> int:
    return text_tokens(value) if isinstance(value, str) else 0


def _hidden(value: Any) -> int:
    """Thinking that is encrypted: base64 of the words, and about 180 bytes more."""
    return max(len(value) * 3 // 4 - 180, 0) // 5 if isinstance(value, str) else 0


def _json(value: Any) -> int:
    """A value as text, without the signs that only JSON needs."""
    if not value:
        return 0
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(" ", " "), default=_no_json)
    except (TypeError, ValueError, RecursionError):
        return 0
    return text_tokens(text)


def _no_json(_value: Any) -> None:
    """No request carries it, so it has no tokens."""


def _tools(tools: Any) -> int:
    listed = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list | tuple) else []
    return _WITH_TOOLS + sum(map(_tool, listed)) if listed else 0


def _tool(tool: dict[str, Any]) -> int:
    if tool.get("defer_loading") is True:
        return 0  # until a reference names it
    kind = tool.get("type")
    if isinstance(kind, str) and kind != "custom":
        return _SERVER_TOOL if kind.startswith(("web_", "code_execution_")) else _API_TOOL
    return _text(tool.get("name")) + _text(tool.get("description")) + _json(tool.get("input_schema"))


def _image(block: dict[str, Any]) -> int:
    size = size_of(block)
    if size is None:
        return _MOST_OF_IMAGE
    width, height = size
    longest = max(width, height)
    if longest > _LONGEST:
        width, height = width * _LONGEST // longest, height * _LONGEST // longest
    return min(width * height // _PIXELS + 1, _MOST_OF_IMAGE)


def _source(source: Any) -> int:
    if not isinstance(source, dict):
        return 0
    match source.get("type"):
        case "text":
            return _text(source.get("data"))
        case "content":
            return _content(source.get("content"))
        case "base64":
            return _PAGE * _pages(source.get("data"))
    return _PAGE  # nobody here knows how long it is


def _pages(data: Any) -> int:
    try:
        pdf = binascii.a2b_base64(data)
    except (ValueError, TypeError):  # `binascii.Error` is a ValueError
        return 1
    # Newer files pack their pages, so that only the size tells.
    return len(_PAGES.findall(pdf)) or len(pdf) // _PAGE_BYTES + 1


_COUNTED: Final[dict[str, Callable[[dict[str, Any]], int]]] = {
    "text": lambda block: _text(block.get("text")),
    "thinking": _thinking,
    "redacted_thinking": lambda block: _hidden(block.get("data")),
    **dict.fromkeys(("tool_use", "server_tool_use", "mcp_tool_use"), _call),
    **dict.fromkeys(("tool_result", "mcp_tool_result"), _result),
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "compaction": lambda block: _text(block.get("content")),
    "tool_reference": lambda _: _REFERENCE,
}
