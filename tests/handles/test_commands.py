"""Commands: each is a function of the state, which gives an event that the machine takes, or refuses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.machine import making as m
from tests.kit.machine.worlds import World
from toolloop import (
    Answer,
    Approve,
    Continue,
    Deny,
    Grant,
    InjectMessages,
    LoopConfig,
    Person,
    Rerun,
    Stop,
    ToolRegistry,
    tool,
)
from toolloop._engine.deciding import Decisions
from toolloop._engine.runtimes import Runtime, Runtimes
from toolloop._handles.commands import Commands, Said
from toolloop._handles.param_changes import read_limits, read_params
from toolloop._interface.message_edits import HistoryEdit
from toolloop._interface.shown import Named
from toolloop._requests.params import Secrets
from toolloop.errors import (
    CallerError,
    InvalidHistory,
    UnknownCall,
)
from toolloop.machine.queries import driven, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State, Waiting
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.tree import step
from toolloop.machine.values.calls import Decision, Why
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import Limits

NOW = 1_000_000_000.0
PARAMS = encode({"model": "claude-opus-5-5", "max_tokens": 100})


@tool(needs_approval=True)
def once(a: int) -> str:
    """Do it once."""
    return str(a)


@tool(effect="pure")
def pure(a: int) -> str:
    """Do it as often as you like."""
    return str(a)


def commands_of(state: State, now: float = NOW) -> Commands:
    setup = state.root.setup
    root = Runtime.of(setup, ToolRegistry([once, pure]), LoopConfig(), Secrets())
    return Commands(Runtimes(root), lambda: now)


def make_asking(*call_ids: str, **changes: Any) -> State:
    """A loop that waits for a decision on these calls."""
    reply = m.make_replied("tool_use", *(m.call(call_id) for call_id in call_ids))
    return m.state_after(reply, m.asks(*call_ids), **({"params": PARAMS} | changes))


def make_executed() -> State:
    """A loop that waits after a round."""
    return m.go(make_ready_to_run(), ev.Started("c"), m.make_ended("c"), ev.TurnEnded())


def make_ready_to_run() -> State:
    return m.state_after(m.make_replied("tool_use", m.call("c", "pure")), m.make_judged(), params=PARAMS)


def make_finished(**changes: Any) -> State:
    return m.state_after(m.make_replied("end_turn", m.text("so")), **({"params": PARAMS} | changes))


def make_failed() -> State:
    return m.state_after(ev.RequestFailed(m.FAILURE), params=PARAMS)


def make_paused() -> State:
    return m.state_after(m.make_replied("pause_turn", m.text("so far"), m.server_call("srvtoolu_1")), params=PARAMS)


def make_too_deep() -> State:
    return m.state_after(ev.TurnEnded(), depth=3, limits=Limits(max_depth=3), params=PARAMS)


def make_requesting() -> State:
    return m.state_after(ev.Requested(), params=PARAMS)


def make_nested() -> State:
    """A loop with a call of the same id inside and outside."""
    state = m.state_after(
        m.make_replied("tool_use", m.call("p", "pure"), m.call("c", "once")),
        m.asks("c"),
        params=PARAMS,
        execution="ready",
    )
    state = m.go(state, ev.Continued())
    state = step(state, m.child(state, "p", params=PARAMS))
    inside = (evolve(m.make_replied("tool_use", m.call("c", "once")), path=("p",)), evolve(m.asks("c"), path=("p",)))
    return m.go(state, *inside)


STATES: dict[str, Callable[[], State]] = {
    "Ready": lambda: m.state_after(params=PARAMS),
    "Requesting": make_requesting,
    "Judging": lambda: m.state_after(m.make_replied("tool_use", m.call("c")), params=PARAMS),
    "Running": make_ready_to_run,
    "decision_required": lambda: make_asking("c"),
    "tools_executed": make_executed,
    "paused": make_paused,
    "Finished": make_finished,
    "Failed": make_failed,
    "TooDeep": make_too_deep,
}


def name_of(state: State) -> str:
    phase = state.root.phase
    return phase.reason if isinstance(phase, Waiting) else type(phase).__name__


def test_the_states_are_what_they_are_called() -> None:
    """So that the tests below look at each phase."""
    assert {name: name_of(make()) for name, make in STATES.items()} == {name: name for name in STATES}


# --- whatever the state ----------------------------------------------------------------------------------------------


lives = st.tuples(st.integers(0, 2**32), st.integers(0, 60)).map(
    lambda life: World(random.Random(life[0]), params=PARAMS).live(life[1]).states
)


def all_commands(state: State, rng: random.Random) -> Iterator[Said]:
    """What a caller may tell a loop: each command, and decisions on calls that wait or do not."""
    commands = commands_of(state, state.root.now + rng.choice((0.0, 1e6)))
    for command in (Continue(), Stop("enough"), InjectMessages([decode(m.user("more"))])):
        yield commands.read(command)[1]
    yield commands.retry
    for replace_last in (False, True):
        yield partial(commands.follow_up, texts=(m.user("and?"),), replace_last=replace_last)
    yield partial(commands.extend, limits=read_limits(max_iterations=50))
    yield partial(commands.update_params, changes=read_params({"model": "claude-sonnet-4-5", "temperature": None}))
    yield partial(commands.tick, now=state.root.now + 1e6)
    for path, loop in driven(state):
        for grant in loop.grants:
            yield partial(commands.revoke, grant_id="/".join((*path, grant.id)), by="ana")
        for call in loop.round.calls if loop.round else ():
            decision = rng.choice((Approve(), Deny("no"), Answer("mine"), Rerun(), Approve(remember=Grant())))
            yield partial(_event, commands, [((*path, call.id), decision)])


@given(lives, st.randoms(use_true_random=False))
def test_a_command_is_taken_or_refused(states: list[State], rng: random.Random) -> None:
    """By the command or by the machine, with an error that says so; asked again of the same state, it says the same."""
    state = states[-1]
    for said in all_commands(state, rng):
        try:
            event = said(state)
        except (CallerError, ValueError) as error:  # the parameters of some lives are none that the API takes
            with pytest.raises(type(error)):
                said(state)
            continue
        assert said(state) == event
        if event is not None:
            with suppress(CallerError):
                step(state, event)


@given(lives, st.randoms(use_true_random=False))
def test_a_decision_that_is_made_again_changes_nothing(states: list[State], rng: random.Random) -> None:
    """By whichever name: its path, its id where that is unique, or the path joined with slashes."""
    for state in [state for state in states if waiting(state)][-3:]:
        commands = commands_of(state, state.root.now)
        path, call = rng.choice(waiting(state))
        loop = state.loops[path]
        assert loop.round is not None
        digest = digest_of(loop.setup, loop.round.iteration, call)  # needed where several must approve
        decision = evolve(DECISIONS[call.why or Why.APPROVAL], digest=digest)
        event = _event(commands, [((*path, call.id), decision)], state)
        assert event is not None
        after = step(state, event)
        joined = "/".join((*path, call.id))
        assert _event(commands, [((*path, call.id), decision), (f"/{joined}", decision)], after) is None
        others = [each for _, loop in driven(after) if loop.round for each in loop.round.calls if each.id == call.id]
        if len(others) == 1:
            assert _event(commands, [(call.id, decision)], after) is None


ZOE = Person("zoe", ("finance", "legal"))
DECISIONS: dict[Why, Decision] = {
    Why.APPROVAL: Approve(by=ZOE),
    Why.EXTERNAL: Answer("it", by=ZOE),
    Why.UNCERTAIN: Rerun(by=ZOE),
}


def _event(commands: Commands, decisions: Decisions, state: State) -> ev.Decided | None:
    return commands.decide(state, decisions).event


# --- decisions -------------------------------------------------------------------------------------------------------


def test_a_call_is_named_by_what_is_unique() -> None:
    """Where an id is in several loops, the error lists the paths; `/c` is the call of the outermost loop."""
    state = make_nested()
    commands = commands_of(state)
    with pytest.raises(UnknownCall, match="'c' is ambiguous") as caught:
        commands.decide(state, [("c", Approve())])
    assert set(caught.value.known) == {"c", "p/c"}
    names: dict[Named, str] = {"/c": "c", "p/c": "p/c", ("c",): "c", ("p", "c"): "p/c"}
    for name, path in names.items():
        event = _event(commands, [(name, Approve())], state)
        assert event is not None
        assert [named for named, _ in event.decisions] == [path]


# --- parameters ------------------------------------------------------------------------------------------------------


# --- the history -----------------------------------------------------------------------------------------------------


# --- the history -----------------------------------------------------------------------------------------------------
def make_edited(state: State, *messages: str, then: Said | None = None) -> ev.HistoryEdited:
    edit = HistoryEdit(state.root.messages, messages)
    return commands_of(state).edit(state, edit, asked="next_turn()", then=then)


def test_messages_beside_the_history_are_distinguished() -> None:
    """`messages_mut()` does not show them, so the error says so."""
    state = m.state_after(m.make_replied("pause_turn", m.server_call("srvtoolu_1")), params=PARAMS)
    beside = state.root.unjoined
    assert len(beside) == 1
    same = encode({"role": "assistant", "content": [m.server_call("srvtoolu_1"), m.server_result("srvtoolu_1")]})
    with pytest.raises(InvalidHistory, match="are beside the history"):
        make_edited(state, m.user(), same, m.user("more"))
