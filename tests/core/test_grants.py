"""Standing grants: what an approval lets run later, unasked, and what it does not."""

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
from toolloop.core.errors import DecisionConflict, IllegalCommand
from toolloop.core.jsontext import encode
from toolloop.core.machine import outstanding, step
from toolloop.core.setup import Limits
from toolloop.core.states import Deciding, Finished, Judging, Running, State
from toolloop.core.values import Outcome, Reject, Ruling, StandingGrant, Status, Terms, Wait, Why

ASK = Wait(Why.APPROVAL)


def terms(match: Any = None, **more: Any) -> Terms:
    return Terms(match=None if match is None else encode(match), **more)


def remember(given: Terms, edited: Any = None) -> Ruling:
    """An approval by Ana that is to be remembered."""
    return evolve(m.approve(edited), by="ana", reason="it is safe", remember=given)


def granted(given: Terms, tool: str = "once", edited: Any = None, **changes: Any) -> State:
    """A loop in which a call was approved at 100 s, remembered, and run; its next request is due."""
    state = m.after(m.replied("tool_use", m.call("first", tool)), m.asks("first"), **changes)
    state = m.go(state, evolve(m.decided(first=remember(given, edited)), at=100.0), ev.Continued())
    judged = (m.judged(),) if isinstance(state, Judging) else ()
    return m.go(state, *judged, ev.Started("first"), m.ended("first"), ev.TurnEnded(), ev.Continued())


def asked(state: State, tool: str = "once", given: Any = None, wait: Wait = ASK, at: float = 0.0) -> State:
    """The loop after another call, `c`, of which its policy wants the caller's word."""
    call = m.call("c", tool, input={"a": 1} if given is None else given)
    return m.go(state, m.replied("tool_use", call), evolve(m.judged(c=wait), at=at))


def runs(state: State) -> bool:
    return the_call(state).status is Status.CLEARED


# --- what is granted -------------------------------------------------------------------------------------------------


def test_a_call_that_matches_runs_unasked_and_says_by_which_grant() -> None:
    """Who gave it and why goes along; nobody decided on this very call."""
    state = asked(granted(terms()), at=150.0)
    assert outstanding(state) == (RunCall("c"),)
    ruling = the_call(state).ruling
    assert ruling is not None
    assert (ruling.kind, ruling.grant, ruling.by, ruling.reason, ruling.at) == (
        "approve",
        "1/first",
        "ana",
        "it is safe",
        150.0,
    )
    assert not ruling.by_person


def test_a_grant_keeps_who_gave_it_when_and_why() -> None:
    assert granted(terms({"a": 1}, uses=3, expires_at=500.0)).ledger.grants == (
        StandingGrant(
            "1/first", "once", '{"a":1}', None, 3, 500.0, by="ana", reason="it is safe", at=100.0, call_id="first"
        ),
    )


@pytest.mark.parametrize(
    ("given", "same"), [({"a": 1}, True), ({"a": 2}, False), ({"a": 1, "b": 2}, False), ({}, False)]
)
def test_by_default_it_is_for_the_exact_input(given: Any, same: bool) -> None:
    """Nothing more, nothing less, nothing else; and for the same tool."""
    assert runs(asked(granted(terms()), given=given)) is same
    assert not runs(asked(granted(terms()), tool="pure", given=given))


def test_the_order_of_keys_is_no_difference() -> None:
    state = granted(terms(), edited={"a": {"x": 1, "y": 2}, "b": 3})
    assert runs(asked(state, given={"b": 3, "a": {"y": 2, "x": 1}}))


@pytest.mark.parametrize("other", [1.0, True, "1"])
def test_another_kind_of_value_is_another_input(other: Any) -> None:
    """1, 1.0, true and "1" are four."""
    assert not runs(asked(granted(terms()), given={"a": other}))
    assert not runs(asked(granted(terms({"a": 1})), given={"a": other}))


def test_an_edited_input_is_what_is_granted() -> None:
    """What the person let run; not what the model had proposed."""
    state = granted(terms(), edited={"a": 2})
    assert runs(asked(state, given={"a": 2}))
    assert not runs(asked(state, given={"a": 1}))


def test_a_grant_is_for_what_would_run() -> None:
    """An input that a policy put in the place of the model's is the one that counts, when it is judged once more."""
    state = m.go(granted(terms()), m.replied("tool_use", m.call("c")), m.judged(c=m.approve({"a": 9})), ev.Woken())
    assert not runs(step(state, m.judged(c=ASK)))
    assert runs(m.go(granted(terms({"a": 9})), *[m.replied("tool_use", m.call("c")), m.judged(c=m.approve({"a": 9}))]))


