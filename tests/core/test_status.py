"""Whose turn it is, in one word, for those who list loops."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given

from tests.core import making as m
from tests.core.test_machine_laws import lives, open_calls
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.machine import TRANSITIONS, Standing, next_deadline, outstanding, status_of
from toolloop.core.setup import Limits
from toolloop.core.states import Deciding, Executed, Paused, Proposed, Requesting, State
from toolloop.core.tree import loops
from toolloop.core.values import Status

CALLS = m.replied("tool_use", m.call("c", "pure"), m.call("d", "pure"))
EXAMPLES: list[tuple[State, Standing]] = [
    (m.after(), "runnable"),
    (m.after(ev.Requested()), "running"),
    (m.after(CALLS), "runnable"),
    (m.after(CALLS, shows_replies=True), "needs_command"),
    (m.after(CALLS, m.asks("c")), "needs_decision"),
    (m.after(CALLS, m.asks("c"), m.decided(c=m.APPROVE)), "needs_command"),
    (m.after(CALLS, m.judged()), "runnable"),
    (m.after(CALLS, m.judged(), ev.Started("c")), "running"),
    (m.after(CALLS, m.asks("c"), ev.Continued(), ev.Started("d"), execution="ready"), "needs_decision"),
    (m.after(CALLS, m.judged(c=m.DENY, d=m.DENY)), "runnable"),
    (m.after(CALLS, m.judged(c=m.DENY, d=m.DENY), ev.TurnEnded()), "needs_command"),
    (m.after(m.replied("pause_turn", m.text("half"))), "needs_command"),
    (m.after(m.replied("end_turn", m.text("bye"))), "ended"),
    (m.after(ev.RequestFailed(m.FAILURE)), "ended"),
    (m.after(ev.TurnEnded(), limits=Limits(max_depth=0)), "ended"),
]


@pytest.mark.parametrize(("state", "status"), EXAMPLES, ids=lambda value: getattr(value, "__name__", None))
def test_each_state_has_its_status(state: State, status: Standing) -> None:
    """A loop that waits for a person says so even if something else could go on meanwhile."""
    assert status_of(state) == status


def test_the_examples_are_of_every_state_and_every_status() -> None:
    assert {type(state) for state, _ in EXAMPLES} == set(TRANSITIONS)
    assert {status for _, status in EXAMPLES} == set(get_args(Standing))


@given(lives)
def test_a_status_says_who_has_the_word(world: World) -> None:
    """A decision is needed exactly where a call waits; what can be driven has something outstanding."""
    for state in world.states:
        calls = [call for _, loop in loops(state) for call in open_calls(loop)]
        status = status_of(state)
        assert (status == "needs_decision") == any(call.status is Status.WAITING for call in calls)
        if status == "needs_command":
            assert isinstance(state, Executed | Paused | Deciding | Proposed)
            assert outstanding(state) == ()
        if status == "running":
            assert any(isinstance(loop, Requesting) for _, loop in loops(state)) or any(
                call.status is Status.RUNNING and call.child is None for call in calls
            )
        if status == "runnable":
            assert outstanding(state)
        if next_deadline(state) is not None:
            assert status == "needs_decision"
