"""A loop that ends while calls run: nothing starts, each end counts, and the last one ends the loop."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given

from tests.kit.machine import making as m
from tests.kit.machine.nested import at, finish
from tests.kit.machine.worlds import World, lives
from toolloop.errors import IllegalCommand
from toolloop.machine.queries import answer_of, list_running, outstanding, status_of
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Conclude, EndTurn, RunCall, SendRequest
from toolloop.machine.record.loop import Finished, State, Stopping, round_of
from toolloop.machine.tree import fold, fork, step
from toolloop.machine.values.setup import Limits, Texts
from toolloop.terminations import LIMITS, StopCondition, Termination, Timeout

CANCELLED = Texts().cancelled
UNCERTAIN = Texts().uncertain.format(reason="the loop stopped")
STOP = ev.Stopped("enough", waits=True)
LATE = (ev.Ticked(seconds=9.0), ev.TurnEnded(waits=True))


def two(**changes: object) -> State:
    """`c` runs; `d` may start."""
    calls = [m.call("c"), m.call("d", "pure")]
    return m.state_after(m.make_replied("tool_use", *calls), ev.Started("c"), max_parallel_tools=1, **changes)


def nest() -> State:
    """`p` has a loop inside, whose call `a` runs."""
    state = m.state_after(m.make_replied("tool_use", m.call("p", "pure")), m.make_judged())
    state = step(state, m.child(state, "p"))
    return m.go(state, *at("p", ev.Requested(), m.make_replied("tool_use", m.call("a")), ev.Started("a")))


def to_end_with(state: State) -> Termination:
    """The end of a loop that waits for the calls that run."""
    assert isinstance(state.root.phase, Stopping)
    return state.root.phase.termination


@given(lives)
def test_a_loop_that_is_to_end_waits_for_exactly_what_runs(world: World) -> None:
    """Nothing starts in it; it ends with the last end; each end that was seen is the result."""
    for was, event, now in zip(world.states, world.journal[1:], world.states[1:], strict=False):
        for path, loop in now.loops.items():
            if isinstance(loop.phase, Stopping):
                assert list_running(now, path) or any(isinstance(each, Conclude) for each in outstanding(now))
                assert not [each for each in outstanding(now) if isinstance(each, (RunCall, SendRequest)) and not path]
        if isinstance(was.root.phase, Stopping):
            assert len(now.root.started) == len(was.root.started)
            assert now.root.iterations == was.root.iterations
        if isinstance(was.root.phase, Stopping) and isinstance(now.root.phase, Finished):
            assert now.root.phase.termination == was.root.phase.termination
            assert isinstance(event, (ev.Woken, ev.Stopped)) or not list_running(now)


def test_the_result_of_a_call_that_ends_after_the_stop_is_kept() -> None:
    """As it was, and the loop ends with it; the call that had not started does not run."""
    state = step(two(), STOP)
    assert (m.phase(state), status_of(state), outstanding(state)) == ("Stopping", "stopping", ())
    assert m.history(state) == m.history(two())  # the round joins when the last call has ended
    state = step(state, m.make_ended("c", "refunded 902"))
    assert m.termination(state) == StopCondition("enough")
    assert m.results(m.history(state)[-1]) == {"c": "refunded 902", "d": Texts().not_run}


def test_the_unseen_end_of_a_driver_is_reported_as_unknown() -> None:
    """Another driver, or a stop where no driver is left, ends the loop and starts nothing."""
    for gone in (ev.Woken(), ev.Stopped("again")):
        state = step(step(two(), STOP), gone)
        assert m.termination(state) == StopCondition("enough")
        assert m.results(m.history(state)[-1]) == {"c": CANCELLED, "d": Texts().not_run}
    assert to_end_with(step(step(two(), STOP), ev.Stopped("again", waits=True))) == StopCondition("enough")


def test_a_call_that_was_seen_to_be_cancelled_is_uncertain() -> None:
    """Unless it may be repeated: then it was cancelled."""
    state = step(step(two(), STOP), ev.Ended("c", None))
    assert m.results(m.history(state)[-1])["c"] == UNCERTAIN
    repeatable = m.state_after(m.make_replied("tool_use", m.call("c", "pure")), ev.Started("c"))
    state = step(step(repeatable, STOP), ev.Ended("c", None))
    assert m.results(m.history(state)[-1]) == {"c": CANCELLED}


def test_a_limit_takes_the_same_way() -> None:
    """Its new value takes the running call back; after the end, the loop resumes with the result."""
    late = m.go(two(limits=Limits(timeout=5.0)), *LATE)
    assert to_end_with(late) == Timeout(5.0)
    back = step(late, ev.Changed(limits=Limits(timeout=50.0)))
    assert (m.phase(back), [call.id for _, call in list_running(back)]) == ("Running", ["c"])
    ended = step(late, m.make_ended("c"))
    assert m.termination(ended) == Timeout(5.0)
    resumed = step(ended, ev.Changed(limits=Limits(timeout=50.0)))
    assert outstanding(resumed) == (RunCall("d"),)
    assert m.the_call(resumed, "c").result is not None


def test_a_stopped_loop_takes_nothing_back() -> None:
    """What was stopped stays stopped, and the error names the call that runs."""
    state = step(two(), STOP)
    for refused in (ev.Changed(limits=Limits()), ev.FollowedUp((m.user(),)), m.make_decided(c=m.DENY), ev.Continued()):
        with pytest.raises(IllegalCommand, match=r"because once \(c\) still runs\. ") as error:
            step(state, refused)
        assert "extend()" not in error.value.allowed


def test_loops_inside_its_calls_are_waited_for() -> None:
    """Down to their tools; what they ask of the model is not."""
    state = step(nest(), STOP)
    assert (m.phase(state), list_running(state)) == ("Stopping", [(("p",), m.the_call(state.loops["p",], "a"))])
    state = m.go(state, *at("p", m.make_ended("a")))
    assert m.termination(state) == StopCondition("enough")
    assert set(state.loops) == {()}
    idle = m.state_after(m.make_replied("tool_use", m.call("p", "pure")), m.make_judged())
    idle = m.go(step(idle, m.child(idle, "p")), *at("p", ev.Requested()))
    assert m.phase(step(idle, STOP)) == "Finished"


def test_a_loop_inside_a_call_has_its_own_limit() -> None:
    """The loop above waits for it, and answers when it has ended."""
    state = nest()
    inner = state.loops["p",]
    state = State({**state.loops, ("p",): inner._replace(setup=evolve(inner.setup, limits=Limits(timeout=1.0)))})
    state = m.go(state, ev.Ticked(seconds=2.0), *at("p", ev.TurnEnded(waits=True)))
    assert (m.phase(state), m.phase(state.loops["p",]), outstanding(state)) == ("Running", "Stopping", ())
    state = m.go(state, *at("p", m.make_ended("a")))
    assert m.phase(state.loops["p",]) == "Finished"


def test_a_copy_has_the_end_without_the_call() -> None:
    """The call does not run in the copy, so its end is uncertain there."""
    copy = fork(step(two(), STOP), "copy", 0.0)
    assert m.termination(copy) == StopCondition("enough")
    assert m.results(m.history(copy)[-1])["c"] == UNCERTAIN


def test_journals_of_earlier_versions_end_at_once() -> None:
    """Their stops and limits waited for nothing, and a late end changed nothing."""
    begun = [m.make_opened(m.user()), ev.Requested(), m.make_replied("tool_use", m.call("c")), ev.Started("c")]
    for end in ([ev.Stopped("enough")], [ev.Ticked(seconds=9.0), ev.TurnEnded()]):
        first = m.make_opened(m.user(), limits=Limits(timeout=5.0))
        state = fold([first, *begun[1:], *end, evolve(m.make_ended("c"), iteration=1, attempt=1)])
        assert m.results(m.history(state)[-1]) == {"c": CANCELLED}
        assert (round_of(state.root) is not None) is isinstance(m.termination(state), LIMITS)


def test_a_limit_of_the_loop_above_counts_while_a_loop_inside_is_to_end() -> None:
    """Else it would wait for a decision that never comes, until the tool inside ends."""
    state = nest()
    inner, root = state.loops["p",], state.root
    limited = {
        ("p",): inner._replace(setup=evolve(inner.setup, limits=Limits(timeout=1.0))),
        (): root._replace(setup=evolve(root.setup, limits=Limits(timeout=3.0))),
    }
    state = m.go(State(limited), ev.Ticked(seconds=2.0), *at("p", ev.TurnEnded(waits=True)))
    assert status_of(state) == "running"
    state = m.go(state, ev.Ticked(seconds=2.0))
    assert outstanding(state) == (EndTurn(),)
    state = step(state, ev.TurnEnded(waits=True))
    assert to_end_with(state) == Timeout(3.0)
    assert m.termination(m.go(state, *at("p", m.make_ended("a")), ev.Woken())) == Timeout(3.0)


def test_an_answer_of_a_loop_inside_is_kept() -> None:
    """It had ended before the stop; only its result was not recorded yet."""
    state = m.state_after(m.make_replied("tool_use", m.call("p", "pure")), m.make_judged())
    state = m.go(step(state, m.child(state, "p")), *finish("p", "found it"))
    stopped = step(state, STOP)
    assert (m.phase(stopped), outstanding(stopped)) == ("Stopping", (Conclude("p"),))
    stopped = step(stopped, ev.Ended("p", answer_of(stopped.loops["p",], Texts())))
    assert m.results(m.history(stopped)[-1]) == {"p": "found it"}


def test_a_stop_after_a_limit_is_a_stop() -> None:
    """So that no new limit resumes the loop."""
    state = step(m.go(two(limits=Limits(timeout=5.0)), *LATE), STOP)
    assert to_end_with(state) == StopCondition("enough")


def test_a_request_whose_driver_is_gone_ends_with_the_stop() -> None:
    """With the first one, or with another."""
    requesting = m.state_after(ev.Requested())
    gone = ev.Stopped("enough", is_abandoned=True)
    for state in (step(requesting, gone), step(step(requesting, ev.Stopped("enough")), gone)):
        assert m.termination(state) == StopCondition("enough")
