"""Decisions that are repeated, late, or bound to a call as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve
from hypothesis import given

from tests.kit.effort import examples
from tests.kit.machine import making as m
from tests.kit.machine.worlds import World, lives
from toolloop.errors import CallerError, DecisionConflict
from toolloop.machine.queries import driven, find_open_round
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.tree import begin, step
from toolloop.machine.values.calls import Call, DecisionRecord, Outcome, PolicyResult, Reject, Result, Status, Wait, Why
from toolloop.machine.values.setup import Setup

ANOTHER = "0" * 64
EDITED = DecisionRecord("approve", '{"a":2}')


def go(state: State, *events: ev.Event) -> State:
    for event in events:
        state = step(state, event)
    return state


def ask(tool: str = "once") -> State:
    """A loop in which the call `c` waits for approval."""
    reply = m.make_replied("tool_use", m.call("c", tool))
    return go(begin(m.make_opened()), ev.Requested(), reply, ev.Judged((("c", Wait(Why.APPROVAL)),)))


def approve(decision: DecisionRecord = m.APPROVE) -> State:
    return decide(ask(), decision)


def decide(state: State, decision: DecisionRecord) -> State:
    return step(state, ev.Decided((("c", decision),)))


def digest(state: State) -> str:
    """The digest of the call as it is."""
    loop = state.root
    assert loop.round is not None
    return digest_of(loop.setup, loop.round.iteration, loop.round.calls[0])


def bind(decision: DecisionRecord, state: State) -> DecisionRecord:
    """The decision, made by a caller who saw this state."""
    return evolve(decision, digest=digest(state))


def start_call() -> State:
    return go(approve(bind(m.APPROVE, ask())), ev.Continued(), ev.Started("c"))


def make_uncertain() -> State:
    return step(start_call(), ev.Woken())


def refusal(state: State, decision: DecisionRecord) -> type[CallerError]:
    with pytest.raises(CallerError) as refused:
        decide(state, decision)
    return type(refused.value)


LATER: dict[str, Callable[[], State]] = {
    "running": start_call,
    "ended": lambda: step(start_call(), ev.Ended("c", Result('"done"'))),
    "uncertain": make_uncertain,
    "uncertain, and denied as such": lambda: decide(make_uncertain(), m.DENY),
    "uncertain, and denied by who saw it": lambda: decide(make_uncertain(), bind(m.DENY, make_uncertain())),
    "uncertain, and answered": lambda: decide(make_uncertain(), m.answer()),
    "uncertain, and to run again": lambda: decide(make_uncertain(), m.RERUN),
    "uncertain, and ended late": lambda: step(
        make_uncertain(), ev.Ended("c", Result('"done"'), iteration=1, attempt=1)
    ),
}


@pytest.mark.parametrize("later", LATER)
def test_a_denial_of_a_call_that_waited_for_approval_is_refused_once_it_has_run(later: str) -> None:
    """Whatever became of the call: a call that ran is never reported as denied."""
    assert issubclass(refusal(LATER[later](), bind(m.DENY, ask())) or CallerError, DecisionConflict)


@pytest.mark.parametrize("later", LATER)
def test_a_digest_of_no_version_of_the_call_is_refused(later: str) -> None:
    """Also where the decision repeats the one that was taken."""
    state = LATER[later]()
    for decision in (m.APPROVE, m.DENY, m.RERUN, m.answer()):
        assert refusal(state, evolve(decision, digest=ANOTHER)) is DecisionConflict


TWICE: dict[str, tuple[Callable[[], State], DecisionRecord]] = {
    "approved": (ask, m.APPROVE),
    "edited": (ask, EDITED),
    "denied": (ask, m.DENY),
    "answered": (ask, m.answer()),
    "to run again": (make_uncertain, m.RERUN),
    "denied as uncertain": (make_uncertain, m.DENY),
    "answered as uncertain": (make_uncertain, m.answer()),
}


@pytest.mark.parametrize("is_bound", [False, True])
@pytest.mark.parametrize("which", TWICE)
def test_the_same_decision_twice_is_one(which: str, *, is_bound: bool) -> None:
    """A caller that repeats it, for a lost reply or with a second click, learns that it holds."""
    before, decision = TWICE[which][0](), TWICE[which][1]
    decision = bind(decision, before) if is_bound else decision
    once = decide(before, decision)
    assert decide(once, decision) == once
    assert decide(once, bind(decision, once)) == once  # by somebody who sees what became of it


def test_a_rerun_of_one_run_is_not_one_of_the_next() -> None:
    """A second click on the first question does not answer the second."""
    first = bind(m.RERUN, make_uncertain())
    again = go(decide(make_uncertain(), first), ev.TurnEnded(), ev.Continued(), ev.Started("c"))
    assert decide(again, first) == again
    lost = step(again, ev.Woken())
    assert refusal(lost, first) is DecisionConflict


# --- every status, every kind, every digest ---------------------------------------------------------------------------

KINDS = (m.APPROVE, EDITED, m.DENY, m.answer(), m.RERUN)
TAKES = {
    Why.APPROVAL: {"approve", "deny", "answer"},
    Why.EXTERNAL: {"deny", "answer"},
    Why.UNCERTAIN: {"rerun", "deny", "answer"},
}


def open_calls(state: State) -> list[tuple[str, Setup, int, Call]]:
    """The calls of open rounds: the name, the setup of the loop and the iteration for each."""
    return [
        ("/".join((*path, call.id)), loop.setup, round_.iteration, call)
        for path, loop in driven(state)
        if (round_ := find_open_round(loop)) is not None
        for call in round_.calls
    ]


def check_decisions(state: State, name: str, now: str, others: set[str]) -> None:
    """Every decision on a call, bound to it as it is (`now`) or to something else, means what it says or is refused."""
    calls = {name: call for name, _, _, call in open_calls(state)}
    call = calls[name]
    for kind in KINDS:
        for digest in (None, now, ANOTHER, *others):
            decision = evolve(kind, digest=digest)
            is_bound_to_it = digest is None or digest == now
            try:
                after = step(state, ev.Decided(((name, decision),)))
            except DecisionConflict:
                assert not (is_bound_to_it and call.status is Status.WAITING)
                continue
            except CallerError:
                assert is_bound_to_it
                continue
            assert digest != ANOTHER
            if call.status is Status.WAITING:
                assert is_bound_to_it
                assert call.why is not None
                assert kind.kind in TAKES[call.why]
            else:  # it repeats the decision that was taken, and was bound as that was
                assert call.decision is not None
                assert call.decision.kind == kind.kind
                assert is_bound_to_it or call.decision.digest == digest
                assert {name: call for name, _, _, call in open_calls(after)} == calls


def expire() -> State:
    reply = m.make_replied("tool_use", m.call("c"))
    state = go(begin(m.make_opened()), ev.Requested(), reply, ev.Judged((("c", Wait(Why.APPROVAL, expires_in=5.0)),)))
    return step(state, ev.Ticked(at=10.0))


def judge(result: PolicyResult | None) -> State:
    """A loop with two calls; `d` waits, so the round stays open, and the policy says this about `c`."""
    reply = m.make_replied("tool_use", m.call("c"), m.call("d"))
    results = () if result is None else (("c", result),)
    return go(begin(m.make_opened()), ev.Requested(), reply, ev.Judged((*results, ("d", Wait(Why.APPROVAL)))))


STATUSES: dict[str, Callable[[], State]] = {
    "proposed": lambda: go(begin(m.make_opened()), ev.Requested(), m.make_replied("tool_use", m.call("c"))),
    "waits for approval": ask,
    "waits for approval, edited": lambda: go(approve(EDITED), ev.Continued(), ev.Woken()),
    "waits for an answer": lambda: judge(Wait(Why.EXTERNAL)),
    "may run": lambda: judge(None),
    "approved by a policy": lambda: judge(m.APPROVE),
    "denied by a policy": lambda: judge(m.DENY),
    "rejected": lambda: judge(Reject(Outcome.INVALID_INPUT, "bad input")),
    "approved": lambda: approve(bind(m.APPROVE, ask())),
    "approved with an edit": lambda: approve(bind(EDITED, ask())),
    "approved, and woken": lambda: go(approve(), ev.Continued(), ev.Woken()),
    "denied": lambda: decide(ask(), bind(m.DENY, ask())),
    "answered": lambda: decide(ask(), bind(m.answer(), ask())),
    "expired": expire,
    **LATER,
}


@pytest.mark.parametrize("status", STATUSES)
def test_a_decision_counts_only_for_a_call_as_it_is(status: str) -> None:
    """For every history of the call, every decision, and every binding."""
    state = STATUSES[status]()
    name, setup, iteration, call = open_calls(state)[0]
    versions = [call._replace(attempts=attempts, edited=edit) for attempts in range(3) for edit in (None, '{"a":2}')]
    check_decisions(
        state, name, digest_of(setup, iteration, call), {digest_of(setup, iteration, each) for each in versions}
    )


@examples(25)
@given(lives)
def test_a_decision_made_earlier_in_any_life_counts_only_for_a_call_as_it_is(world: World) -> None:
    """In whole trees of loops: bound to any earlier version of the call, or of another call of that name."""
    seen: dict[str, set[str]] = {}
    for state in world.states:
        for name, setup, iteration, call in open_calls(state):
            now = digest_of(setup, iteration, call)
            earlier = seen.setdefault(name, set())
            if now not in earlier or call.status is Status.SETTLED:
                check_decisions(state, name, now, earlier - {now})
            earlier.add(now)


@examples(25)
@given(lives)
def test_a_call_whose_denial_was_accepted_while_unstarted_never_starts(world: World) -> None:
    """In the rest of its round."""
    denied = set()
    for event, state in zip(world.journal, world.states, strict=True):
        decisions = dict(event.decisions) if isinstance(event, ev.Decided) else {}
        for name, setup, iteration, call in open_calls(state):
            was = decisions.get(name)
            if (
                was is not None
                and was.kind == "deny"
                and was.digest == digest_of(setup, iteration, call._replace(attempts=0))
            ):
                denied.add((name, setup.within, iteration))
            assert (name, setup.within, iteration) not in denied or not call.started
