"""Encode each message of a history once."""

from __future__ import annotations

from collections.abc import Sequence

from toolloop._requests.cache_marks import CacheMarks, count_marks
from toolloop.machine.values.chain import Chain


class EncodedMessages:
    """The encoded messages of the last request.

    Attributes:
        marks: the cache marks in its messages.
        size: the number of bytes of its messages, including a comma for each.

    """

    def __init__(self) -> None:
        """Start without a request."""
        # The history, its bytes, and their marks and size. They are replaced together, so an interrupt cannot leave
        # them inconsistent.
        self._known: tuple[Chain[str], Chain[bytes], CacheMarks, int] = (Chain(), Chain(), CacheMarks(), 0)
        self.marks, self.size = CacheMarks(), 0

    def take(self, history: Chain[str], unjoined: Sequence[str] = ()) -> Sequence[bytes]:
        """Return the bytes of these messages. Do not modify the list."""
        known, ready, marks, size = self._known
        new = history.since(known)
        if new is None:  # the history was replaced
            new, ready, marks, size = list(history), Chain[bytes](), CacheMarks(), 0
        joined, unjoined_bytes = _encode(new), _encode(unjoined)
        ready = ready.extend(joined)
        marks, size = marks.then(count_marks(joined)), size + _length(joined)
        self._known = history, ready, marks, size
        self.marks, self.size = marks.then(count_marks(unjoined_bytes)), size + _length(unjoined_bytes)
        return [*ready, *unjoined_bytes] if unjoined_bytes else ready


def _encode(texts: Sequence[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def _length(messages: Sequence[bytes]) -> int:
    return sum(map(len, messages)) + len(messages)
