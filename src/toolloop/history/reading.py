"""A history as the API reads it: runs of messages of one role, each a list of blocks.

The API merges neighbouring messages of one role before it judges them, and takes a string for one text block (source:
the documentation; recorded requests). Whatever has not the shape of a message or of a block is left out here: the shape
checks speak of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from attrs import field

from toolloop.core.freezing import frozen

Block = dict[str, Any]

ROLES: Final = ("user", "assistant", "system")
THINKING: Final = frozenset({"thinking", "redacted_thinking"})
SERVER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})

_HOLDERS: Final = frozenset({"document", "search_result", "tool_result"})  # kinds of blocks that hold others

#: Stands for the index of a block where the content is a string.
WHOLE: Final = -1


@frozen
class Spot:
    """One block and where it stands: the index of its message, and its own in that message's content."""

    message: int
    index: int
    block: Block
    kind: str

    @property
    def path(self) -> str:
        """Like `messages[4].content[1]`."""
        return content_path(self.message) + ("" if self.index == WHOLE else f"[{self.index}]")


@frozen
class Run:
    """Neighbouring messages of one role, and their blocks."""

    role: str
    messages: list[int] = field(factory=list)
    spots: list[Spot] = field(factory=list)

    @property
    def kinds(self) -> Iterator[str]:
        """The types of the blocks, in order."""
        return (spot.kind for spot in self.spots)

    @property
    def results_only(self) -> bool:
        """Whether there are results here and nothing else: such a user turn leaves open server calls open."""
        return bool(self.spots) and all(kind == "tool_result" for kind in self.kinds)


def message_path(message: int) -> str:
    """Like `messages[4]`."""
    return f"messages[{message}]"


def content_path(message: int) -> str:
    """Like `messages[4].content`."""
    return f"messages[{message}].content"


def role_of(message: Any) -> str | None:
    """The role of a message that has the shape of one, else None."""
    if not isinstance(message, dict):
        return None
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES or not isinstance(message.get("content"), str | list):
        return None
    return role


def is_directive(message: Any) -> bool:
    """Whether this is a system message without words that only sets `output_config`: legal at any place (rule 21)."""
    return (
        isinstance(message, dict)
        and message.get("role") == "system"
        and message.get("content", []) == []
        and bool(message.get("output_config"))
    )


def kind_of(block: Any) -> str | None:
    """The type of a block that has one, else None."""
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else None


def blocks_of(message: dict[str, Any]) -> Iterator[tuple[int, Block, str]]:
    """The well-shaped blocks of a message: index, block and type."""
    content = message["content"]
    if isinstance(content, str):
        yield WHOLE, {"type": "text", "text": content}, "text"
        return
    for index, block in enumerate(content):
        kind = kind_of(block)
        if kind is not None:
            yield index, block, kind


def runs_of(messages: Any, *, parting: bool = False) -> list[Run]:
    """The runs of a history.

    Args:
        messages: of the history.
        parting: whether a message that only sets `output_config` parts the messages around it, as any system message
            does; else it is as if it were not there. The API's documentation says no more than that it may stand
            anywhere.

    """
    runs: list[Run] = []
    for number, message in enumerate(messages):
        directs = is_directive(message)
        role = "system" if directs else role_of(message)
        if role is None or (directs and not parting):
            continue
        if not runs or runs[-1].role != role:
            runs.append(Run(role))
        runs[-1].messages.append(number)
        if not directs:
            runs[-1].spots.extend(Spot(number, index, block, kind) for index, block, kind in blocks_of(message))
    return runs


def is_summary(block: Any) -> bool:
    """Whether this is a compaction block that stands for all before it; one without content stands for nothing.

    Source: rule 36; the SDK's `BetaCompactionBlockParam`: content that is null says that the compaction failed.
    """
    return kind_of(block) == "compaction" and isinstance(block.get("content"), str) and bool(block["content"])


def after_compaction(runs: list[Run]) -> list[Run]:
    """The runs that still count: from the last compaction block on (rule 36; what is before it is ignored)."""
    for number in range(len(runs) - 1, -1, -1):
        run = runs[number]
        for index in range(len(run.spots) - 1, -1, -1):
            if is_summary(run.spots[index].block):
                return [Run(run.role, run.messages, run.spots[index:]), *runs[number + 1 :]]
    return runs


def text_key(block: Block, key: str) -> str | None:
    """A string among the values of a block, else None."""
    value = block.get(key)
    return value if isinstance(value, str) else None


def is_server_result(kind: str) -> bool:
    """Whether blocks of this type, such as `web_search_tool_result`, answer a server call."""
    return kind.endswith("_tool_result")


def made_by_code(call: Block) -> bool:
    """Whether a `tool_use` was made by code that the server runs (rule 25)."""
    caller = call.get("caller")
    return isinstance(caller, dict) and (text_key(caller, "type") or "").startswith("code_execution")


def unanswered_server_calls(runs: list[Run]) -> dict[str, tuple[int, Spot]]:
    """The server calls without a result anywhere later, by id: number of the run, and spot (rule 23)."""
    waiting: dict[str, tuple[int, Spot]] = {}
    for number, run in enumerate(runs):
        for spot in run.spots:
            if spot.kind in SERVER_CALLS and (call := text_key(spot.block, "id")) is not None:
                waiting[call] = (number, spot)
            elif is_server_result(spot.kind):
                waiting.pop(text_key(spot.block, "tool_use_id") or "", None)
    return waiting


def last_closing_run(runs: list[Run]) -> int:
    """The last user run that is more than results, so that the server turns before it are over; -1: none."""
    for number in range(len(runs) - 1, -1, -1):
        if runs[number].role == "user" and not runs[number].results_only:
            return number
    return -1


def with_inner(run: Run) -> Iterator[tuple[str, Any]]:
    """Every block of a run with its path, what is inside results, documents and search results before these."""
    for spot in run.spots:
        for block in _inside_first(spot.block):
            yield spot.path, block


def _inside_first(block: Any, depth: int = 2) -> Iterator[Any]:
    kind = kind_of(block)
    holder = block.get("source") if kind == "document" else block
    content = holder.get("content") if kind in _HOLDERS and isinstance(holder, dict) else None
    for inner in content if isinstance(content, list) and depth else ():
        yield from _inside_first(inner, depth - 1)
    yield block


def is_blank(text: Any) -> bool:
    """Whether this is a string without a word in it (rule 14)."""
    return isinstance(text, str) and not text.strip()
