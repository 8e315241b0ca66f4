"""A message as an event stream, by the grammar of messages-api.md, section 4."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PIECE = 16  # characters in a delta: small, so that even a short text comes in several


def dumps(value: Any) -> bytes:
    """JSON as the API sends it: UTF-8, and an escape only where UTF-8 cannot."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value, separators=(",", ":")).encode()


def frame(event: dict[str, Any]) -> bytes:
    """An event on the wire."""
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), dumps(event))


def events(message: dict[str, Any], inputs: Mapping[str, str] = {}) -> Iterator[dict[str, Any]]:
    """The events of a message, in order.

    Args:
        message: the whole message.
        inputs: by the names of tools, what is streamed as the input of their calls in place of its JSON.

    """
    usage = message["usage"]
    beginning: dict[str, Any] = {
        **message,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    # These are known only at the end.
    late: dict[str, Any] = {name: beginning.pop(name) for name in ("stop_details", "container") if name in beginning}
    beside = {name: beginning.pop(name) for name in ("context_management",) if name in beginning}
    yield {"type": "message_start", "message": beginning}
    for index, block in enumerate(message["content"]):
        start, deltas = _taken_apart(block, inputs)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end: dict[str, Any] = {"stop_reason": message["stop_reason"], "stop_sequence": message.get("stop_sequence"), **late}
    yield {"type": "message_delta", "delta": end, "usage": usage, **beside}
    yield {"type": "message_stop"}


def _taken_apart(block: dict[str, Any], inputs: Mapping[str, str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the block starts with, and the deltas that complete it."""
    match block["type"]:
        case "text":
            cited = block.get("citations") or []
            start = {**block, "text": ""}
            if cited:
                del start["citations"]
            return start, [
                *({"type": "text_delta", "text": piece} for piece in _pieces(block["text"])),
                *({"type": "citations_delta", "citation": citation} for citation in cited),
            ]
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])),
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            whole = dumps(block["input"]).decode() if block["input"] else ""
            written = inputs.get(block["name"], whole)
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(written))
            ]
        case "compaction":
            delta: dict[str, Any] = {name: block[name] for name in ("content", "encrypted_content") if name in block}
            return {**block, **dict.fromkeys(delta)}, [{"type": "compaction_delta", **delta}]
    return block, []  # server results, redacted thinking and what is unknown come whole


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