def test_a_grant_may_be_for_another_tool_that_it_names() -> None:
    """If it says what the input must match: the input of this call says nothing about another tool."""
    assert runs(asked(granted(terms({"a": 1}, tool="pure")), tool="pure"))
    assert not runs(asked(granted(terms({"a": 1}, tool="pure"))))
    waiting = m.after(m.replied("tool_use", m.call("c")), m.asks("c"))
    with pytest.raises(IllegalCommand, match="the call 'c' is for 'pure', and the call is one of 'once'"):
        step(waiting, m.decided(c=remember(terms(tool="pure"))))
    assert runs(asked(granted(terms(tool="once"))))


@pytest.mark.parametrize("given", [{}, {"a": 1}, {"b": [1, {"c": None}]}])
def test_an_empty_match_is_for_any_input(given: Any) -> None:
    assert runs(asked(granted(terms({})), given=given))


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"path": "/srv/a", "n": [1, 2]}, True),
        ({"path": "/srv/a", "n": [1, 2], "more": "free"}, True),
        ({"path": "/srv/a", "n": [2, 1]}, False),
        ({"path": "/srv/a"}, False),
        ({"path": "/etc/a", "n": [1, 2]}, False),
        ({"path": ["/srv/a"], "n": [1, 2]}, False),
        ({"path": None, "n": [1, 2]}, False),
    ],
)
def test_each_named_key_must_match_and_the_others_are_free(given: Any, fits: bool) -> None:
    """A string as a pattern, anything else as it is."""
    assert runs(asked(granted(terms({"path": "/srv/*", "n": [1, 2]})), given=given)) is fits


# --- what it does not let run ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("uses", [1, 2, 3])
def test_it_lets_as_many_calls_run_as_it_says(uses: int) -> None:
    """In the model's order, in one round or in several; the next one waits. The call it was given with uses none up."""
    names = [f"c{number}" for number in range(uses + 1)]
    state = m.go(granted(terms(uses=uses)), m.replied("tool_use", *map(m.call, names)), m.asks(*names))
    assert isinstance(state, Deciding)
    assert [the_call(state, name).status for name in names] == [*[Status.CLEARED] * uses, Status.WAITING]
    assert [grant.uses for grant in state.ledger.grants] == [0]


@pytest.mark.parametrize(("at", "stands"), [(199.9, True), (200.0, False), (201.0, False)])
def test_it_stands_until_it_expires(at: float, stands: bool) -> None:
    """At its time it does no more."""
    assert runs(asked(granted(terms(expires_at=200.0)), at=at)) is stands


@pytest.mark.parametrize("wait", [Wait(Why.APPROVAL, fresh=True), Wait(Why.EXTERNAL), Wait(Why.EXTERNAL, fresh=True)])
def test_it_does_not_satisfy_who_wants_a_fresh_word_nor_brings_a_result(wait: Wait) -> None:
    """`Ask(fresh=True)` wants a person now; a call that is not ours to run needs an answer."""
    assert not runs(asked(granted(terms({})), wait=wait))


def test_it_does_not_overrule_a_policy() -> None:
    """Denied or rejected is no question that it could answer; and who lets it run needs none."""
    state = m.go(granted(terms({}, uses=1)), m.replied("tool_use", m.call("c"), m.call("d"), m.call("e")))
    rejected = Reject(Outcome.INVALID_INPUT, "bad")
    state = step(state, ev.Judged((("c", m.DENY), ("d", rejected))))
    assert [the_call(state, name).status for name in "cde"] == [Status.SETTLED, Status.SETTLED, Status.CLEARED]
    assert [grant.uses for grant in state.ledger.grants] == [1]


def test_the_first_that_matches_is_used() -> None:
    """In the order in which they were given; what is used up or expired makes room for the next."""
    calls = [m.call("p"), m.call("q"), m.call("r")]
    state = m.after(m.replied("tool_use", *calls), m.asks("p", "q", "r"))
    state = m.go(state, *(m.decided(**{name: remember(terms({}, uses=1))}) for name in "prq"))
    state = m.go(state, ev.Stopped(), ev.FollowedUp((m.user(),)))
    names = ["c", "d", "e", "f"]
    state = m.go(state, m.replied("tool_use", *map(m.call, names)), m.asks(*names))
    rulings = [the_call(state, name).ruling for name in names]
    assert [ruling and ruling.grant for ruling in rulings] == ["1/p", "1/r", "1/q", None]


