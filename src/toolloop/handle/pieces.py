"""The messages that go out, as bytes. Each is encoded once in its life, and what adds up over them is counted then.

A history grows at its end, and a `Chain` tells what is new of it. So a request costs what is new, and the joining of
its pieces. Of another history, what it begins with like the one before is kept.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from itertools import compress
from operator import add, is_not

from toolloop.core.chain import Chain
from toolloop.core.jsontext import decode
from toolloop.history.images import large_images

Counts = tuple[int, ...]  # cache marks, those of an hour, images, sources cited, sources that can be, large images
# What adds up over messages that were each judged by themselves, in the order of `Counts`.
_COUNTED = (
    (b'"cache_control":{',),
    (b'"ttl":"1h"',),
    (b'"type":"image"',),
    (b'"citations":{"enabled":true',),
    (b'"type":"document"', b'"type":"search_result"'),
)
_IMAGES = 2  # their place among them
# Hardly any message has one of these: one look for all of them costs a third of counting each.
_ANY = re.compile(b"|".join(re.escape(word) for words in _COUNTED for word in words))
NONE: Counts = (0,) * (len(_COUNTED) + 1)


class Pieces:
    """The pieces of the request that was made last.

    Attributes:
        counts: how much there is in its messages of what adds up.
        size: their bytes, with a comma for each.

    """

    def __init__(self) -> None:
        """Nothing went out yet."""
        # The history, its pieces, and counts and bytes of all up to each: replaced as one, so that whoever is
        # interrupted between leaves them as they were.
        self._known: tuple[Chain[str], Chain[bytes], Chain[tuple[Counts, int]]] = (Chain(), Chain(), Chain())
        self._beside: dict[str, bytes] = {}
        self.counts, self.size = NONE, 0

    def take(self, history: Chain[str], tail: Sequence[str] = ()) -> Sequence[bytes]:
        """The pieces of these messages, which nobody may change. `tail`: what goes out beside the history."""
        known, ready, sums = self._known
        fresh = history.since(known)
        if fresh is None:
            alike = next(compress(itertools.count(), map(is_not, known, history)), min(len(known), len(history)))
            ready, sums, fresh = Chain(ready[:alike]), Chain(sums[:alike]), history[alike:]
        if fresh:
            made = _encoded(fresh, self._beside)  # it may have been there before it joined
            ready, sums = ready.extend(made), sums.extend(_sums(sums[-1] if sums else (NONE, 0), made))
        self._known = history, ready, sums
        self.counts, self.size = sums[-1] if sums else (NONE, 0)
        if not tail:
            self._beside = {}
            return ready
        made = _encoded(tail, self._beside)
        self._beside = dict(zip(tail, made, strict=True))
        self.counts, self.size = _sums((self.counts, self.size), made)[-1]
        return [*ready, *made]  # seldom: a turn is paused, and what stays beside the history goes out behind it


def count(piece: bytes) -> Counts:
    """How often a message, or the parameters, may hold each of what adds up."""
    if _ANY.search(piece) is None:
        return NONE
    found = [sum(map(piece.count, words)) for words in _COUNTED]
    return *found, large_images(decode(piece)) if found[_IMAGES] else 0  # each message is looked into once


def _encoded(texts: Sequence[str], known: dict[str, bytes]) -> list[bytes]:
    if not known:
        return [text.encode() for text in texts]
    return [known.get(text) or text.encode() for text in texts]


def _sums(before: tuple[Counts, int], pieces: Sequence[bytes]) -> list[tuple[Counts, int]]:
    counts, size = before
    sums = []
    for piece in pieces:
        own, size = count(piece), size + len(piece) + 1
        if own is not NONE:
            counts = tuple(map(add, counts, own))
        sums.append((counts, size))
    return sums
