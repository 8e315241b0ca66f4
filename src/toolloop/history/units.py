"""What stays or goes together, what stays always, and how the rest is put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, Final

from attrs import frozen

from toolloop.history.open_turns import open_code_calls
from toolloop.history.outline import Outline
from toolloop.history.pairing import check_pairing
from toolloop.history.reading import THINKING, after_compaction, is_directive, runs_of
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
        thinks: it begins with thinking.
        lasts: a system message in it holds for all that follows: it adds or removes tools, or sets the output.

    """

    outlines: tuple[Outline, ...]
    speaks: bool
    asks: bool
    by_code: bool
    with_results: bool
    thinks: bool
    lasts: bool

    @property
    def is_summary(self) -> bool:
        """Whether it is a summary that `Summarize` made."""
        return self.outlines[0].is_summary

    @property
    def compacts(self) -> bool:
        """Whether it has a compaction block of the API."""
        return any(outline.compacts for outline in self.outlines)


def units_of(outlines: Sequence[Outline]) -> list[Unit]:
    """The units of a history."""
    units: list[Unit] = []
    rest = iter(outlines)
    for part in rounds([outline.skeleton for outline in outlines]):
        group: list[Outline] = []
        for outline in (next(rest) for _ in part):
            if group and (outline.is_summary or group[-1].is_summary):
                units.append(_unit(group))
                group = []
            group.append(outline)
        units.append(_unit(group))
    return units


def _unit(group: list[Outline]) -> Unit:
    skeletons = [outline.skeleton for outline in group]
    runs = runs_of(skeletons)
    turns = [run for run in runs if run.role != "system"]
    begins = next((kind for run in turns[:1] for kind in run.kinds if kind != "compaction"), None)
    return Unit(
        tuple(group),
        speaks=any(run.role == "assistant" for run in turns),
        asks=not group[0].is_summary and any(run.role == "user" and _has_words(run.kinds) for run in turns),
        by_code=open_code_calls(skeletons),
        with_results=bool(turns) and turns[-1].role == "user" and "tool_result" in turns[-1].kinds,
        thinks=begins in THINKING,
        lasts=any(is_directive(each) for each in skeletons)
        or any(run.role == "system" and not _LASTING.isdisjoint(run.kinds) for run in runs),
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

    Kept are: the tail; the first user turn, and the one that the tail works on, with later words of the user; the
    API's last compaction; summaries; what is pinned; system messages that hold for all that follows. And what these
    need to be valid beside each other.

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
        or unit.lasts
        or any(map(is_pinned, unit.outlines))
        or unit.outlines[0].role == "system"  # the first turn's, which moved behind a summary
    }
    keep |= {number for number in (first_turn(units), last_compaction(units)) if number >= 0}
    for number in range(tail - 1, -1, -1):
        if units[number].asks:
            keep.add(number)
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


def left_of(units: Sequence[Unit], keep: set[int], start: int = 0) -> list[Outline]:
    """The messages of the units that stay, from one unit on."""
    return [outline for number in sorted(keep) if start <= number < len(units) for outline in units[number].outlines]


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
