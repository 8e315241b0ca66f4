"""Commands: each is a function of the state, which gives an event that the machine takes, or refuses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.machine import making as m
from tests.machine.worlds import World
from toolloop import Answer, Approve, Continue, Deny, Grant, InjectMessages, LoopConfig, Rerun, Stop, ToolRegistry, tool
from toolloop.errors import (
    CallerError,
    IllegalCommand,
    InvalidHistory,
    UnknownCall,
)
from toolloop.face.results import Named
from toolloop.loop.commands import Commands, Said, read_limits, read_params
from toolloop.loop.message_edits import Edit
from toolloop.loop.runtimes import Runtime, Runtimes
from toolloop.machine import events as ev
from toolloop.machine.jsontext import decode, encode
from toolloop.machine.loop import Finished, Waiting
from toolloop.machine.queries import driven, waiting
from toolloop.machine.setup import Limits
from toolloop.machine.state import State
from toolloop.machine.tree import step
from toolloop.machine.values import Decision, Why
from toolloop.requests.params import Secrets

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


def asking(*call_ids: str, **changes: Any) -> State:
    """A loop that waits for a decision on these calls."""
    reply = m.replied("tool_use", *(m.call(call_id) for call_id in call_ids))
    return m.after(reply, m.asks(*call_ids), **({"params": PARAMS} | changes))


def executed() -> State:
    """A loop that waits after a round."""
    return m.go(ready_to_run(), ev.Started("c"), m.ended("c"), ev.TurnEnded())


def ready_to_run() -> State:
    return m.after(m.replied("tool_use", m.call("c", "pure")), m.judged(), params=PARAMS)


def finished(**changes: Any) -> State:
    return m.after(m.replied("end_turn", m.text("so")), **({"params": PARAMS} | changes))


def failed() -> State:
    return m.after(ev.RequestFailed(m.FAILURE), params=PARAMS)


def paused() -> State:
    return m.after(m.replied("pause_turn", m.text("so far"), m.server_call("srvtoolu_1")), params=PARAMS)


def too_deep() -> State:
    return m.after(ev.TurnEnded(), depth=3, limits=Limits(max_depth=3), params=PARAMS)


def requesting() -> State:
    return m.after(ev.Requested(), params=PARAMS)


def nested() -> State:
    """A loop with a call of the same id inside and outside."""
    state = m.after(
        m.replied("tool_use", m.call("p", "pure"), m.call("c", "once")), m.asks("c"), params=PARAMS, execution="ready"
    )
    state = m.go(state, ev.Continued())
    state = step(state, m.child(state, "p", params=PARAMS))
    inside = (evolve(m.replied("tool_use", m.call("c", "once")), path=("p",)), evolve(m.asks("c"), path=("p",)))
    return m.go(state, *inside)


STATES: dict[str, Callable[[], State]] = {
    "Ready": lambda: m.after(params=PARAMS),
    "Requesting": requesting,
    "Judging": lambda: m.after(m.replied("tool_use", m.call("c")), params=PARAMS),
    "Running": ready_to_run,
    "decision_required": lambda: asking("c"),
    "tools_executed": executed,
    "paused": paused,
    "Finished": finished,
    "Failed": failed,
    "TooDeep": too_deep,
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
            yield partial(commands.decide, decisions=[((*path, call.id), decision)])


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
        decision = DECISIONS[call.why or Why.APPROVAL]
        event = commands.decide(state, [((*path, call.id), decision)])
        assert event is not None
        after = step(state, event)
        joined = "/".join((*path, call.id))
        assert commands.decide(after, [((*path, call.id), decision), (f"/{joined}", decision)]) is None
        others = [each for _, loop in driven(after) if loop.round for each in loop.round.calls if each.id == call.id]
        if len(others) == 1:
            assert commands.decide(after, [(call.id, decision)]) is None


def record(state: State, said: Said) -> State:
    """The state after a command."""
    event = said(state)
    return state if event is None else step(state, event)


DECISIONS: dict[Why, Decision] = {Why.APPROVAL: Approve(), Why.EXTERNAL: Answer("it"), Why.UNCERTAIN: Rerun()}


# --- decisions -------------------------------------------------------------------------------------------------------


def decided(state: State, **decisions: Any) -> State:
    event = commands_of(state).decide(state, list(decisions.items()))
    return state if event is None else step(state, event)


def test_all_decisions_are_taken_or_none() -> None:
    """One that is not possible refuses all of them."""
    state = asking("c", "d")
    with pytest.raises(UnknownCall, match="'e'"):
        decided(state, c=Approve(), e=Approve())
    event = commands_of(state).decide(state, [("c", Approve(by="ana")), ("d", Deny("no"))])
    assert event is not None
    assert [(name, record.kind, record.by, record.at) for name, record in event.decisions] == [
        ("c", "approve", "ana", NOW),
        ("d", "deny", None, NOW),
    ]
    assert commands_of(state).decide(state, []) is None


def test_a_call_is_named_by_what_is_unique() -> None:
    """Where an id is in several loops, the paths are told; `/c` is the call of the outermost loop."""
    state = nested()
    commands = commands_of(state)
    with pytest.raises(UnknownCall, match="several have that name: give the path") as caught:
        commands.decide(state, [("c", Approve())])
    assert set(caught.value.known) == {"c", "p/c"}
    names: dict[Named, str] = {"/c": "c", "p/c": "p/c", ("c",): "c", ("p", "c"): "p/c"}
    for name, path in names.items():
        event = commands.decide(state, [(name, Approve())])
        assert event is not None
        assert [named for named, _ in event.decisions] == [path]


def test_an_answer_may_refer_to_known_tools_only() -> None:
    """All of them are known where each has a name."""
    refers = [{"type": "tool_reference", "tool_name": "pure"}]
    event = commands_of(asking("c")).decide(asking("c"), [("c", Answer(refers))])
    assert event is not None
    with pytest.raises(IllegalCommand, match="unheard_of"):
        decided(asking("c"), c=Answer([{"type": "tool_reference", "tool_name": "unheard_of"}]))


def test_time_is_told_where_it_changes_something() -> None:
    """A wait that is over, and nothing else."""
    state = asking("c", decision_timeout=10.0)
    commands = commands_of(state)
    assert commands.tick(state, 9.0) is None
    assert commands.tick(state, 11.0) == ev.Ticked(at=11.0)


def test_a_grant_is_revoked_by_its_id_wherever_it_stands() -> None:
    """Of a loop inside a call by its path."""
    state = nested()
    for named in ("/c", "p/c"):
        event = commands_of(state).decide(state, [(named, Approve(remember=Grant()))])
        assert event is not None
        state = step(state, event)
    commands = commands_of(state)
    ids = ["/".join((*path, grant.id)) for path, loop in driven(state) for grant in loop.grants]
    assert len(ids) == 2
    for grant_id in ids:
        state = step(state, commands.revoke(state, grant_id, "ana"))
        with pytest.raises(IllegalCommand, match="no standing grant"):
            record(state, partial(commands.revoke, grant_id=grant_id))
    assert not any(loop.grants for _, loop in driven(state))


def test_a_follow_up_says_something() -> None:
    """Without a word the loop goes on with `extend`."""
    with pytest.raises(ValueError, match="no messages"):
        commands_of(finished()).follow_up(finished(), ())


# --- parameters ------------------------------------------------------------------------------------------------------


def updated(state: State, **changes: Any) -> ev.Changed:
    return commands_of(state).update_params(state, read_params(changes))


def pausing() -> State:
    """A pause that goes out only with its thinking."""
    return m.after(m.replied("pause_turn", m.thinking(), m.text("so far")), params=PARAMS)


def test_what_a_pause_needs_stays_as_it_is() -> None:
    """Its thinking is bound to the system prompt and the tools."""
    with pytest.raises(IllegalCommand, match=r"the model pauses.*resume\(Stop\(\)\)") as caught:
        updated(pausing(), system="Be brief.")
    assert (caught.value.state, caught.value.asked) == ("Waiting", "update_params()")
    updated(pausing(), max_tokens=9)


# --- the history -----------------------------------------------------------------------------------------------------


def edited(state: State, *messages: str, then: Said | None = None) -> ev.HistoryEdited:
    edit = Edit(state.root.messages, messages)
    return commands_of(state).edit(state, edit, asked="next_turn()", then=then)


def test_an_edit_is_checked_with_the_command_that_takes_it_over() -> None:
    """A history that ends with the model's words is no request; with a message that is injected, or a stop, it is."""
    state = executed()
    commands = commands_of(state)
    said = encode({"role": "assistant", "content": [m.text("so")]})
    closed = (m.user(), said)
    with pytest.raises(InvalidHistory, match="prefill"):
        edited(state, *closed)
    with pytest.raises(InvalidHistory, match="prefill"):
        edited(state, *closed, then=commands.go_on)
    for command in (InjectMessages([{"role": "user", "content": "more"}]), Stop()):
        edited(state, *closed, then=commands.read(command)[1])


def test_after_a_limit_an_edit_is_checked_for_what_goes_on() -> None:
    """`extend` sends what is there; whoever follows up says something more."""
    state = m.go(m.after(params=PARAMS, limits=Limits(max_iterations=0)), ev.TurnEnded())
    assert isinstance(state.root.phase, Finished)
    commands = commands_of(state)
    said = encode({"role": "assistant", "content": [m.text("so")]})
    edited(state, m.user(), said)
    with pytest.raises(InvalidHistory, match="prefill"):
        edited(state, m.user(), said, then=lambda at: commands.extend(at, {"max_iterations": 5}))
    edited(state, m.user(), said, then=lambda at: commands.follow_up(at, (m.user("and?"),)))
