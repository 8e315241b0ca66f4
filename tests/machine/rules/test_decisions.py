"""Who may run: what policies and callers decide, until when, and what the end of a run comes to."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.machine import making as m
from tests.kit.machine.making import the_call
from toolloop.errors import AlreadyDecided, CallerError, IllegalCommand, UndecidedCalls, UnknownCall
from toolloop.machine.queries import next_deadline, outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Judge, RunCall
from toolloop.machine.record.loop import Judging, State
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.tree import step
from toolloop.machine.values.calls import (
    Answer,
    Call,
    DecisionRecord,
    Outcome,
    PolicyResult,
    Reject,
    Result,
    Status,
    Wait,
    Why,
)
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Limits, Texts

EDIT = {"a": 2}
ONE = m.make_replied("tool_use", m.call("c"))
TWO = m.make_replied("tool_use", m.call("c", "pure"), m.call("d", "pure"))


def ask(why: Why = Why.APPROVAL, **changes: Any) -> State:
    """A loop in which the call `c` waits."""
    return m.state_after(ONE, m.asks("c", why=why), **changes)


def lose(tool: str = "once", *events: ev.Event) -> State:
    """A loop in which the call `c` was started, and its driver is gone."""
    return m.state_after(m.make_replied("tool_use", m.call("c", tool)), ev.Started("c"), ev.Woken(), *events)


def make_uncertain() -> State:
    return lose("once", ev.TurnEnded())


def outcome(state: State, call_id: str = "c") -> Outcome | None:
    result = the_call(state, call_id).result
    return None if result is None else result.outcome


# --- policies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "status", "came"),
    [
        (None, Status.CLEARED, None),
        (m.APPROVE, Status.CLEARED, None),
        (m.approve(EDIT), Status.CLEARED, None),
        (m.DENY, Status.SETTLED, Outcome.DENIED),
        (m.answer(), Status.SETTLED, Outcome.ANSWERED),
        (Reject(Outcome.UNKNOWN_TOOL, "no such tool"), Status.SETTLED, Outcome.UNKNOWN_TOOL),
        (Wait(Why.APPROVAL, "risky"), Status.WAITING, None),
        (Wait(Why.EXTERNAL), Status.WAITING, None),
    ],
)
def test_what_a_policy_decides_is_final(result: PolicyResult | None, status: Status, came: Outcome | None) -> None:
    """A call without a result of a policy may run; what one decides is not asked again, its own edit included."""
    state = m.state_after(ONE, m.make_judged() if result is None else m.make_judged(c=result))
    call = the_call(state)
    assert (call.status, outcome(state), call.judged) == (status, came, True)
    assert m.phase(state) == ("decision_required" if status is Status.WAITING else "Running")
    if isinstance(result, DecisionRecord):
        assert call.decision is not None
        assert call.decision.by_policy
    if isinstance(result, Reject):
        assert call.result == Result('"no such tool"', is_error=True, outcome=Outcome.UNKNOWN_TOOL)


def test_nothing_runs_before_all_of_the_round_is_judged_and_decided() -> None:
    """If one call waits, the caller is asked before any other starts, under `ready` too."""
    for execution in ("barrier", "ready"):
        state = m.state_after(TWO, m.asks("c"), execution=execution)
        assert (m.phase(state), outstanding(state)) == ("decision_required", ())
    assert outstanding(step(state, ev.Continued())) == (RunCall("d"),)
    with pytest.raises(UnknownCall, match="stranger") as refused:
        m.state_after(ONE, m.asks("stranger"))
    assert (refused.value.call, refused.value.known) == ("stranger", ("c",))


# --- decisions -------------------------------------------------------------------------------------------------------

TAKES = {
    Why.APPROVAL: {"approve": Status.DECIDED, "deny": Status.SETTLED, "answer": Status.SETTLED},
    Why.EXTERNAL: {"deny": Status.SETTLED, "answer": Status.SETTLED},
    Why.UNCERTAIN: {"rerun": Status.DECIDED, "deny": Status.SETTLED, "answer": Status.SETTLED},
}
DECISIONS = {"approve": m.APPROVE, "deny": m.DENY, "answer": m.answer(), "rerun": m.RERUN}


@pytest.mark.parametrize("kind", DECISIONS)
@pytest.mark.parametrize("why", Why)
def test_each_kind_of_waiting_takes_its_own_decisions(why: Why, kind: str) -> None:
    """The whole product: what is taken, and what is refused with the reason."""
    state = make_uncertain() if why is Why.UNCERTAIN else ask(why)
    if kind in TAKES[why]:
        assert the_call(step(state, m.make_decided(c=DECISIONS[kind]))).status is TAKES[why][kind]
    else:
        with pytest.raises(IllegalCommand, match=f"cannot {kind} the call") as refused:
            step(state, m.make_decided(c=DECISIONS[kind]))
        assert set(refused.value.allowed) == set(TAKES[why])


def test_a_decision_is_as_old_as_the_loop() -> None:
    """It is not older than the call it decides, whatever a clock says."""
    decided = m.go(ask(), ev.Ticked(at=70.0), evolve(m.make_decided(c=evolve(m.DENY, at=3.0)), at=60.0))
    decision = the_call(decided).decision
    assert decision is not None
    assert decision.at == 70.0


def test_a_loop_does_not_go_on_while_a_call_waits_under_barrier() -> None:
    """It says which call; under `ready` the others run meanwhile."""
    with pytest.raises(UndecidedCalls, match="wait for a decision: c") as refused:
        step(m.state_after(TWO, m.asks("c")), ev.Continued())
    assert refused.value.calls == ("c",)


def test_a_digest_tells_loop_iteration_place_run_name_and_input_apart() -> None:
    """Each part changes it; the order of keys does not."""
    call, setup = Call("c", "look", '{"a":1,"b":2}'), m.setup()
    digests = [
        digest_of(setup, 1, call),
        digest_of(m.setup(loop_id="other"), 1, call),
        digest_of(m.setup(within=((1, "p", 1),)), 1, call),
        digest_of(m.setup(within=((1, "p", 2),)), 1, call),
        digest_of(setup, 2, call),
        digest_of(setup, 1, call._replace(id="d")),
        digest_of(setup, 1, call._replace(name="see")),
        digest_of(setup, 1, call._replace(attempts=1)),
        digest_of(setup, 1, call._replace(edited='{"a":2}')),
    ]
    assert len(set(digests)) == len(digests)
    assert digest_of(setup, 1, call._replace(input='{"b":2,"a":1}')) == digests[0]


# --- edits, and judging once more ------------------------------------------------------------------------------------


def test_what_was_decided_is_judged_again_after_a_wake() -> None:
    """The caller's word satisfies a question; a call that ran before and cannot run any more is uncertain."""
    woken = m.go(ask(), m.make_decided(c=m.APPROVE), ev.Woken(), ev.Continued())
    assert outstanding(woken) == (Judge(calls=("c",)),)
    assert the_call(step(woken, m.asks("c"))).status is Status.CLEARED
    rerun = m.go(make_uncertain(), m.make_decided(c=m.RERUN), ev.Woken(), ev.Continued())
    assert the_call(step(rerun, m.asks("c"))).status is Status.CLEARED
    gone = the_call(step(rerun, m.make_judged(c=Reject(Outcome.UNKNOWN_TOOL, "It is gone.")))).result
    assert gone is not None
    assert gone.outcome is Outcome.UNCERTAIN
    assert "could not be run again" in gone.content
    assert "It is gone." not in gone.content


