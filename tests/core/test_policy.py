"""Who may run: verdicts of the policies, decisions of the caller, and what becomes of a call."""

from __future__ import annotations

import re
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.making import the_call
from toolloop.core import events as ev
from toolloop.core.effects import EndTurn, Judge, RunCall
from toolloop.core.errors import CallerError, DecisionConflict, IllegalCommand, UndecidedCalls, UnknownCall
from toolloop.core.jsontext import decode
from toolloop.core.machine import outstanding, step
from toolloop.core.policy import digest_of
from toolloop.core.states import Deciding, Judging, Running, State
from toolloop.core.values import Call, Outcome, Reject, Ruling, Status, Why

EDIT = {"a": 2}


def waiting(why: Why = Why.APPROVAL, **changes: Any) -> State:
    """A loop in which the call `c` waits."""
    return m.after(m.replied("tool_use", m.call("c")), m.asks("c", why=why), **changes)


def uncertain(tool: str = "once") -> State:
    """A loop in which the call `c` was started, and its driver is gone."""
    return m.after(m.replied("tool_use", m.call("c", tool)), m.judged(), ev.Started("c"), ev.Woken(), ev.TurnEnded())


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_a_call_without_a_verdict_may_run() -> None:
    """No opinion means yes: the driver asks for a word only where there is one."""
    state = m.after(m.replied("tool_use", m.call("c1"), m.call("c2")), m.judged())
    assert outstanding(state) == (RunCall("c1"), RunCall("c2"))


def test_a_rejected_call_is_settled_and_nobody_is_asked() -> None:
    """An unknown tool or a bad input is told to the model."""
    state = m.after(m.replied("tool_use", m.call("c")), m.judged(c=Reject(Outcome.UNKNOWN_TOOL, "no such tool")))
    call = the_call(state)
    assert call.result is not None
    assert (call.status, call.result.is_error, call.result.outcome) == (Status.SETTLED, True, Outcome.UNKNOWN_TOOL)
    assert call.result.content == '"no such tool"'


@pytest.mark.parametrize(
    ("ruling", "status", "outcome"),
    [
        (m.APPROVE, Status.CLEARED, None),
        (m.approve(EDIT), Status.CLEARED, None),
        (m.DENY, Status.SETTLED, Outcome.DENIED),
        (m.answer(), Status.SETTLED, Outcome.ANSWERED),
    ],
)
def test_a_policys_decision_is_final(ruling: Ruling, status: Status, outcome: Outcome | None) -> None:
    """What a policy decides is not asked again, its own edit included."""
    state = m.after(m.replied("tool_use", m.call("c")), m.judged(c=ruling))
    assert isinstance(state, Running)
    call = the_call(state)
    assert (call.status, call.result and call.result.outcome, call.judged) == (status, outcome, True)


def test_nothing_runs_before_all_of_the_round_is_judged_and_decided() -> None:
    """If one call waits, the caller is asked before any other starts, under `ready` too."""
    for execution in ("barrier", "ready"):
        state = m.after(m.replied("tool_use", m.call("c"), m.call("d")), m.asks("c"), execution=execution)
        assert isinstance(state, Deciding)
        assert outstanding(state) == ()


def test_a_verdict_on_another_call_is_refused() -> None:
    """A verdict names a call that is to be judged."""
    with pytest.raises(UnknownCall, match="stranger") as refused:
        m.after(m.replied("tool_use", m.call("c")), m.asks("stranger"))
    assert (refused.value.call, refused.value.known) == ("stranger", ("c",))


# --- decisions -------------------------------------------------------------------------------------------------------

TAKEN = {
    Why.APPROVAL: {"approve": Status.DECIDED, "deny": Status.SETTLED, "answer": Status.SETTLED},
    Why.EXTERNAL: {"deny": Status.SETTLED, "answer": Status.SETTLED},
    Why.UNCERTAIN: {"rerun": Status.DECIDED, "deny": Status.SETTLED, "answer": Status.SETTLED},
}
RULINGS = {"approve": m.APPROVE, "deny": m.DENY, "answer": m.answer(), "rerun": m.RERUN}


@pytest.mark.parametrize("kind", RULINGS)
@pytest.mark.parametrize("why", Why)
def test_each_kind_of_waiting_takes_its_own_decisions(why: Why, kind: str) -> None:
    """The whole product: what is taken, and what is refused with the reason."""
    state = uncertain() if why is Why.UNCERTAIN else waiting(why)
    if kind in TAKEN[why]:
        assert the_call(step(state, m.decided(c=RULINGS[kind]))).status is TAKEN[why][kind]
    else:
        with pytest.raises(IllegalCommand, match="is not possible") as refused:
            step(state, m.decided(c=RULINGS[kind]))
        assert set(refused.value.allowed) == set(TAKEN[why])


