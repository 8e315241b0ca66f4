"""Ends that say of which run they are: the first one is the result, and a late one does no harm."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.making import the_call
from tests.core.test_machine_laws import lives
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.effects import EndTurn, RunCall
from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import encode
from toolloop.core.machine import next_deadline, outstanding, step
from toolloop.core.setup import Limits
from toolloop.core.states import Deciding, Executed, Judging, State, TooDeep
from toolloop.core.tree import round_of
from toolloop.core.values import Outcome, Result, Status, Wait, Why

STARTED = (m.judged(), ev.Started("c"))


def run(tool: str = "once", *events: ev.Event) -> State:
    """A loop whose call `c` was started once, and what happened then."""
    return m.after(m.replied("tool_use", m.call("c", tool)), *STARTED, *events)


def end(attempt: int = 1, words: str = "done", *, iteration: int = 1, call_id: str = "c") -> ev.Ended:
    return ev.Ended(call_id, Result(encode(words)), iteration=iteration, attempt=attempt)


def result(state: State) -> str | None:
    settled = the_call(state).result
    return None if settled is None else settled.content


RERUN = (ev.Woken(), ev.TurnEnded(), m.decided(c=m.RERUN))


# --- what counts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (run(), Status.RUNNING),
        (run("once", ev.Woken()), Status.WAITING),
        (run("once", ev.Woken(), ev.TurnEnded()), Status.WAITING),
        (run("pure", ev.Woken()), Status.CLEARED),
        (run("pure", ev.Woken(), m.judged()), Status.CLEARED),
        (run("pure", ev.Woken(), m.asks("c")), Status.WAITING),
        (run("pure", ev.Woken(), m.asks("c"), m.decided(c=m.APPROVE)), Status.DECIDED),
        (run("pure", ev.Woken(), m.judged(), ev.Started("c")), Status.RUNNING),
    ],
)
def test_the_end_of_a_run_settles_its_call_wherever_it_stands(state: State, status: Status) -> None:
    """Running, lost, uncertain, about to run again: somebody saw it end after all."""
    assert the_call(state).status is status
    then = step(state, end())
    assert (the_call(then).status, result(then), type(then)) == (Status.SETTLED, '"done"', type(state))


def test_a_loop_goes_on_after_an_end_that_nobody_expected_any_more() -> None:
    """From each state in which it may be heard, the round closes."""
    asked = step(run("once", ev.Woken(), ev.TurnEnded()), end())
    assert isinstance(asked, Deciding)
    judging = step(run("pure", ev.Woken()), end())
    assert isinstance(judging, Judging)
    for state in (step(asked, ev.Continued()), step(judging, ev.Judged())):
        assert outstanding(state) == (EndTurn(),)
        closed = step(state, ev.TurnEnded())
        assert isinstance(closed, Executed)
        assert m.results(m.history(closed)[2]) == {"c": "done"}


def test_the_others_may_start_once_an_uncertain_call_is_known_to_have_ended() -> None:
    """Under `barrier` it held them up."""
    two = (m.replied("tool_use", m.call("c"), m.call("d")), m.judged(), ev.Started("c"), ev.Cancelled("c"))
    assert outstanding(m.after(*two)) == (EndTurn(),)
    assert outstanding(m.after(*two, end())) == (RunCall("d"),)


@pytest.mark.parametrize(
    "late",
    [end(iteration=2), end(0), end(2), end(call_id="d"), end(-1), end(1, iteration=0), end(0, iteration=2)],
)
def test_an_end_of_no_run_of_this_round_changes_nothing(late: ev.Ended) -> None:
    """Another iteration, another call, a run that never was."""
    for state in (run(), run("once", ev.Woken()), run("pure", ev.Woken())):
        assert step(state, late) == state


def test_an_end_of_a_call_that_never_ran_changes_nothing() -> None:
    """Whoever says so: nothing ran."""
    for state in (
        m.after(m.replied("tool_use", m.call("c"))),
        m.after(m.replied("tool_use", m.call("c")), m.asks("c")),
    ):
        assert step(state, end()) == state


@given(st.permutations([end(1, "first"), end(2, "second"), end(1, "first"), end(2, "other")]))
def test_the_first_end_wins(ends: list[ev.Ended]) -> None:
    """Of two runs, and of two ends of one run."""
    state = run("pure", ev.Woken(), m.judged(), ev.Started("c"))
    assert result(m.go(state, *ends)) == ends[0].result.content


def test_a_decision_comes_before_an_end_that_is_heard_later() -> None:
    """Answered or denied: that is the call's one result."""
    for ruling in (m.answer("mine"), m.DENY):
        decided = run("once", ev.Woken(), m.decided(c=ruling))
        assert step(decided, end()) == decided


