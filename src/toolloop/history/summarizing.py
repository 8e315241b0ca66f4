"""Compaction that puts a summary in the place of old rounds: what is asked, and what comes of the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import field

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, well_formed
from toolloop.history.compaction import Edit, SummaryFailed, edit_of, live_tokens
from toolloop.history.outline import SUMMARY_START, Outline, outline_of
from toolloop.history.reading import kind_of, text_key
from toolloop.history.units import (
    Unit,
    breaks_nothing,
    first_turn,
    kept,
    last_compaction,
    left_of,
    put_together,
    tail_of,
    units_of,
    ways_to_keep,
)

#: What the model is asked, after the messages that it is to summarize.
SUMMARY_PROMPT: Final = """\
Summarize the conversation so far. Your summary takes the place of its messages, and whoever reads it goes on with the \
work and knows nothing else of it. Keep: what the user asked for, and every wish and limit that still holds; what was \
done and found out, with names, paths, numbers and other details that will be needed again; what failed, and why; what \
is decided; what is left to do, and the next step. Leave out what no longer matters. Answer with the summary alone. \
Call no tools, and do not go on with the work itself."""

_COMPLETE: Final = frozenset({"end_turn", "stop_sequence"})


@frozen(eq=False)
class Summary:
    """A summary that is to be written, by the model or by somebody else.

    Attributes:
        request: the messages of the request, as JSON texts: the first ones of the history, and the prompt. Those are
            what the summary replaces, and seldom a few more.
        prefix: how many of them are the history's.

    """

    request: list[str]
    prefix: int
    _old: tuple[Outline, ...] = field(repr=False)
    _new: tuple[Outline, ...] = field(repr=False)
    _stand_in: Outline = field(repr=False)

    @property
    def frees(self) -> int:
        """About how many tokens less the history has after it, the summary aside."""
        return live_tokens(self._old) - live_tokens(self._new) + self._stand_in.tokens

    @property
    def stays(self) -> int:
        """About how many tokens the messages have that stay after the summary."""
        return sum(outline.tokens for outline in self._new[self._new.index(self._stand_in) + 1 :])

    def messages(self) -> list[JSON]:
        """The messages to summarize, decoded, without the prompt."""
        return [outline.message() for outline in self._old[: self.prefix]]

    def finish(self, reply: Mapping[str, Any]) -> Edit:
        """The compacted history, from the model's reply.

        Raises:
            SummaryFailed: the reply is no summary, or one that saves nothing.

        """
        stop, content = reply.get("stop_reason"), reply.get("content")
        blocks = content if isinstance(content, list) else []
        if any(kind_of(block) == "tool_use" for block in blocks):
            raise SummaryFailed("the model made calls instead of a summary")
        if stop not in _COMPLETE:
            raise SummaryFailed(f"the reply is no whole summary: its stop reason is {stop}")
        return self.finish_text("".join(text_key(block, "text") or "" for block in blocks if kind_of(block) == "text"))

    def finish_text(self, text: object) -> Edit:
        """The compacted history, from the words of a summary.

        Raises:
            SummaryFailed: they are none, or they save nothing.

        """
        if not isinstance(text, str):
            raise SummaryFailed(f"the summary is a {type(text).__name__}, and no text")
        if not text.strip():
            raise SummaryFailed("the summary has no words")
        summary = _summary(f"{SUMMARY_START}\n\n{well_formed(text.strip())}")
        edit = edit_of(self._old, (summary if each is self._stand_in else each for each in self._new))
        if edit.after >= edit.before:
            raise SummaryFailed(
                f"the summary saves nothing: with it the messages have about {edit.after} tokens, without it "
                f"{edit.before}"
            )
        return edit


def _summary(text: str) -> Outline:
    return outline_of({"role": "user", "content": [{"type": "text", "text": text}]})


def plan_summary(
    outlines: Sequence[Outline], *, keep_last: int, prompt: str, is_pinned: Callable[[Outline], bool]
) -> Summary | None:
    """What is to be summarized of a history; None: nothing, or no cut leaves it valid.

    The request is a prefix of the history, so it is read from the prompt cache, and thinking stands where it was born.

    Args:
        outlines: of the whole history.
        keep_last: how many rounds at the end stay.
        prompt: what the model is asked.
        is_pinned: asked about each message before these.

    """
    units = units_of(outlines)
    tail = tail_of(units, keep_last)
    first, place = _place(units, tail)
    keep = kept(units, tail, is_pinned, place) | {*range(first, place)}
    plans = (_planned(outlines, units, way, place, tail, prompt) for way in ways_to_keep(units, keep))
    return next((plan for plan in plans if plan is not None), None)


def _planned(  # noqa: PLR0913, PLR0917 - the parts of one question
    outlines: Sequence[Outline], units: Sequence[Unit], keep: set[int], place: int, tail: int, prompt: str
) -> Summary | None:
    keep = {*keep}
    gone = [number for number in range(place, tail) if number not in keep]
    while gone and units[gone[-1]].by_code:
        keep.add(gone.pop())  # the prompt cannot follow on it
    if not gone:
        return None
    prefix = sum(len(unit.outlines) for unit in units[: _end(units, gone[-1]) + 1])
    request = [*outlines[:prefix], _asked(prompt, after=outlines[prefix - 1])]
    stand_in = _summary(SUMMARY_START)
    keep -= {number for number in range(tail) if units[number].is_summary}
    new = put_together(outlines, [*left_of(units[:place], keep), stand_in, *left_of(units, keep, place)])
    if new is None or not breaks_nothing(request, outlines):
        return None
    return Summary([each.text for each in request], prefix, tuple(outlines), tuple(new), stand_in)


def _place(units: Sequence[Unit], tail: int) -> tuple[int, int]:
    """Where a summary goes: behind the user's first turn and the API's own compaction, which it would hide else.

    Returns:
        The unit that must stand before it, and the one before which it goes; between them is what must follow on the
        former, since its results are of calls that code made.

    """
    turn = first_turn(units)
    first = place = max(turn if turn < tail else -1, last_compaction(units)) + 1
    while 0 < place < tail and units[place - 1].by_code:
        place += 1
    return first, place


def _end(units: Sequence[Unit], last: int) -> int:
    """The last unit that is sent: behind results the prompt goes on with a turn, which thinking must begin (rule 27).

    So some units that stay are sent along, up to the end of a turn from a time without thinking. Where that is the turn
    that goes on now, or nothing thinks at all, there is no such rule for this loop.
    """
    if not any(unit.thinks for unit in units):
        return last
    thought = False
    for number, unit in enumerate(units):
        goes_on = number > 0 and units[number - 1].speaks and units[number - 1].with_results and not unit.compacts
        thought = unit.thinks or (thought and goes_on)
        if number >= last and not unit.by_code and (thought or not unit.with_results):
            return number
    return last


def _asked(prompt: str, *, after: Outline) -> Outline:
    """The prompt as a message; the API takes no user message after a system message (rule 21)."""
    role = "system" if after.role == "system" else "user"
    return outline_of({"role": role, "content": [{"type": "text", "text": well_formed(prompt)}]})
