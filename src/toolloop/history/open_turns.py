"""What an unfinished turn still waits for: cheap questions a loop asks before it adds a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolloop.history.reading import (
    after_compaction,
    blocks_of,
    is_directive,
    made_by_code,
    role_of,
    runs_of,
    unanswered_server_calls,
)


def open_server_calls(messages: Sequence[Any]) -> frozenset[str]:
    """The ids of `server_tool_use` and `mcp_tool_use` blocks that have no result anywhere later.

    While there are such, the next message is a user message of results only, or none at all (source: rule 23 of the
    API notes; recorded requests).
    """
    return frozenset(unanswered_server_calls(after_compaction(runs_of(messages))))


def open_code_calls(messages: Sequence[Any]) -> bool:
    """Whether calls of the last assistant turn were made by code execution: the user turn after it holds only results.

    The same is asked of a history that already ends in these results: a further user message would join their turn
    (source: the documentation on programmatic tool calling).
    """
    seen = False
    for message in reversed(messages):
        role = role_of(message)
        if role == "assistant":
            seen = True
            if any(kind == "tool_use" and made_by_code(block) for _, block, kind in blocks_of(message)):
                return True
        elif seen and role is not None and not is_directive(message):
            break
    return False
