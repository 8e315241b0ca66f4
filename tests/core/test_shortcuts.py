"""What is asked of a loop at every event is answered at once where nothing is nested, timed or limited.

Here each answer is held against the long way round, in trees of loops too.
"""

from __future__ import annotations

from itertools import starmap

import pytest
from attrs import evolve, fields
from hypothesis import given

from tests.core import making as m
from tests.core.test_machine_laws import lives
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core import limits
from toolloop.core.effects import CancelRequest, EndTurn, SendRequest
from toolloop.core.expiry import is_over, is_timed
from toolloop.core.machine import is_due, next_deadline, outstanding, step, under_way
from toolloop.core.setup import Budget, Limits
from toolloop.core.states import Deciding, Judging, Open, Proposed, Requesting, Running, State
from toolloop.core.terminations import BudgetExceeded
from toolloop.core.tree import hear, is_at_work, loops, waiting
from toolloop.core.values import Status

_NEVER = 1e15


def _open(state: State) -> list[tuple[tuple[str, ...], Open]]:
    return [(path, loop) for path, loop in loops(state) if isinstance(loop, Proposed | Judging | Deciding | Running)]


@given(lives)
def test_what_waits_is_what_waits_anywhere(world: World) -> None:
    """Quickly where no loop is inside a call, and the first deadline is the first of these."""
    for state in world.states:
        calls = [(path, call) for path, loop in _open(state) for call in loop.round.calls]
        expected = [(path, call) for path, call in calls if call.status is Status.WAITING]
        assert waiting(state) == expected
        times = [call.expires_at for _, call in expected if call.expires_at is not None]
        assert next_deadline(state) == min(times, default=None)


@given(lives)
def test_what_is_under_way_is_so_anywhere(world: World) -> None:
    """A request, or a call that runs and has no loop inside of it."""
    for state in world.states:
        requests = [loop for _, loop in loops(state) if isinstance(loop, Requesting)]
        calls = [call for _, loop in _open(state) if isinstance(loop, Running) for call in loop.round.calls]
        runs = [call for call in calls if call.status is Status.RUNNING and call.child is None]
        assert under_way(state) == bool(requests or runs)


@given(lives)
def test_time_changes_nothing_where_nothing_is_timed(world: World) -> None:
    """Then no call waits with a deadline, anywhere in the tree, and there is no grant."""
    for state in world.states:
        if isinstance(state, Proposed) or is_timed(state):
            continue
        assert not is_due(state, _NEVER)
        assert next_deadline(state) is None
        judged = isinstance(state, Judging | Deciding | Running)
        assert not judged or not any(is_over(call, _NEVER) for _, loop in _open(state) for call in loop.round.calls)
        assert not judged or not state.ledger.grants


@given(lives)
def test_no_time_is_no_change(world: World) -> None:
    """An event without a time of its own ages nothing; one with such ages all, and counts where a loop is at work."""
    for state in world.states:
        now = hear(state, 0.0, 0.0)
        assert now == hear(state, state.ledger.now, -1.0)
        assert [loop.ledger.active for _, loop in loops(now)] == [loop.ledger.active for _, loop in loops(state)]
        assert {loop.ledger.now for _, loop in loops(now)} == {state.ledger.now}
        later = hear(state, state.ledger.now + 2.0, 3.0)
        for path, loop in loops(state):
            aged = dict(loops(later))[path].ledger
            assert aged.now == state.ledger.now + 2.0
            assert aged.active == loop.ledger.active + (3.0 if not path or is_at_work(loop) else 0.0)


def test_a_tick_that_tells_no_time_leaves_the_very_same_state() -> None:
    """Nothing is made anew for it."""
    state = m.after(ev.Requested(at=5.0))
    assert step(state, ev.Ticked(at=4.0)) is state


PARTS = [part.name for part in fields(Budget)]


@pytest.mark.parametrize("part", PARTS)
def test_any_part_of_a_budget_is_a_budget(part: str) -> None:
    """And what is spent of it is told."""
    state = m.after(limits=Limits(budget=evolve(Budget(), **{part: 0})))
    assert limits.has_budget(state.ledger)
    assert limits.over_budget(state.ledger) == BudgetExceeded(part, 0, 0)
    assert not limits.has_budget(m.after().ledger)


def test_the_same_is_found_in_a_loop_and_inside_of_a_call() -> None:
    """But for the path. What is found at the root is always the very same."""
    ready, late = m.after(), m.after(limits=Limits(timeout=0.0))
    asking = step(m.after(limits=Limits(timeout=1.0)), ev.Requested())
    slow = hear(asking, 0.0, 2.0)
    assert list(starmap(outstanding, [(ready,), (late,), (asking,), (slow,)])) == [
        (SendRequest(),),
        (EndTurn(),),
        (),
        (CancelRequest(),),
    ]
    assert outstanding(ready)[0] is outstanding(m.after())[0]
