"""What the fake API handed out, so that it takes back its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolloop.testing.signing import digest

if TYPE_CHECKING:
    from toolloop.testing.runs import Block

_PAUSES = ("pause_turn", "compaction")


def _is_blank(block: Block) -> bool:
    return block["type"] == "text" and not block["text"].strip()


class Memory:
    """Blocks and paused replies that were handed out. Cache marks make no difference."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._blocks: set[bytes] = set()
        self._pauses: set[tuple[int, bytes]] = set()

    def add(self, content: list[Block], stop_reason: str | None) -> None:
        """Remember the content of a reply."""
        self._blocks.update(map(digest, content))
        # Blank text never comes back: rule 14 of messages-api.md refuses it.
        kept = [block for block in content if not _is_blank(block)]
        if stop_reason in _PAUSES and kept:
            self._pauses.add((len(kept), digest(kept)))

    def is_own(self, block: Block) -> bool:
        """Whether this block was handed out, to the last key."""
        return digest(block) in self._blocks

    def is_paused(self, blocks: list[Block]) -> bool:
        """Whether these blocks end with a paused reply."""
        return any(digest(blocks[-length:]) == whole for length, whole in list(self._pauses))