def test_the_texts_of_denial_are_true() -> None:
    """A denied call did not run; an uncertain one may have had effects."""
    texts = m.setup().texts
    for state, text, outcome in (
        (waiting(), texts.denied, Outcome.DENIED),
        (uncertain(), texts.uncertain, Outcome.UNCERTAIN),
    ):
        result = the_call(step(state, m.decided(c=m.DENY))).result
        assert result is not None
        assert (result.content, result.outcome) == (f'"{text.format(reason="no")}"', outcome)


def test_all_decisions_apply_or_none() -> None:
    """One decision that is refused refuses them all."""
    state = m.after(m.replied("tool_use", m.call("c"), m.call("d")), m.asks("c", "d"))
    with pytest.raises(UnknownCall, match=re.escape("'x', which is not of the open round")):
        step(state, m.decided(c=m.APPROVE, d=m.DENY, x=m.APPROVE))
    assert the_call(state).status is the_call(state, "d").status is Status.WAITING


def test_an_unknown_call_is_refused_with_those_that_wait() -> None:
    """The error names the calls that could have been meant."""
    with pytest.raises(UnknownCall, match="that wait are: c") as refused:
        step(waiting(), m.decided(x=m.DENY))
    assert (refused.value.call, refused.value.known) == ("x", ("c",))
    with pytest.raises(UnknownCall, match="none"):
        step(step(waiting(), m.decided(c=m.DENY)), m.decided(x=m.DENY))


def test_the_same_decision_twice_is_one() -> None:
    """Same kind, input and content, whoever says it: nothing changes, to the last field."""
    for ruling in (m.APPROVE, m.approve({"a": 1, "b": 2}), m.DENY, m.answer({"x": 1})):
        once = step(waiting(), m.decided(c=ruling))
        again = Ruling(ruling.kind, ruling.content, by="somebody else", reason="another")
        assert step(once, m.decided(c=again)) == once
    keys_turned = Ruling("approve", '{"b": 2, "a": 1}')
    once = step(waiting(), m.decided(c=m.approve({"a": 1, "b": 2})))
    assert step(once, m.decided(c=keys_turned)) == once


@pytest.mark.parametrize("second", [m.DENY, m.approve(EDIT), m.answer()])
def test_a_second_decision_that_differs_is_refused(second: Ruling) -> None:
    """A decision cannot be taken back."""
    decided = step(waiting(), m.decided(c=m.APPROVE))
    with pytest.raises(DecisionConflict, match="cannot be taken back"):
        step(decided, m.decided(c=second))


def test_a_call_that_does_not_wait_takes_no_decision() -> None:
    """A running call is said to run; one that has its result, to have it."""
    running = m.after(m.replied("tool_use", m.call("c")), m.judged(), ev.Started("c"))
    with pytest.raises(IllegalCommand, match="it is running"):
        step(running, m.decided(c=m.DENY))
    with pytest.raises(UnknownCall, match="has its result"):
        step(step(running, m.ended("c")), m.decided(c=m.DENY))


def test_a_digest_binds_a_decision_to_what_was_shown() -> None:
    """The digest of the call as it is fits; any other is a conflict."""
    state = waiting()
    assert isinstance(state, Deciding)
    digest = digest_of(state.ledger.setup, state.round.iteration, the_call(state))
    assert re.fullmatch("[0-9a-f]{64}", digest)
    fitting = step(state, m.decided(c=Ruling("approve", digest=digest)))
    assert the_call(fitting).status is Status.DECIDED
    with pytest.raises(DecisionConflict, match="digests differ"):
        step(state, m.decided(c=Ruling("approve", digest="0" * 64)))
    with pytest.raises(DecisionConflict, match="digests differ"):  # a fork is another loop
        step(step(state, ev.Forked("copy")), m.decided(c=Ruling("approve", digest=digest)))


def test_a_digest_tells_loop_iteration_id_name_and_input_apart() -> None:
    """Each part changes it; the order of keys does not."""
    call = Call("c", "look", '{"a":1,"b":2}')
    setup = m.setup()
    digests = [
        digest_of(setup, 1, call),
        digest_of(m.setup(loop_id="other"), 1, call),
        digest_of(setup, 2, call),
        digest_of(setup, 1, evolve(call, id="d")),
        digest_of(setup, 1, evolve(call, name="see")),
        digest_of(setup, 1, evolve(call, edited='{"a":2}')),
    ]
    assert len(set(digests)) == len(digests)
    assert digest_of(setup, 1, evolve(call, input='{"b":2,"a":1}')) == digests[0]


