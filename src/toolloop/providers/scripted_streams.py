"""A whole message as the raw events of its stream, by the grammar of the API's documentation of streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolloop.core.jsontext import JSON, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PIECE = 16  # characters in a delta: small, so that even a short text comes in several
_LATE = ("stop_reason", "stop_sequence", "stop_details", "container")  # known only at the end


def events_of(message: Mapping[str, JSON]) -> Iterator[dict[str, JSON]]:
    """The events of a message, in order: accumulated, they are the message again."""
    late = {name: message[name] for name in _LATE if name in message}
    beside = {name: message[name] for name in ("usage", "context_management") if name in message}
    begun: dict[str, JSON] = {**message, "content": [], **dict.fromkeys(late)}
    begun.pop("context_management", None)
    if usage := message.get("usage"):
        begun["usage"] = {**usage, "output_tokens": 1}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(message["content"]):
        start, deltas = _taken_apart(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": late, **beside}
    yield {"type": "message_stop"}


def _taken_apart(block: Mapping[str, JSON]) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
    """What the block starts with, and the deltas that complete it."""
    match block:
        case {"type": "text", "text": str(text)}:
            cited = block.get("citations") or []
            start = {name: value for name, value in block.items() if name != "citations" or not cited}
            return {**start, "text": ""}, [
                *({"type": "text_delta", "text": piece} for piece in _pieces(text)),
                *({"type": "citations_delta", "citation": citation} for citation in cited),
            ]
        case {"type": "thinking", "thinking": str(text), "signature": signature}:
            return {**block, "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": piece} for piece in _pieces(text)),
                {"type": "signature_delta", "signature": signature},
            ]
        case {"type": "tool_use" | "server_tool_use" | "mcp_tool_use", "input": dict(value)}:
            written = encode(value) if value else ""
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(written))
            ]
        case {"type": "compaction"}:
            whole = {name: block[name] for name in ("content", "encrypted_content") if name in block}
            return {**block, **dict.fromkeys(whole)}, [{"type": "compaction_delta", **whole}]
    return dict(block), []  # server results, redacted thinking and what is unknown come whole


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
