"""When a stored loop is due to be driven, and its head after a failure. Pure."""

from __future__ import annotations

from math import inf

from attrs import evolve

from toolloop.stores.protocol import Head, StoredLoop

_FIRST_WAIT = 4.0  # seconds after the first failure, at most; each later wait is four times as long
_FACTOR = 4
_LONGEST_WAIT = 600.0


def due_at(loop: StoredLoop) -> float:
    """Return `loop.due_at`, or `inf` if it is None."""
    return inf if loop.due_at is None else loop.due_at


def after_failure(head: Head, now: float, *, max_attempts: int, share: float) -> Head:
    """Return the head of a loop after another failure, with the time of the next attempt, if there is one.

    Args:
        head: the head after the failure. Its `retry_at` is the earliest time that the API allows.
        now: the current time, in seconds since the epoch.
        max_attempts: the number of failures in a row after which a person must decide.
        share: a random number from 0 to 1, so that loops that failed together are not retried together.

    """
    attempts = (head.attempts or 0) + 1
    if not head.retryable or attempts >= max_attempts:
        return evolve(head, retry_at=None, attempts=attempts)
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * _FACTOR ** (attempts - 1))
    wait = longest * (1 + share) / 2
    return evolve(head, retry_at=max(head.retry_at or 0.0, now + wait), attempts=attempts)