def test_an_undecided_round_does_not_go_on_under_barrier() -> None:
    """`continue_loop()` and injections name the calls that wait; under `ready` the others run."""
    for event in (ev.Continued(), ev.Injected((m.user(),))):
        with pytest.raises(UndecidedCalls, match=": c") as refused:
            step(waiting(), event)
        assert refused.value.calls == ("c",)
    ready = m.after(m.replied("tool_use", m.call("c"), m.call("d")), m.asks("c"), ev.Continued(), execution="ready")
    assert outstanding(ready) == (RunCall("d"),)
    assert isinstance(m.go(ready, ev.Started("d"), m.ended("d"), ev.TurnEnded()), Deciding)


def test_a_decision_made_during_a_turn_joins_the_next_one() -> None:
    """It is taken at once and runs nothing; going on judges its edit."""
    running = m.after(
        m.replied("tool_use", m.call("c"), m.call("d")),
        m.asks("c"),
        ev.Continued(),
        ev.Started("d"),
        m.decided(c=m.approve(EDIT)),
        m.ended("d"),
        execution="ready",
    )
    assert the_call(running).status is Status.DECIDED
    assert outstanding(running) == (EndTurn(),)
    onward = m.go(running, ev.TurnEnded(), ev.Continued())
    assert outstanding(onward) == (Judge(calls=("c",)),)


# --- edits, repetition, waking ---------------------------------------------------------------------------------------


def test_an_edited_input_is_judged_once_more() -> None:
    """After an edit of the caller the policy has its say: its denial wins, its question is satisfied."""
    state = m.go(waiting(), m.decided(c=m.approve(EDIT)), ev.Continued())
    assert isinstance(state, Judging)
    assert outstanding(state) == (Judge(calls=("c",)),)
    assert the_call(state).effective_input == '{"a":2}'
    assert the_call(step(state, m.asks("c"))).status is Status.CLEARED
    assert the_call(step(state, m.judged(c=m.DENY))).status is Status.SETTLED


@pytest.mark.parametrize("same", [None, {"a": 1}])
def test_the_proposed_input_is_no_edit(same: Any) -> None:
    """Approving what was proposed runs it as it is, and is not judged again."""
    state = m.go(waiting(), m.decided(c=m.approve(same)), ev.Continued())
    assert isinstance(state, Running)
    assert the_call(state).edited is None


def test_a_policy_that_takes_an_edit_back_leaves_none() -> None:
    """The model's own input, given back by the policy that had changed it, is no edit."""
    changed = m.after(m.replied("tool_use", m.call("c")), m.judged(c=m.approve(EDIT)))
    assert the_call(changed).edited is not None
    assert the_call(m.go(changed, ev.Woken(), m.judged(c=m.approve({"a": 1})))).edited is None


def test_what_a_person_edited_stands() -> None:
    """A policy that is asked about it once more may deny it, but puts no input of its own in its place."""
    state = m.go(waiting(), m.decided(c=m.approve(EDIT)), ev.Continued(), m.judged(c=m.approve({"a": 3})))
    call = the_call(state)
    assert call.edited is not None
    assert decode(call.edited) == EDIT
    assert call.ruling is not None
    assert not call.ruling.by_policy


@pytest.mark.parametrize(("tool", "status"), [("pure", "settled"), ("keyed", "settled"), ("once", "waiting")])
def test_a_cancelled_call_is_settled_if_it_may_be_repeated(tool: str, status: str) -> None:
    """Else nobody knows what it did, and the caller is asked."""
    state = m.after(m.replied("tool_use", m.call("c", tool)), m.judged(), ev.Started("c"), ev.Cancelled("c"))
    call = the_call(state)
    assert call.status == status
    assert (call.why is Why.UNCERTAIN) == (status == "waiting")


@pytest.mark.parametrize(("tool", "status"), [("pure", "cleared"), ("keyed", "cleared"), ("once", "waiting")])
def test_a_lost_call_runs_again_only_if_it_may_be_repeated(tool: str, status: str) -> None:
    """After another driver took over: repeatable calls are judged and run again, the others wait."""
    state = m.after(m.replied("tool_use", m.call("c", tool)), m.judged(), ev.Started("c"), ev.Woken())
    assert the_call(state).status == status
    assert isinstance(state, Judging) == (status == "cleared")


def test_an_uncertain_call_holds_up_its_round_under_barrier() -> None:
    """Nothing else of the round starts while one is uncertain."""
    two = (m.replied("tool_use", m.call("c"), m.call("d")), m.judged(), ev.Started("c"), ev.Woken(), m.judged())
    assert isinstance(m.after(*two), Deciding)
    assert outstanding(m.after(*two, execution="ready")) == (RunCall("d"),)


