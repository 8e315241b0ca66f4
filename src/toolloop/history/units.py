"""What stays or goes together, what stays always, and how the rest is put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

from toolloop.core.freezing import frozen
from toolloop.history.open_turns import open_code_calls
from toolloop.history.outline import Outline
from toolloop.history.pairing import check_pairing
from toolloop.history.reading import THINKING, after_compaction, blocks_of, is_directive, role_of, runs_of
from toolloop.history.repair import repair
from toolloop.history.rounds import rounds
from toolloop.history.rules import Findings
from toolloop.history.turns import check_turns

# With these the rule about the thinking that begins a turn is looked at; models that lack it lose nothing.
_MANUAL: Final[dict[str, Any]] = {"model": "claude-sonnet-4-5", "thinking": {"type": "enabled"}}
_LASTING: Final = frozenset({"tool_addition", "tool_removal"})


@frozen(eq=False)
class Unit:
    """A part of a history as `rounds` parts it, but that a summary is a unit of its own.

    Args:
        outlines: of its messages.
        speaks: the model says something in it.
        asks: the user says something in it, beside results.
        by_code: it ends in results of calls that code made: only the model's turn may follow.
        with_results: it ends in a user turn that has results.
        thinks: it begins with thinking, or what still counts of it does.
        lasting: the system messages in it that hold for all that follows: they add or remove tools, or set the output.
        is_summary: it is a summary that `Summarize` made, and stands where it puts them.

    """

    outlines: tuple[Outline, ...]
    speaks: bool
    asks: bool
    by_code: bool
    with_results: bool
    thinks: bool
    lasting: tuple[Outline, ...]
    is_summary: bool

    @property
    def compacts(self) -> bool:
        """Whether it has a compaction block of the API."""
        return any(outline.compacts for outline in self.outlines)


def units_of(outlines: Sequence[Outline]) -> list[Unit]:
    """The units of a history."""
    units: list[Unit] = []
    rest = iter(outlines)
    before: Outline | None = None
    compacted = False
    for part in rounds([outline.skeleton for outline in outlines]):
        group: list[Outline] = []
        summary = False
        for outline in (next(rest) for _ in part):
            # They stand behind a turn of the user's, or behind the API's own; one elsewhere the user brought along.
            fits = before is not None and (before.role != "assistant" or compacted)
            is_summary = outline.is_summary and fits
            if group and (is_summary or summary):
                units.append(_unit(group, is_summary=summary))
                group = []
            group.append(outline)
            before, summary = outline, is_summary
        units.append(_unit(group, is_summary=summary))
        compacted = units[-1].compacts
    return units


def _unit(group: list[Outline], *, is_summary: bool) -> Unit:
    skeletons = [outline.skeleton for outline in group]
    runs = runs_of(skeletons)
    turns = [run for run in runs if run.role != "system"]
    live = [run for run in after_compaction(runs) if run.role != "system"]
    begins = next((kind for run in live[:1] for kind in run.kinds if kind != "compaction"), None)
    return Unit(
        tuple(group),
        speaks=any(run.role == "assistant" for run in turns),
        asks=not is_summary and any(run.role == "user" and _has_words(run.kinds) for run in turns),
        by_code=open_code_calls(skeletons),
        with_results=bool(turns) and turns[-1].role == "user" and "tool_result" in turns[-1].kinds,
        thinks=begins in THINKING,
        lasting=tuple(outline for outline in group if _lasts(outline.skeleton)),
        is_summary=is_summary,
    )


def _lasts(skeleton: Any) -> bool:
    return is_directive(skeleton) or (
        role_of(skeleton) == "system" and any(kind in _LASTING for _, _, kind in blocks_of(skeleton))
    )


def _has_words(kinds: Any) -> bool:
    return any(kind != "tool_result" for kind in kinds)


def tail_of(units: Sequence[Unit], keep: int) -> int:
    """Where the last so many units in which the model speaks begin; 0 where there are no more."""
    speaking = [number for number, unit in enumerate(units) if unit.speaks]
    return speaking[-keep] if len(speaking) > keep else 0


def first_turn(units: Sequence[Unit]) -> int:
    """The unit in which the user speaks first; -1: there is none."""
    return next((number for number, unit in enumerate(units) if unit.asks), -1)


def last_compaction(units: Sequence[Unit]) -> int:
    """The unit with the last compaction block of the API; -1: there is none."""
    return max((number for number, unit in enumerate(units) if unit.compacts), default=-1)


def kept(units: Sequence[Unit], tail: int, is_pinned: Callable[[Outline], bool], begin: int = 0) -> set[int]:
    """The units that a cut before the tail leaves standing.

    Kept are: the tail; the first user turn, and the one that the tail works on, with the last words of the user beside
    results since; the API's last compaction; summaries; what is pinned. And what these need to be valid beside each
    other.

    Args:
        units: of the whole history.
        tail: from here on all stays.
        is_pinned: asked about each message before the tail.
        begin: before this unit no turn of the model's begins that goes on to the end.

    """
    keep = {
        number
        for number, unit in enumerate(units)
        if number >= tail
        or unit.is_summary
        or any(map(is_pinned, unit.outlines))
        or unit.outlines[0].role == "system"  # the first turn's, which moved behind a summary
    }
    keep |= {number for number in (first_turn(units), last_compaction(units)) if number >= 0}
    heard = False
    for number in range(tail - 1, -1, -1):
        if units[number].asks and not (heard and units[number].speaks):
            keep.add(number)
            heard = True
            if not units[number].speaks:
                break
    _keep_thinking(units, keep, begin)
    _keep_what_follows_code(units, keep)
    return keep


def _keep_thinking(units: Sequence[Unit], keep: set[int], begin: int) -> None:
    """Let a turn of calls that goes on begin with thinking, if it did (rule 27): the API may have thought only once."""
    going_on = takewhile(lambda unit: unit.speaks and unit.with_results, reversed(units))
    begin = max(begin, len(units) - sum(1 for _ in going_on))
    first = next((number for number in range(begin, len(units)) if number in keep), begin)
    if first < len(units) and not units[first].thinks:
        keep.update([number for number in range(begin, first) if units[number].thinks][-1:])


def _keep_what_follows_code(units: Sequence[Unit], keep: set[int]) -> None:
    """Let the model's turn follow on results of calls that code made (rule 25)."""
    for number, unit in enumerate(units[:-1]):
        if number in keep and unit.by_code and number + 1 not in keep:
            after = next((later for later in range(number + 2, len(units)) if later in keep), None)
            if after is not None and units[after].outlines[0].role == "user":
                keep.add(number + 1)