# --- deadlines -------------------------------------------------------------------------------------------------------


def ask_with_time(
    expires_in: float | None = 5.0, *, at: float = 100.0, why: Why = Why.APPROVAL, **changes: Any
) -> State:
    """A loop in which `c` waits, from 100 s on, and `d` may run."""
    return m.state_after(TWO, evolve(m.make_judged(c=Wait(why, expires_in=expires_in)), at=at), **changes)


@pytest.mark.parametrize(
    ("timeout", "expires_in", "deadline"),
    [(None, None, None), (7.0, None, 107.0), (None, 5.0, 105.0), (7.0, 5.0, 105.0), (7.0, 50.0, 150.0)],
)
@pytest.mark.parametrize("why", [Why.APPROVAL, Why.EXTERNAL])
def test_a_call_waits_as_long_as_its_policy_says_or_else_the_setup(
    timeout: float | None, expires_in: float | None, deadline: float | None, why: Why
) -> None:
    """From when it starts to wait, by the latest time of any event; for ever where neither says anything."""
    state = ask_with_time(expires_in, why=why, decision_timeout=timeout)
    assert the_call(state).expires_at == next_deadline(state) == deadline
    assert the_call(state, "d").expires_at is None
    late = m.state_after(TWO, ev.Ticked(at=100.0), evolve(m.make_judged(c=Wait(why, expires_in=expires_in)), at=1.0))
    assert the_call(late).expires_at == (None if expires_in is None else 100.0 + expires_in)
    assert the_call(ask_with_time(1e300)).expires_at == 253_402_300_799.0  # the year 9999


