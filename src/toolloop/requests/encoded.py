"""The messages of requests, as bytes: each message of a history that grows is encoded once."""

from __future__ import annotations

from collections.abc import Sequence

from toolloop.machine.chain import Chain

_CACHE_MARK = b'"cache_control":{'


class EncodedMessages:
    """The encoded messages of the last request.

    Attributes:
        marks: the number of cache marks in its messages.
        size: the number of bytes of its messages, with a comma for each.

    """

    def __init__(self) -> None:
        """Start without a request."""
        # The history, its bytes, and their marks and size: replaced together, so that an interrupt leaves them equal.
        self._known: tuple[Chain[str], Chain[bytes], int, int] = (Chain(), Chain(), 0, 0)
        self.marks, self.size = 0, 0

    def take(self, history: Chain[str], unjoined: Sequence[str] = ()) -> Sequence[bytes]:
        """Return the bytes of these messages, which nobody may change."""
        known, ready, marks, size = self._known
        new = history.since(known)
        if new is None:  # it was replaced
            new, ready, marks, size = list(history), Chain(), 0, 0
        joined, unjoined_bytes = _encode(new), _encode(unjoined)
        ready = ready.extend(joined)
        marks, size = marks + _count(joined), size + _length(joined)
        self._known = history, ready, marks, size
        self.marks, self.size = marks + _count(unjoined_bytes), size + _length(unjoined_bytes)
        return [*ready, *unjoined_bytes] if unjoined_bytes else ready


def cache_marks(message: bytes) -> int:
    """Count the cache marks that a message, or the parameters, may have."""
    return message.count(_CACHE_MARK)


def _encode(texts: Sequence[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def _count(messages: Sequence[bytes]) -> int:
    return sum(map(cache_marks, messages))


def _length(messages: Sequence[bytes]) -> int:
    return sum(map(len, messages)) + len(messages)
