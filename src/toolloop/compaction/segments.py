"""Split a history into segments, which are kept or dropped as a whole, and find those that are always kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, takewhile
from typing import Any, Final

from attrs import frozen

from toolloop._messages.check import check_order
from toolloop._messages.reading import THINKING, blocks_of, drop_compacted, is_directive, role_of, runs_of
from toolloop._messages.repair import repair
from toolloop._messages.rounds import open_code_calls, rounds
from toolloop._messages.tool_changes import find_changes
from toolloop.compaction.tokens import Outline

#: The beginning of each summary. The next compaction recognizes the summary by it.
SUMMARY_START: Final = "[Summary of the conversation so far, instead of its messages]"

# With these settings, the rule about thinking at the start of a turn is also checked.
_MANUAL: Final[dict[str, Any]] = {"model": "claude-sonnet-4-5", "thinking": {"type": "enabled"}}


@frozen(eq=False)
class Segment:
    """A part of a history as `rounds` splits it. A summary by `Summarize` is a separate segment.

    Args:
        outlines: the outlines of its messages.
        messages: its messages.
        speaks: whether it has an assistant message.
        asks: whether it has user content besides results.
        by_code: whether it ends in results of calls made by code. Then only the model may continue.
        with_results: whether it ends in a user turn with results.
        thinks: whether it begins with thinking.
        lasting: its system messages that affect all later messages: they change tools, or set the output.
        is_summary: whether it is a summary by `Summarize`.

    """

    outlines: tuple[Outline, ...]
    messages: tuple[Any, ...]
    speaks: bool
    asks: bool
    by_code: bool
    with_results: bool
    thinks: bool
    lasting: tuple[Outline, ...]
    is_summary: bool


def segments_of(outlines: Sequence[Outline]) -> list[Segment]:
    """Split a history into segments."""
    segments: list[Segment] = []
    messages = [each.message() for each in outlines]
    start = 0
    for part in rounds(messages):
        end = start + len(part)
        summaries = [at for at in range(start, end) if _has_summary(messages[at])]
        for first, last in pairwise(sorted({start, end, *summaries, *(at + 1 for at in summaries)})):
            segments.append(_segment(outlines[first:last], messages[first:last], is_summary=first in summaries))
        start = end
    return segments


def _segment(outlines: Sequence[Outline], messages: Sequence[Any], *, is_summary: bool) -> Segment:
    runs = runs_of(messages)
    turns = [run for run in runs if run.role != "system"]
    live = [run for run in drop_compacted(runs) if run.role != "system"]
    return Segment(
        tuple(outlines),
        tuple(messages),
        speaks=any(run.role == "assistant" for run in turns),
        asks=not is_summary and any(run.role == "user" and set(run.kinds) - {"tool_result"} for run in turns),
        by_code=open_code_calls(messages),
        with_results=bool(turns) and turns[-1].role == "user" and "tool_result" in turns[-1].kinds,
        thinks=next((kind for run in live[:1] for kind in run.kinds if kind != "compaction"), None) in THINKING,
        lasting=tuple(each for each, message in zip(outlines, messages, strict=True) if _lasts(message)),
        is_summary=is_summary,
    )


def _has_summary(message: Any) -> bool:
    if role_of(message) != "user":
        return False
    first = next((block.get("text") for _, block, _ in blocks_of(message)), None)
    return isinstance(first, str) and first.startswith(SUMMARY_START)


def _lasts(message: Any) -> bool:
    if is_directive(message):
        return True
    return role_of(message) == "system" and any(find_changes(runs_of([message])))


def tail_of(segments: Sequence[Segment], keep: int) -> int:
    """Return the index at which the last `keep` segments with an assistant message begin; 0 if there are fewer."""
    speaking = [number for number, segment in enumerate(segments) if segment.speaks]
    return speaking[-keep] if len(speaking) > keep else 0


def last_compaction(segments: Sequence[Segment]) -> int:
    """Return the index of the segment with the API's last compaction block, or -1."""
    return _last(segments, lambda segment: any(each.compacts for each in segment.outlines))


def first_turn(segments: Sequence[Segment]) -> int:
    """Return the index of the first segment with user content, or -1."""
    return next((number for number, segment in enumerate(segments) if segment.asks), -1)


def _last(segments: Sequence[Segment], wanted: Callable[[Segment], bool]) -> int:
    return max((number for number, segment in enumerate(segments) if wanted(segment)), default=-1)


def kept(segments: Sequence[Segment], tail: int, begin: int = 0) -> set[int]:
    """Return the indices of the segments to keep when the segments before the tail are dropped.

    These are the tail, the first user turn, the user turn that the tail belongs to, the last user content besides
    results, the last compaction of the API, summaries, and the last thinking of an open turn.

    Args:
        segments: the segments of the whole history.
        tail: the index of the first segment of the tail.
        begin: the earliest segment at which an open turn may begin.

    """
    before = segments[:tail]
    keep = {
        *range(tail, len(segments)),
        first_turn(segments),
        last_compaction(segments),
        _last(before, lambda each: each.asks),
        _last(before, lambda each: each.asks and not each.speaks),
        # A segment begins with a system message if that was moved after a summary.
        *(number for number, each in enumerate(before) if each.is_summary or each.outlines[0].role == "system"),
    } - {-1}
    # With manual thinking, the model may have thought only once in a turn of calls, and the turn must begin with it.
    going_on = takewhile(lambda each: each.speaks and each.with_results, reversed(segments))
    begin = max(begin, len(segments) - sum(1 for _ in going_on))
    first = min((number for number in keep if number >= begin), default=begin)
    if first < len(segments) and not segments[first].thinks:
        keep.update([number for number in range(begin, first) if segments[number].thinks][-1:])
    return keep


def left_of(segments: Sequence[Segment], keep: set[int], start: int = 0) -> list[Outline]:
    """Return the messages to keep from a segment on, with the lasting system messages of the dropped segments.

    Of the system messages that only set the output, only the last one is kept.
    """
    alone = [each for number, segment in enumerate(segments) if number not in keep for each in segment.lasting]
    replaced = {id(each) for each in [each for each in alone if is_directive(each.message())][:-1]}
    return [
        each
        for number, segment in enumerate(segments[start:], start)
        for each in (segment.outlines if number in keep else segment.lasting)
        if number in keep or id(each) not in replaced
    ]


def put_together(old: Sequence[Outline], new: list[Outline]) -> list[Outline] | None:
    """Return the shorter history, or None if it breaks a rule that the old one kept.

    A system message is moved after a user message that now follows it.
    """
    if breaks_nothing(new, old, **_MANUAL):
        return new
    messages = [each.message() for each in new]
    places = {id(message): place for place, message in enumerate(messages)}
    order = [places.get(id(message), -1) for message in repair(messages).messages]
    if sorted(order) != list(range(len(new))):
        return None
    mended = [new[place] for place in order]
    return mended if breaks_nothing(mended, old, **_MANUAL) else None


def breaks_nothing(new: Iterable[Outline], old: Iterable[Outline], **request: Any) -> bool:
    """Return whether each rule of order is broken at most as often in the new history as in the old one."""
    return _errors(new, **request) <= _errors(old, **request)


def _errors(outlines: Iterable[Outline], **request: Any) -> Counter[str]:
    problems = check_order([each.message() for each in outlines], **request)
    return Counter(problem.rule for problem in problems if problem.level == "error")
