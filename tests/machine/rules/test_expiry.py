"""What a loop does when a call expires: it tells the model, or it ends (`on_expiry`)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import evolve

from tests.kit.effort import some
from tests.kit.machine import making as m
from tests.kit.machine.nested import ask, at, begin_with_calls, finish, loop_inside
from tests.kit.machine.worlds import World
from toolloop.machine.queries import answer_of, next_deadline, outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Conclude
from toolloop.machine.record.loop import Finished, Loop, State, Stopping, is_over
from toolloop.machine.tree import fold, fork, step
from toolloop.machine.values.calls import Wait, Why
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Texts
from toolloop.stores import dump, load
from toolloop.stores.codec import encode_event, read_journal
from toolloop.terminations import Expired, StopCondition

EXPIRED = Texts().expired
CANCELLED = Texts().cancelled
LATE = ev.Ticked(at=105.0)


def waits(name: str = "c", seconds: float = 5.0) -> ev.Judged:
    """A call waits from 100 s on."""
    return evolve(m.make_judged(**{name: Wait(Why.APPROVAL, expires_in=seconds)}), at=100.0)


def two(*events: ev.Event, **changes: Any) -> State:
    """A loop in which `c` waits until 105 s, and `d` may run."""
    calls = m.call("c"), m.call("d", "pure")
    return m.state_after(m.make_replied("tool_use", *calls), waits(), *events, **{"on_expiry": "stop", **changes})


def test_a_loop_that_stops_ends_with_the_tool_whose_call_expired() -> None:
    """The model's history says of each call what became of it; nothing is left to do."""
    before = two()
    assert m.phase(step(before, ev.Ticked(at=104.9))) == "decision_required"
    state = step(before, LATE)
    assert (m.termination(state), outstanding(state), next_deadline(state)) == (Expired("once"), (), None)
    assert m.results(m.history(state)[-1]) == {"c": EXPIRED, "d": Texts().not_run}
    assert m.phase(step(two(on_expiry="continue"), LATE)) == "decision_required"


def test_a_loop_that_expired_goes_on_with_a_user_turn_and_not_with_more_limits() -> None:
    """It is the end of a turn, not a limit."""
    state = step(two(), LATE)
    assert m.phase(step(state, ev.Changed(limits=state.root.setup.limits))) == "Finished"
    assert m.phase(step(state, ev.FollowedUp((m.user("again"),)))) == "Ready"


@pytest.mark.parametrize("then", [ev.Continued(), ev.Woken(), ev.Stopped("enough")])
def test_the_event_that_brings_the_time_is_taken_first(then: ev.Event) -> None:
    """It was allowed before the call expired, and is not refused; a stop that came with it is the reason."""
    state = step(two(), evolve(then, at=105.0))
    assert m.termination(state) == (StopCondition("enough") if isinstance(then, ev.Stopped) else Expired("once"))


def test_the_last_call_of_a_round_may_expire() -> None:
    """The round closes with the event that brings the time, and the loop ends after it."""
    ready = two(ev.Continued(), ev.Started("d"), m.make_ended("d"), execution="ready")
    state = step(ready, ev.TurnEnded(at=105.0))
    assert m.termination(state) == Expired("once")
    assert m.results(m.history(state)[-1]) == {"c": EXPIRED, "d": "done"}


def test_the_end_of_a_tool_that_brings_the_time_is_kept() -> None:
    """A sibling that ran has its result; one that still runs is waited for, and cancelled where its driver is gone."""
    running = two(ev.Continued(), ev.Started("d"), execution="ready")
    late = step(running, LATE)
    assert m.phase(late) == "Stopping"
    assert m.results(m.history(step(late, ev.Woken()))[-1]) == {"c": EXPIRED, "d": CANCELLED}
    assert m.results(m.history(step(late, m.make_ended("d")))[-1]) == {"c": EXPIRED, "d": "done"}
    state = step(running, evolve(m.make_ended("d"), at=105.0))
    assert m.termination(state) == Expired("once")
    assert m.results(m.history(state)[-1]) == {"c": EXPIRED, "d": "done"}


def test_a_late_end_after_it_changes_nothing() -> None:
    """As after any end of the loop."""
    state = step(two(ev.Continued(), ev.Started("d"), execution="ready"), LATE)
    state = step(state, ev.Woken())
    assert step(state, evolve(m.make_ended("d"), iteration=1, attempt=1)) == state


def nest(outer: str, inner: str) -> State:
    """`p` has a loop inside, whose call `a` waits until 105 s."""
    state = m.go(m.state_after(on_expiry=outer), *ask("", "p"))
    state = step(state, m.child(state, "p", on_expiry=inner))
    return m.go(state, *ask("p", "a", tool="once"), *at("p", waits("a")))