# --- giving and taking back ------------------------------------------------------------------------------------------


def test_only_an_approval_that_decides_is_remembered() -> None:
    """A repetition adds none, whatever it wants remembered; nor does one that is refused, or a policy's."""
    waiting = m.after(m.replied("tool_use", m.call("c")), m.asks("c"))
    once = step(waiting, m.decided(c=m.APPROVE))
    assert step(once, m.decided(c=remember(terms({})))).ledger.grants == ()
    remembered = step(waiting, m.decided(c=remember(terms())))
    assert step(remembered, m.decided(c=remember(terms({})))).ledger.grants == remembered.ledger.grants != ()
    with pytest.raises(DecisionConflict):
        step(once, m.decided(c=remember(terms({}), {"a": 2})))
    by_policy = m.after(m.replied("tool_use", m.call("c")), m.judged(c=remember(terms({}))))
    assert by_policy.ledger.grants == ()


@pytest.mark.parametrize("ruling", [m.DENY, m.answer(), m.RERUN], ids=lambda ruling: ruling.kind)
def test_no_other_decision_is_remembered(ruling: Ruling) -> None:
    """Only who lets a call run can let others run."""
    started = (m.judged(), ev.Started("c"), ev.Woken()) if ruling.kind == "rerun" else (m.asks("c"),)
    waiting = m.after(m.replied("tool_use", m.call("c")), *started)
    assert step(waiting, m.decided(c=evolve(ruling, remember=terms({})))).ledger.grants == ()


def test_a_grant_that_is_refused_refuses_the_decisions_with_it() -> None:
    """All or none: nothing is decided, and nothing is remembered."""
    waiting = m.after(m.replied("tool_use", m.call("c"), m.call("d")), m.asks("c", "d"))
    untouched = evolve(waiting)
    with pytest.raises(IllegalCommand):
        step(waiting, m.decided(c=remember(terms()), d=remember(terms(tool="pure"))))
    assert waiting == untouched


def test_a_grant_given_while_others_are_judged_counts_at_once() -> None:
    """In the same round, where the policies have their say after it was given."""
    state = m.after(m.replied("tool_use", m.call("c"), m.call("d", "pure")), m.asks("c"), execution="ready")
    state = m.go(state, ev.Continued(), ev.Started("d"), ev.Woken())
    assert isinstance(state, Judging)
    state = m.go(state, m.decided(c=remember(terms({}, tool="pure"))), m.asks("d"))
    assert isinstance(state, Running)
    assert the_call(state, "d").status is Status.CLEARED


def test_a_grant_that_is_taken_back_lets_nothing_run_any_more() -> None:
    state = step(granted(terms({})), ev.GrantRevoked("1/first", by="bea"))
    assert state.ledger.grants == ()
    assert not runs(asked(state))


def test_a_grant_that_is_not_there_cannot_be_taken_back() -> None:
    """The error names those that are."""
    with pytest.raises(IllegalCommand, match="no standing grant '7/x'; there are: 1/first") as refused:
        step(granted(terms()), ev.GrantRevoked("7/x"))
    assert (refused.value.state, refused.value.allowed) == ("Ready", ("1/first",))
    with pytest.raises(IllegalCommand, match="there are: none"):
        step(m.after(), ev.GrantRevoked("7/x"))


def test_a_copy_has_no_grants_and_asks_again() -> None:
    """What was allowed in a loop is not allowed in its copy; nor is what runs by a grant already."""
    state = asked(granted(terms({})))
    copy = step(state, ev.Forked("copy"))
    assert copy.ledger.grants == ()
    call = the_call(copy)
    assert (call.status, call.why, call.ruling) == (Status.WAITING, Why.APPROVAL, None)


# --- judged once more ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["once", "pure"])
@pytest.mark.parametrize("uses", [None, 1, 2])
def test_a_call_that_runs_by_a_grant_uses_it_up_once_however_often_it_is_judged(tool: str, uses: int | None) -> None:
    """After waking, before it started or after it was lost: by the same grant, even if it is used up by now."""
    state = asked(granted(terms({}, uses=uses), tool=tool), tool=tool)
    started = (ev.Started("c"),) if tool == "pure" else ()
    again = m.go(state, *started, ev.Woken(), m.asks("c"), ev.Woken(), m.asks("c"))
    assert runs(again)
    assert again.ledger.grants == state.ledger.grants
    assert [grant.uses for grant in again.ledger.grants] == [None if uses is None else uses - 1]


