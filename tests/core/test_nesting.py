"""Loops inside calls: where they begin, what is said of them, and what of that the loops above take."""

from __future__ import annotations

import random

import pytest
from attrs import evolve

from tests.core import making as m
from tests.core.making import the_call
from tests.core.nested import asked, at, begun, inside, kinds, over, waits
from tests.core.test_product import trees
from tests.core.worlds import EVENTS, World
from toolloop.core import events as ev
from toolloop.core.effects import CancelRequest, Conclude, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import CallerError, IllegalCommand, UndecidedCalls, UnknownCall
from toolloop.core.machine import TRANSITIONS, outstanding, step
from toolloop.core.nesting import BELOW
from toolloop.core.setup import Limits
from toolloop.core.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Ready,
    Requesting,
    Running,
    State,
)
from toolloop.core.terminations import Timeout
from toolloop.core.tree import loops
from toolloop.core.usage import IterationUsage, Usage
from toolloop.core.values import Status

# --- where a loop begins ---------------------------------------------------------------------------------------------


def test_a_loop_that_begins_is_the_start_of_its_call() -> None:
    """It counts as one, and has a request to make; the loop above goes on with its other calls."""
    state = m.go(m.after(), *asked("", "p", "q"), ev.Judged())
    state = step(state, m.child(state, "p"))
    call = the_call(state, "p")
    assert (call.status, call.attempts, list(state.ledger.ran)) == (Status.RUNNING, 1, ["p"])
    assert [*map(len, (inside(state).ledger.messages, inside(state).ledger.ran))] == [1, 0]
    assert outstanding(state) == (RunCall("q"), SendRequest(("p",)))


def test_the_judgement_before_it_may_be_left_out_as_before_a_start() -> None:
    """What lets everything run is implied; what asks is not."""
    judging = m.go(m.after(), *asked("", "p"))
    assert step(judging, m.child(judging, "p")) == step(step(judging, ev.Judged()), m.child(judging, "p"))
    edited = m.go(judging, m.asks("p"), m.decided(p=m.APPROVE), ev.Woken())
    with pytest.raises(IllegalCommand, match="'p' is no call that may start"):
        step(edited, m.child(edited, "p"))


@pytest.mark.parametrize(
    "events",
    [
        (m.asks("p"),),
        (m.judged(p=m.DENY),),
        (ev.Judged(), ev.Started("p")),
        (ev.Judged(), ev.Started("p"), m.ended("p")),
    ],
)
def test_nothing_begins_in_a_call_that_may_not_start(events: tuple[ev.Event, ...]) -> None:
    """Denied, undecided, running or settled; nor where there is no such call."""
    state = m.go(m.after(), *asked("", "p"), *events)
    for name in ("p", "nobody"):
        with pytest.raises(IllegalCommand, match=f"{name!r} is no call that may start"):
            step(state, m.child(state, name))


def test_nothing_begins_where_no_round_is_open() -> None:
    """There is no call to begin in."""
    opened = m.child(m.go(m.after(), *asked("", "p")), "p")
    for state in (m.after(), m.after(ev.Requested()), m.after(ev.Stopped())):
        with pytest.raises(IllegalCommand, match="'p' is no call that may start"):
            step(state, opened)


@pytest.mark.parametrize("within", [(), ((1, "q", 1),), ((2, "p", 1),), ((1, "p", 2),), ((1, "p", 1), (1, "p", 1))])
def test_a_loop_says_where_it_begins(within: tuple[tuple[int, str, int], ...]) -> None:
    """Its setup has the iterations and calls above it; that of another place is refused."""
    state = m.go(m.after(), *asked("", "p"))
    opened = m.child(state, "p")
    with pytest.raises(IllegalCommand, match="the loop that begins is not of the call 'p'"):
        step(state, evolve(opened, setup=evolve(opened.setup, within=within)))
    awake = step(state, opened)
    with pytest.raises(IllegalCommand, match="the setup is that of a loop in another place"):
        step(awake, ev.Woken(evolve(opened.setup, within=within), path=("p",)))


def test_a_loop_begins_at_the_time_of_the_loop_above() -> None:
    """And later times are heard of in all of them; seconds count where there is work."""
    state = m.go(begun("p", "q"), *waits("p"))
    state = step(state, ev.Ticked(at=50.0, seconds=2.0))
    assert [loop.ledger.now for _, loop in loops(state)] == [50.0] * 3
    assert [loop.ledger.active for _, loop in loops(state)] == [2.0, 0.0, 2.0]  # `p` waits for the caller
    late = step(m.go(m.after(), *asked("", "p"), ev.Ticked(at=70.0)), m.child(m.go(m.after(), *asked("", "p")), "p"))
    assert inside(late).ledger.now == 70.0


# --- what is said of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in EVENTS if kind not in BELOW], ids=lambda kind: kind.__name__)
def test_what_the_caller_says_is_said_to_the_outermost_loop(kind: type[ev.Event]) -> None:
    """It reaches down from there; said of a loop inside of a call it is refused."""
    world = World(random.Random(1))
    world.state = begun("p")
    with pytest.raises(IllegalCommand, match="is for the outermost loop, and reaches down from there"):
        step(world.state, evolve(world.make(kind), path=("p",)))