def ways_to_keep(units: Sequence[Unit], keep: set[int]) -> Iterator[set[int]]:
    """The units to keep: first without the rounds of system messages that last, which stay alone; else with these."""
    yield keep
    if whole := {number for number, unit in enumerate(units) if unit.lasting} - keep:
        yield keep | whole


def left_of(units: Sequence[Unit], keep: set[int], start: int = 0) -> list[Outline]:
    """The messages that stay, from one unit on: those of the units that stay, and of the others what lasts.

    Of messages that only set the output the last one says it all.
    """
    alone = [outline for number, unit in enumerate(units) if number not in keep for outline in unit.lasting]
    directives = [outline for outline in alone if is_directive(outline.skeleton)]
    spare = set(map(id, directives[:-1]))
    left: list[Outline] = []
    for number in range(start, len(units)):
        unit = units[number]
        left += unit.outlines if number in keep else [each for each in unit.lasting if id(each) not in spare]
    return left


def put_together(old: Sequence[Outline], new: list[Outline]) -> list[Outline] | None:
    """Messages of a history put together anew, so that no rule is broken that was not before; None: it cannot be.

    A system message may move behind a user turn that follows it now.
    """
    if breaks_nothing(new, old, **_MANUAL):
        return new
    places = {id(outline.skeleton): place for place, outline in enumerate(new)}
    order = [places.get(id(message), -1) for message in repair([outline.skeleton for outline in new]).messages]
    if sorted(order) != list(range(len(new))):
        return None
    mended = [new[place] for place in order]
    return mended if breaks_nothing(mended, old, **_MANUAL) else None


def breaks_nothing(new: Sequence[Outline], old: Sequence[Outline], **request: Any) -> bool:
    """Whether no rule that a cut could break is broken more often than before."""
    return _errors(new, **request) <= _errors(old, **request)


def _errors(outlines: Sequence[Outline], model: object = None, thinking: object = None) -> Counter[str]:
    skeletons, findings = [outline.skeleton for outline in outlines], Findings()
    runs = runs_of(skeletons)
    check_pairing(after_compaction(runs), findings)
    check_turns(skeletons, runs, findings, model=model, tools=None, thinking=thinking)
    return Counter(problem.rule for problem in findings.problems if problem.level == "error")
