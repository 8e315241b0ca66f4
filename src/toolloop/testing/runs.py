"""A conversation as the API reads it: adjacent messages of one role are one turn (messages-api.md, rule 8)."""

from __future__ import annotations

from typing import Any

from attrs import evolve, field

from toolloop.core.freezing import frozen

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


def summarizes(block: Block) -> bool:
    """Whether this is a compaction block with a summary: one without is a compaction that failed, and does nothing."""
    return block["type"] == "compaction" and block.get("content") is not None


def after_compaction(runs: list[Run]) -> list[Run]:
    """The same turns, with a compaction block that does nothing in the place of all that no longer counts.

    That is what stands before the last block with a summary (rule 36).
    """
    number = next((n for n in reversed(range(len(runs))) if any(map(summarizes, runs[n].blocks))), None)
    if number is None:
        return runs
    place = max(index for index, block in enumerate(runs[number].blocks) if summarizes(block))
    return [
        *(_passed(run, len(run.blocks)) for run in runs[:number]),
        _passed(runs[number], place),
        *runs[number + 1 :],
    ]


def _passed(run: Run, count: int) -> Run:
    return evolve(run, blocks=[{"type": "compaction"}] * count + run.blocks[count:])
