"""Compaction that leaves out old rounds."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

from toolloop.compaction.segments import kept, left_of, put_together, segments_of, tail_of
from toolloop.compaction.strategy import Edit, EditStrategy, at_least, edit_of
from toolloop.compaction.tokens import Outline


@frozen(eq=False)
class DropRounds(EditStrategy):
    """Leaves out all but the last rounds. A round is an assistant message and the results of its calls.

    These stay, too: the first user turn, the user turn that the last rounds work on, the last words of the user beside
    results, summaries, the last compaction of the API, and system messages that add or remove tools, or the last one
    that sets the output. No cut falls inside a round. A history that no such cut leaves valid stays as it is.

    Args:
        keep_last: the number of rounds that stay.
        at_tokens: with fewer tokens nothing is done; None sets no threshold.

    Raises:
        ValueError: a value is out of range. The message names the field.

    """

    keep_last: int = field(validator=at_least(1))

    def plan(self, outlines: Sequence[Outline]) -> Edit | None:
        """Return the history without the old rounds; None if there is nothing to leave out."""
        new = self._cut(outlines)
        if new is None:
            return None
        # User turns that meet now may join the turn that goes on to its beginning. Then fewer rounds are needed.
        while (fewer := self._cut(new)) is not None:
            new = fewer
        return edit_of(outlines, new)

    def _cut(self, outlines: Sequence[Outline]) -> list[Outline] | None:
        segments = segments_of(outlines)
        keep = kept(segments, tail_of(segments, self.keep_last))
        return put_together(outlines, left_of(segments, keep)) if len(keep) < len(segments) else None