@pytest.mark.long
def test_what_the_table_does_not_list_is_refused_inside_of_a_call_too() -> None:
    """In every state of a loop in a tree; and the tree is as it was."""
    places = {
        (type(loop), tuple(path)): state for w in trees()[:60] for state in w.states for path, loop in loops(state)
    }
    tried = set()
    for (kind, path), state in places.items():
        for event in BELOW if path else ():
            if event is not ev.Opened and event not in TRANSITIONS[kind]:
                world = World(random.Random(2))
                world.state, world.path = state, path
                untouched = evolve(state)
                with pytest.raises(CallerError):
                    step(state, world.make(event))
                assert state == untouched
                tried.add(kind)
    assert tried >= {Ready, Requesting, Judging, Deciding, Running, Finished, Failed}


@pytest.mark.parametrize("path", ["x", "p/x", "p/a/b"])
def test_what_is_said_of_a_loop_that_is_not_there_is_refused(path: str) -> None:
    """But for what has its place in the record: an end that names its run, and what a call used."""
    state = m.go(begun("p"), *asked("p", "a"))
    with pytest.raises(IllegalCommand, match=f"there is no loop inside the call {path.removeprefix('p/')!r}"):
        m.go(state, *at(path, ev.Requested()))
    with pytest.raises(IllegalCommand, match="there is no loop"):
        m.go(state, *at(path, m.ended("a")))
    assert m.go(state, *at(path, ev.Ended("a", m.DONE, iteration=1, attempt=1))) == state
    spent = m.go(state, *at(path, ev.Spent("a", IterationUsage(1, usage=Usage(5), path=("b",)))))
    assert spent.ledger.total_usage == state.ledger.total_usage + Usage(5)
    assert spent.ledger.usage_log[-1].path == (*path.split("/"), "a", "b")


def test_where_the_loop_above_stands_still_so_does_what_is_inside() -> None:
    """But for what may be told at any time."""
    state = m.go(begun("p", "q"), *waits("p"), *waits("q"), ev.TurnEnded())
    assert kinds(state) == {"": "Deciding", "p": "Deciding", "q": "Deciding"}
    end = ev.Ended("a", m.DONE, iteration=1, attempt=1)
    for event in (ev.TurnEnded(), ev.Requested(), ev.Judged(), ev.Started("a"), m.child(state, "p", "a")):
        with pytest.raises(IllegalCommand, match=r"the loop above does not run|is not possible while"):
            m.go(state, event if isinstance(event, ev.Opened) else evolve(event, path=("p",)))
    for any_time in (end, ev.Woken(), ev.Spent("a", IterationUsage(1))):
        assert kinds(m.go(state, *at("p", any_time))) == kinds(state)


def test_what_a_loop_uses_and_starts_counts_in_every_loop_above() -> None:
    """With the calls that lead to it from there."""
    state = m.go(begun("p", inside=("p/b",)), *asked("p/b", "c"), *at("p/b", ev.Started("c")))
    top, middle, low = state.ledger, inside(state).ledger, inside(state, "p/b").ledger
    assert [entry.path for entry in top.usage_log] == [(), ("p",), ("p", "b")]
    assert [entry.path for entry in middle.usage_log] == [(), ("b",)]
    assert [entry.path for entry in low.usage_log] == [()]
    assert [ledger.total_usage.total_tokens for ledger in (top, middle, low)] == [15, 10, 5]
    assert [[*ledger.ran] for ledger in (top, middle, low)] == [["p", "p/b", "p/b/c"], ["b", "b/c"], ["c"]]
    assert [ledger.iterations for ledger in (top, middle, low)] == [1, 1, 1]
    spent = m.go(state, *at("p/b", ev.Spent("c", IterationUsage(1, usage=Usage(1, 1)))))
    assert spent.ledger.usage_log[-1].path == ("p", "b", "c")
    assert inside(spent).ledger.usage_log[-1].path == ("b", "c")


def test_ids_may_repeat_in_a_tree() -> None:
    """A path is what names a call."""
    state = m.go(begun("c", inside=("c/c",)), *asked("c/c", "c"), *at("c/c", ev.Started("c")))
    state = m.go(state, *at("c/c", m.ended("c", "deepest"), ev.TurnEnded()))
    assert kinds(state) == {"": "Running", "c": "Running", "c/c": "Ready"}


# --- it goes on by itself --------------------------------------------------------------------------------------------


def test_a_loop_inside_of_a_call_waits_for_no_command() -> None:
    """After a round, or a pause, it asks again."""
    state = m.go(begun("p"), *asked("p", "a"), *at("p", ev.Started("a"), m.ended("a"), ev.TurnEnded()))
    assert kinds(state) == {"": "Running", "p": "Ready"}
    paused = m.go(state, *at("p", ev.Requested(), m.replied("pause_turn", m.text("so"), m.server_call("s"))))
    assert kinds(paused) == {"": "Running", "p": "Ready"}
    assert len(inside(paused).tail) == 1
    assert outstanding(paused) == (SendRequest(("p",)),)


