"""Demands and approvals, one rule after the other; `test_who_may_start` has them all at once."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from tests.kit.machine import making as m
from tests.kit.machine.making import the_call
from toolloop.errors import AlreadyDecided, CallerError, DecisionConflict, IllegalCommand
from toolloop.machine.queries import outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State, replace_calls
from toolloop.machine.rules.approving import count_missing, describe, describe_progress, find_counted, list_approvals
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.tree import fork, step
from toolloop.machine.values.calls import DecisionRecord, GrantSpec, Outcome, PolicyResult, Status, Wait, Why
from toolloop.machine.values.demands import Demand, Edit
from toolloop.machine.values.jsontext import encode

TWO = Demand(2)
FINANCE = Demand(of=("finance",))
LEGAL = Demand(of=("legal",))
FRESH = Demand(of=("finance",), fresh=True)


def asks(*demands: Demand, **more: Any) -> Wait:
    return Wait(Why.APPROVAL, demands=demands, **more)


def ask(*demands: Demand, tool: str = "once", expires_in: float | None = None, **setup: Any) -> State:
    """A loop in which the call `c` waits for these demands."""
    return m.state_after(
        m.make_replied("tool_use", m.call("c", tool)), m.make_judged(c=asks(*demands, expires_in=expires_in)), **setup
    )


def says(state: State, by: str | None, *groups: str, kind: Any = "approve", edit: Any = None, **more: Any) -> State:
    """The state after a person decided the call as it is shown."""
    loop = state.root
    assert loop.round is not None
    digest = digest_of(loop.setup, loop.round.iteration, loop.round.calls[0])
    content = None if edit is None else encode({"a": edit})
    decision = DecisionRecord(kind, content, by=by, groups=groups, digest=digest, via="handle")
    return step(state, ev.Decided((("c", evolve(decision, **more)),)))


def left(state: State) -> tuple[int, ...]:
    call = the_call(state)
    return count_missing(call.demands, list_approvals(call))


def judge_again(state: State, result: PolicyResult | None) -> State:
    return step(state, ev.Judged() if result is None else m.make_judged(c=result))


def lose(*demands: Demand) -> State:
    """Ana and bo approved the call of a tool that cannot be repeated, it was started, and its driver died."""
    state = says(says(ask(*demands), "ana", "finance"), "bo", "legal")
    return m.go(state, ev.Continued(), ev.Started("c"), ev.Woken(), ev.TurnEnded())


# --- counting --------------------------------------------------------------------------------------------------------


def test_a_call_waits_until_so_many_persons_have_approved_it() -> None:
    """Spellings of one name are one person, and the approval that stands is kept."""
    state = says(ask(TWO), "ana")
    assert (the_call(state).status, left(state)) == (Status.WAITING, (1,))
    assert says(state, "Ana ") == state
    state = says(state, "bo")
    assert (the_call(state).status, left(state)) == (Status.DECIDED, (0,))


def test_one_approval_may_count_for_several_demands() -> None:
    """And two persons of one group do not meet the demand of another."""
    assert the_call(says(ask(FINANCE, LEGAL), "ana", "finance", "legal")).status is Status.DECIDED
    state = says(ask(FINANCE, LEGAL), "ana", "finance")
    assert left(state) == (0, 1)
    assert left(says(state, "bo", "finance")) == (0, 1)
    assert the_call(says(state, "cy", "legal")).status is Status.DECIDED


@pytest.mark.parametrize(
    ("demand", "by", "why"),
    [
        (TWO, None, "has no name"),
        (TWO, " ", "has no name"),
        (FINANCE, "ana", "of ana does not count"),
        (Demand(not_by=("ana",)), "Ana ", "of Ana  does not count"),
        (Demand(not_by=("ana",)), None, "has no name"),
    ],
)
def test_an_approval_that_cannot_count_is_refused(demand: Demand, by: str | None, why: str) -> None:
    """With the reason, and what the call needs."""
    with pytest.raises(
        IllegalCommand, match=f"^cannot approve the call 'c': .*{why}.*once needs {demand.need} approval"
    ):
        says(ask(demand), by)


def test_a_nameless_approval_counts_where_any_person_may_approve() -> None:
    """As before there were demands, and for a fresh one."""
    assert the_call(says(ask(), None)).status is Status.DECIDED
    assert the_call(says(ask(Demand(fresh=True)), None)).status is Status.DECIDED


def test_where_one_approval_is_not_enough_it_must_carry_the_digest() -> None:
    """Else it is unknown which input the person has seen."""
    for state, why in (
        (ask(TWO), "one approval does not complete it"),
        (says(ask(TWO), "ana"), "approvals of it stand"),
        (says(ask(TWO), "ana", edit=2), "its input was edited"),
    ):
        with pytest.raises(DecisionConflict, match=f"the call 'c' without its digest, because {why}. Look"):
            says(state, "bo", digest=None)
    assert the_call(says(ask(FINANCE), "ana", "finance", digest=None)).status is Status.DECIDED


def test_an_edited_input_is_approved_with_its_digest() -> None:
    """Also if the approval with the edit no longer counts. Decisions of old journals have no `via`, and need none."""
    state = step(says(ask(), "ana", edit=2), ev.Woken(changed_tools=("once",)))
    assert (the_call(state).status, the_call(state).approvals) == (Status.WAITING, ())
    with pytest.raises(DecisionConflict, match="its input was edited") as refused:
        says(state, "bo", digest=None)
    assert (refused.value.call, refused.value.by) == ("c", None)
    assert the_call(says(state, "bo", digest=None, via=None)).status is Status.DECIDED
    assert the_call(says(state, "bo")).status is Status.DECIDED


def test_a_denial_settles_also_by_a_person_who_approved() -> None:
    """A denial and an answer."""
    state = says(ask(TWO), "ana")
    denied, answered = says(state, "ana", kind="deny"), says(state, "bo", kind="answer", content='"mine"')
    outcomes = [result.outcome for each in (denied, answered) if (result := the_call(each).result)]
    assert outcomes == [Outcome.DENIED, Outcome.ANSWERED]


def test_the_same_events_decide_and_approve() -> None:
    """`Approved` names a decision after which a call waits on."""
    decision = DecisionRecord("approve", by="ana", via="handle", digest="x")
    event = ev.Approved((("c", decision),))
    with pytest.raises(DecisionConflict, match="digests differ"):
        step(ask(TWO), event)
    with pytest.raises(IllegalCommand, match="a decision is not allowed"):
        step(m.state_after(), event)


# --- edits -----------------------------------------------------------------------------------------------------------


def test_an_edit_drops_the_approvals_and_is_the_first_of_the_new_input() -> None:
    """A person who saw the old input learns who has edited it."""
    before = says(ask(TWO), "ana")
    edited = says(before, "bo", edit=2)
    call = the_call(edited)
    assert (call.effective_input, [each.by for each in call.approvals], call.edit) == ('{"a":2}', ["bo"], Edit.NEW)
    assert before.root.round is not None
    old = digest_of(before.root.setup, 1, the_call(before))
    with pytest.raises(DecisionConflict, match="bo has edited it"):
        says(edited, "cy", digest=old)
    assert says(edited, "bo", edit=2, digest=old) == edited  # said again, for a lost reply


def test_the_policy_judges_an_edit_by_any_person() -> None:
    """Its demand for a person of finance is not met by support."""
    edited = step(says(ask(), "sue", "support", edit=50_000), ev.Continued())
    waits = judge_again(edited, asks(FRESH, reason="more than 1,000"))
    call = the_call(waits)
    assert (call.status, call.reason, left(waits), call.edit) == (Status.WAITING, "more than 1,000", (1,), Edit.JUDGED)
    again = m.go(says(waits, "fay", "finance"), ev.Continued())
    assert outstanding(again) != ()
    assert the_call(again).status is Status.CLEARED


def test_a_policy_that_raises_on_an_edit_is_not_satisfied_by_its_author() -> None:
    """It counts only what is said while it fails, and the next failure is the same demand."""
    fails = [Demand(fresh=True, failed=True, reason=f"raised {each}") for each in ("OSError", "KeyError")]
    waits = judge_again(step(says(ask(), "ana", edit=2), ev.Continued()), asks(fails[0]))
    assert left(waits) == (1,)
    woken = m.go(says(waits, "bo"), ev.Continued(), ev.Woken())
    assert the_call(judge_again(woken, asks(fails[1]))).status is Status.CLEARED


def test_a_wait_for_a_judged_edit_has_its_own_full_time_once() -> None:
    """A later wait has no more than is left."""
    first = ask(expires_in=10.0)
    edited = m.go(says(first, "ana", edit=2), ev.Continued(), ev.Ticked(at=8.0))
    second = judge_again(edited, asks(TWO, expires_in=10.0))
    assert (the_call(first).expires_at, the_call(second).expires_at) == (10.0, 18.0)
    woken = m.go(says(says(second, "bo"), "cy"), ev.Continued(), ev.Woken(), ev.Ticked(at=15.0))
    assert the_call(judge_again(woken, asks(Demand(4), expires_in=10.0))).expires_at == 18.0


# --- rules that change -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demand", "waits"), [(TWO, True), (FRESH, True), (Demand(fresh=True), True), (Demand(), False)]
)
def test_after_a_take_over_the_newest_demands_hold(demand: Demand, *, waits: bool) -> None:
    """Approvals of the same input count, but for a fresh demand that is new."""
    woken = m.go(says(ask(), "ana", "finance"), ev.Continued(), ev.Woken())
    call = the_call(judge_again(woken, asks(demand)))
    assert (call.status is Status.WAITING) is waits
    assert [each.by for each in call.approvals] == (["ana"] if waits else [])


def test_a_call_that_waited_never_runs_because_a_newer_rule_allows() -> None:
    """The demands that stand are met, or it waits."""
    state = m.go(says(says(ask(TWO), "ana"), "bo"), ev.Continued(), ev.Woken())
    for result in (None, m.APPROVE, m.approve({"a": 9})):
        after = judge_again(state, result)
        assert (the_call(after).status, the_call(after).effective_input) == (Status.CLEARED, '{"a":1}')
    rerun = m.go(lose(TWO), *[ev.Woken()] * 2)
    assert left(rerun) == (2,)


def test_a_denial_by_a_newer_rule_wins() -> None:
    """Over any approval."""
    woken = m.go(says(ask(), "ana"), ev.Continued(), ev.Woken())
    assert the_call(judge_again(woken, m.DENY)).status is Status.SETTLED


def test_an_equal_fresh_demand_keeps_its_approvals() -> None:
    """Else a worker that judges after each decision would never run the call."""
    state = says(ask(evolve(FRESH, need=2)), "ana", "finance")
    state = m.go(says(state, "bo", "finance"), ev.Continued(), ev.Woken())
    assert the_call(judge_again(state, asks(evolve(FRESH, need=2)))).status is Status.CLEARED
    assert left(judge_again(state, asks(evolve(FRESH, need=2, rule_digest="2")))) == (2,)


# --- runs and copies -------------------------------------------------------------------------------------------------


def test_a_rerun_needs_its_own_approvals_and_is_judged() -> None:
    """Two approved the start that was lost; a rerun needs two persons again, then the policy's consent."""
    one = says(lose(TWO), "cy", kind="rerun")
    assert (the_call(one).status, the_call(one).why, left(one)) == (Status.WAITING, Why.UNCERTAIN, (1,))
    both = step(says(one, "ana", kind="rerun"), ev.Continued())
    assert (m.phase(both), the_call(both).judged) == ("Judging", False)
    assert the_call(judge_again(both, asks(TWO))).status is Status.CLEARED
    stricter = the_call(judge_again(both, asks(Demand(3))))
    assert (stricter.status, stricter.why, stricter.expires_at) == (Status.WAITING, Why.UNCERTAIN, None)
    denied = the_call(judge_again(both, m.DENY)).result
    assert denied is not None
    assert denied.outcome is Outcome.UNCERTAIN


