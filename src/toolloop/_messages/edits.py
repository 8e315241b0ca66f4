"""A history as `repair` edits it: messages and blocks with their original positions."""

from __future__ import annotations

from typing import Any, Final

from attrs import define, field, frozen

from toolloop._messages.reading import is_directive, is_summary, kind_of, make_content_path, make_message_path, role_of


@frozen(eq=False)
class BlockEdit:
    """A block, with its position in the given list."""

    path: str
    block: Any

    @property
    def kind(self) -> str | None:
        """The type of the block, or None."""
        return kind_of(self.block)

    @property
    def call(self) -> str | None:
        """The id of a call, or the id that a result refers to; else None."""
        name = self.block.get("id" if self.kind in _CALLS else "tool_use_id")
        return name if isinstance(name, str) else None

    @property
    def toolset(self) -> str | None:
        """The toolset of a call or a result, or None."""
        name = self.block.get("toolset_name")
        return name if isinstance(name, str) else None


_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


@define(eq=False)
class MessageEdit:
    """A message under repair. The role is None for a value that is not a message, which is not changed."""

    path: str
    original: Any
    role: str | None
    parts: list[BlockEdit] = field(factory=list)
    changed: bool = False

    def set(self, parts: list[BlockEdit]) -> None:
        """Replace its blocks."""
        self.parts = parts
        self.changed = True

    def to_message(self) -> Any:
        """Return the message: the given object if nothing changed."""
        return self.original | {"content": [part.block for part in self.parts]} if self.changed else self.original


@frozen
class MessageGroup:
    """Adjacent messages of one role, and the positions of their blocks that still count."""

    role: str
    edits: list[MessageEdit]
    places: list[tuple[MessageEdit, BlockEdit]]

    @property
    def closes(self) -> bool:
        """Whether this is a user turn with more than results."""
        return self.role == "user" and any(part.kind != "tool_result" for _, part in self.places)


def take_apart(number: int, message: Any) -> MessageEdit:
    """Split a message into blocks."""
    role = role_of(message)
    if role is None or is_directive(message):
        return MessageEdit(make_message_path(number), message, None)
    path, content = make_content_path(number), message["content"]
    if isinstance(content, str):
        parts = [BlockEdit(path, {"type": "text", "text": content})]
    else:
        parts = [BlockEdit(f"{path}[{index}]", block) for index, block in enumerate(content)]
    return MessageEdit(make_message_path(number), message, role, parts)


def turns_of(edits: list[MessageEdit]) -> list[MessageGroup]:
    """Return the turns of a history, as the API merges them."""
    turns: list[MessageGroup] = []
    for edit in edits:
        if edit.role is None:
            continue
        if not turns or turns[-1].role != edit.role:
            turns.append(MessageGroup(edit.role, [], []))
        turns[-1].edits.append(edit)
        turns[-1].places.extend((edit, part) for part in edit.parts)
    return turns


def find_live_turns(edits: list[MessageEdit]) -> list[MessageGroup]:
    """Return the turns from the last compaction block on. Calls before it are not paired."""
    turns = turns_of(edits)
    for number in range(len(turns) - 1, -1, -1):
        turn = turns[number]
        for index in range(len(turn.places) - 1, -1, -1):
            if is_summary(turn.places[index][1].block):
                return [MessageGroup(turn.role, turn.edits, turn.places[index:]), *turns[number + 1 :]]
    return turns
