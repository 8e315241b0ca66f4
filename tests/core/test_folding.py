"""A stride and the steps it stands for lead to the same state, to the last field."""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.test_machine_laws import lives
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.errors import CallerError
from toolloop.core.folding import stride
from toolloop.core.jsontext import encode
from toolloop.core.machine import step
from toolloop.core.setup import Budget, Limits
from toolloop.core.states import Ready, State
from toolloop.core.values import Outcome, Result

REQUEST = ev.Requested(at=1.0)
REPLY = m.replied("tool_use", m.text("so"), m.call("a"), m.call("b", "pure"))
RUNS = (ev.Started("a"), ev.Started("b"), m.ended("b"), m.ended("a", [m.text("x")]))
PLAIN = (REQUEST, REPLY, *RUNS, ev.TurnEnded(), ev.Continued(at=3.0, seconds=0.5))


def stepped(state: State, turn: Any) -> State | None:
    """The state after these events, one by one; None if one is refused."""
    try:
        for event in turn:
            state = step(state, event)
    except CallerError:
        return None
    return state


def test_a_plain_round_is_one_stride() -> None:
    """With what the journal of a long loop is made of, it is taken, and leads where the steps lead."""
    state = stride(m.after(), PLAIN)
    assert state is not None
    assert state == m.go(m.after(), *PLAIN)


def test_an_end_that_names_its_run_is_plain_too() -> None:
    """So does a driver with a store write it."""
    runs = (ev.Started("a", "digest"), ev.Started("b"), named("a", 1, 1), named("b", 1, 1))
    turn = with_runs(*runs)
    assert stride(m.after(), turn) == m.go(m.after(), *turn) != None  # noqa: E711 - it is to be a state


def named(call_id: str, iteration: int, attempt: int) -> ev.Ended:
    return ev.Ended(call_id, Result('"x"'), iteration=iteration, attempt=attempt)


def with_runs(*runs: ev.Event) -> tuple[ev.Event, ...]:
    return (REQUEST, REPLY, *runs, ev.TurnEnded(), ev.Continued())


def with_reply(*blocks: Any, stop_reason: str | None = "tool_use", **more: Any) -> tuple[ev.Event, ...]:
    return (
        REQUEST,
        m.replied(stop_reason, *blocks, **more),
        ev.Started("a"),
        m.ended("a"),
        ev.TurnEnded(),
        ev.Continued(),
    )


@pytest.mark.parametrize(
    "turn",
    [
        (),
        PLAIN[:-1],
        (*PLAIN[:-2], PLAIN[-1]),
        (*PLAIN[:-1], ev.Injected((m.user(),))),
        (ev.Ticked(), *PLAIN[1:]),
        (REQUEST, ev.RequestCancelled(), *PLAIN[2:]),
        (evolve(REQUEST, seconds=1.0), *PLAIN[1:]),
        with_runs(*RUNS, ev.Ticked()),
        with_runs(*RUNS[:2], m.ended("a"), m.ended("a"), m.ended("b")),
        with_runs(*RUNS, m.ended("a")),
        with_runs(ev.Started("a"), m.ended("a"), ev.Started("a"), m.ended("b")),
        with_runs(ev.Started("a"), m.ended("a")),
        with_runs(*RUNS[:3]),
        with_runs(evolve(RUNS[0], path=("p",)), *RUNS[1:]),
        with_runs(*RUNS[:2], named("a", 2, 1), m.ended("b")),
        with_runs(*RUNS[:2], named("a", 1, 2), m.ended("b")),
        with_runs(*RUNS, ev.Started("c"), m.ended("c")),
        with_reply(m.call("a"), stop_reason="end_turn"),
        with_reply(m.code_call("a")),
        with_reply(m.call("a", toolset_name="set")),
        with_reply(m.call("a"), m.server_call("s"), m.server_result("s")),
        with_reply(m.text("no call")),
    ],
)
def test_what_is_not_plain_is_no_stride(turn: tuple[ev.Event, ...]) -> None:
    """Then `step` decides."""
    assert stride(m.after(), turn) is None