def test_a_repeat_by_the_machine_is_the_same_run() -> None:
    """Its approvals stand, under the digest that it has now."""
    state = says(says(ask(TWO, tool="keyed"), "ana"), "bo")
    woken = m.go(state, ev.Continued(), ev.Started("c"), ev.Woken())
    assert left(woken) == (0,)
    assert the_call(judge_again(woken, asks(TWO))).status is Status.CLEARED
    assert left(says(judge_again(woken, asks(Demand(3))), "cy")) == (0,)


def test_a_copy_needs_its_own_approvals() -> None:
    """And the demands of an edit are not those of the model's input."""
    copied = fork(says(says(ask(TWO), "ana"), "bo", edit=2), "copy", 0.0)
    call = the_call(copied)
    assert (call.approvals, call.effective_input, call.judged, left(copied)) == ((), '{"a":1}', False, (2,))


def test_a_settled_call_that_a_caller_runs_again_needs_its_demands() -> None:
    """The order to run it again is one nameless approval."""
    state = says(says(ask(TWO, decision_timeout=9.0), "ana"), "bo")
    state = m.go(state, ev.Continued(), ev.Started("c"), m.make_ended("c"))
    again = ev.HistoryTaken(reply=m.make_said(m.call("c")), rerun=("c",), at=50.0)
    state = step(state, again)
    call = the_call(state)
    assert (call.status, left(state), call.why, call.decision) == (Status.WAITING, (2,), Why.APPROVAL, None)
    assert call.expires_at == 59.0


