"""When a loop is due, and when a failed one is tried again."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from hypothesis import given, strategies as st

from toolloop._worker.due_loops import after_failure, default_wait, due_at, seconds_after
from toolloop.stores import Head, Lease, StoredLoop

NOW = 1_800_000_000.0
shares = st.floats(0, 1)
failed = st.builds(
    Head,
    st.just("failed"),
    retryable=st.booleans(),
    retry_at=st.none() | st.floats(NOW, NOW + 10_000),
    attempts=st.none() | st.integers(0, 20),
)
most = st.integers(1, 20)


@given(head=failed, share=shares, most=most)
def test_a_failed_loop_is_tried_again_never_too_early_and_not_for_ever(head: Head, share: float, most: int) -> None:
    """Not before the API allows it, within ten minutes of that, and a limited number of times."""
    after = after_failure(head, NOW, max_attempts=most, wait=partial(default_wait, share=share))
    assert after.attempts == (head.attempts or 0) + 1
    if not head.retryable or after.attempts >= most:
        assert after.retry_at is None
    else:
        floor = max(NOW, head.retry_at or 0.0)
        assert after.retry_at is not None
        assert floor <= after.retry_at <= max(floor, NOW + 600)


def test_the_wait_grows_with_each_failure() -> None:
    """Four times as long each time, half of it drawn at random, and never above ten minutes."""
    waits = [[default_wait(attempt, share) for share in (0.0, 1.0)] for attempt in (1, 2, 3, 4, 5, 10**9)]
    assert waits == [[2, 4], [8, 16], [32, 64], [128, 256], [300, 600], [300, 600]]


@given(attempt=st.integers(1, 10**6), value=st.one_of(st.floats(), st.none(), st.text(), st.integers(-5, 5)))
def test_a_backoff_without_a_usable_value_is_replaced_by_the_default(attempt: int, value: Any) -> None:
    """A number of seconds, 0 or more, is used as it is; whatever else comes, or is raised, is not."""
    wait = seconds_after(attempt, lambda _: value)
    if isinstance(value, int | float) and 0 <= value < 2**62:
        assert wait == value
    else:
        assert 2 <= wait <= 600
    assert 2 <= seconds_after(attempt, lambda attempt: 1 / (attempt - attempt)) <= 600


def test_what_is_due() -> None:
    """What any driver may continue at once; what expires or is retried at its time; nothing else."""
    lease = Lease("loop", "gone", 1, 0.0)
    rows = {
        "runnable": (Head("runnable"), 0.0),
        "running": (Head("running"), 0.0),
        "needs_decision": (Head("needs_decision"), inf),
        "expires": (Head("needs_decision", deadline=NOW), NOW),
        "needs_command": (Head("needs_command", deadline=NOW), inf),
        "ended": (Head("ended"), inf),
        "failed": (Head("failed", retry_at=NOW, attempts=1, retryable=True), NOW),
        "given up": (Head("failed", attempts=5, retryable=True), inf),
    }
    assert {name: due_at(StoredLoop("loop", head, 1)) for name, (head, _) in rows.items()} == {
        name: at for name, (_, at) in rows.items()
    }
    assert due_at(StoredLoop("loop", Head("needs_decision"), 1, lease)) == 0.0  # something else ran when it died
    assert due_at(StoredLoop("loop", Head("needs_command"), 1, lease)) == inf
