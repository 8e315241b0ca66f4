"""Standing grants: what an approval lets run later, unasked, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given

from tests.kit.effort import examples
from tests.kit.machine import making as m
from tests.kit.machine.making import the_call
from tests.kit.machine.worlds import World, lives
from toolloop.errors import DecisionConflict
from toolloop.machine.queries import outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import EndTurn
from toolloop.machine.record.loop import Judging, State
from toolloop.machine.tree import step
from toolloop.machine.values.calls import DecisionRecord, GrantSpec, Outcome, Reject, StandingGrant, Status, Wait, Why
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Limits

ASK = Wait(Why.APPROVAL)
FRESH = Wait(Why.APPROVAL, fresh=True)


def spec(match: Any = None, **more: Any) -> GrantSpec:
    return GrantSpec(match=None if match is None else encode(match), **more)


def remember(grant: GrantSpec, edited: Any = None) -> DecisionRecord:
    """An approval by Ana that is to be remembered."""
    return evolve(m.approve(edited), by="ana", reason="it is safe", remember=grant)


def give_grant(grant: GrantSpec, tool: str = "once", edited: Any = None) -> State:
    """A loop in which a call was approved at 100 s, remembered, and run; its next request is due."""
    state = m.state_after(m.make_replied("tool_use", m.call("first", tool)), m.asks("first"))
    state = m.go(state, evolve(m.make_decided(first=remember(grant, edited)), at=100.0), ev.Continued())
    judged = (m.make_judged(),) if isinstance(state.root.phase, Judging) else ()
    return m.go(state, *judged, ev.Started("first"), m.make_ended("first"), ev.TurnEnded(), ev.Continued())


def ask(state: State, tool: str = "once", given_: Any = None, wait: Wait = ASK, at: float = 0.0) -> State:
    """The loop after another call, `c`, of which its policy wants the caller's word."""
    call = m.call("c", tool, input={"a": 1} if given_ is None else given_)
    return m.go(state, m.make_replied("tool_use", call), evolve(m.make_judged(c=wait), at=at))


def runs(state: State) -> bool:
    return the_call(state).status is Status.CLEARED


# --- what it lets run ------------------------------------------------------------------------------------------------


PATHS = {"path": "/srv/*", "n": [1, 2]}


@pytest.mark.parametrize(
    ("grant", "edited", "tool", "given_", "fits"),
    [
        (spec(), None, "once", {"a": 1}, True),
        (spec(), None, "once", {"a": 2}, False),
        (spec(), None, "once", {"a": 1, "b": 2}, False),
        (spec(), None, "once", {}, False),
        (spec(), None, "once", {"a": 1.0}, False),
        (spec(), None, "once", {"a": True}, False),
        (spec(), None, "pure", {"a": 1}, False),
        (spec(), {"a": 2}, "once", {"a": 2}, True),
        (spec(), {"a": 2}, "once", {"a": 1}, False),
        (spec(), {"a": {"x": 1, "y": 2}, "b": 3}, "once", {"b": 3, "a": {"y": 2, "x": 1}}, True),
        (spec(tool="once"), None, "once", {"a": 1}, True),
        (spec({}), None, "once", {"b": [1, {"c": None}]}, True),
        (spec({"a": 1}), None, "once", {"a": "1"}, False),
        (spec({"a": 1}, tool="pure"), None, "pure", {"a": 1}, True),
        (spec({"a": 1}, tool="pure"), None, "once", {"a": 1}, False),
        (spec(PATHS), None, "once", {"path": "/srv/a", "n": [1, 2], "more": "free"}, True),
        (spec(PATHS), None, "once", {"path": "/srv/a", "n": [2, 1]}, False),
        (spec(PATHS), None, "once", {"path": "/srv/a"}, False),
        (spec(PATHS), None, "once", {"path": "/etc/a", "n": [1, 2]}, False),
        (spec(PATHS), None, "once", {"path": ["/srv/a"], "n": [1, 2]}, False),
    ],
)
def test_it_is_for_the_exact_input_or_for_what_matches(
    grant: GrantSpec, edited: Any, tool: str, given_: Any, *, fits: bool
) -> None:
    """Of the tool of the call it was given with, as that ran, or of the tool that it names."""
    assert runs(ask(give_grant(grant, edited=edited), tool=tool, given_=given_)) is fits


@pytest.mark.parametrize("uses", [1, 2, 3])
def test_it_lets_as_many_calls_run_as_it_says(uses: int) -> None:
    """In the model's order; the next one waits. The call it was given with uses none up."""
    names = [f"c{number}" for number in range(uses + 1)]
    state = m.go(give_grant(spec(uses=uses)), m.make_replied("tool_use", *map(m.call, names)), m.asks(*names))
    assert m.phase(state) == "decision_required"
    assert [the_call(state, name).status for name in names] == [*[Status.CLEARED] * uses, Status.WAITING]
    assert [grant.uses for grant in state.root.grants] == [0]


@pytest.mark.parametrize(("at", "stands"), [(199.9, True), (200.0, False), (201.0, False)])
def test_it_stands_until_it_expires(at: float, *, stands: bool) -> None:
    assert runs(ask(give_grant(spec(expires_at=200.0)), at=at)) is stands


