"""The public modules, and what the reference says of names that have no docstring."""

from __future__ import annotations

import re
from types import UnionType
from typing import Any, Literal, get_args, get_origin

# The public modules, below `toolloop` itself.
MODULES = (
    "",
    "errors",
    "terminations",
    "events",
    "responses",
    "compaction",
    "tools",
    "tools.mcp",
    "providers",
    "prices",
    "history",
    "types",
    "machine",
    "stores",
    "inbox",
    "rules",
    "acp",
    "agui",
    "dbos",
    "otel",
    "testing",
)
DOORS = tuple(f"toolloop.{name}".rstrip(".") for name in MODULES)
# Constants have no docstring of their own.
CONSTANTS = {
    "AsyncSdkClient": "The async clients of the anthropic SDK: `AsyncAnthropic`, and those for other platforms.",
    "Block": "A content block, in the shape of the API.",
    "FORMAT": "The number of the format that is written; see [the format](../format.md).",
    "JSON": "Any JSON value. For type checkers it is `Any`.",
    "LIMITS": "The classes of the ends that a limit caused: after one of them, `extend` continues the loop.",
    "NOT_RUN": "The result that `repair` gives to a call without one.",
    "NO_WORDS": "The text that `repair` gives to an error result without a text.",
    "OPTION_NAMES": "The parameters that go beside the body of a request.",
    "RULES": "The rules of a history, by id; see [the rules of a history](../history-rules.md).",
    "SUMMARY_PROMPT": "What `Summarize` asks the model, after the messages that it is to summarize.",
    "SECRET_OPTIONS": "The parameters that never enter a snapshot.",
    "SdkClient": "The sync clients of the anthropic SDK: `Anthropic`, and those for other platforms.",
    "STOP_REASONS": "How a loop handles a reply, by its stop reason; see [stop reasons](../stop-reasons.md).",
    "Tools": "A `ToolRegistry`, or any iterable of tools: functions made with `@tool`, and tools of the anthropic SDK.",
    "TRANSITIONS": "The table: phase, event, rule; see [the phases of a loop](../concepts.md#the-phases-of-a-loop).",
}
# Made by a handle, never by a caller: their constructors are no part of the contract.
HANDED_OUT = frozenset(
    [
        *("AsyncEventStream", "AsyncReplyStream", "AsyncTurnStream", "EventReader", "EventStream", "GivenGrant"),
        *("Grants", "OpeningLoop", "PolicyView", "ReplyStream", "SubLoop", "Tool", "ToolCall", "TurnStream"),
        *("WatchedLoop", "Yielded"),
    ]
)


def annotation(value: Any) -> str:
    """An annotation as it is written in the code."""
    text = value if isinstance(value, str) else value.__name__ if isinstance(value, type) else str(value)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def constant(name: str, value: Any) -> str:
    """A type with a name, or a constant."""
    if name in CONSTANTS:
        return CONSTANTS[name]
    if get_origin(value) is Literal:
        return "One of " + ", ".join(f"`{part!r}`" for part in get_args(value)) + "."
    parts = get_args(value) if isinstance(value, UnionType) else [value]
    return ("One of " if len(parts) > 1 else "") + ", ".join(f"`{_part(part)}`" for part in parts) + "."


def _part(value: Any) -> str:
    return "None" if value is type(None) else annotation(value)