def test_an_expired_call_stays_expired() -> None:
    """The deadline came first."""
    asked = run("pure", ev.Woken(), evolve(m.judged(c=Wait(Why.APPROVAL, expires_in=5.0)), at=100.0))
    assert result(step(asked, evolve(end(), at=104.0))) == '"done"'
    call = the_call(step(asked, evolve(end(), at=105.0)))
    assert call.result is not None
    assert call.result.outcome is Outcome.EXPIRED


# --- after `rerun` ---------------------------------------------------------------------------------------------------


def test_before_a_rerun_is_decided_the_end_counts() -> None:
    assert result(step(run("once", *RERUN[:2]), end())) == '"done"'


def test_after_a_rerun_only_the_new_run_counts() -> None:
    """Who runs it again has given up the first run; its end is late, before the new run starts and while it runs."""
    states = [run("once", *RERUN), run("once", *RERUN, ev.Continued())]
    states.append(step(states[-1], ev.Started("c")))
    assert [the_call(state).status for state in states] == [Status.DECIDED, Status.CLEARED, Status.RUNNING]
    for state in states:
        assert step(state, end(1)) == state
    assert result(step(states[-1], end(2, "again"))) == '"again"'


def test_a_rerun_that_was_lost_too_may_end_late() -> None:
    """Nobody has decided on it since."""
    lost = run("once", *RERUN, ev.Continued(), ev.Started("c"), ev.Woken())
    assert the_call(lost).attempts == 2
    assert result(step(lost, end(2, "again"))) == '"again"'


# --- where no run is open --------------------------------------------------------------------------------------------

ELSEWHERE: dict[str, State] = {
    "Ready": m.after(),
    "Requesting": m.after(ev.Requested()),
    "Executed": run("once", m.ended("c"), ev.TurnEnded()),
    "Paused": m.after(m.replied("pause_turn")),
    "Finished": m.after(ev.Stopped()),
    "Failed": m.after(ev.RequestFailed(m.FAILURE)),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_end_that_names_its_run_may_be_told_anywhere(name: str) -> None:
    """It is late, and nothing changes but the time; one that does not say what it is of is refused."""
    state = ELSEWHERE[name]
    assert type(state).__name__ == name
    assert step(state, end()) == state
    assert step(state, evolve(end(), at=9.0)).ledger.now == 9.0
    with pytest.raises(IllegalCommand, match=f"Ended .* the loop is {name}: 'c' is no call that runs"):
        step(state, m.ended("c"))


def test_an_end_is_told_nowhere_where_nothing_ever_ran() -> None:
    state = m.after(ev.TurnEnded(), limits=Limits(max_depth=0))
    assert isinstance(state, TooDeep)
    with pytest.raises(IllegalCommand):
        step(state, end())


@pytest.mark.parametrize("state", [run("once", m.ended("c")), run("once", ev.Woken()), run("pure", ev.Woken())])
def test_an_end_that_names_no_run_is_of_a_call_that_runs_now(state: State) -> None:
    """Settled, uncertain or about to run: refused, whatever the state is."""
    with pytest.raises(IllegalCommand, match="'c' is no call that runs"):
        step(state, m.ended("c"))


@given(lives, st.integers(1, 4), st.integers(1, 3))
def test_an_end_that_names_its_run_is_never_refused(world: World, iteration: int, attempt: int) -> None:
    """Whatever the state and whatever it names: it settles the one call that had been started, or nothing changes."""
    state = world.state
    deadline = next_deadline(state)
    overdue = deadline is not None and deadline <= state.ledger.now
    if isinstance(state, TooDeep) or overdue:
        return
    open_ = round_of(state)
    for call_id in ("nobody", *(call.id for call in (open_.calls if open_ else ()))):
        late = end(attempt, iteration=iteration, call_id=call_id)
        then = step(state, late)
        closed = round_of(then)
        if then != state:
            assert open_ is not None
            assert closed is not None
            ((was, now),) = [pair for pair in zip(open_.calls, closed.calls, strict=True) if pair[0] != pair[1]]
            assert (was.id, was.started, now.result) == (call_id, True, late.result)
