"""Decisions that are repeated, late, or bound to a call as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from tests.machine import making as m
from toolloop.machine import events as ev
from toolloop.machine.calls import digest_of
from toolloop.machine.errors import CallerError, DecisionConflict
from toolloop.machine.state import State
from toolloop.machine.tree import begin, step
from toolloop.machine.values import DecisionRecord, Result, Wait, Why

ANOTHER = "0" * 64
EDITED = DecisionRecord("approve", '{"a":2}')


def go(state: State, *events: ev.Event) -> State:
    for event in events:
        state = step(state, event)
    return state


def asked(tool: str = "once") -> State:
    """A loop in which the call `c` waits for approval."""
    reply = m.replied("tool_use", m.call("c", tool))
    return go(begin(m.opened()), ev.Requested(), reply, ev.Judged((("c", Wait(Why.APPROVAL)),)))


def approved(decision: DecisionRecord = m.APPROVE) -> State:
    return decided(asked(), decision)


def decided(state: State, decision: DecisionRecord) -> State:
    return step(state, ev.Decided((("c", decision),)))


def digest(state: State) -> str:
    """The digest of the call as it is."""
    loop = state.root
    assert loop.round is not None
    return digest_of(loop.setup, loop.round.iteration, loop.round.calls[0])


def bound(decision: DecisionRecord, state: State) -> DecisionRecord:
    """The decision, made by somebody who saw this state."""
    return evolve(decision, digest=digest(state))


def running() -> State:
    return go(approved(bound(m.APPROVE, asked())), ev.Continued(), ev.Started("c"))


def uncertain() -> State:
    return step(running(), ev.Woken())


def refusal(state: State, decision: DecisionRecord) -> type[CallerError]:
    with pytest.raises(CallerError) as refused:
        decided(state, decision)
    return type(refused.value)


LATER: dict[str, Callable[[], State]] = {
    "running": running,
    "ended": lambda: step(running(), ev.Ended("c", Result('"done"'))),
    "uncertain": uncertain,
    "uncertain, and denied as such": lambda: decided(uncertain(), m.DENY),
    "uncertain, and denied by who saw it": lambda: decided(uncertain(), bound(m.DENY, uncertain())),
    "uncertain, and answered": lambda: decided(uncertain(), m.answer()),
    "uncertain, and to run again": lambda: decided(uncertain(), m.RERUN),
    "uncertain, and ended late": lambda: step(uncertain(), ev.Ended("c", Result('"done"'), iteration=1, attempt=1)),
}


@pytest.mark.parametrize("later", LATER)
def test_a_denial_of_a_call_that_waited_for_approval_is_refused_once_it_has_run(later: str) -> None:
    """Whatever became of the call: nobody is told that it was denied when it ran."""
    assert refusal(LATER[later](), bound(m.DENY, asked())) is DecisionConflict


@pytest.mark.parametrize("later", LATER)
def test_a_digest_of_no_version_of_the_call_is_refused(later: str) -> None:
    """Also where the decision repeats the one that was taken."""
    state = LATER[later]()
    for decision in (m.APPROVE, m.DENY, m.RERUN, m.answer()):
        assert refusal(state, evolve(decision, digest=ANOTHER)) is DecisionConflict


TWICE: dict[str, tuple[Callable[[], State], DecisionRecord]] = {
    "approved": (asked, m.APPROVE),
    "edited": (asked, EDITED),
    "denied": (asked, m.DENY),
    "answered": (asked, m.answer()),
    "to run again": (uncertain, m.RERUN),
    "denied as uncertain": (uncertain, m.DENY),
    "answered as uncertain": (uncertain, m.answer()),
}


@pytest.mark.parametrize("is_bound", [False, True])
@pytest.mark.parametrize("which", TWICE)
def test_the_same_decision_twice_is_one(which: str, *, is_bound: bool) -> None:
    """Whoever says it again, for a lost reply or with a second click, learns that it holds."""
    before, decision = TWICE[which][0](), TWICE[which][1]
    decision = bound(decision, before) if is_bound else decision
    once = decided(before, decision)
    assert decided(once, decision) == once
    assert decided(once, bound(decision, once)) == once  # by somebody who sees what became of it


def test_a_rerun_of_one_run_is_not_one_of_the_next() -> None:
    """A second click on the first question does not answer the second."""
    first = bound(m.RERUN, uncertain())
    again = go(decided(uncertain(), first), ev.TurnEnded(), ev.Continued(), ev.Started("c"))
    assert decided(again, first) == again
    lost = step(again, ev.Woken())
    assert refusal(lost, first) is DecisionConflict
