"""Limits where loops run inside calls: a budget or a timeout binds the whole tree, and `extend` goes on inside it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import example, given, strategies as st

from tests.kit.effort import examples
from tests.kit.machine import making as m
from tests.kit.machine.playing import PARTS, UNLIMITED, USES, Play, Script, limits, tell_outcome, trees
from toolloop.errors import IllegalCommand
from toolloop.machine.queries import outstanding, time_left, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.loop import Path
from toolloop.machine.rules.limits import count_left, count_spent
from toolloop.machine.tree import step
from toolloop.terminations import BudgetExceeded, NaturalEnd, Timeout

# A tool, a child with a tool, and a child that only speaks.
BUSY: dict[Path, Script] = {(): [["a", "p1", "p2"]], ("p1",): [["c"]]}


# --- a budget of the whole tree --------------------------------------------------------------------------------------

# Several tools in the outermost loop and below it.
TOOLS: dict[Path, Script] = {(): [["t0", "p1", "t2"]], ("p1",): [["t3", "p4"], ["t5"]], ("p1", "p4"): [["t6", "t7"]]}


@examples(15)
@given(trees(), st.sampled_from(PARTS), st.booleans(), st.booleans())
@example(TOOLS, "tool_calls", True, False)
@example(TOOLS, "tool_calls", False, True)
@example(TOOLS, "requests", True, False)
def test_a_tree_that_is_extended_bit_by_bit_is_the_tree_without_a_limit(
    tree: dict[Path, Script], what: str, eager: bool, sleeps: bool
) -> None:
    """Each time it stops at the very figure, and one more gives one more; in the end all ran once, and no more."""
    whole = Play(tree)
    play = Play(tree, {(): limits(**{what: 0})}, eager)
    end, limit, loops = play.run(), 0, 1
    while end.termination != NaturalEnd():
        used = int(count_spent(play.state.root, what))
        assert end.termination == BudgetExceeded(what, limit, used)
        assert count_left(play.state.root)[what] == 0
        assert play.under_way == []
        assert used == limit or used < limit + loops * USES[what]
        before, limit = list(play.begun), used + 1
        if sleeps:
            play.sleeps()
        play.extend(limits(**{what: limit}))
        loops = play.count()
        end = play.run()
        more = [kind for kind, _ in play.begun[len(before) :]]
        assert more.count("tool" if what == "tool_calls" else "request") in range(1 + (loops if eager else 1))
    whole.run()
    assert tell_outcome(play.state) == tell_outcome(whole.state)
    assert sorted(play.begun) == sorted(whole.begun)


def test_the_last_request_is_for_one_of_those_that_want_it() -> None:
    """Two children, and one request is left: as soon as one makes it, the other may not."""
    play = Play({(): [["p1", "p2"]]}, {(): limits(requests=2)}, eager=True)
    while SendRequest(("p1",)) not in outstanding(play.state):
        play.move()
    while SendRequest(("p2",)) not in outstanding(play.state):
        play.perform(next(effect for effect in outstanding(play.state) if isinstance(effect, RunCall)))
    play.perform(SendRequest(("p1",)))
    assert outstanding(play.state) == ()
    with pytest.raises(IllegalCommand, match="limit of a loop above"):
        step(play.state, ev.Requested(path=("p2",)))
    failing = step(play.state, ev.RequestFailed(m.FAILURE, path=("p1",)))
    assert outstanding(failing) == (SendRequest(("p2",)),)  # what failed used nothing
    play.end()
    assert play.run().termination == BudgetExceeded("requests", 2, 2)
    assert play.requests == [(), ("p1",)]


def test_no_tool_starts_in_spite_of_a_loop_above() -> None:
    """What the outermost loop forbids is refused at every level."""
    play = Play({(): [["p1"]], ("p1",): [["p2"]], ("p1", "p2"): [["t", "p3"]]}, {(): limits(tool_calls=9)})
    while RunCall("t", ("p1", "p2")) not in outstanding(play.state):
        play.move()
    spent_up = step(play.state, ev.Changed(limits=limits(tool_calls=2)))
    for started in (ev.Started("t", path=("p1", "p2")), play.open_inside(("p1", "p2"), "p3")):
        assert step(play.state, started) != play.state
        with pytest.raises(IllegalCommand, match="a limit of a loop above forbids it"):
            step(spent_up, started)


def test_a_child_that_its_own_budget_holds_back_ends_also_where_the_loop_above_has_one() -> None:
    """Only what the loop above holds back waits for it."""
    play = Play({(): [["p1"]], ("p1",): [["t", "p2"]]}, {(): limits(tool_calls=9), ("p1",): limits(tool_calls=1)})
    assert play.run().termination == NaturalEnd()
    assert ev.TurnEnded(path=("p1",)) in play.journal
    assert play.tools == ["p1", "p1/t"]


# --- time ------------------------------------------------------------------------------------------------------------


@examples(10)
@given(trees(), st.booleans())
def test_a_tree_that_is_given_time_bit_by_bit_is_the_tree_without_a_limit(
    tree: dict[Path, Script], sleeps: bool
) -> None:
    """Each request and each tool takes a second, one after the other: as many of them as there are seconds."""
    whole, play, seconds = Play(tree), Play(tree, {(): limits(timeout=0.0)}, seconds=1.0), 0
    while (end := play.run()).termination != NaturalEnd():
        assert end.termination == Timeout(seconds)
        assert (play.state.root.active, count_left(play.state.root)["seconds"]) == (seconds, 0)
        assert (len([path for path in play.begun if play.takes_time(*path)]), play.under_way) == (seconds, [])
        if sleeps:
            play.sleeps()
        seconds += 1
        play.extend(limits(timeout=float(seconds)))
    whole.run()
    assert tell_outcome(play.state) == tell_outcome(whole.state)
    assert play.begun == whole.begun


def make_busy(path: Path = (), **more: Any) -> Play:
    """The tree in the middle: the tool, that of the one child, and the request of the other are under way."""
    play = Play(BUSY, {path: limits(timeout=5.0)}, eager=True, **more)
    play.move()
    play.end()
    while len(play.begun) < 6:
        play.move()
    play.end(("request", ("p1",)))
    while outstanding(play.state):
        play.move()
    assert play.under_way == [("tool", ("a",)), ("request", ("p2",)), ("tool", ("p1", "c"))]
    return play


@pytest.mark.parametrize(("active", "over"), [(4.9, False), (5.0, True), (5.1, True)])
def test_when_time_is_up_the_tree_ends_with_all_that_is_under_way(active: float, *, over: bool) -> None:
    """Nothing is awaited: each call has a result with what is known, so the API takes the history."""
    play = make_busy()
    assert time_left(play.state) == 5.0
    play.take(ev.Ticked(seconds=active))
    assert outstanding(play.state) == ((EndTurn(),) if over else ())
    assert time_left(play.state) == (None if over else pytest.approx(0.1))
    if over:
        assert play.run().termination == Timeout(5.0)
        assert list(m.results(m.history(play.state)[-1])) == ["a", "p1", "p2"]
        assert all(block["is_error"] for block in m.history(play.state)[-1]["content"])


@pytest.mark.parametrize("when", ["after the end", "after extend", "never"])
def test_what_was_left_behind_is_known_or_uncertain_and_runs_no_second_time(when: str) -> None:
    """The end of a tool counts whenever it is reported; if it cannot be reported any more, a caller must decide."""
    play = make_busy(tool="once")
    play.take(ev.Ticked(seconds=5.0))
    play.run()
    play.loses()
    late = [play.under_way.pop(), play.under_way.pop()]
    ends = [evolve(m.make_ended(path[-1]), path=path[:-1], iteration=1, attempt=1) for _, path in late]
    for ended in ends if when == "after the end" else ():
        play.take(ended)
    if when == "never":
        play.take(ev.Woken())
    play.extend(limits(timeout=9.0))
    if when == "after extend":
        assert outstanding(play.state) == (SendRequest(("p2",)),)
        for ended in ends:
            play.take(ended)
    if when == "never":
        while m.phase(play.state) != "decision_required":
            play.move()
        names = ["/".join((*path, call.id)) for path, call in waiting(play.state)]
        assert names == ["a", "p1/c"]
        play.take(m.make_decided(**{name: m.answer("done") for name in names}))
    assert play.run().termination == NaturalEnd()
    assert m.results(m.history(play.state)[2]) == {"a": "done", "p1": "done/p1", "p2": "done/p2"}
    assert play.tools == ["a", "p1", "p2", "p1/c"]
    assert [play.requests.count(path) for path in ((), ("p1",), ("p2",))] == [2, 2, 2]


@pytest.mark.parametrize("path", [(), ("p1",), ("p1", "p2")])
def test_a_request_is_given_up_when_its_own_loop_has_no_time_left(path: Path) -> None:
    """The loop ends then; one inside a call alone, and the loops above go on."""
    play = Play({(): [["p1"]], ("p1",): [["p2"]]}, {path: limits(timeout=5.0)}, eager=True)
    while SendRequest(path) not in outstanding(play.state):
        play.move()
    play.perform(SendRequest(path))
    play.take(ev.Ticked(seconds=5.0))
    assert outstanding(play.state) == (CancelRequest(path),)
    play.perform(CancelRequest(path))
    assert outstanding(play.state) == (EndTurn(path),)
    assert play.run().termination == (NaturalEnd() if path else Timeout(5.0))


def test_a_child_that_waits_for_the_caller_is_not_cut_short() -> None:
    """Its time does not run, and nothing of it is to be stopped: the caller is asked, and time binds what runs then."""
    own = {(): limits(timeout=5.0), ("p1",): limits(timeout=2.0)}
    play = Play({(): [["p1"]], ("p1",): [["c"]]}, own, asks=("c",))
    while not waiting(play.state):
        play.move()
    assert time_left(play.state) == 5.0
    play.take(ev.Ticked(seconds=5.0))
    assert play.at("p1").active == 0.0
    while m.phase(play.state) != "decision_required":
        play.move()
    assert time_left(play.state) is None
    play.take(m.make_decided(**{"p1/c": m.APPROVE}))
    assert play.run().termination == Timeout(5.0)
    play.extend(UNLIMITED)
    assert play.run().termination == NaturalEnd()
    assert play.tools == ["p1", "p1/c"]


@pytest.mark.parametrize("event", [ev.Requested(path=("p2",)), ev.Started("c", path=("p1",))])
def test_nothing_begins_inside_a_call_when_the_loop_above_has_no_time_left(event: ev.Event) -> None:
    """Nor does what takes the last of its time to begin: that is refused, and nothing changes."""
    play = Play(BUSY, {(): limits(timeout=5.0)}, eager=True)
    wanted = {SendRequest(("p2",)), RunCall("c", ("p1",))}
    while not (play.requests[-1:] == [("p1",)] and ("request", ("p1",)) in play.under_way):
        play.perform(outstanding(play.state)[0]) if outstanding(play.state) else play.end()
    play.end(("request", ("p1",)))
    while not wanted <= set(outstanding(play.state)):
        play.perform(next(effect for effect in outstanding(play.state) if isinstance(effect, Judge)))
    assert step(play.state, evolve(event, seconds=4.9)) != play.state
    with pytest.raises(IllegalCommand, match="a limit of a loop above"):
        step(play.state, evolve(event, seconds=5.0))
