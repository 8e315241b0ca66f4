"""Fingerprints of a conversation, which show the part that the server holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from toolloop.machine.values.chain import Chain
from toolloop.providers.message_threads import conversation_fingerprint


class Prefixes:
    """Make the fingerprints of a conversation. If it has grown, only its new messages are processed."""

    def __init__(self) -> None:
        """Start without a conversation."""
        # The fingerprint before the first message, the history, and the fingerprint after each message. They are
        # replaced together, so an interrupt cannot leave them inconsistent.
        self._known: tuple[str, Chain[str], Chain[str]] = ("", Chain(), Chain())

    def take(self, head: str, history: Chain[str], unjoined: Sequence[str]) -> Sequence[str]:
        """Return the fingerprints before the first message and after each message.

        Args:
            head: the fingerprint of the parameters before the messages.
            history: the messages.
            unjoined: messages after the history that have not joined it yet.

        """
        known_head, known, prefixes = self._known
        new = history.since(known) if head == known_head else None
        prefixes = (
            Chain(_list_fingerprints(head, history))
            if new is None
            else prefixes.extend(_list_fingerprints(prefixes[-1], new)[1:])
        )
        self._known = head, history, prefixes
        return [*prefixes, *_list_fingerprints(prefixes[-1], unjoined)[1:]] if unjoined else prefixes


def _list_fingerprints(before: str, texts: Iterable[str]) -> list[str]:
    return list(accumulate(texts, conversation_fingerprint, initial=before))
