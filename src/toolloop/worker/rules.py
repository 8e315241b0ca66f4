"""When a stored loop is to be driven, and what its head says after a failure. Pure."""

from __future__ import annotations

from math import inf

from attrs import evolve

from toolloop.stores.protocol import Head, StoredLoop

_FIRST_WAIT = 4.0  # seconds after the first failure, at most; each further wait is four times as long
_FACTOR = 4
_LONGEST_WAIT = 600.0


def due_at(loop: StoredLoop) -> float:
    """Return `loop.due_at`, and `inf` in place of None."""
    return inf if loop.due_at is None else loop.due_at


def after_failure(head: Head, now: float, *, max_attempts: int, share: float) -> Head:
    """Return the head of a loop that failed once more: when it is tried again, if at all.

    Args:
        head: after the failure. Its `retry_at` is the earliest moment that the API allows.
        now: in seconds since the epoch.
        max_attempts: after so many failures in a row a person is needed.
        share: from 0 to 1, drawn at random, so that loops that fail together do not come back together.

    """
    attempts = (head.attempts or 0) + 1
    if not head.retryable or attempts >= max_attempts:
        return evolve(head, retry_at=None, attempts=attempts)
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * _FACTOR ** (attempts - 1))
    wait = longest * (1 + share) / 2
    return evolve(head, retry_at=max(head.retry_at or 0.0, now + wait), attempts=attempts)
