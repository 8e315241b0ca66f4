"""A conversation as the API reads it: adjacent messages of one role are one turn (messages-api.md, rule 8)."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

Block = dict[str, Any]


@frozen
class Run:
    """Adjacent messages of one role, merged.

    Args:
        role: theirs.
        first: the index of the first of them, as the client counts.
        blocks: all their blocks, in order.
        messages: the messages themselves.

    """

    role: str
    first: int
    blocks: list[Block] = field(factory=list)
    messages: list[dict[str, Any]] = field(factory=list)


def blocks_of(content: Any) -> list[Block]:
    """The content of a message as blocks: a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or ())


def runs_of(messages: list[dict[str, Any]]) -> list[Run]:
    """The turns of a conversation."""
    runs: list[Run] = []
    for index, message in enumerate(messages):
        if not runs or runs[-1].role != message["role"]:
            runs.append(Run(message["role"], index))
        runs[-1].blocks.extend(blocks_of(message.get("content")))
        runs[-1].messages.append(message)
    return runs