def test_each_loop_of_a_tree_has_its_own_rule() -> None:
    """One inside a call ends for itself, and its call gets an error with the reason; the loop above goes on."""
    state = step(nest("continue", "stop"), LATE)
    child = loop_inside(state)
    assert m.termination(child) == Expired("once")
    assert outstanding(state) == (Conclude("p"),)
    assert "expired (tool name: once)" in answer_of(child, Texts()).content
    told = step(nest("stop", "continue"), LATE)
    assert not is_over(told.root)
    assert not is_over(loop_inside(told))


def test_loops_inside_its_calls_end_with_a_loop() -> None:
    """However deep, and whatever they do: none is left in the tree, and their usage stays."""
    state = begin_with_calls("p", "q", inside=("p/x",), execution="ready", on_expiry="stop")
    root = m.state_after(
        m.make_replied("tool_use", m.call("c"), m.call("p", "pure")), waits(), on_expiry="stop", execution="ready"
    )
    root = step(root, ev.Continued())
    tree = m.go(step(root, m.child(root, "p")), *ask("p", "x"))
    tree = step(tree, m.child(tree, "p", "x"))
    tree = m.go(tree, *at("p/x", ev.Requested()))
    ended = step(tree, LATE)
    assert (set(tree.loops), set(ended.loops)) == ({(), ("p",), ("p", "x")}, {()})
    assert m.termination(ended) == Expired("once")
    assert ended.root.total_usage == tree.root.total_usage
    assert set(step(state, LATE).loops) == set(state.loops)  # where no call expired, nothing ends


def test_the_last_event_of_a_loop_inside_may_bring_the_time() -> None:
    """It is counted, its answer is the result of the call, and then the outermost loop ends."""
    root = m.state_after(
        m.make_replied("tool_use", m.call("c"), m.call("p", "pure")), waits(), on_expiry="stop", execution="ready"
    )
    root = step(root, ev.Continued())
    tree = m.go(step(root, m.child(root, "p")), *at("p", ev.Requested()))
    reply = evolve(finish("p")[-1], at=105.0)
    state = step(tree, reply)
    assert outstanding(state) == (Conclude("p"),)
    state = step(state, ev.Ended("p", answer_of(loop_inside(state), Texts())))
    assert (set(state.loops), m.termination(state)) == ({()}, Expired("once"))
    assert state.root.total_usage.output_tokens == 2


def test_a_copy_after_the_deadline_has_ended_too() -> None:
    """`fork` brings the time, as an event does."""
    assert m.termination(fork(two(), "copy", 105.0)) == Expired("once")
    assert m.phase(fork(two(), "copy", 104.0)) == "decision_required"


def test_a_journal_and_a_snapshot_tell_it_again() -> None:
    """And a setup that continues is stored as before: without the field."""
    events = [m.make_opened(on_expiry="stop"), ev.Requested(), m.make_replied("tool_use", m.call("c")), waits(), LATE]
    state = fold(events)
    assert read_journal([encode_event("i", event) for event in events]) == load(dump(state)) == state
    assert "on_expiry" in encode_event("i", events[0]).body
    assert "on_expiry" not in encode_event("i", m.make_opened()).body


def test_in_no_life_does_a_stopping_loop_go_on_after_an_expiry() -> None:
    """Whatever happens in a tree: the step in which its call expires is its last, and no loop is left below."""
    ends, seeds = 0, some(range(150), 3)
    for seed in seeds:
        world = World(random.Random(seed), on_expiry="stop", decision_timeout=1.0, forks=seed % 4 == 0).live(60)
        ends += any(is_expired_end(state.root) for state in world.states)
        for state in world.states:
            ended = [path for path, loop in state.loops.items() if is_expired_end(loop)]
            assert not [each for each in state.loops for path in ended if each and each[:-1] == path]
            assert not any(map(goes_on, state.loops.values()))
        assert fold(world.journal) == world.state
    assert ends > len(seeds) / 10


def goes_on(loop: Loop) -> bool:
    """Whether a call of the open round has expired, and never ran: a tool that ended may have any result.

    A loop that waits for the tools that still run does not go on.
    """
    if isinstance(loop.phase, Stopping):
        return False
    calls = loop.round.calls if loop.round is not None and loop.setup.on_expiry == "stop" else ()
    return any(call.result is not None and call.result.content == encode(EXPIRED) for call in calls)


def is_expired_end(loop: Loop) -> bool:
    return isinstance(loop.phase, Finished) and isinstance(loop.phase.termination, Expired)
