"""What holds for every journal: it tells the state, and a refused event is not in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.test_machine_laws import lives
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.errors import IllegalCommand
from toolloop.core.machine import fold, implied, step


@given(lives)
def test_every_prefix_of_the_journal_replays(world: World) -> None:
    """The fold of a journal is the state, at every point; and no later event changed an older state."""
    state = fold(world.journal[:1])
    assert state == world.states[0]
    for event, then in zip(world.journal[1:], world.states[1:], strict=True):
        state = step(state, event)
        assert state == then
    assert fold(world.journal) == world.state


@given(lives, st.integers(0, 30))
def test_a_journal_may_start_with_a_state_that_was_taken_over(world: World, more: int) -> None:
    """Wherever a loop stood: the fold begins there, to the last field."""
    before = world.state
    world.adopt().live(more)
    assert fold(world.journal[:1]) is before
    assert fold(world.journal) == world.state


@given(lives)
def test_what_the_next_event_implies_may_be_left_out(world: World) -> None:
    """A journal without the events that are implied gives the same state."""
    following = [*world.journal[1:], None]
    stored = [
        event for event, then in zip(world.journal, following, strict=True) if then is None or not implied(event, then)
    ]
    assert fold(stored) == world.state


@pytest.mark.parametrize(
    ("event", "following", "left_out"),
    [
        (ev.Judged(at=1.0), ev.Started("c", at=1.0), True),
        (ev.Judged(at=2.0), ev.Started("c", at=1.0), False),
        (ev.Judged(seconds=0.1), ev.Started("c"), False),
        (ev.TurnEnded(), ev.Continued(), False),
        (ev.Requested(), m.replied("end_turn"), False),
        (m.judged(c=m.APPROVE), ev.Started("c"), False),
        (ev.Judged(stop=True), ev.Started("c"), False),
        (ev.Judged(), ev.TurnEnded(), False),
        (ev.TurnEnded(), ev.Injected((m.user(),)), False),
    ],
)
def test_only_what_says_nothing_of_its_own_is_implied(event: ev.Event, following: ev.Event, left_out: bool) -> None:
    """A judgement that lets all run, if it tells nothing of time; not what was about to happen, nor what time ends."""
    assert implied(event, following) is left_out


@given(lives)
def test_a_refused_event_changes_nothing(world: World) -> None:
    """The state that refused is, to the last field, the state that the journal tells."""
    told = [fold(world.journal[:1])]
    for event in world.journal[1:]:
        told.append(step(told[-1], event))
    by_identity = {id(state): then for state, then in zip(world.states, told, strict=True)}
    for state, _, _ in world.refused:
        assert state == by_identity[id(state)]


@given(lives)
def test_time_never_runs_backwards(world: World) -> None:
    """`now` only grows, and so do the active seconds of a user turn."""
    for before, event, after in zip(world.states, world.journal[1:], world.states[1:], strict=False):
        assert after.ledger.now >= before.ledger.now
        assert after.ledger.active >= before.ledger.active or isinstance(event, ev.FollowedUp)


def test_a_journal_starts_with_opened() -> None:
    """Nothing can be folded without a beginning."""
    with pytest.raises(IllegalCommand, match="starts with Opened"):
        fold([])
    with pytest.raises(IllegalCommand, match="this one with Continued"):
        fold([ev.Continued()])
