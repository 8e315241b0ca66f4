"""Two texts as one diff with all lines of both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import chain, groupby

from attrs import evolve, frozen

from toolloop.inbox.shown.characters import Piece, ShownText

MINUS = "\u2212"
_TRIED = 4_000_000  # pairs of lines; above it, a text that was rewritten is shown as all lines of both
_TINTED = 2_000  # characters of a line in which changed words are sought
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_ALIKE = 0.6  # lines that share fewer of their words do not replace each other
_NEAR = 4  # lines among which the one that replaces a line is sought

_Span = tuple[int, int, int, int]  # lines of the old text from, to; lines of the new text from, to


@frozen
class DiffLine:
    """A line of a diff: the sign, the number in the old and in the new text, and the line as shown."""

    sign: str
    old: int | None
    new: int | None
    shown: ShownText


def diff_lines(old: Sequence[ShownText], new: Sequence[ShownText]) -> tuple[DiffLine, ...]:
    """Return all lines of both texts, each as shown; lines that are the same in both stand once."""
    return tuple(chain.from_iterable(_block(old, new, span) for span in _spans(old, new)))


def _spans(old: Sequence[ShownText], new: Sequence[ShownText]) -> Iterator[_Span]:
    """Yield which lines of the one correspond to which lines of the other."""
    before, after = [line.pieces for line in old], [line.pieces for line in new]
    head = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(old), len(new)))
    tail = 0
    while tail < min(len(old), len(new)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    yield 0, head, 0, head
    left, right = before[head : len(old) - tail], after[head : len(new) - tail]
    if len(left) * len(right) > _TRIED:
        yield head, len(old) - tail, head, len(new) - tail
    else:
        for _, i, i_end, j, j_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
            yield head + i, head + i_end, head + j, head + j_end
    yield len(old) - tail, len(old), len(new) - tail, len(new)


def _block(old: Sequence[ShownText], new: Sequence[ShownText], span: _Span) -> Iterator[DiffLine]:
    """Yield the lines of one span. A line stands before the line that replaces it, with the changed words marked."""
    i, i_end, j, j_end = span
    if old[i:i_end] == new[j:j_end]:
        yield from (DiffLine("", n + 1, n + 1 + j - i, old[n]) for n in range(i, i_end))
        return
    for number in range(i, i_end):
        removed = old[number]
        for place in range(j, min(j + _NEAR, j_end)):
            if (pair := _tinted(removed, new[place])) is not None:
                yield from (DiffLine("+", None, n + 1, new[n]) for n in range(j, place))
                yield DiffLine(MINUS, number + 1, None, pair[0])
                yield DiffLine("+", None, place + 1, pair[1])
                j = place + 1
                break
        else:
            yield DiffLine(MINUS, number + 1, None, removed)
    yield from (DiffLine("+", None, n + 1, new[n]) for n in range(j, j_end))


def _tinted(old: ShownText, new: ShownText) -> tuple[ShownText, ShownText] | None:
    """Return both lines with the words that differ as pieces of their own; None if they are not alike."""
    texts = ["".join(piece.source for piece in each.pieces) for each in (old, new)]
    if max(map(len, texts)) > _TINTED:
        return None
    words: list[list[str]] = [_TOKEN.findall(text) for text in texts]
    match = SequenceMatcher(None, words[0], words[1], autojunk=False)
    if match.real_quick_ratio() < _ALIKE or match.ratio() < _ALIKE:
        return None
    changed: tuple[set[int], set[int]] = (set(), set())
    for tag, *span in match.get_opcodes():
        if tag != "equal":
            for side, (start, end) in enumerate((span[:2], span[2:])):
                first = len("".join(words[side][:start]))
                changed[side].update(range(first, first + len("".join(words[side][start:end]))))
    return _split(old, changed[0]), _split(new, changed[1])


def _split(shown: ShownText, changed: set[int]) -> ShownText:
    pieces, place = list[Piece](), 0
    for piece in shown.pieces:
        end = place + len(piece.source)
        if piece.kind:  # chips and their like have a look of their own
            pieces.append(piece)
        else:
            for is_changed, run in groupby(range(place, end), changed.__contains__):
                part = "".join(piece.source[n - place] for n in run)
                pieces.append(Piece(part, "changed" if is_changed else "", part))
        place = end
    return evolve(shown, pieces=tuple(pieces))
