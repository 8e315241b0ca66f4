"""Fingerprints of a conversation, so that a request knows which part of it the server holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from toolloop.machine.chain import Chain
from toolloop.providers.threads import fingerprint


class Prefixes:
    """Makes the fingerprints of a conversation. Of one that has grown, only what is new is read."""

    def __init__(self) -> None:
        """Start without a conversation."""
        # The fingerprint before the first message, the history, and the fingerprint after each: replaced together.
        self._known: tuple[str, Chain[str], Chain[str]] = ("", Chain(), Chain())

    def take(self, head: str, history: Chain[str], unjoined: Sequence[str]) -> Sequence[str]:
        """Return the fingerprints before the first message, and after each.

        Args:
            head: the fingerprint of what goes before the messages.
            history: the messages.
            unjoined: those that go behind them, and are not of the history yet.

        """
        known_head, known, prefixes = self._known
        new = history.since(known) if head == known_head else None
        prefixes = Chain(_after(head, history)) if new is None else prefixes.extend(_after(prefixes[-1], new)[1:])
        self._known = head, history, prefixes
        return [*prefixes, *_after(prefixes[-1], unjoined)[1:]] if unjoined else prefixes


def _after(before: str, texts: Iterable[str]) -> list[str]:
    return list(accumulate(texts, fingerprint, initial=before))
