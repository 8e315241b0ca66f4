"""The conversation that is kept: one call a round, 200 bytes of input, 1 KB of result. Its last round waits for a word.

Nothing but the standard library is needed here: the peers keep the same conversation, in an environment of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MODEL = "claude-opus-5-5"
SYSTEM = "You read a ledger, line by line."
QUESTION = "Read the ledger, one line after the other, and tell me what is odd about it."
IN, OUT = 200, 1024

# How often it is woken up, in toolloop and in the peer.
OPENINGS = 15

TOOL = "look_up"
DESCRIPTION = "Look up a line of the ledger."

_ASKS = "What of its date, its account, its amount, its margin? "
# As in `scenario`: the dash is not ASCII, on purpose.
_SAYS = "The line was found in the ledger — its currency is the currency of the account, and no rounding took place. "


def params() -> dict[str, Any]:
    """The request's parameters beside the tools."""
    return {
        "model": MODEL,
        "max_tokens": 2048,
        "system": SYSTEM,
        "messages": [{"role": "user", "content": QUESTION}],
    }


def arguments(turn: int) -> dict[str, Any]:
    """The input of a round's call, counted from 1: 200 bytes of JSON."""
    bare = {"line": turn, "words": ""}
    return {**bare, "words": _fill(_ASKS, IN - len(encode(bare)))}


def look_up(line: int) -> str:
    """What the tool answers: 1 KB."""
    return _fill(f"Line {line}. {_SAYS}" + _SAYS * 10, OUT)


def call_id(turn: int) -> str:
    """The id of a round's call."""
    return f"toolu_{turn:020d}"


def words(turn: int) -> str:
    """The text beside a round's call."""
    return f"Line {turn}."


def reply(turn: int) -> dict[str, Any]:
    """The model's reply in a round, as the API sends it."""
    return {
        "id": f"msg_{turn:020d}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [
            {"type": "text", "text": words(turn)},
            {"type": "tool_use", "id": call_id(turn), "name": TOOL, "input": arguments(turn)},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 400 * turn,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 120,
            "service_tier": "standard",
        },
    }


def turn_of(request: Mapping[str, Any]) -> int:
    """Which round a request asks for."""
    return len(request["messages"]) // 2 + 1


def raw_bytes(rounds: int) -> int:
    """The size of the conversation as one list of messages, in compact JSON."""
    messages: list[Any] = list(params()["messages"])
    for turn in range(1, rounds + 1):
        result = {"type": "tool_result", "tool_use_id": call_id(turn), "content": look_up(turn)}
        messages += [
            {"role": "assistant", "content": reply(turn)["content"]},
            {"role": "user", "content": [result]},
        ]
    return len(encode(messages))


def encode(value: Any) -> bytes:
    """Compact JSON bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _fill(text: str, size: int) -> str:
    """A text of that many bytes."""
    whole = (text * (size // len(text) + 1)).encode()[:size].decode(errors="ignore")
    return whole.ljust(len(whole) + size - len(whole.encode()), ".")
