"""The life of a call: how another driver, a changed tool, a copy and an end change it, and what its result says."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from tests.kit.machine import making as m
from tests.kit.machine.making import the_call
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.rules.calls import expire_call, replace_input, settle_open
from toolloop.machine.tree import fork, step
from toolloop.machine.values.calls import Call, DecisionRecord, Outcome, Result, Status, Wait, Why
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Texts, ToolFacts

# No two results have the same text, and none has a default text.
TEXTS = Texts(
    denied="no: {reason}", uncertain="unsure: {reason}", not_run="not run", cancelled="cancelled", expired="too late"
)
GONE = ev.Woken(m.setup(tools=()))
LOSES_TOOLS = evolve(GONE, changed_tools=("pure", "once"))


def ask(tool: str, *events: ev.Event, **changes: Any) -> State:
    """A loop with one call, after these events."""
    return m.state_after(m.make_replied("tool_use", m.call("c", tool)), *events, **changes)


def started(tool: str, *events: ev.Event, **changes: Any) -> State:
    return ask(tool, m.make_judged(), ev.Started("c"), *events, **changes)


RERUN = (ev.TurnEnded(), m.make_decided(c=m.RERUN), ev.Continued())


def wait_of(call: Call) -> tuple[Status, Why | None, bool]:
    return call.status, call.why, call.judged


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (started("pure", ev.Woken()), (Status.CLEARED, None, False)),
        (started("once", ev.Woken()), (Status.WAITING, Why.UNCERTAIN, True)),
        # It was going to be repeated, but without its tool it cannot be.
        (started("pure", ev.Woken(), GONE), (Status.WAITING, Why.UNCERTAIN, False)),
        # A person asked for the second run: it is theirs, and is judged again.
        (started("once", ev.Woken(), *RERUN, GONE), (Status.CLEARED, Why.UNCERTAIN, False)),
        (ask("pure", m.make_judged(), GONE), (Status.CLEARED, None, False)),
    ],
)
def test_another_driver_repeats_what_may_be_repeated(state: State, expected: tuple[Any, ...]) -> None:
    """A rerun that a person asked for stays due. A call that must not run twice waits for a person."""
    assert wait_of(the_call(state)) == expected


def test_a_settled_call_does_not_change_under_another_driver() -> None:
    """Its policy is not asked again."""
    state = m.state_after(
        m.make_replied("tool_use", m.call("a"), m.call("c")), m.make_judged(), ev.Started("c"), m.make_ended("c")
    )
    assert the_call(step(state, ev.Woken())) == the_call(state)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        # Only a person repeats it, and has to look again: the tool is another one.
        (started("once", ev.Woken(), *RERUN, LOSES_TOOLS), (Status.WAITING, Why.UNCERTAIN)),
        (started("pure", ev.Woken(), LOSES_TOOLS), (Status.WAITING, Why.UNCERTAIN)),
        (ask("once", m.make_judged(), LOSES_TOOLS), (Status.CLEARED, None)),
        (ask("once", m.asks("c"), m.make_decided(c=m.APPROVE), LOSES_TOOLS), (Status.WAITING, Why.APPROVAL)),
    ],
)
def test_a_call_whose_tool_changed_needs_its_approval_again(state: State, expected: tuple[Any, ...]) -> None:
    """One that had no approval needs none."""
    assert wait_of(the_call(state))[:2] == expected
    assert not the_call(state).approvals


def test_a_person_decides_about_a_rerun_also_if_the_changed_tool_is_repeatable() -> None:
    """The uncertain end is that of the old tool; only a call that was not uncertain follows the new one."""
    changed = ev.Woken(m.setup(tools=(ToolFacts("once", "pure", "never", "d4"),)), changed_tools=("once",))
    assert wait_of(the_call(started("once", ev.Woken(), *RERUN, changed)))[:2] == (Status.WAITING, Why.UNCERTAIN)


def test_a_call_that_waits_again_has_no_more_time_than_before() -> None:
    """Its first deadline stands, also if the time for decisions is longer now."""
    waits = ask("once", ev.Judged((("c", Wait(Why.APPROVAL, expires_in=5.0)),), at=100.0), decision_timeout=60.0)
    for events in ((), (evolve(m.make_decided(c=m.APPROVE), at=101.0),)):
        again = m.go(waits, *events, ev.Woken(changed_tools=("once",), at=102.0))
        assert (the_call(again).status, the_call(again).expires_at) == (Status.WAITING, 105.0)


# --- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (started("pure"), (Status.WAITING, Why.UNCERTAIN, True)),
        (ask("once", m.asks("c", why=Why.EXTERNAL)), (Status.WAITING, Why.EXTERNAL, True)),
        (ask("once", m.asks("c"), m.make_decided(c=m.APPROVE)), (Status.WAITING, Why.APPROVAL, True)),
        (ask("once", m.make_judged()), (Status.WAITING, Why.APPROVAL, True)),
        # The demands of an edit are not those of the model's input.
        (ask("once", m.asks("c"), m.make_decided(c=m.approve({"a": 2}))), (Status.WAITING, Why.APPROVAL, False)),
    ],
)
def test_a_copy_asks_again(state: State, expected: tuple[Any, ...]) -> None:
    """It waits as the original did, without an edit and without approvals."""
    copy = the_call(fork(state, "other", state.root.now))
    assert (*wait_of(copy), copy.edited, copy.edit, copy.approvals) == (*expected, None, None, ())


def test_an_edit_is_an_edit_only_if_it_changes_the_input_of_the_model() -> None:
    """Then the call is judged again, and its preview is dropped."""
    shown = the_call(ask("once", m.asks("c")))._replace(preview="delete 1 file")
    edited = replace_input(shown, encode({"a": 2}))
    assert (edited.edited, edited.judged, edited.preview) == (encode({"a": 2}), False, None)
    back = replace_input(edited._replace(judged=True), encode({"a": 1}))
    assert (back.edited, back.judged) == (None, False)
    for same in (None, '{ "a": 1 }'):
        assert replace_input(shown, same) == shown


# --- ends without a run ----------------------------------------------------------------------------------------------


STOPS = ev.Stopped("enough")


@pytest.mark.parametrize(
    ("events", "outcome", "said"),
    [
        ((m.asks("c"), STOPS), Outcome.NOT_RUN, "not run"),
        ((m.make_judged(), ev.Started("c"), STOPS), Outcome.CANCELLED, "cancelled"),
        ((m.make_judged(), ev.Started("c"), ev.Woken(), STOPS), Outcome.UNCERTAIN, "unsure: the loop stopped"),
    ],
)
def test_the_result_of_a_stopped_call_says_whether_it_ran(
    events: tuple[ev.Event, ...], outcome: Outcome, said: str
) -> None:
    """In the configured texts."""
    state = ask("once", *events, texts=TEXTS)
    assert m.results(m.history(state)[-1]) == {"c": said}
    before = ask("once", *events[:-1], texts=TEXTS).root.round
    assert before is not None
    (call,) = settle_open(before, TEXTS).calls
    assert call.result == Result(encode(said), is_error=True, outcome=outcome)


@pytest.mark.parametrize(
    ("state", "decision", "result"),
    [
        (ask("once", m.asks("c"), texts=TEXTS), m.DENY, Result(encode("no: no"), True, Outcome.DENIED)),
        (started("once", ev.Woken(), texts=TEXTS), m.DENY, Result(encode("unsure: no"), True, Outcome.UNCERTAIN)),
        (ask("once", m.asks("c")), evolve(m.answer(), content=None), Result(encode(""), outcome=Outcome.ANSWERED)),
        (ask("once", m.asks("c")), m.answer(is_error=True), Result(encode("mine"), True, Outcome.ANSWERED)),
    ],
)
def test_the_result_of_a_decided_call_has_the_reason_or_the_answer(
    state: State, decision: DecisionRecord, result: Result
) -> None:
    """In the configured texts."""
    loop = step(state, m.make_decided(c=decision)).root
    assert the_call(loop).result == result


def test_the_result_of_an_expired_call_says_whether_it_ran() -> None:
    """In old journals, a call that was started had a deadline, too."""
    wait = ev.Judged((("c", Wait(Why.APPROVAL, expires_in=5.0)),), at=100.0)
    expired = ask("once", wait, ev.Ticked(at=106.0), texts=TEXTS)
    assert the_call(expired).result == Result(encode("too late"), True, Outcome.EXPIRED)
    unsure = expire_call(the_call(started("once", ev.Woken())), TEXTS)
    said = "unsure: no decision on a rerun arrived in time"
    assert unsure.result == Result(encode(said), True, Outcome.EXPIRED)
