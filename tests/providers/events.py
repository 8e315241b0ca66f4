"""Short stream events, and the events of a message."""

from __future__ import annotations

import json
from typing import Any

from tests.providers.server import MESSAGE

START = {"type": "message_start", "message": MESSAGE | {"content": [], "stop_reason": None}}
STOP = {"type": "message_stop"}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def call(*pieces: str, index: int = 0) -> list[dict[str, Any]]:
    start = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    return block(index, start, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def end(stop_reason: str | None, **usage: Any) -> dict[str, Any]:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason, "stop_sequence": None},
        "usage": {"output_tokens": 9} | usage,
    }


def streamed(message: dict[str, Any], size: int = 3) -> list[dict[str, Any]]:
    """Return the events of a message, with its texts in pieces of one size."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}},
        {"type": "ping"},
    ]
    for index, content in enumerate(message["content"]):
        match content["type"]:
            case "text":
                pieces = [{"type": "text_delta", "text": piece} for piece in _cut(content["text"], size)]
                events += block(index, content | {"text": ""}, *pieces)
            case "thinking":
                pieces = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(content["thinking"], size)]
                signature = {"type": "signature_delta", "signature": content["signature"]}
                events += block(index, content | {"thinking": "", "signature": ""}, *pieces, signature)
            case "tool_use":
                text = json.dumps(content["input"]) if content["input"] else ""
                pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *_cut(text, size)]]
                events += block(index, content | {"input": {}}, *pieces)
            case _:
                events += block(index, content)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    return [*events, {"type": "message_delta", "delta": delta, "usage": message["usage"]}, STOP]


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]