def test_once_it_is_over_its_call_has_its_result() -> None:
    """And not before: not by an end without a name, nor by one with it."""
    state = m.go(begun("p"), *asked("p", "a"))
    with pytest.raises(IllegalCommand, match="the loop inside 'p' is not over"):
        step(state, m.ended("p"))
    assert step(state, ev.Ended("p", m.DONE, iteration=1, attempt=1)) == state
    done = m.go(begun("p"), *over("p"))
    assert outstanding(done) == (Conclude("p"),)
    closed = m.go(done, m.ended("p", "found"), ev.TurnEnded())
    assert isinstance(closed, Executed)
    assert m.results(m.history(closed)[2]) == {"p": "found"}
    assert the_call_is_empty(m.go(done, m.ended("p")))


def the_call_is_empty(state: State) -> bool:
    return the_call(state, "p").child is None


def test_a_request_inside_is_given_up_when_its_loop_has_no_time_left() -> None:
    """Its loop has ended then, and the loop above goes on."""
    state = m.go(m.after(), *asked("", "p"))
    state = m.go(step(state, m.child(state, "p", limits=Limits(timeout=5.0))), *at("p", ev.Requested()))
    late = step(state, ev.Ticked(seconds=5.0))
    assert (outstanding(state), outstanding(late)) == ((), (CancelRequest(("p",)),))
    given_up = m.go(late, *at("p", ev.RequestCancelled()))
    assert outstanding(given_up) == (EndTurn(("p",)),)
    ended = m.go(given_up, *at("p", ev.TurnEnded()))
    assert inside(ended).termination == Timeout(5.0)
    assert outstanding(ended) == (Conclude("p"),)


# --- the caller ------------------------------------------------------------------------------------------------------


def test_a_decision_names_a_call_by_its_path() -> None:
    """Of all loops at once, or one by one; each joins the loop of its call."""
    asking = m.go(begun("p", "q"), *waits("p"), *waits("q"), ev.TurnEnded())
    at_once = step(asking, ev.Decided((("p/a", m.APPROVE), ("q/a", m.DENY))))
    assert at_once == m.go(asking, ev.Decided((("q/a", m.DENY),)), ev.Decided((("p/a", m.APPROVE),)))
    assert the_call(inside(at_once, "p"), "a").status is Status.DECIDED
    onward = step(at_once, ev.Continued())
    assert outstanding(onward) == (RunCall("a", ("p",)), EndTurn(("q",)))


@pytest.mark.parametrize("name", ["x", "x/a", "p/x", "p/a/b", "q/a"])
def test_one_decision_that_names_no_call_refuses_those_beside_it(name: str) -> None:
    """Wherever in the tree; and it says what waits."""
    asking = m.go(begun("p", "q"), *waits("p"))
    untouched = evolve(asking)
    with pytest.raises(UnknownCall) as refused:
        step(asking, ev.Decided((("p/a", m.APPROVE), (name, m.APPROVE))))
    assert asking == untouched
    if name in ("x/a", "q/a"):
        assert f"names the call {name!r}" in str(refused.value)
        assert refused.value.known == ("p/a",)


def test_the_loop_goes_on_once_all_is_decided_everywhere() -> None:
    """Under `barrier` a call that waits deep inside holds it up; it is named by its path."""
    asking = m.go(begun("p"), *waits("p"), ev.TurnEnded())
    with pytest.raises(UndecidedCalls, match="p/a") as refused:
        step(asking, ev.Continued())
    assert refused.value.calls == ("p/a",)
    assert isinstance(m.go(asking, ev.Decided((("p/a", m.DENY),)), ev.Continued()), Running)


def test_under_ready_the_others_go_on_meanwhile() -> None:
    """A loop that its own `barrier` holds up stays where it is."""
    asking = m.go(begun("p", "q", execution="ready"), *waits("p"), *waits("q"), ev.TurnEnded())
    onward = m.go(asking, ev.Decided((("q/a", m.APPROVE),)), ev.Continued())
    assert kinds(onward) == {"": "Running", "p": "Deciding", "q": "Running"}
    assert outstanding(onward) == (RunCall("a", ("q",)),)


def test_an_edit_inside_is_judged_where_it_was_made() -> None:
    """Before it runs."""
    asking = m.go(begun("p"), *waits("p"), ev.TurnEnded(), ev.Decided((("p/a", m.approve({"a": 2})),)))
    assert outstanding(step(asking, ev.Continued())) == (Judge(("a",), path=("p",)),)


def test_a_stop_ends_all_of_it() -> None:
    """The calls that had loops inside are said to be cancelled while they ran."""
    state = m.go(begun("p", inside=("p/b",)), *at("p/b", ev.Requested()), ev.Stopped())
    assert kinds(state) == {"": "Finished"}
    assert "was cancelled while it ran" in str(m.history(state)[-1])


def test_a_call_that_is_cancelled_loses_the_loop_inside() -> None:
    """Whatever that was about."""
    state = step(m.go(begun("p"), *at("p", ev.Requested())), ev.Cancelled("p"))
    assert (kinds(state), the_call(state, "p").status) == ({"": "Running"}, Status.SETTLED)