def test_a_call_is_run_again_by_name() -> None:
    """`rerun` starts an uncertain call a second time, and the journal tells."""
    state = m.go(uncertain(), m.decided(c=m.RERUN), ev.Continued(), ev.Started("c"), m.ended("c"), ev.TurnEnded())
    assert list(state.ledger.ran) == ["c", "c"]


def test_what_a_person_asked_to_run_again_is_judged_once_more_after_a_wake() -> None:
    """The caller's word satisfies a policy's question. What cannot run any more does not, and nobody is told a lie."""
    woken = m.go(uncertain(), m.decided(c=m.RERUN), ev.Woken(), ev.Continued())
    assert outstanding(woken) == (Judge(calls=("c",)),)
    assert the_call(step(woken, m.asks("c"))).status is Status.CLEARED
    gone = step(woken, ev.Judged((("c", Reject(Outcome.UNKNOWN_TOOL, "It is gone.")),)))
    result = the_call(gone).result
    assert result is not None
    assert result.outcome is Outcome.UNCERTAIN
    assert "could not be run again" in result.content
    assert "It is gone." not in result.content


def test_what_was_decided_is_judged_again_after_a_wake() -> None:
    """Policies have their say once more before anything starts; the caller's word satisfies their question."""
    woken = m.go(waiting(), m.decided(c=m.APPROVE), ev.Woken(), ev.Continued())
    assert outstanding(woken) == (Judge(calls=("c",)),)
    assert the_call(step(woken, m.asks("c"))).status is Status.CLEARED


@pytest.mark.parametrize("tool", ["once", "pure"])
def test_a_started_call_is_uncertain_in_a_copy(tool: str) -> None:
    """In a fork what runs elsewhere is uncertain, every other open call asks again, and what is settled stays."""
    calls = [m.call("c", tool), m.call("d"), m.call("e")]
    state = m.after(
        m.replied("tool_use", *calls), m.judged(), ev.Started("c"), ev.Started("e"), m.ended("e"), ev.Forked("copy")
    )
    assert isinstance(state, Deciding)
    assert state.ledger.setup.loop_id == "copy"
    assert [(call.status, call.why) for call in state.round.calls] == [
        (Status.WAITING, Why.UNCERTAIN),
        (Status.WAITING, Why.APPROVAL),
        (Status.SETTLED, None),
    ]


def test_a_copy_asks_again_what_was_decided() -> None:
    """A decision made for a loop, edit and all, is none for its copy; not even while the edit is judged."""
    decided = m.go(waiting(), m.decided(c=m.approve(EDIT)))
    for state in (decided, step(decided, ev.Continued())):
        copy = step(state, ev.Forked("copy"))
        call = the_call(copy)
        assert (call.status, call.why, call.ruling, call.edited) == (Status.WAITING, Why.APPROVAL, None, None)


def test_a_copy_of_a_started_call_keeps_the_input_that_ran() -> None:
    """What nobody saw end ran with the edited input; to run it again is to run that."""
    state = m.go(waiting(), m.decided(c=m.approve(EDIT)), ev.Continued(), m.judged(), ev.Started("c"))
    assert the_call(step(state, ev.Forked("copy"))).effective_input == '{"a":2}'


@pytest.mark.parametrize("moment", ["judging", "asking"])
def test_what_started_is_never_said_to_have_been_denied_unrun(moment: str) -> None:
    """A lost call that may be repeated, and is then denied, may have had its effects."""
    judging = m.after(m.replied("tool_use", m.call("c", "pure")), m.judged(), ev.Started("c"), ev.Woken())
    asked = (m.judged(c=m.DENY),) if moment == "judging" else (m.asks("c"), m.decided(c=m.DENY))
    denied = m.go(judging, *asked)
    result = the_call(denied).result
    assert result is not None
    assert result.outcome is Outcome.UNCERTAIN


@given(st.lists(st.sampled_from([*RULINGS.values(), m.approve(EDIT)]), max_size=4), st.sampled_from(list(Why)))
def test_a_call_is_decided_at_most_once(rulings: list[Ruling], why: Why) -> None:
    """Whatever is said in whatever order: the first decision that is taken stands."""
    state = uncertain() if why is Why.UNCERTAIN else waiting(why)
    taken = []
    for ruling in rulings:
        try:
            state = step(state, m.decided(c=ruling))
        except CallerError:
            continue
        taken.append(ruling)
    assert the_call(state).ruling == (taken[0] if taken else None)
