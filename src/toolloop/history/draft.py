"""A history taken apart for mending: messages and blocks that remember where they were."""

from __future__ import annotations

from typing import Any, Final

from attrs import define, field

from toolloop.core.freezing import frozen
from toolloop.history.reading import content_path, is_directive, is_summary, kind_of, message_path, role_of


@frozen(eq=False)
class Piece:
    """A block, and where it stood in the list that was given."""

    path: str
    block: Any

    @property
    def kind(self) -> str | None:
        """The type of the block, if it has one."""
        return kind_of(self.block)

    @property
    def call(self) -> str | None:
        """The id that a call has, or that a result names; None where there is no such string."""
        name = self.block.get("id" if self.kind in _CALLS else "tool_use_id")
        return name if isinstance(name, str) else None

    @property
    def toolset(self) -> str | None:
        """The toolset that a call is of, or that a result names; None where there is no such string."""
        name = self.block.get("toolset_name")
        return name if isinstance(name, str) else None


_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


@define(eq=False)
class Draft:
    """A message under repair. Its role is None if it has not the shape of one: then it is left as it is."""

    path: str
    original: Any
    role: str | None
    pieces: list[Piece] = field(factory=list)
    changed: bool = False

    def set(self, pieces: list[Piece]) -> None:
        """Give it other blocks."""
        self.pieces = pieces
        self.changed = True

    def put_back(self, piece: Piece) -> None:
        """Let a piece stand at the end again, where it stood; with all of them this is the message that was given."""
        self.set([*self.pieces, piece])
        self.changed = [own.block for own in self.pieces] != self.original["content"]

    def message(self) -> Any:
        """The message: the very one that was given, if nothing changed."""
        return self.original | {"content": [piece.block for piece in self.pieces]} if self.changed else self.original


@frozen
class Turn:
    """A run of drafts of one role; the places of its blocks that still count."""

    role: str
    drafts: list[Draft]
    places: list[tuple[Draft, Piece]]

    @property
    def closes(self) -> bool:
        """Whether this is a user turn of more than results."""
        return self.role == "user" and any(piece.kind != "tool_result" for _, piece in self.places)


def take_apart(number: int, message: Any) -> Draft:
    """Make a draft of a message."""
    role = role_of(message)
    if role is None or is_directive(message):
        return Draft(message_path(number), message, None)
    path, content = content_path(number), message["content"]
    if isinstance(content, str):
        pieces = [Piece(path, {"type": "text", "text": content})]
    else:
        pieces = [Piece(f"{path}[{index}]", block) for index, block in enumerate(content)]
    return Draft(message_path(number), message, role, pieces)


def turns_of(drafts: list[Draft]) -> list[Turn]:
    """The runs of the drafts, as the API would merge them."""
    turns: list[Turn] = []
    for draft in drafts:
        if draft.role is None:
            continue
        if not turns or turns[-1].role != draft.role:
            turns.append(Turn(draft.role, [], []))
        turns[-1].drafts.append(draft)
        turns[-1].places.extend((draft, piece) for piece in draft.pieces)
    return turns


def live_turns(drafts: list[Draft]) -> list[Turn]:
    """The turns from the last compaction block on: calls before it are no longer paired."""
    turns = turns_of(drafts)
    for number in range(len(turns) - 1, -1, -1):
        turn = turns[number]
        for index in range(len(turn.places) - 1, -1, -1):
            if is_summary(turn.places[index][1].block):
                return [Turn(turn.role, turn.drafts, turn.places[index:]), *turns[number + 1 :]]
    return turns