def drop_approvals(state: State) -> State:
    """A state that no events lead to: the call is cleared, and its demands are not met."""
    call = the_call(state)._replace(approvals=(), decision=None)
    assert call.status is Status.CLEARED
    return State({(): replace_calls(state.root, [call])})


def test_a_call_whose_demands_are_not_met_does_not_start() -> None:
    """The start has a guard of its own, and so has a policy that allows."""
    state = step(says(says(ask(TWO), "ana"), "bo"), ev.Continued())
    judged = judge_again(drop_approvals(step(state, ev.Woken())), None)
    assert (the_call(judged).status, left(judged)) == (Status.WAITING, (2,))
    with pytest.raises(IllegalCommand, match="not a call that may start"):
        step(drop_approvals(judge_again(step(state, ev.Woken()), None)), ev.Started("c"))


# --- grants ----------------------------------------------------------------------------------------------------------


def give_grant(*demands: Demand, by: str = "ana", groups: tuple[str, ...] = ("finance",), **setup: Any) -> State:
    """A person gave a grant with the call `c`; a later call of the same input is judged."""
    state = says(ask(**setup), by, *groups, remember=GrantSpec())
    state = m.go(state, ev.Continued(), ev.Started("c"), m.make_ended("c"), ev.TurnEnded(), ev.Continued())
    return m.go(state, m.make_replied("tool_use", m.call("d")), m.make_judged(d=asks(*demands)))