@pytest.mark.parametrize(
    "state",
    [
        m.after(ev.Requested()),
        m.after(limits=Limits(max_iterations=0)),
        m.after(depth=3),
        m.after(ev.Requested(), m.replied("pause_turn", m.text("so"), m.server_call("s")), ev.Continued()),
        m.after(ev.Requested(), m.replied("pause_turn", m.text("so"), m.server_call("s")), ev.Injected((m.user(),))),
    ],
)
def test_a_state_that_waits_for_something_else_takes_no_stride(state: State) -> None:
    """Where messages wait beside the history, a limit is met, or no request is next."""
    assert stride(state, PLAIN) is None


@given(lives)
def test_no_turn_of_any_life_goes_elsewhere_in_a_stride(world: World) -> None:
    """From every state in which a turn begins, over all that happens until somebody goes on."""
    start = 0
    for at, event in enumerate(world.journal):
        if isinstance(event, ev.Continued):
            turn = world.journal[start + 1 : at + 1]
            assert stride(world.states[start], turn) in (None, world.states[at])
            start = at


@given(st.integers(0, 2**32))
def test_rounds_that_are_nearly_plain_go_nowhere_else(seed: int) -> None:
    """Plain rounds with something changed: a stride leads where the steps lead, and to nothing where they fail."""
    rng = random.Random(seed)
    state: State = m.after(limits=some_limits(rng))
    for _ in range(4):
        turn = some_turn(rng, state.ledger.iterations + 1)
        if (then := stride(state, turn)) is not None:
            assert then == stepped(state, turn)
        state = stepped(state, turn) or state


def some_limits(rng: random.Random) -> Limits:
    budget = Budget(tool_calls=rng.choice((None, None, 3)), output_tokens=rng.choice((None, None, 9)))
    return Limits(max_iterations=rng.choice((None, 2)), timeout=rng.choice((None, None, 2.0)), budget=budget)


def some_turn(rng: random.Random, iteration: int) -> list[ev.Event]:
    ids = [f"toolu_{iteration}_{n}" for n in range(rng.choice((1, 1, 2, 3)))]
    blocks = [rng.choice((m.text("words"), m.thinking(), m.text(" "))) for _ in range(rng.randrange(3))]
    last = [m.thinking()] if rng.randrange(4) == 0 else []
    more = {"container": {"id": "c"}} if rng.randrange(3) == 0 else {}
    usage = {"input_tokens": rng.randrange(5), "output_tokens": rng.randrange(5)}
    reply = m.replied("tool_use", *blocks, *(m.call(call_id) for call_id in ids), *last, usage=usage, model="m", **more)
    starts = [ev.Started(call_id) for call_id in rng.sample(ids, len(ids))]
    ends = [some_end(rng, call_id, iteration) for call_id in rng.sample(ids, len(ids))]
    ended = [ev.TurnEnded()] if rng.randrange(3) else []
    turn: list[ev.Event] = [ev.Requested(), reply, *starts, *ends, *ended, ev.Continued()]
    for _ in range(rng.choice((0, 0, 0, 1))):
        at = rng.randrange(len(turn))
        turn[at : at + rng.randrange(2)] = [rng.choice(turn), ev.Injected((m.user("more"),))][: rng.randrange(3)]
    return [evolve(event, at=rng.choice((0.0, 5.0, 4.0)), seconds=rng.choice((0.0, 0.1, -1.0))) for event in turn]


def some_end(rng: random.Random, call_id: str, iteration: int) -> ev.Ended:
    run = rng.choice(((0, 0), (iteration, 1), (iteration, 1), (iteration, 2), (iteration + 1, 1)))
    content = encode(rng.choice(("done", [], [m.text("found")])))
    result = Result(content, is_error=rng.randrange(3) == 0, outcome=rng.choice((Outcome.RETURNED, Outcome.FAILED)))
    return ev.Ended(call_id, result, iteration=run[0], attempt=run[1])


def test_a_stride_ends_where_a_request_is_next() -> None:
    """And nowhere else."""
    assert type(stride(m.after(), PLAIN)) is Ready