@pytest.mark.parametrize(("at", "expired"), [(104.999, False), (105.0, True), (1e9, True)])
def test_at_the_deadline_it_is_too_late(at: float, *, expired: bool) -> None:
    """Exactly at it too; the call has an error of its own kind, and no person decided."""
    state = step(ask_with_time(), ev.Ticked(at=at))
    assert outcome(state) == (Outcome.EXPIRED if expired else None)
    if expired:
        call = the_call(state)
        assert call.result == Result(encode(Texts().expired), is_error=True, outcome=Outcome.EXPIRED)
        assert (call.status, call.decision, call.expires_at) == (Status.SETTLED, None, 105.0)


def test_an_expired_call_that_had_run_is_not_said_not_to_have_run() -> None:
    """Started, lost, and then asked whether it may run again: the outcome of the first run is unknown."""
    asked = m.go(lose("pure"), evolve(m.make_judged(c=Wait(Why.APPROVAL, expires_in=5.0)), at=100.0))
    result = the_call(step(asked, ev.Ticked(at=105.0))).result
    assert result is not None
    assert result.outcome is Outcome.EXPIRED
    assert "may have had effects" in result.content


def test_an_uncertain_call_waits_for_ever() -> None:
    """Nothing is to be gained by guessing how it ended; not even if it had waited before it ran."""
    approved = m.go(
        ask_with_time(), m.make_decided(c=m.APPROVE), ev.Woken(m.setup(tools=()))
    )  # nothing may be repeated
    again = m.go(approved, ev.Continued(), ev.Started("c"), ev.Woken(), ev.Ticked(at=1e9))
    call = the_call(again)
    assert (call.status, call.why, call.expires_at, next_deadline(again)) == (
        Status.WAITING,
        Why.UNCERTAIN,
        None,
        None,
    )


