"""The limits, each at its exact boundary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.machine import making as m
from toolloop.machine.queries import outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import EndTurn, RunCall, SendRequest
from toolloop.machine.record.loop import Finished, Ready, Running, State, round_of
from toolloop.machine.rules.limits import count_left, count_spent
from toolloop.machine.tree import step
from toolloop.machine.values.jsontext import decode
from toolloop.machine.values.setup import Budget, Limits
from toolloop.terminations import BudgetExceeded, MaxIterations, PauseLimit, Termination, Timeout

USAGE = {"input_tokens": 3, "cache_read_input_tokens": 1, "cache_creation_input_tokens": 1, "output_tokens": 2}


def drive(state: State, stop_reason: str = "tool_use", *, seconds: float = 0.0) -> State:
    """Do what is outstanding, as a driver would, until the loop ends; every reply has one call, or pauses."""
    for count in range(1000):
        if isinstance(state.root.phase, Finished):
            return state
        match outstanding(state):
            case ():
                event: ev.Event = ev.Continued()
            case (SendRequest(),):
                blocks = [m.call(f"c{count}", "pure")] if stop_reason == "tool_use" else [m.text("half")]
                event = ev.Replied(m.make_replied(stop_reason, *blocks, usage=USAGE).reply, seconds=seconds)
            case (RunCall(call_id=call_id), *_):
                state, event = step(state, ev.Started(call_id)), m.make_ended(call_id)
            case (EndTurn(),):
                event = ev.TurnEnded()
            case _:
                event = m.make_judged()
        state = m.go(state, event)
    raise AssertionError("no limit ended the loop")


def make_limits(**limits: Any) -> dict[str, Limits]:
    return {"limits": Limits(**({"max_iterations": None, "max_pauses": None} | limits))}


@given(st.integers(0, 12))
def test_exactly_as_many_requests_are_answered_as_iterations_allowed(limit: int) -> None:
    """`max_iterations` replies, and not one more."""
    end = drive(m.state_after(**make_limits(max_iterations=limit)))
    assert m.termination(end) == MaxIterations(limit)
    assert end.root.iterations == limit


@given(st.integers(0, 6))
def test_a_pause_is_resumed_as_often_as_pauses_allowed(limit: int) -> None:
    """`max_pauses` resumptions in a row: one request more than that is answered."""
    end = drive(m.state_after(**make_limits(max_pauses=limit)), "pause_turn")
    assert m.termination(end) == PauseLimit(limit)
    assert end.root.iterations == limit + 1


@given(st.integers(0, 12), st.sampled_from(["requests", "tool_calls", "input_tokens", "output_tokens", "total_tokens"]))
def test_a_budget_ends_the_loop_once_it_is_spent(limit: int, what: str) -> None:
    """No request and no tool starts when a part is spent; the error has the amount that was spent."""
    per_iteration = {"requests": 1, "tool_calls": 1, "input_tokens": 5, "output_tokens": 2, "total_tokens": 7}[what]
    end = drive(m.state_after(**make_limits(budget=Budget(**{what: limit}))))
    rounds = -(-limit // per_iteration)
    used = rounds * per_iteration
    assert m.termination(end) == BudgetExceeded(what, limit, used)
    assert count_spent(end.root, what) == used
    assert end.root.iterations == rounds


@pytest.mark.parametrize(
    ("budget", "termination"),
    [
        (Budget(tool_calls=2), BudgetExceeded("tool_calls", 2, 2)),
        (Budget(tool_calls=2, requests=1), BudgetExceeded("tool_calls", 2, 2)),  # it is what keeps the last call back
    ],
)
def test_a_round_starts_no_more_tools_than_are_left(budget: Budget, termination: Termination) -> None:
    """However many calls it has, and may run at once."""
    state = m.state_after(
        m.make_replied("tool_use", *(m.call(name) for name in "abc")), m.make_judged(), **make_limits(budget=budget)
    )
    assert outstanding(state) == (RunCall("a"), RunCall("b"))
    state = step(state, ev.Started("a"))
    assert outstanding(state) == (RunCall("b"),)
    state = m.go(state, ev.Started("b"), m.make_ended("a"), m.make_ended("b"))
    assert outstanding(state) == (EndTurn(),)
    assert m.termination(step(state, ev.TurnEnded())) == termination


def test_depth_comes_before_any_other_limit() -> None:
    """More requests would not help a loop that is nested too deep."""
    assert m.phase(m.state_after(ev.TurnEnded(), depth=1, limits=Limits(max_depth=1, max_iterations=0))) == "TooDeep"


@pytest.mark.parametrize(("room", "first"), [(1, 1), (2, 2), (None, 3)])
def test_no_more_tools_run_at_once_than_allowed(room: int | None, first: int) -> None:
    """`max_parallel_tools` at a time; an end makes room for the next."""
    calls = [m.call(f"c{number}") for number in range(3)]
    state = m.state_after(m.make_replied("tool_use", *calls), m.make_judged(), max_parallel_tools=room)
    effects = outstanding(state)
    assert effects == tuple(RunCall(f"c{number}") for number in range(first))
    state = m.go(state, *(ev.Started(f"c{number}") for number in range(first)))
    assert outstanding(state) == ()
    after_one = outstanding(step(state, m.make_ended("c0")))
    assert after_one == ((RunCall(f"c{first}"),) if first < 3 else ())


@pytest.mark.parametrize(("active", "over"), [(4.9, False), (5.0, True), (5.1, True)])
def test_a_timeout_binds_before_a_request_and_before_a_tool(active: float, over: bool) -> None:
    """Active seconds: at the limit nothing more starts."""
    late = ev.Replied(m.make_replied("tool_use", m.call("c")).reply, seconds=active)
    state = m.state_after(late, m.make_judged(), **make_limits(timeout=5.0))
    assert outstanding(state) == ((EndTurn(),) if over else (RunCall("c"),))
    before_request = m.state_after(
        ev.RequestFailed(m.FAILURE, seconds=active), ev.Continued(), **make_limits(timeout=5.0)
    )
    assert outstanding(before_request) == ((EndTurn(),) if over else (SendRequest(),))
    if over:
        for running_out in (state, before_request):
            end = step(running_out, ev.TurnEnded())
            assert isinstance(end.root.phase, Finished)
            assert m.termination(end) == Timeout(5.0)


@pytest.mark.parametrize(
    ("limits", "termination"),
    [
        ({"max_iterations": 2}, MaxIterations(2)),
        ({"timeout": 1.0}, Timeout(1.0)),
        ({"budget": Budget(requests=1)}, BudgetExceeded("requests", 1, 1)),
        ({"budget": Budget(tool_calls=1)}, BudgetExceeded("tool_calls", 1, 1)),
    ],
)
def test_extending_goes_on_where_a_limit_ended_the_loop(limits: dict[str, Any], termination: Termination) -> None:
    """With other limits the loop is where it was, to the last field: nothing was consumed by the end."""
    end = drive(m.state_after(**make_limits(**limits)), seconds=1.0)
    assert m.termination(end) == termination
    onward = step(end, ev.Changed(limits=Limits()))
    assert isinstance(onward.root.phase, (Ready, Running))
    assert isinstance(outstanding(onward)[0], (SendRequest, RunCall))
    assert onward.root._replace(phase=end.root.phase, setup=end.root.setup) == end.root
    assert round_of(onward.root) == round_of(end.root)


def test_extending_a_pause_sends_it_back() -> None:
    """The paused reply that the end dropped is there again."""
    end = drive(m.state_after(**make_limits(max_pauses=0)), "pause_turn")
    assert m.history(end) == [{"role": "user", "content": "hi"}]
    onward = step(end, ev.Changed(limits=Limits()))
    assert isinstance(onward.root.phase, Ready)
    assert [decode(message)["role"] for message in onward.root.unjoined] == ["assistant"]


def test_what_is_left_is_what_may_still_be_used() -> None:
    """Of each limit the rest, None where there is none, and never less than nothing."""
    assert set(count_left(m.state_after(**make_limits(max_depth=None)).root).values()) == {None}
    budget = Budget(requests=5, tool_calls=1, input_tokens=4, output_tokens=9, total_tokens=100)
    end = drive(m.state_after(**make_limits(max_iterations=3, timeout=9.0, max_pauses=2, budget=budget)), seconds=2.0)
    assert count_left(end.root) == {
        "iterations": 2,
        "pauses": 2,
        "seconds": 7.0,
        "requests": 4,
        "tool_calls": 0,
        "input_tokens": 0,
        "output_tokens": 7,
        "total_tokens": 93,
        "cost": None,
    }
