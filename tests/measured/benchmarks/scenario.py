"""The conversation that every contestant holds: a question, a call of `add` per turn, and a last word.

The server is stateless: it reads how many turns are wanted from the system prompt, and which turn it is from the number
of messages. So every contestant can ask for any length, whatever its client lets it send. The id of a reply says both,
for those who send only what is new, and name the reply that it follows (the API's message threads).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

JSON = Any

_STEP = 17

MODEL = "claude-opus-5-5"
MAX_TOKENS = 2048
QUESTION = "Add up the figures of the ledger, one entry after the other, and tell me the total."

ADD = {
    "name": "add",
    "description": "Add an entry to the running total.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}

# The dashes are not ASCII, on purpose: no real conversation of this length is plain ASCII, and what a joining of text
# costs depends on that.
_THOUGHTS = (
    "The entry before this one is settled, so the running total stands. I read the next line of the ledger — its date, "
    "its account and its amount agree with what the opening balance leads me to expect — and I see no reason to treat "
    "it as a correction. I will add it to the total now and compare the outcome with the figure in the margin."
)
_NOTE = (
    "The entry was found in the ledger, its currency is the currency of the account, and no rounding took place. "
    "The margin holds the same figure. Entries that were corrected later are marked with an asterisk and were left "
    "out, as the rules of the book ask for. Nothing else to report."
)


def system(turns: int) -> str:
    """The system prompt; the server finds the number of turns in it."""
    return f"You keep a ledger. The conversation has {turns} turns."


def params(turns: int) -> dict[str, JSON]:
    """The request's parameters beside the tools."""
    return {
        "model": MODEL,
        "max_tokens": MAX_TOKENS,
        "system": system(turns),
        "messages": [{"role": "user", "content": QUESTION}],
    }


def head(turns: int) -> bytes:
    """A request's body up to its first message, for those who join ready bytes."""
    rest = {key: value for key, value in params(turns).items() if key != "messages"}
    return encode({**rest, "tools": [ADD]})[:-1] + b',"messages":['


hear: list[Callable[[int], object]] = []  # called with the number of each turn, by its tool


def add(a: int, b: int) -> str:
    """What the tool answers: about 300 bytes."""
    for each in hear:
        each(a // _STEP)
    return f"{a} + {b} = {a + b}. {_NOTE}"


def reply(turn: int, turns: int) -> dict[str, JSON]:
    """The model's reply in a turn, counted from 1: about 800 bytes, the last one without a call."""
    last = turn >= turns
    call = {"type": "tool_use", "id": f"toolu_{turn:020d}", "name": "add", "input": {"a": turn * _STEP, "b": turn + 25}}
    text = {"type": "text", "text": last_word(turns) if last else f"Entry {turn}. {_THOUGHTS}"}
    return {
        "id": f"msg_{turns:08d}{turn:012d}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [text] if last else [text, call],
        "stop_reason": "end_turn" if last else "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 350 * turn,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 160,
            "service_tier": "standard",
        },
    }


def last_word(turns: int) -> str:
    """The text that ends a conversation: who returns it went all the way."""
    return f"The ledger holds {turns - 1} entries, and its total agrees with the margin."


def encode(value: JSON) -> bytes:
    """Compact JSON bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
