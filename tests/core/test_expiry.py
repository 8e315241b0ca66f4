"""Deadlines of decisions: at their time, whoever says what time it is."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.making import the_call
from tests.core.test_machine_laws import lives, open_calls
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.effects import EndTurn, RunCall
from toolloop.core.errors import UndecidedCalls, UnknownCall
from toolloop.core.jsontext import encode
from toolloop.core.machine import is_due, next_deadline, outstanding, step
from toolloop.core.setup import Limits
from toolloop.core.states import Deciding, Executed, Finished, Judging, Running, State, TooDeep
from toolloop.core.texts import Texts
from toolloop.core.tree import hear, loop_at, loops
from toolloop.core.values import Outcome, Status, Wait, Why

TWO = m.replied("tool_use", m.call("c", "pure"), m.call("d", "pure"))


def waiting(expires_in: float | None = 5.0, *, at: float = 100.0, why: Why = Why.APPROVAL, **changes: Any) -> State:
    """A loop in which `c` waits, from 100 s on, and `d` may run."""
    wait = Wait(why, expires_in=expires_in)
    return m.after(TWO, evolve(m.judged(c=wait), at=at), **changes)


def outcome(state: State, call_id: str = "c") -> Outcome | None:
    result = the_call(state, call_id).result
    return None if result is None else result.outcome


# --- which deadline --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout", "expires_in", "deadline"),
    [(None, None, None), (7.0, None, 107.0), (None, 5.0, 105.0), (7.0, 5.0, 105.0), (7.0, 50.0, 150.0)],
)
@pytest.mark.parametrize("why", [Why.APPROVAL, Why.EXTERNAL])
def test_a_call_waits_as_long_as_its_policy_says_or_else_the_setup(
    timeout: float | None, expires_in: float | None, deadline: float | None, why: Why
) -> None:
    """From when it starts to wait; for ever where neither says anything."""
    state = waiting(expires_in, why=why, decision_timeout=timeout)
    assert the_call(state).expires_at == next_deadline(state) == deadline
    assert the_call(state, "d").expires_at is None


def test_a_deadline_is_reckoned_from_the_latest_time_that_was_heard_of() -> None:
    """A clock that lags behind gives nobody less time than was said."""
    state = m.after(ev.ParamsChanged("{}", at=120.0), TWO, evolve(m.judged(c=Wait(Why.APPROVAL, expires_in=5)), at=1.0))
    assert next_deadline(state) == 125.0


def test_an_uncertain_call_waits_for_ever() -> None:
    """Nothing is to be gained by guessing how it ended; not even if it had waited before it ran."""
    approved = m.go(waiting(), m.decided(c=m.APPROVE), ev.Woken(m.setup(tools=())))  # nothing may be repeated
    lost = m.go(approved, ev.Continued(), ev.Started("c"), ev.Woken(), ev.Ticked(at=1e9))
    call = the_call(lost)
    assert (call.status, call.why, call.expires_at, next_deadline(lost)) == (
        Status.WAITING,
        Why.UNCERTAIN,
        None,
        None,
    )


def test_a_call_of_a_copy_waits_anew() -> None:
    """As long as the setup says, from the fork on; a call that was started, for ever."""
    state = m.go(waiting(decision_timeout=7.0, execution="ready"), ev.Continued(), ev.Started("d", at=103.0))
    copy = step(state, ev.Forked("copy", at=104.0))
    assert (the_call(copy).expires_at, the_call(copy, "d").expires_at) == (111.0, None)
    late = step(state, ev.Forked("copy", at=105.0))  # in the loop it is a copy of, it has expired
    assert outcome(late) is Outcome.EXPIRED


def test_a_decided_call_has_no_deadline_any_more() -> None:
    """Whatever time it is when the loop goes on."""
    state = m.go(waiting(), m.decided(c=m.APPROVE))
    assert next_deadline(state) is None
    assert outstanding(step(state, ev.Continued(at=1e9))) == (RunCall("c"), RunCall("d"))


# --- when it has come ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "expired"), [(104.999, False), (105.0, True), (105.001, True), (1e9, True)])
def test_at_the_deadline_it_is_too_late(at: float, expired: bool) -> None:
    """Exactly at it too."""
    state = step(waiting(), ev.Ticked(at=at))
    assert outcome(state) == (Outcome.EXPIRED if expired else None)


def test_an_expired_call_is_told_so() -> None:
    """It is an error of its own kind, in a true text; the call did not run, and nobody decided."""
    call = the_call(step(waiting(), ev.Ticked(at=105.0)))
    assert call.result is not None
    assert (call.result.content, call.result.is_error, call.result.outcome) == (
        encode(Texts().expired),
        True,
        Outcome.EXPIRED,
    )
    assert (call.status, call.ruling, call.expires_at) == (Status.SETTLED, None, 105.0)


def test_an_expired_call_that_had_run_is_not_said_not_to_have_run() -> None:
    """Started, lost, and then asked whether it may run again: nobody knows what the first run did."""
    lost = m.after(TWO, m.judged(), ev.Started("c"), ev.Woken())
    asked = step(lost, evolve(m.judged(c=Wait(Why.APPROVAL, expires_in=5.0)), at=100.0))
    call = the_call(step(asked, ev.Ticked(at=105.0)))
    assert call.result is not None
    assert call.result.outcome is Outcome.EXPIRED
    assert "may have had effects" in call.result.content
    assert "did not run" not in call.result.content


@pytest.mark.parametrize(
    "event",
    [
        ev.Ticked(),
        ev.ParamsChanged("{}"),
        ev.HistoryEdited((m.user("short"),)),
        ev.Woken(),
        ev.Continued(),
        ev.Injected((m.user("more"),)),
        ev.Extended(Limits()),
        ev.Forked("copy"),
        ev.Ended("nobody", m.DONE, 0.0, 7, 7),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_deadline_binds_whether_anybody_ticked_or_not(event: ev.Event) -> None:
    """Whatever is heard first: the call has expired by then, and the event finds it so."""
    late = evolve(event, at=105.0)
    state = step(waiting(), late)
    assert outcome(state) is Outcome.EXPIRED
    assert state == step(step(waiting(), ev.Ticked(at=105.0)), late)


def test_a_stop_finds_it_expired() -> None:
    """What the model is told is the truth: it was too late before the stop came."""
    told = m.results(m.history(step(waiting(), ev.Stopped(at=105.0)))[2])
    assert told == {"c": Texts().expired, "d": Texts().not_run}


@pytest.mark.parametrize("ruling", [m.APPROVE, m.DENY, m.answer()])
@pytest.mark.parametrize("ticked", [False, True])
def test_a_decision_that_comes_too_late_is_refused(ruling: Any, ticked: bool) -> None:
    """It says that the call expired, and when; the loop is as it was."""
    state = step(waiting(), ev.Ticked(at=105.0)) if ticked else waiting()
    untouched = evolve(state)
    with pytest.raises(UnknownCall, match=r"'c' expired at 1970-01-01T00:01:45\+00:00") as refused:
        step(state, evolve(m.decided(c=ruling), at=105.0))
    assert (refused.value.call, state) == ("c", untouched)


def test_a_decision_in_time_counts_however_late_it_is_carried_out() -> None:
    state = m.go(waiting(), evolve(m.decided(c=m.APPROVE), at=104.9), ev.Ticked(at=1e9))
    assert the_call(state).status is Status.DECIDED


def test_all_of_the_decisions_in_time_or_none() -> None:
    """One that is too late refuses those beside it, as any other that cannot be taken."""
    asked = m.after(TWO, evolve(m.judged(c=Wait(Why.APPROVAL, expires_in=5.0), d=Wait(Why.APPROVAL)), at=100.0))
    with pytest.raises(UnknownCall, match="expired"):
        step(asked, evolve(m.decided(d=m.APPROVE, c=m.APPROVE), at=105.0))
    assert the_call(asked, "d").status is Status.WAITING


@given(st.lists(st.sampled_from([None, 1.0, 2.0, 3.0, 4.0]), min_size=1, max_size=5), st.integers(0, 5))
def test_several_expire_at_once_and_each_at_its_own_time(spans: list[float | None], passed: int) -> None:
    """Those whose time has come, and no other."""
    names = [f"c{number}" for number in range(len(spans))]
    waits = {name: Wait(Why.APPROVAL, expires_in=span) for name, span in zip(names, spans, strict=True)}
    asked = m.after(m.replied("tool_use", *map(m.call, names)), evolve(m.judged(**waits), at=100.0))
    state = step(asked, ev.Ticked(at=100.0 + passed))
    for name, span in zip(names, spans, strict=True):
        assert outcome(state, name) == (Outcome.EXPIRED if span is not None and span <= passed else None)
    left = [100.0 + span for span in spans if span is not None and span > passed]
    assert next_deadline(state) == min(left, default=None)


def test_once_all_have_expired_the_loop_goes_on() -> None:
    """The caller has the word, and nothing is left to decide; the round closes as any other."""
    with pytest.raises(UndecidedCalls):
        step(waiting(), ev.Continued(at=104.0))
    state = step(waiting(), ev.Continued(at=105.0))
    assert outstanding(state) == (RunCall("d"),)
    done = m.go(state, ev.Started("d"), m.ended("d"))
    assert outstanding(done) == (EndTurn(),)
    assert isinstance(step(done, ev.TurnEnded()), Executed)


# --- in other states -------------------------------------------------------------------------------------------------


def test_a_call_expires_while_others_run() -> None:
    """Under `ready`: an end that is heard after the deadline tells the time."""
    running = m.go(waiting(execution="ready"), ev.Continued(), ev.Started("d", at=101.0))
    assert isinstance(running, Running)
    state = step(running, evolve(m.ended("d"), at=106.0))
    assert outcome(state) is Outcome.EXPIRED
    assert outcome(state, "d") is Outcome.RETURNED
    assert isinstance(step(state, ev.TurnEnded()), Executed)


def test_the_end_of_a_turn_closes_a_round_whose_last_call_expired() -> None:
    """A driver that was about to ask finds that there is nothing to ask."""
    running = m.go(waiting(execution="ready"), ev.Continued(), ev.Started("d"), m.ended("d"))
    assert isinstance(step(running, ev.TurnEnded(at=104.0)), Deciding)
    assert isinstance(step(running, ev.TurnEnded(at=105.0)), Executed)


def test_a_call_expires_while_the_policies_are_asked() -> None:
    """An edit is judged while another call waits."""
    asks = evolve(m.judged(c=Wait(Why.APPROVAL, expires_in=5.0), d=Wait(Why.APPROVAL)), at=100.0)
    judging = m.go(m.after(TWO, asks, execution="ready"), m.decided(d=m.approve({"a": 2})), ev.Continued())
    assert isinstance(judging, Judging)
    state = step(judging, ev.Judged(at=105.0))
    assert isinstance(state, Running)
    assert (outcome(state), the_call(state, "d").status) == (Outcome.EXPIRED, Status.CLEARED)


def test_what_expired_while_the_loop_had_ended_expires_as_soon_as_it_goes_on() -> None:
    """A limit ended it; the deadline went by; the first thing that is heard afterwards finds it so."""
    waits = waiting(execution="ready", limits=Limits(timeout=5.0))
    end = m.go(waits, ev.Continued(seconds=9.0), ev.TurnEnded())
    assert isinstance(end, Finished)
    onward = step(end, ev.Extended(Limits(), at=200.0))
    assert isinstance(onward, Running)
    with pytest.raises(UnknownCall, match="expired"):
        step(onward, m.decided(c=m.APPROVE))
    assert outcome(step(onward, ev.Started("d"))) is Outcome.EXPIRED


@given(lives)
def test_no_call_waits_beyond_its_deadline(world: World) -> None:
    """Not once anything was heard at that time or later; and what expired was not decided, and never starts."""
    for earlier, event, later in zip(world.states, world.journal[1:], world.states[1:], strict=False):
        for path, before in loops(earlier):
            after = loop_at(later, path)
            for call in open_calls(before):
                over = call.status is Status.WAITING and call.expires_at is not None
                if over and call.expires_at is not None and call.expires_at <= later.ledger.now:
                    for then in open_calls(after) if after is not None else ():
                        assert then.id != call.id or (then.result and then.result.outcome) is Outcome.EXPIRED
                    assert not (isinstance(event, ev.Decided) and "/".join((*path, call.id)) in dict(event.rulings))
                if call.result is not None and call.result.outcome is Outcome.EXPIRED:
                    assert m.started_by(event) != (*path, call.id)


@given(lives)
def test_a_tick_does_nothing_but_tell_the_time(world: World) -> None:
    """Before the next deadline nothing changes; at it at least one call expires. It is no event where none waits."""
    state = world.state
    deadline = next_deadline(state)
    if deadline is None or deadline <= state.ledger.now:
        return
    between = (state.ledger.now + deadline) / 2
    early = step(state, ev.Ticked(at=between))
    assert early == hear(state, between, 0.0)
    assert next_deadline(step(state, ev.Ticked(at=deadline))) != deadline


@pytest.mark.parametrize(
    "state", [m.after(), m.after(ev.Requested()), m.after(ev.Stopped())], ids=lambda s: type(s).__name__
)
def test_where_no_call_can_wait_a_tick_tells_the_time_and_no_more(state: State) -> None:
    """Two who notice one deadline both tick; the slower one does no harm."""
    assert next_deadline(state) is None
    assert not is_due(state, 1e9)
    assert step(state, ev.Ticked(at=1e9)) == evolve(state, ledger=evolve(state.ledger, now=1e9))


@given(lives)
def test_what_is_outstanding_at_a_time_may_be_done_at_that_time(world: World) -> None:
    """Where time alone changes something, that is said first; then no moment refuses what was to be done at it."""
    for state in (state for state in world.states if not isinstance(state, TooDeep)):
        later = state.ledger.now + 1000.0
        assert is_due(state, later) == (step(state, ev.Ticked(at=later)) != hear(state, later, 0.0))
        then = step(state, ev.Ticked(at=later)) if is_due(state, later) else state
        for effect in outstanding(then):
            if isinstance(effect, RunCall):
                assert isinstance(step(then, ev.Started(effect.call_id, at=later, path=effect.path)), Running)
            elif isinstance(effect, EndTurn):
                step(then, ev.TurnEnded(at=later, path=effect.path))
