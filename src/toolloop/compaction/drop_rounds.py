"""Compaction that drops old rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from attrs import field, frozen

from toolloop.compaction.segments import kept, left_of, put_together, segments_of, tail_of
from toolloop.compaction.strategy import Edit, EditStrategy, at_least, edit_of
from toolloop.compaction.tokens import Outline


@frozen(eq=False)
class DropRounds(EditStrategy):
    """Drop all but the last rounds. A round is an assistant message and the results of its calls.

    These messages are also kept:

    - the first user turn, and the user turn that the last rounds belong to;
    - the last user content besides results;
    - summaries, and the last compaction of the API;
    - system messages that add or remove tools, and the last one that sets the output.

    Rounds are never split. If the shorter history would be invalid, the history is not changed.

    Args:
        keep_last: the number of rounds to keep.
        at_tokens: histories with fewer tokens are not changed; None means no threshold.
        to_tokens: with `at_tokens`, the tokens to which a history is folded: fewer rounds are kept until it has at most
            so many, down to one. At most four fifths of `at_tokens`; None means half of it.

    Raises:
        ValueError: a value is out of range. The message names the field.

    """

    _rounds: ClassVar[str] = "keep_last"

    keep_last: int = field(validator=at_least(1))

    def plan(self, outlines: Sequence[Outline]) -> Edit | None:
        """Return the history without the old rounds; None if there is nothing to drop."""
        new = self._cut(outlines)
        if new is None:
            return None
        # A cut may make user turns adjacent, which connects the open turn to its beginning. Then fewer rounds suffice.
        while (fewer := self._cut(new)) is not None:
            new = fewer
        return edit_of(outlines, new)

    def _cut(self, outlines: Sequence[Outline]) -> list[Outline] | None:
        segments = segments_of(outlines)
        keep = kept(segments, tail_of(segments, self.keep_last))
        return put_together(outlines, left_of(segments, keep)) if len(keep) < len(segments) else None