@pytest.mark.parametrize(
    ("demands", "status"),
    [
        ((), Status.CLEARED),
        ((FINANCE,), Status.CLEARED),
        ((FINANCE, Demand()), Status.CLEARED),
        ((LEGAL,), Status.WAITING),
        ((FINANCE, LEGAL), Status.WAITING),
        ((TWO,), Status.WAITING),
        ((Demand(fresh=True),), Status.WAITING),
        ((Demand(not_by=("ANA",)),), Status.WAITING),
    ],
)
def test_a_grant_speaks_for_its_giver(demands: tuple[Demand, ...], status: Status) -> None:
    """With the groups of then; never for two, and never for a fresh demand."""
    assert the_call(give_grant(*demands), "d").status is status


def test_a_grant_is_not_the_second_of_two_approvals() -> None:
    """Bo edits a call into what ana granted: a rule that wants two persons then needs a second one who decides."""
    state = says(ask(), "ana", remember=GrantSpec())
    state = m.go(state, ev.Continued(), ev.Started("c"), m.make_ended("c"), ev.TurnEnded(), ev.Continued())
    state = m.go(state, m.make_replied("tool_use", m.call("c", input={"a": 2})), m.make_judged(c=asks()))
    state = step(says(state, "bo", edit=1), ev.Continued())
    assert the_call(judge_again(state, asks())).status is Status.CLEARED
    waits = judge_again(state, asks(TWO))
    assert (the_call(waits).status, left(waits)) == (Status.WAITING, (1,))


