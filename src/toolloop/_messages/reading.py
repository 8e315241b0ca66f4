"""A history as the API reads it: runs of messages of one role, each a list of blocks.

The API merges adjacent messages of one role before it validates them, and reads a string as one text block (source:
the documentation; recorded requests). Values that are not messages or blocks are skipped; `shape` reports them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from attrs import field, frozen

Block = dict[str, Any]

ROLES: Final = ("user", "assistant", "system")
THINKING: Final = frozenset({"thinking", "redacted_thinking"})
SERVER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})

_HOLDERS: Final = frozenset({"document", "search_result", "tool_result"})  # kinds of blocks that hold others

#: The index of the block if the content is a string.
WHOLE: Final = -1


@frozen
class Spot:
    """A block, the index of its message, and its index in the content of that message."""

    message: int
    index: int
    block: Block
    kind: str

    @property
    def path(self) -> str:
        """The path, such as `messages[4].content[1]`."""
        return make_content_path(self.message) + ("" if self.index == WHOLE else f"[{self.index}]")


@frozen
class Run:
    """Adjacent messages of one role, and their blocks."""

    role: str
    messages: list[int] = field(factory=list)
    spots: list[Spot] = field(factory=list)

    @property
    def kinds(self) -> Iterator[str]:
        """The types of the blocks, in order."""
        return (spot.kind for spot in self.spots)

    @property
    def results_only(self) -> bool:
        """Whether all blocks are results. Such a user turn does not close open server calls."""
        return bool(self.spots) and all(kind == "tool_result" for kind in self.kinds)


def make_message_path(message: int) -> str:
    """Return a path like `messages[4]`."""
    return f"messages[{message}]"


def make_content_path(message: int) -> str:
    """Return a path like `messages[4].content`."""
    return f"messages[{message}].content"


def role_of(message: Any) -> str | None:
    """Return the role of a message; None if the value is not a message."""
    if not isinstance(message, dict):
        return None
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES or not isinstance(message.get("content"), (str, list)):
        return None
    return role


def is_directive(message: Any) -> bool:
    """Return whether this system message only sets `output_config`. Such a message is legal anywhere (rule 21)."""
    return (
        isinstance(message, dict)
        and message.get("role") == "system"
        and message.get("content", []) == []
        and bool(message.get("output_config"))
    )


def kind_of(block: Any) -> str | None:
    """Return the type of a block; None if it has none."""
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else None


def blocks_of(message: dict[str, Any]) -> Iterator[tuple[int, Block, str]]:
    """Yield the blocks of a message that have a type: index, block and type."""
    content = message["content"]
    if isinstance(content, str):
        yield WHOLE, {"type": "text", "text": content}, "text"
        return
    for index, block in enumerate(content):
        kind = kind_of(block)
        if kind is not None:
            yield index, block, kind


def runs_of(messages: Any) -> list[Run]:
    """Split a history into runs. A message that only sets `output_config` does not separate its neighbors."""
    runs: list[Run] = []
    for number, message in enumerate(messages):
        role = None if is_directive(message) else role_of(message)
        if role is None:
            continue
        if not runs or runs[-1].role != role:
            runs.append(Run(role))
        runs[-1].messages.append(number)
        runs[-1].spots.extend(Spot(number, index, block, kind) for index, block, kind in blocks_of(message))
    return runs


def is_summary(block: Any) -> bool:
    """Return whether this is a compaction block that replaces everything before it.

    A compaction block whose content is null does not: the compaction failed (source: rule 36; the SDK's
    `BetaCompactionBlockParam`).
    """
    return kind_of(block) == "compaction" and isinstance(block.get("content"), str) and bool(block["content"])


def drop_compacted(runs: list[Run]) -> list[Run]:
    """Return the runs that still count: those from the last compaction block on (rule 36)."""
    for number in range(len(runs) - 1, -1, -1):
        run = runs[number]
        for index in range(len(run.spots) - 1, -1, -1):
            if is_summary(run.spots[index].block):
                return [Run(run.role, run.messages, run.spots[index:]), *runs[number + 1 :]]
    return runs


def read_text(block: Block, key: str) -> str | None:
    """Return a member of a block if it is a string, else None."""
    value = block.get(key)
    return value if isinstance(value, str) else None


def is_server_result(kind: str) -> bool:
    """Return whether blocks of this type, such as `web_search_tool_result`, answer a server call."""
    return kind.endswith("_tool_result")


def is_made_by_code(call: Block) -> bool:
    """Return whether code execution on the server made a call (rule 25)."""
    caller = call.get("caller")
    return isinstance(caller, dict) and (read_text(caller, "type") or "").startswith("code_execution")


def find_unanswered_server_calls(runs: list[Run]) -> dict[str, tuple[int, Spot]]:
    """Return the server calls without a later result, by id: the number of the run, and the spot (rule 23)."""
    waiting: dict[str, tuple[int, Spot]] = {}
    for number, run in enumerate(runs):
        for spot in run.spots:
            if spot.kind in SERVER_CALLS and (call := read_text(spot.block, "id")) is not None:
                waiting[call] = (number, spot)
            elif is_server_result(spot.kind):
                waiting.pop(read_text(spot.block, "tool_use_id") or "", None)
    return waiting


def find_last_closing_run(runs: list[Run]) -> int:
    """Return the index of the last user run with more than results, or -1. It closes the server turns before it."""
    for number in range(len(runs) - 1, -1, -1):
        if runs[number].role == "user" and not runs[number].results_only:
            return number
    return -1


def walk_blocks(run: Run) -> Iterator[tuple[str, Any]]:
    """Yield every block of a run with its path. Blocks inside another block come before it."""
    for spot in run.spots:
        for block in _walk_inside_first(spot.block):
            yield spot.path, block


def _walk_inside_first(block: Any, depth: int = 2) -> Iterator[Any]:
    kind = kind_of(block)
    holder = block.get("source") if kind == "document" else block
    content = holder.get("content") if kind in _HOLDERS and isinstance(holder, dict) else None
    for inner in content if isinstance(content, list) and depth else ():
        yield from _walk_inside_first(inner, depth - 1)
    yield block


def is_blank(text: Any) -> bool:
    """Return whether this is a blank string (rule 14)."""
    return isinstance(text, str) and not text.strip()
