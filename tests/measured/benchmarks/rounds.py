"""The conversation that is stored: one call a round, 200 bytes of input, 1 KB of result; and the bytes that it takes.

It needs the standard library only, because the peer stores the same conversation in an environment of its own.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

MODEL = "claude-opus-5-5"
SYSTEM = "You read a ledger, line by line."
QUESTION = "Read the ledger, one line after the other, and tell me what is odd about it."
IN, OUT = 200, 1024

TOOL = "look_up"

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


def per_turn(totals: Sequence[int]) -> dict[int, float]:
    """Return the bytes per turn at rounds 10, 100 and 1,000, as far as there are so many: the mean of up to 50 turns.

    Args:
        totals: the bytes before the first turn, and after each turn.

    """
    spans = {mark: (max(0, mark - 50), mark) for mark in (10, 100, 1000) if mark < len(totals)}
    return {mark: (totals[end] - totals[start]) / (end - start) for mark, (start, end) in spans.items()}


def checkpointed_size(path: Path) -> int:
    """Return the size of an SQLite file and its log, once all of the log is in the file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return sum(file.stat().st_size for file in (path, Path(f"{path}-wal")) if file.exists())


def size_of_journal(path: Path) -> int:
    """Return the size that an SQLite file would have without the checkpoints of states."""
    bare = path.with_suffix(".bare")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(bare),))
    with closing(sqlite3.connect(bare, isolation_level=None)) as connection:
        connection.execute("DELETE FROM checkpoints")
        connection.execute("VACUUM")
    return bare.stat().st_size