@pytest.mark.parametrize(("expires_in", "left_at"), [(None, 60.0), (50.0, 50.0), (300.0, 80.0)])
def test_a_grant_that_is_revoked_leaves_no_more_time_than_the_first_wait(
    expires_in: float | None, left_at: float
) -> None:
    """Nor more than a new wait. Bo edits a call into what ana granted, and a rule then asks for legal, as she is."""
    state = says(ask(decision_timeout=60.0), "ana", "legal", remember=GrantSpec())
    state = m.go(state, ev.Continued(), ev.Started("c"), m.make_ended("c"), ev.TurnEnded(), ev.Continued())
    state = m.go(state, m.make_replied("tool_use", m.call("c", input={"a": 2})))
    state = says(judge_again(state, asks(expires_in=expires_in)), "bo", edit=1)
    granted = judge_again(step(state, ev.Continued()), asks(LEGAL))
    assert the_call(granted).status is Status.CLEARED
    waits = the_call(step(granted, ev.GrantRevoked("1/c", at=20.0)))
    assert (waits.status, waits.expires_at) == (Status.WAITING, left_at)


def test_a_grant_that_is_revoked_leaves_a_first_wait() -> None:
    """It begins where the grant is gone."""
    state = give_grant(FINANCE, decision_timeout=60.0)
    assert the_call(step(state, ev.GrantRevoked("1/c", at=20.0)), "d").expires_at == 80.0


def test_a_grant_that_is_revoked_leaves_the_demand() -> None:
    """The call waits for a person of the group."""
    state = m.go(give_grant(FINANCE), ev.GrantRevoked("1/c"))
    call = the_call(state, "d")
    assert (call.status, call.why, count_missing(call.demands, list_approvals(call))) == (
        Status.WAITING,
        Why.APPROVAL,
        (1,),
    )


def test_a_grant_is_refused_where_its_giver_alone_is_not_enough() -> None:
    """But a person in both groups may give one where each asks for one."""
    with pytest.raises(IllegalCommand, match="a grant cannot be given"):
        says(ask(TWO), "ana", remember=GrantSpec())
    assert says(ask(FINANCE, LEGAL), "ana", "finance", "legal", remember=GrantSpec()).root.grants


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_decision_on_one_call_expires_no_other() -> None:
    """Ana's clock is a day ahead: her own decision is too late by it, and nothing else has changed."""
    calls = [m.call("c"), m.call("d")]
    state = m.state_after(
        m.make_replied("tool_use", *calls), m.make_judged(c=asks(expires_in=60.0), d=asks(expires_in=60.0))
    )
    late = DecisionRecord("deny", by="ana", at=86_400.0)
    with pytest.raises(AlreadyDecided, match="expired at"):
        step(state, ev.Decided((("c", late),)))
    after = step(state, ev.Decided((("c", evolve(late, by="bo", at=30.0)),)))
    assert (the_call(after, "d").status, after.root.now) == (Status.WAITING, 0.0)


def test_a_text_says_what_is_missing() -> None:
    """Of whom, and how many."""
    ana = DecisionRecord("approve", by="ana", groups=("finance",))
    demands = (evolve(FINANCE, need=3), Demand(of=("legal", "board"), not_by=("ana",)))
    assert describe(demands, (ana,)) == "2 more approvals of finance and 1 approval of legal or board (not by ana)"
    assert describe((Demand(),), (ana,)) == "no more approvals"
    assert describe((Demand(not_by=("bo", "cy")),), ()) == "1 approval (not by bo, cy)"
    assert describe_progress(demands, (2, 1), ("ana", None)) == f"1 of 4: ana, no name; {describe(demands, (ana,))}"
    assert describe_progress(demands, (3, 1), ()).startswith("0 of 4; 3 approvals of finance and")
    assert describe_progress((Demand(),), (0,), ("ana",)) == "1 of 1: ana"


def test_which_approvals_count() -> None:
    """For at least one demand; for a fresh one only those that were given while it stood."""
    ana, bo = DecisionRecord("approve", by="ana", groups=("finance",)), DecisionRecord("approve", by="bo")
    assert find_counted((Demand(of=("finance",)), Demand(of=("legal",))), (ana, bo)) == (True, False)
    assert find_counted((Demand(fresh=True, since=1),), (ana, bo)) == (False, True)
    assert find_counted((Demand(since=1),), (ana, bo)) == (True, True)


def test_a_decision_that_is_refused_changes_nothing() -> None:
    """All of a batch, or none."""
    state = ask(TWO)
    with pytest.raises(CallerError):
        step(state, ev.Decided((("c", DecisionRecord("deny")), ("c", DecisionRecord("approve")))))
    assert the_call(state).status is Status.WAITING
