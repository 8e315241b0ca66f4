"""When a stored loop is due to be driven, and its head after a failure."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from math import inf

from attrs import evolve

from toolloop.stores.arguments import check_seconds
from toolloop.stores.protocol import Head, StoredLoop

LOG = logging.getLogger("toolloop.worker")
_FIRST_WAIT = 4.0  # seconds after the first failure, at most; each later wait is four times as long
_FACTOR = 4.0
_LONGEST_WAIT = 600.0


def due_at(loop: StoredLoop) -> float:
    """Return `loop.due_at`, or `inf` if it is None."""
    return inf if loop.due_at is None else loop.due_at


def default_wait(attempt: int, share: float) -> float:
    """Return the seconds after a failed attempt.

    Args:
        attempt: how many attempts in a row have failed, from 1.
        share: a random number from 0 to 1, so that loops that failed together are not retried together.

    """
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * _FACTOR ** min(attempt - 1, 9))
    return longest * (1 + share) / 2


def seconds_after(attempt: int, backoff: Callable[[int], float] | None = None) -> float:
    """Return the seconds after a failed attempt, by the `backoff` of a worker if it has one that works."""
    if backoff is not None:
        try:
            seconds = backoff(attempt)
            check_seconds(f"backoff({attempt})", seconds)
            if seconds >= 0:
                return seconds
            raise ValueError(f"backoff({attempt}) is {seconds}; give 0 or more seconds")  # noqa: TRY301 - logged below
        except Exception:
            LOG.exception("backoff failed, so the default is used: return seconds as a number, 0 or more")
    return default_wait(attempt, random.random())  # noqa: S311 - no secret


def after_failure(head: Head, now: float, *, max_attempts: int, wait: Callable[[int], float]) -> Head:
    """Return the head of a loop after another failure, with the time of the next attempt, if there is one.

    Args:
        head: the head after the failure. Its `retry_at` is the earliest time that the API allows.
        now: the current time, in seconds since the epoch.
        max_attempts: the number of failures in a row after which a person must decide.
        wait: takes the number of failures in a row, from 1, and returns the seconds until the next attempt.

    """
    attempts = (head.attempts or 0) + 1
    if not head.retryable or attempts >= max_attempts:
        return evolve(head, retry_at=None, attempts=attempts)
    return evolve(head, retry_at=max(head.retry_at or 0.0, now + wait(attempts)), attempts=attempts)
