"""Edits of a list as splices, so that a journal stores only the new messages of an edit."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import compress, count
from operator import ne

from attrs import frozen

from toolloop.errors import IllegalCommand


@frozen
class Splice:
    """A replacement of some messages by others.

    Attributes:
        start, stop: the range of the replaced messages, in the list before any splice.
        messages: the texts that replace them.

    """

    start: int
    stop: int
    messages: tuple[str, ...] = ()


def find_splices(old: Sequence[str], new: Sequence[str]) -> tuple[Splice, ...]:
    """Return the splices that turn one list into another, in order; none for equal lists.

    Items that are the same at both ends are kept. Between them, items that are in each list once and in the same order
    are kept, with equal neighbors. The cost is at most that of sorting the lists.
    """
    front, back = _count_equal(old, new)
    stays = _find_in_order(old[front : len(old) - back], new[front : len(new) - back])
    splices: list[Splice] = []
    start, at = front, front
    for old_place, new_place in (*stays, (len(old) - back - front, len(new) - back - front)):
        stop, upto = front + old_place, front + new_place
        before, after = _count_equal(old[start:stop], new[at:upto])
        if before + after < max(stop - start, upto - at):
            splices.append(Splice(start + before, stop - after, tuple(new[at + before : upto - after])))
        start, at = stop + 1, upto + 1
    return tuple(splices)


def _count_equal(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return the number of equal items at the front, and that of equal items at the back of the rest."""
    front = count_common(old, new)
    return front, count_common(old[front:][::-1], new[front:][::-1])


def count_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of equal items at the front."""
    return next(compress(count(), map(ne, one, other)), min(len(one), len(other)))


def _find_in_order(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions, in both lists, of the most items that are in each once and in the same order."""
    in_old, in_new = Counter(old), Counter(new)
    places = {text: place for place, text in enumerate(old) if in_old[text] == 1}
    pairs = [(places[text], place) for place, text in enumerate(new) if in_new[text] == 1 and text in places]
    # Find the longest increasing subsequence of positions in the old list, by patience sorting.
    tops: list[int] = []
    piles: list[int] = []  # the index of the top pair of each pile
    before: list[int] = []
    for number, (place, _) in enumerate(pairs):
        pile = bisect_left(tops, place)
        before.append(piles[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [place]
        piles[pile : pile + 1] = [number]
    run: list[tuple[int, int]] = []
    number = piles[-1] if piles else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def apply_splices(messages: Sequence[str], splices: Sequence[Splice]) -> list[str]:
    """Return the list after splices.

    Raises:
        IllegalCommand: a splice is out of range, or they are not in order.

    """
    kept: list[str] = []
    at = 0
    for splice in splices:
        if not at <= splice.start <= splice.stop <= len(messages):
            raise IllegalCommand(
                f"the splice from {splice.start} to {splice.stop} does not fit a history of {len(messages)} messages",
                state="an edit of the history",
                asked="a splice",
                allowed=(),
            )
        kept += [*messages[at : splice.start], *splice.messages]
        at = splice.stop
    return [*kept, *messages[at:]]