@pytest.mark.parametrize("gone", [ev.GrantRevoked("1/first"), ev.Woken(at=300.0), ev.Extended(Limits(), at=300.0)])
def test_a_call_that_ran_by_a_grant_waits_if_it_stands_no_more(gone: ev.Event) -> None:
    """Taken back, or expired: it asks, at once, whoever heard of it."""
    state = asked(granted(terms({}, expires_at=300.0)), at=200.0)
    assert [RunCall("c")] == list(outstanding(state))
    again = step(state, gone)
    assert (the_call(again).status, the_call(again).ruling) == (Status.WAITING, None)
    assert list(outstanding(again)) == [EndTurn()]
    assert isinstance(step(again, ev.TurnEnded()), Deciding)


def test_a_call_that_has_started_by_a_grant_goes_on_without_it() -> None:
    """What runs, runs."""
    running = step(asked(granted(terms({}))), ev.Started("c"))
    assert the_call(step(running, ev.GrantRevoked("1/first"))) == the_call(running)


def test_where_a_limit_ended_the_loop_a_revoked_grant_is_gone_too() -> None:
    """`extend` goes back to the round as it is without the grant."""
    state = asked(granted(terms({})))
    limited = step(step(state, ev.Extended(Limits(timeout=0.0))), ev.TurnEnded())
    assert isinstance(limited, Finished)
    again = m.go(limited, ev.GrantRevoked("1/first"), ev.Extended(Limits()))
    assert the_call(again).status is Status.WAITING


def test_a_policy_may_want_a_fresh_word_for_what_ran_by_a_grant() -> None:
    state = m.go(asked(granted(terms({}))), ev.Woken(), m.judged(c=Wait(Why.APPROVAL, fresh=True)))
    assert the_call(state).status is Status.WAITING


def test_who_was_asked_needs_no_grant() -> None:
    """A person's own decision satisfies the question after waking, and uses nothing up."""
    state = m.go(asked(granted(terms({}, uses=1)), wait=Wait(Why.APPROVAL, fresh=True)), m.decided(c=m.APPROVE))
    again = m.go(state, ev.Woken(), ev.Continued(), m.asks("c"))
    assert runs(again)
    ruling = the_call(again).ruling
    assert ruling is not None
    assert ruling.by_person
    assert [grant.uses for grant in again.ledger.grants] == [1]


def test_what_runs_by_a_grant_was_approved_already() -> None:
    """Approving it again says the same; denying it comes too late."""
    state = asked(granted(terms({})))
    assert step(state, m.decided(c=m.APPROVE)) == state
    with pytest.raises(DecisionConflict, match="decided already"):
        step(state, m.decided(c=m.DENY))


@given(lives)
def test_grants_are_given_used_and_taken_back_and_nothing_else(world: World) -> None:
    """One id each; uses only fall, by the calls that run by them, and never below none; a fork has none."""
    for before, event, after in zip(world.states, world.journal[1:], world.states[1:], strict=False):
        was = {grant.id: grant for grant in before.ledger.grants}
        now = {grant.id: grant for grant in after.ledger.grants}
        assert len(now) == len(after.ledger.grants)
        if now.keys() - was.keys():
            assert isinstance(event, ev.Decided)
        if was.keys() - now.keys():
            assert isinstance(event, ev.GrantRevoked | ev.Forked)
        for id_ in was.keys() & now.keys():
            used = sum(by(call) == id_ for call in open_calls(after)) - sum(
                by(call) == id_ for call in open_calls(before)
            )
            left, had = now[id_].uses, was[id_].uses
            assert evolve(now[id_], uses=had) == was[id_]
            assert left == had or (
                isinstance(event, ev.Judged) and left is not None and had == left + used and left >= 0
            )


def by(call: Any) -> str | None:
    return None if call.ruling is None else call.ruling.grant


@given(st.sampled_from([{}, {"a": 1}]), st.integers(1, 3), st.integers(0, 4))
def test_a_budget_of_uses_is_never_overdrawn(match: Any, uses: int, rounds: int) -> None:
    """Round after round, with the loop waking up in between."""
    state, ran = granted(terms(match, uses=uses)), 0
    for number in range(rounds):
        state = m.go(state, m.replied("tool_use", m.call(f"c{number}")), m.asks(f"c{number}"), ev.Woken())
        if isinstance(state, Judging):
            ran += 1
            state = m.go(state, m.asks(f"c{number}"), ev.Started(f"c{number}"), m.ended(f"c{number}"), ev.TurnEnded())
            state = step(state, ev.Continued())
        else:
            state = m.go(state, ev.Stopped(), ev.FollowedUp((m.user(),)))
    assert ran == min(uses, rounds)
