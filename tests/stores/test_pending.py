"""The waiting calls of a row, as texts."""

from __future__ import annotations

from toolloop.stores import PendingCall
from toolloop.stores.pending import pending_from_json, pending_to_json


def test_only_short_lists_of_waiting_calls_are_remembered() -> None:
    """A queue reads all rows after each change of one; what a process remembers of them has a bound in bytes."""
    calls = [PendingCall((f"c{number}",), ("pay",), "approval", ("approve",), "12ab") for number in range(100)]
    one, many = pending_to_json(calls[:1]), pending_to_json(calls)
    assert [pending_from_json(text) is pending_from_json(text) for text in (one, many)] == [True, False]
    assert pending_from_json(many) == tuple(calls)