def test_it_satisfies_no_other_question_and_overrules_no_person() -> None:
    """Not one that wants a fresh decision, nor one that needs a result; a denied or rejected call asks no question."""
    for wait in (FRESH, Wait(Why.EXTERNAL), Wait(Why.EXTERNAL, fresh=True)):
        assert not runs(ask(give_grant(spec({})), wait=wait))
    state = m.go(give_grant(spec({}, uses=1)), m.make_replied("tool_use", *map(m.call, "cde")))
    state = step(state, ev.Judged((("c", m.DENY), ("d", Reject(Outcome.INVALID_INPUT, "bad")))))
    assert [the_call(state, name).status for name in "cde"] == ["settled", "settled", "cleared"]
    assert [grant.uses for grant in state.root.grants] == [1]


# --- giving and taking back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", [m.DENY, m.answer(), m.RERUN], ids=lambda decision: decision.kind)
def test_only_an_approval_of_a_person_that_decides_is_remembered(decision: DecisionRecord) -> None:
    """A repetition adds none, whatever it wants remembered; nor does one that is refused, or a policy's."""
    one = m.make_replied("tool_use", m.call("c"))
    started = (ev.Started("c"), ev.Woken()) if decision.kind == "rerun" else (m.asks("c"),)
    assert m.state_after(one, *started, m.make_decided(c=evolve(decision, remember=spec({})))).root.grants == ()
    once = m.state_after(one, m.asks("c"), m.make_decided(c=m.APPROVE))
    assert step(once, m.make_decided(c=remember(spec({})))).root.grants == ()
    with pytest.raises(DecisionConflict):
        step(once, m.make_decided(c=remember(spec({}), {"a": 2})))
    assert m.state_after(one, m.make_judged(c=remember(spec({})))).root.grants == ()


# --- judged once more ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["once", "pure"])
@pytest.mark.parametrize("uses", [None, 1, 2])
def test_a_call_that_runs_by_a_grant_uses_it_up_once_however_often_it_is_judged(tool: str, uses: int | None) -> None:
    """After waking, before it started or after it was lost: by the same grant, even if it is used up by now."""
    state = ask(give_grant(spec({}, uses=uses), tool=tool), tool=tool)
    started = (ev.Started("c"),) if tool == "pure" else ()
    again = m.go(state, *started, ev.Woken(), m.asks("c"), ev.Woken(), m.asks("c"))
    assert runs(again)
    assert again.root.grants == state.root.grants
    assert [grant.uses for grant in again.root.grants] == [None if uses is None else uses - 1]
    assert not runs(m.go(ask(give_grant(spec({}))), ev.Woken(), m.make_judged(c=FRESH)))


@pytest.mark.parametrize(
    "gone", [ev.GrantRevoked("1/first"), ev.Woken(at=300.0), ev.Changed(limits=Limits(), at=300.0)]
)
def test_a_call_that_was_to_run_by_a_grant_waits_if_it_stands_no_more(gone: ev.Event) -> None:
    """Taken back, or expired: it asks, at once. What has started goes on without it."""
    state = ask(give_grant(spec({}, expires_at=300.0)), at=200.0)
    again = step(state, gone)
    assert (the_call(again).status, the_call(again).decision) == (Status.WAITING, None)
    assert outstanding(again) == (EndTurn(),)
    assert m.phase(step(again, ev.TurnEnded())) == "decision_required"
    running = step(ask(give_grant(spec({}))), ev.Started("c"))
    assert the_call(step(running, ev.GrantRevoked("1/first"))) == the_call(running)
    limited = m.go(ask(give_grant(spec({}))), ev.Changed(limits=Limits(timeout=0.0)), ev.TurnEnded())
    onward = m.go(limited, ev.GrantRevoked("1/first"), ev.Changed(limits=Limits()))
    assert the_call(onward).status is Status.WAITING


@examples(30)
@given(lives)
def test_grants_are_given_used_and_taken_back_and_nothing_else(world: World) -> None:
    """One id each; uses only fall, by the calls that run by them, and never below none.

    A newer approval of the same call, as after an edit of the history, replaces its grant. In old journals, where a
    decision has no `via`, both stay.
    """
    is_twice = False
    for before, event, after in zip(world.states, world.journal[1:], world.states[1:], strict=False):
        was = {grant.id: grant for grant in before.root.grants}
        now = {grant.id: grant for grant in after.root.grants}
        decided = dict(event.decisions) if isinstance(event, ev.Decided) else {}
        given = {call_id: decision.via for call_id, decision in decided.items() if decision.remember}
        is_twice |= any(given.get(grant.call_id, "none") is None for grant in was.values())
        assert is_twice or len(now) == len(after.root.grants)
        assert not now.keys() - was.keys() or decided
        assert not was.keys() - now.keys() or isinstance(event, ev.GrantRevoked)
        for id_ in was.keys() & now.keys():
            if now[id_].call_id in given and now[id_] != was[id_]:
                assert now[id_].by == decided[now[id_].call_id].by
                continue
            had, left = was[id_].uses, now[id_].uses
            assert evolve(now[id_], uses=had) == was[id_]
            assert left == had or (isinstance(event, ev.Judged) and 0 <= (left or 0) < (had or 0))


def test_a_grant_says_what_it_covers_and_who_gave_it() -> None:
    """Without a match, it covers the input that was approved, and nothing else."""
    limited, exact = GrantSpec(match=encode({}), uses=2, expires_at=900.0), encode({"a": 2})
    about: dict[str, Any] = {"by": "ana", "reason": "it is safe", "at": 100.0, "call_id": "first"}
    (wide,), (narrow,) = give_grant(limited).root.grants, give_grant(spec(), edited={"a": 2}).root.grants
    assert wide == StandingGrant("1/first", "once", encode({}), uses=2, expires_at=900.0, **about)
    assert narrow == StandingGrant("1/first", "once", exact=exact, **about)