@pytest.mark.parametrize(
    "event",
    [
        ev.Ticked(),
        ev.Changed("{}"),
        ev.Woken(),
        ev.Continued(),
        ev.Continued((m.user("more"),)),
        ev.Changed(limits=Limits()),
        ev.Ended("nobody", m.DONE, 0.0, 7, 7),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_deadline_binds_with_and_without_a_tick(event: ev.Event) -> None:
    """Whatever is recorded first: the call has expired by then, and the event finds it so."""
    late = evolve(event, at=105.0)
    state = step(ask_with_time(), late)
    assert outcome(state) is Outcome.EXPIRED
    assert state == step(step(ask_with_time(), ev.Ticked(at=105.0)), late)


@pytest.mark.parametrize("decision", [m.APPROVE, m.DENY, m.answer()])
@pytest.mark.parametrize("ticked", [False, True])
def test_a_decision_that_comes_too_late_is_refused(decision: DecisionRecord, *, ticked: bool) -> None:
    """It says that the call expired, and when; one in time counts however late it is carried out."""
    state = step(ask_with_time(), ev.Ticked(at=105.0)) if ticked else ask_with_time()
    with pytest.raises(AlreadyDecided, match=r"'c' expired at 1970-01-01T00:01:45\+00:00") as refused:
        step(state, evolve(m.make_decided(c=decision), at=105.0))
    assert refused.value.call == "c"
    in_time = m.go(ask_with_time(), evolve(m.make_decided(c=m.APPROVE), at=104.9), ev.Ticked(at=1e9))
    assert the_call(in_time).status is Status.DECIDED


# --- runs that were lost, cancelled, or end late ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "cancelled", "woken"),
    [("pure", "settled", "cleared"), ("keyed", "settled", "cleared"), ("once", "waiting", "waiting")],
)
def test_a_call_whose_end_is_unknown_is_repeated_or_uncertain(tool: str, cancelled: str, woken: str) -> None:
    """Cancelled: settled if it may be repeated. Lost with its driver: judged and run again then. Else it waits."""
    reply = m.make_replied("tool_use", m.call("c", tool))
    one = the_call(m.state_after(reply, ev.Started("c"), ev.Ended("c", None)))
    other = lose(tool)
    assert (one.status, the_call(other).status) == (cancelled, woken)
    assert isinstance(other.root.phase, Judging) == (woken == "cleared")
    assert (one.why is Why.UNCERTAIN) == (cancelled == "waiting")
    assert (one.result and one.result.outcome) == (Outcome.CANCELLED if cancelled == "settled" else None)


def test_an_uncertain_call_holds_up_its_round_under_barrier() -> None:
    """Nothing else of the round starts, until a caller says how it ended, or it is run again by name."""
    two = (
        m.make_replied("tool_use", m.call("c"), m.call("d")),
        m.make_judged(),
        ev.Started("c"),
        ev.Woken(),
        m.make_judged(),
    )
    assert m.phase(m.state_after(*two)) == "decision_required"
    assert outstanding(m.state_after(*two, execution="ready")) == (RunCall("d"),)
    again = m.go(
        make_uncertain(), m.make_decided(c=m.RERUN), ev.Continued(), ev.Started("c"), m.make_ended("c"), ev.TurnEnded()
    )
    assert list(again.root.started) == ["c", "c"]


def end(attempt: int = 1, words: str = "done", *, iteration: int = 1, call_id: str = "c") -> ev.Ended:
    return ev.Ended(call_id, Result(encode(words)), iteration=iteration, attempt=attempt)


RERUN = (ev.TurnEnded(), m.make_decided(c=m.RERUN))


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (m.state_after(ONE, ev.Started("c")), Status.RUNNING),
        (lose("once"), Status.WAITING),
        (lose("once", ev.TurnEnded()), Status.WAITING),
        (lose("pure"), Status.CLEARED),
        (lose("pure", m.make_judged()), Status.CLEARED),
        (lose("pure", m.asks("c")), Status.WAITING),
        (lose("pure", m.asks("c"), m.make_decided(c=m.APPROVE)), Status.DECIDED),
        (lose("pure", m.make_judged(), ev.Started("c")), Status.RUNNING),
    ],
)
def test_the_end_of_a_run_settles_its_call_wherever_it_stands(state: State, status: Status) -> None:
    """Running, lost, uncertain, about to run again: then its end is reported after all."""
    assert the_call(state).status is status
    then = step(state, end())
    assert (the_call(then).status, the_call(then).result) == (Status.SETTLED, m.DONE)
    assert type(then.root.phase) is type(state.root.phase)


