"""Compaction that hides old results of tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import field

from toolloop.core.freezing import frozen
from toolloop.history.compaction import Edit, EditStrategy, edit_of, whole_from
from toolloop.history.outline import MASK_START, Outline, ResultOutline, outline_of, result_tokens
from toolloop.history.reading import blocks_of, role_of, text_key
from toolloop.history.units import Unit, last_compaction, tail_of, units_of


@frozen(eq=False)
class MaskResults(EditStrategy):
    """Puts a short text in the place of old results: of which tool a result was, and how long.

    Calls and all that the model said stay, so it still knows what it did. Results that load tools stay, those of the
    API's own tools, which go back only as they came, and those in rounds with a pinned message.

    Args:
        keep_rounds: how many rounds at the end keep their results.
        min_tokens: results with fewer tokens stay.
        at_tokens: below so many tokens nothing is done; None: no threshold.
        pinned: says of a message whether its round must stay.

    Raises:
        ValueError, TypeError: a value that makes no sense; it names the field.

    """

    keep_rounds: int = field(default=2, validator=whole_from(1))
    min_tokens: int = field(default=500, validator=whole_from(0))

    def plan(self, outlines: Sequence[Outline]) -> Edit | None:
        """The history with its old results masked; None: there are none."""
        units = units_of(outlines)
        first, tail = last_compaction(units) + 1, tail_of(units, self.keep_rounds)
        old = list(outlines)
        places = {id(outline): place for place, outline in enumerate(outlines)}
        for unit in units[first:tail]:
            for outline, masked in self._masked(unit):
                old[places[id(outline)]] = masked
        edit = edit_of(outlines, old)
        return edit if edit.after < edit.before else None

    def _masked(self, unit: Unit) -> Iterator[tuple[Outline, Outline]]:
        if not any(self._long(outline) for outline in unit.outlines) or any(map(self.is_pinned, unit.outlines)):
            return
        names = _names(unit)
        for outline in unit.outlines:
            masks = {result.index: (result, _mask(result, names)) for result in self._long(outline)}
            shorter = {index: mask for index, (result, mask) in masks.items() if result_tokens(mask) < result.tokens}
            if shorter:
                yield outline, _with_masks(outline, shorter)

    def _long(self, outline: Outline) -> list[ResultOutline]:
        return [result for result in outline.results if result.tokens >= self.min_tokens and not result.stays]


def _names(unit: Unit) -> dict[str, str]:
    """The names of the tools that the calls of a unit are for, by id of the call."""
    return {
        text_key(block, "id") or "": text_key(block, "name") or ""
        for outline in unit.outlines
        if role_of(outline.skeleton) == "assistant"
        for _, block, kind in blocks_of(outline.skeleton)
        if kind == "tool_use"
    }


def _mask(result: ResultOutline, names: dict[str, str]) -> str:
    return f"{MASK_START}the result of {names.get(result.call) or 'a call'}, about {result.tokens} tokens.]"


def _with_masks(outline: Outline, masks: dict[int, str]) -> Outline:
    message: Any = outline.message()
    content = list(message["content"])
    for index, words in masks.items():
        content[index] = {**content[index], "content": words}
    return outline_of({**message, "content": content})
