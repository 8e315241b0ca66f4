"""Compaction that leaves out old rounds."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field

from toolloop.core.freezing import frozen
from toolloop.history.compaction import Edit, EditStrategy, edit_of, whole_from
from toolloop.history.outline import Outline
from toolloop.history.units import kept, left_of, put_together, tail_of, units_of, ways_to_keep


@frozen(eq=False)
class DropRounds(EditStrategy):
    """Leaves out all but the last rounds, where a round is what the model said and the results that came of it.

    What stays besides: the first user turn, the user's turn that the last rounds work on and the last words of the user
    beside results since, pinned rounds, summaries, the API's own last compaction, and system messages that add or
    remove tools, or the last one that sets the output. Nothing else is cut within a round. A history that no cut would
    leave valid stays as it is.

    Args:
        keep_last: how many rounds stay.
        at_tokens: below so many tokens nothing is done; None: no threshold.
        pinned: says of a message whether its round must stay.

    Raises:
        ValueError, TypeError: a value that makes no sense; it names the field.

    """

    keep_last: int = field(validator=whole_from(1))

    def plan(self, outlines: Sequence[Outline]) -> Edit | None:
        """The history without the old rounds; None: there is nothing to leave out."""
        new = self._left(outlines)
        if new is None:
            return None
        # User turns that meet may join the turn that goes on to what begins it: then fewer rounds are needed.
        while (fewer := self._left(new)) is not None:
            new = fewer
        return edit_of(outlines, new)

    def _left(self, outlines: Sequence[Outline]) -> list[Outline] | None:
        """What is left after one cut; None: nothing would go, or no cut leaves it valid."""
        units = units_of(outlines)
        keep = kept(units, tail_of(units, self.keep_last), self.is_pinned)
        ways = (way for way in ways_to_keep(units, keep) if len(way) < len(units))
        news = (put_together(outlines, left_of(units, way)) for way in ways)
        return next((new for new in news if new is not None), None)