@pytest.mark.parametrize(
    "late", [end(iteration=2), end(0), end(2), end(call_id="d"), end(-1), end(1, iteration=0), end(0, iteration=2)]
)
def test_an_end_of_no_run_of_this_round_changes_nothing(late: ev.Ended) -> None:
    """Another iteration, another call, a run that never was. Nor does one of a call that never ran."""
    for state in (m.state_after(ONE, ev.Started("c")), lose("once"), lose("pure")):
        assert step(state, late) == state
        assert step(state, evolve(late, result=None)) == state
    for state in (m.state_after(ONE), ask()):
        assert step(state, end()) == state


@given(st.permutations([end(1, "first"), end(2, "second"), end(1, "first"), end(2, "other")]))
def test_the_first_end_wins(ends: list[ev.Ended]) -> None:
    """Of two runs, and of two ends of one run; a decision that came before it, too."""
    state = lose("pure", m.make_judged(), ev.Started("c"))
    assert the_call(m.go(state, *ends)).result == ends[0].result
    for decision in (m.answer("mine"), m.DENY):
        decided = step(lose("once"), m.make_decided(c=decision))
        assert m.go(decided, *ends) == decided


def test_a_cancellation_that_names_its_run_is_one_of_the_run_that_runs() -> None:
    """Of an earlier run it says nothing, and of one that has ended."""
    again = lose("pure", m.make_judged(), ev.Started("c"))
    cancelled = ev.Ended("c", None, iteration=1, attempt=1)
    assert step(again, cancelled) == again
    assert outcome(step(again, evolve(cancelled, attempt=2))) is Outcome.CANCELLED


def test_after_a_rerun_only_the_new_run_counts() -> None:
    """Who runs it again has given up the first run; its end is late, before the new run starts and while it runs."""
    assert outcome(step(lose("once", ev.TurnEnded()), end())) is Outcome.RETURNED
    states = [lose("once", *RERUN), lose("once", *RERUN, ev.Continued())]
    states.append(step(states[-1], ev.Started("c")))
    for state in states:
        assert step(state, end(1)) == state
    assert the_call(step(states[-1], end(2, "again"))).result == Result('"again"')
    assert the_call(m.go(states[-1], ev.Woken(), end(2, "again"))).result == Result('"again"')


ELSEWHERE = {
    "Ready": m.state_after(),
    "Requesting": m.state_after(ev.Requested()),
    "tools_executed": m.state_after(ONE, ev.Started("c"), m.make_ended("c"), ev.TurnEnded()),
    "paused": m.state_after(m.make_replied("pause_turn")),
    "Finished": m.state_after(ev.Stopped()),
    "Failed": m.state_after(ev.RequestFailed(m.FAILURE)),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_end_that_names_its_run_may_be_recorded_anywhere(name: str) -> None:
    """It is late, and nothing changes but the time and what it spent; one that names none is refused."""
    state = ELSEWHERE[name]
    assert m.phase(state) == name
    assert step(state, end()) == state
    assert step(state, evolve(end(), at=9.0)).root.now == 9.0
    with pytest.raises(IllegalCommand, match="'c' is not a running call"):
        step(state, m.make_ended("c"))


@given(st.lists(st.sampled_from([*DECISIONS.values(), m.approve(EDIT)]), max_size=4), st.sampled_from(list(Why)))
def test_a_call_is_decided_at_most_once(decisions: list[DecisionRecord], why: Why) -> None:
    """Whatever is said in whatever order: the first decision that is taken stands."""
    state = make_uncertain() if why is Why.UNCERTAIN else ask(why)
    taken = []
    for decision in decisions:
        try:
            state = step(state, m.make_decided(c=decision))
        except CallerError:
            continue
        taken.append(decision)
    assert the_call(state).decision == (taken[0] if taken else None)


def test_an_answer_of_none_is_refused_when_it_is_made() -> None:
    """It says what to give."""
    with pytest.raises(TypeError, match="the content of an answer is None; give a string"):
        Answer(None)
    assert Answer("").content == ""
