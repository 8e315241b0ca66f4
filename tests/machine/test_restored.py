"""A loop whose store was restored from a backup: nothing goes on before a person has decided, at any moment of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from tests.kit.effort import examples, stride
from tests.kit.machine import making as m
from tests.kit.machine.making import go
from tests.kit.machine.nested import begin_with_calls, waits
from tests.kit.machine.worlds import World, lives
from toolloop.errors import UndecidedCalls
from toolloop.machine.queries import driven, find_open_round, outstanding, status_of, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import RunCall, SendRequest
from toolloop.machine.record.loop import Judging, State, TooDeep
from toolloop.machine.tree import step
from toolloop.machine.values.calls import Call, Result, Status, Why
from toolloop.stores import dump, load


def open_calls(state: State) -> dict[str, tuple[int, Call]]:
    """The calls of open rounds by the paths of their names, with the iteration."""
    return {
        "/".join((*path, call.id)): (round_.iteration, call)
        for path, loop in driven(state)
        if (round_ := find_open_round(loop)) is not None
        for call in round_.calls
    }


@examples(15)
@given(lives, st.data())
def test_nothing_starts_after_a_restore_before_a_person_has_decided(world: World, data: st.DataObject) -> None:
    """In any state: open calls wait, started ones and lost ones are uncertain, and no request is sent."""
    for before in world.states[:: stride(3)]:
        if isinstance(before.root.phase, TooDeep):
            continue
        known = open_calls(before)
        lost = data.draw(st.sets(st.sampled_from(sorted(known)))) if known else set()
        event = ev.Restored(tuple((name, known[name][0], 1) for name in sorted(lost)))
        after = step(before, event)
        assert (after.root.epoch, after.root.grants, after.root.thread) == (before.root.epoch + 1, (), None)
        assert not [each for each in outstanding(after) if isinstance(each, (RunCall, SendRequest))]
        for name, (_, call) in open_calls(after).items():
            if call.status is Status.RUNNING:
                assert call.has_loop
            elif call.status is not Status.SETTLED:
                assert call.status is Status.WAITING or isinstance(after.root.phase, Judging)
                assert (call.why is Why.UNCERTAIN) == call.started
            if name in lost and not known[name][1].started:
                assert (call.status, call.why) == (Status.WAITING, Why.UNCERTAIN)
    if not isinstance(world.state.root.phase, TooDeep):
        last = step(world.state, ev.Restored((("c", 1, 1),)))
        assert load(json.loads(json.dumps(dump(last)))) == last


@examples(20)
@given(lives)
def test_a_restored_loop_ends(world: World) -> None:
    """Once a person has decided, and continued it."""
    world.take(ev.Restored())
    for _ in range(1_000):  # most drawn decisions are refused
        world.finish_work()
        world.path = ()
        if waiting(world.state):
            if not world.take(world.make(ev.Decided)):  # it may be late
                world.take(world.make(ev.Ticked))
        elif status_of(world.state) != "needs_command" or not world.take(ev.Continued()):
            break
    assert status_of(world.state) in ("ended", "failed", "needs_command")


ASKED = (m.make_replied("tool_use", m.call("c"), m.call("d")), m.asks("c", "d"))


def test_a_call_that_ran_elsewhere_is_uncertain_though_it_was_denied_here() -> None:
    """As long as its round is open. It is not run again without a person, and its end can still come."""
    denied = go(m.state_after(*ASKED), m.make_decided(d=m.DENY))
    state = step(denied, ev.Restored((("d", 1, 1),)))
    found = {call.id: (call.why, call.judged, call.attempts, call.decision) for _, call in waiting(state)}
    assert found == {"c": (Why.APPROVAL, True, 0, None), "d": (Why.UNCERTAIN, True, 1, None)}
    with pytest.raises(UndecidedCalls):
        step(state, ev.Continued())
    ended = step(state, ev.Ended("d", Result('"done"'), iteration=1, attempt=1))
    assert [call.id for _, call in waiting(ended)] == ["c"]


def test_a_lost_run_is_that_of_a_call_in_its_own_loop() -> None:
    """Loops inside two calls have a call of the same name."""
    state = m.go(begin_with_calls("p", "q"), *waits("p"), *waits("q"))
    restored = step(state, ev.Restored((("p/a", 1, 2),)))
    found = {path: (call.why, call.attempts) for path, call in waiting(restored)}
    assert found == {("p",): (Why.UNCERTAIN, 2), ("q",): (Why.APPROVAL, 0)}
    ended = step(step(state, ev.Stopped(waits=True)), ev.Restored((("p/a", 1, 2),)))
    assert (status_of(ended), [*ended.loops]) == ("ended", [()])


def test_a_lost_run_of_a_call_that_has_started_changes_nothing() -> None:
    """The journal has its start, so its end is unknown in any case."""
    running = go(m.state_after(*ASKED), m.make_decided(c=m.APPROVE, d=m.DENY), ev.Continued(), ev.Started("c"))
    restored, named = (step(running, ev.Restored(lost)) for lost in ((), (("c", 1, 7),)))
    assert [(call.why, call.attempts) for _, call in waiting(named)] == [(Why.UNCERTAIN, 1)]
    assert waiting(named) == waiting(restored)


@pytest.mark.parametrize("run", [("ghost", 1, 1), ("d", 7, 1), ("d/x", 1, 1)])
def test_a_lost_run_of_no_open_call_changes_no_call(run: tuple[str, int, int]) -> None:
    """It is in the journal, for its trail."""
    state = step(m.state_after(*ASKED), ev.Restored((run,)))
    assert [call.why for _, call in waiting(state)] == [Why.APPROVAL] * 2


def test_a_loop_that_was_to_stop_ends() -> None:
    """The end of the calls that ran is unknown."""
    running = go(m.state_after(*ASKED), m.make_decided(c=m.APPROVE, d=m.DENY), ev.Continued(), ev.Started("c"))
    state = step(step(running, ev.Stopped(waits=True)), ev.Restored())
    assert status_of(state) == "ended"
    assert "unknown" in state.root.messages[-1]
