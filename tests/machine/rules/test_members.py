"""Members of one toolset: named after both, judged and run one after the other, and not run after an error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.machine import making as m
from tests.kit.machine.making import go, the_call
from toolloop.errors import CallerError, UnknownCall
from toolloop.machine.queries import outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import EndTurn, Judge, RunCall
from toolloop.machine.record.loop import State
from toolloop.machine.rules.grants import allows
from toolloop.machine.tree import fork, step
from toolloop.machine.values.calls import Outcome, Reject, Result, StandingGrant, Status
from toolloop.machine.values.jsontext import decode, encode

HALTED = "Not executed: an earlier computer action in this turn failed."


def member(call_id: str, name: str = "left_click", toolset: str = "computer") -> Any:
    return m.call(call_id, name, toolset_name=toolset)


def begin_round(*calls: Any, **changes: Any) -> State:
    return m.state_after(m.make_replied("tool_use", *calls), members=True, **changes)


def judge(*only: str, **results: Any) -> ev.Judged:
    return ev.Judged(tuple(results.items()), only=only)


def statuses(state: State) -> list[Status]:
    return [call.status for call in state.root.calls]


def content(state: State, call_id: str) -> Any:
    result = the_call(state, call_id).result
    assert result is not None
    return decode(result.content)


def test_a_member_is_named_after_its_toolset_and_its_block_is_not() -> None:
    call = the_call(begin_round(member("a")), "a")
    assert (call.name, call.own_name, call.is_member) == ("computer.left_click", "left_click", True)
    assert the_call(m.state_after(m.make_replied("tool_use", member("a"))), "a").name == "left_click"  # an old journal


def test_the_next_member_is_judged_once_the_one_before_it_has_a_result() -> None:
    """Other calls, and members of another toolset, do not wait for it."""
    state = begin_round(member("a"), member("b"), member("x", toolset="browser"), m.call("c", "pure"))
    assert outstanding(state) == (Judge(("a", "x", "c")),)
    state = step(state, judge("a", "x", "c"))
    assert outstanding(state) == (RunCall("a"), RunCall("x"), RunCall("c"))
    state = go(state, ev.Started("a"), ev.Started("x"), ev.Started("c"))
    assert outstanding(state) == ()
    with pytest.raises(CallerError, match="may start"):
        step(state, ev.Started("b"))
    with pytest.raises(UnknownCall, match="b"):
        step(begin_round(member("a"), member("b")), judge("a", b=m.asks("b").results[0][1]))
    state = step(state, m.make_ended("a"))
    assert outstanding(state) == (Judge(("b",)),)
    state = go(state, judge("b"))
    assert outstanding(state) == (RunCall("b"),)
    state = go(state, ev.Started("b"), m.make_ended("b"), m.make_ended("x"), m.make_ended("c"), ev.TurnEnded())
    assert m.phase(state) == "tools_executed"


def test_a_judgement_of_some_calls_lets_no_other_run() -> None:
    """While a policy judges `b`, the result of `x` makes `y` the next member of its toolset."""
    state = begin_round(member("a"), member("b"), member("x", toolset="browser"), member("y", toolset="browser"))
    state = go(state, judge("a", "x"), ev.Started("a"), ev.Started("x"), m.make_ended("a"), m.make_ended("x"))
    state = step(state, judge("b"))
    assert outstanding(state) == (Judge(("y",)), RunCall("b"))


@each("execution", ["barrier", "ready"])
def test_the_next_member_is_asked_about_after_the_decision_on_the_one_before_it(execution: str) -> None:
    asks = m.asks("a").results[0][1]
    state = begin_round(member("a"), member("b"), execution=execution)
    state = step(state, judge("a", a=asks))
    assert (m.phase(state), statuses(state)) == ("decision_required", [Status.WAITING, Status.PROPOSED])
    state = go(
        state, m.make_decided(a=m.APPROVE), ev.Continued(), ev.Started("a"), m.make_ended("a"), judge("b", b=asks)
    )
    assert outstanding(state) == (EndTurn(),)
    state = go(state, ev.TurnEnded(), m.make_decided(b=m.answer()), ev.Continued())
    assert [call.result is not None for call in state.root.calls] == [True, True]


ENDS: dict[str, tuple[ev.Event, ...]] = {
    "failed": (judge("a"), ev.Started("a"), ev.Ended("a", Result(encode("no"), is_error=True))),
    "denied": (judge("a", a=m.asks("a").results[0][1]), m.make_decided(a=m.DENY)),
    "answered as an error": (judge("a", a=m.asks("a").results[0][1]), m.make_decided(a=m.answer("no", is_error=True))),
    "expired": (judge("a", a=m.asks("a").results[0][1]), ev.Ticked(at=99.0)),
    "refused": (judge("a", a=Reject(Outcome.INVALID_INPUT, "no")),),
    "denied by a policy": (judge("a", a=m.DENY),),
}


@each("how", ENDS)
def test_the_rest_is_not_run_after_an_error(how: str) -> None:
    """Each gets the API's text. Other calls go on, and so do members of another toolset."""
    state = begin_round(member("a"), member("b"), member("c"), member("x", toolset="browser"), decision_timeout=9.0)
    state = go(state, *ENDS[how])
    assert content(state, "b") == content(state, "c") == HALTED
    assert the_call(state, "b").result == the_call(state, "c").result
    assert not the_call(state, "b").started
    assert the_call(state, "x").status is not Status.SETTLED


def test_the_text_for_a_browser_names_no_toolset() -> None:
    state = begin_round(member("a", toolset="browser"), member("b", toolset="browser"))
    state = go(state, judge("a", a=m.DENY))
    assert content(state, "b") == "Not executed: an earlier action in this turn failed."


def test_an_answer_of_a_policy_is_followed_by_the_next_member_in_the_same_turn() -> None:
    state = go(begin_round(member("a"), member("b")), judge("a", a=m.answer()))
    assert (m.phase(state), outstanding(state)) == ("Judging", (Judge(("b",)),))


def test_in_a_copy_each_open_member_waits() -> None:
    """A lost branch may have run it."""
    state = go(begin_round(member("a"), member("b"), m.call("c", "pure")), judge("a", "c"))
    assert statuses(fork(state, "copy", 0.0)) == [Status.WAITING, Status.WAITING, Status.WAITING]


def test_in_a_copy_members_run_one_after_the_other() -> None:
    """Though all of them were approved at once."""
    state = go(begin_round(member("a"), member("b"), m.call("c", "pure")), judge("a", "c"))
    copy = fork(state, "copy", 0.0)
    copy = go(copy, m.make_decided(a=m.APPROVE, b=m.APPROVE, c=m.APPROVE), ev.Continued(), judge("a", "b", "c"))
    assert outstanding(copy) == (RunCall("a"), RunCall("c"))
    copy = go(copy, ev.Started("a"), m.make_ended("a"))
    assert RunCall("b") in outstanding(copy)


def test_a_grant_for_a_tool_never_covers_a_member_of_that_name() -> None:
    state = begin_round(member("a", "wait"), m.call("b", "wait"))
    for tool, covered in (("wait", "b"), ("computer.wait", "a")):
        grant = StandingGrant("1/z", tool, match="{}")
        assert [call.id for call in state.root.calls if allows(grant, call)] == [covered]
