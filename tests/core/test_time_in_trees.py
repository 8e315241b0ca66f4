"""A limit of time where loops run inside of calls: it bounds what is under way, which `extend` goes on with."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.playing import UNLIMITED, Path, Play, Script, asleep, limits, told, trees
from toolloop.core import events as ev
from toolloop.core.effects import CancelRequest, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import IllegalCommand
from toolloop.core.limits import left, time_left
from toolloop.core.machine import outstanding, step
from toolloop.core.states import Deciding, Executed, Finished
from toolloop.core.terminations import NaturalEnd, Timeout
from toolloop.core.tree import waiting

# A tool, a child with a tool, and a child that only speaks.
BUSY: dict[Path, Script] = {(): [["a", "p1", "p2"]], ("p1",): [["c"]]}


@settings(max_examples=40)
@given(trees(), st.booleans())
def test_a_tree_that_is_given_time_bit_by_bit_is_the_tree_without_a_limit(
    tree: dict[Path, Script], sleeps: bool
) -> None:
    """Each request and each tool takes a second, one after the other: as many of them as there are seconds."""
    whole, play, seconds = Play(tree), Play(tree, {(): limits(timeout=0.0)}, seconds=1.0), 0
    while (end := play.run()).termination != NaturalEnd():
        assert end.termination == Timeout(seconds)
        assert (end.ledger.active, left(end.ledger)["seconds"]) == (seconds, 0)
        assert (len([path for path in play.begun if play.takes_time(*path)]), play.under_way) == (seconds, [])
        if sleeps:
            asleep(play)
        seconds += 1
        play.extend(limits(timeout=float(seconds)))
    assert told(end) == told(whole.run())
    assert play.begun == whole.begun


def busy(path: Path = (), **more: Any) -> Play:
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
    assert outstanding(play.state) == ()
    return play


@pytest.mark.parametrize(("active", "over"), [(4.9, False), (5.0, True), (5.1, True)])
def test_when_time_is_up_the_tree_ends_with_all_that_is_under_way(active: float, over: bool) -> None:
    """Nobody waits for anything: each call has a result that says what is known, so the API takes the history."""
    play = busy()
    assert time_left(play.state) == 5.0
    play.take(ev.Ticked(seconds=active))
    assert outstanding(play.state) == ((EndTurn(),) if over else ())
    assert time_left(play.state) == (None if over else pytest.approx(0.1))
    if over:
        end = play.run()
        assert (end.termination, end.ledger.active, left(end.ledger)["seconds"]) == (Timeout(5.0), active, 0)
        assert list(m.results(m.history(end)[-1])) == ["a", "p1", "p2"]
        assert all(block["is_error"] for block in m.history(end)[-1]["content"])


@pytest.mark.parametrize("when", ["after the end", "after extend", "never"])
def test_what_was_left_behind_is_known_or_uncertain_and_runs_no_second_time(when: str) -> None:
    """The end of a tool counts whenever it is told; of one that nobody can tell of any more, somebody must say."""
    play = busy(tool="once")
    play.take(ev.Ticked(seconds=5.0))
    play.run()
    play.loses()
    late = [play.under_way.pop(), play.under_way.pop()]
    ends = [evolve(m.ended(path[-1]), path=path[:-1], iteration=1, attempt=1) for _, path in late]
    if when == "after the end":
        for ended in ends:
            play.take(ended)
    if when == "never":
        play.take(ev.Woken())
    play.extend(limits(timeout=9.0))
    if when == "after extend":
        assert outstanding(play.state) == (SendRequest(("p2",)),)
        for ended in ends:
            play.take(ended)
    if when == "never":
        while not isinstance(play.state, Deciding):
            play.move()
        names = ["/".join((*path, call.id)) for path, call in waiting(play.state)]
        assert names == ["a", "p1/c"]
        play.take(m.decided(**{name: m.answer("done") for name in names}))
    end = play.run()
    assert end.termination == NaturalEnd()
    assert m.results(m.history(end)[2]) == {"a": "done", "p1": "done/p1", "p2": "done/p2"}
    assert play.tools == ["a", "p1", "p2", "p1/c"]
    assert [play.requests.count(path) for path in ((), ("p1",), ("p2",))] == [2, 2, 2]
    assert len(end.ledger.usage_log) == 5  # the request that was given up used nothing that anybody knows of


@pytest.mark.parametrize("more", [limits(timeout=5.0), limits(timeout=5.0, requests=99), limits(timeout=1.0)])
def test_without_more_time_it_ends_again_at_once(more: Any) -> None:
    """Nothing is begun, and nothing that was left behind is lost."""
    play = busy()
    play.take(ev.Ticked(seconds=5.0))
    end = play.run()
    begun = list(play.begun)
    play.extend(more)
    again = play.run()
    assert again.termination == Timeout(more.timeout)
    assert (again.back, play.begun) == (end.back, begun)


@pytest.mark.parametrize(("active", "over"), [(4.9, False), (5.0, True), (5.1, True)])
@pytest.mark.parametrize("path", [(), ("p1",), ("p1", "p2")])
def test_a_request_is_given_up_when_its_own_loop_has_no_time_left(path: Path, active: float, over: bool) -> None:
    """The loop ends then; one inside a call alone, and the loops above go on."""
    play = Play({(): [["p1"]], ("p1",): [["p2"]]}, {path: limits(timeout=5.0)}, eager=True)
    while SendRequest(path) not in outstanding(play.state):
        play.move()
    play.perform(SendRequest(path))
    play.take(ev.Ticked(seconds=active))
    assert outstanding(play.state) == ((CancelRequest(path),) if over else ())
    if over:
        play.perform(CancelRequest(path))
        assert outstanding(play.state) == (EndTurn(path),)
    end = play.run()
    assert end.termination == (Timeout(5.0) if over and not path else NaturalEnd())


def test_a_child_without_time_leaves_its_tool_behind_and_the_loop_above_goes_on() -> None:
    """What its tool says afterwards has no place any more, and is no mistake."""
    play = busy(("p1",))
    assert time_left(play.state) == 5.0
    play.take(ev.Ticked(seconds=5.0))
    assert outstanding(play.state) == (EndTurn(("p1",)),)
    late = play.under_way.pop()
    end = play.run()
    assert m.results(m.history(end)[2])["a"] == "done"
    assert "timeout" in m.results(m.history(end)[2])["p1"]
    told_late = evolve(m.ended("c"), path=late[1][:-1], iteration=1, attempt=1)
    assert step(end, told_late) == end


def test_time_counts_for_the_loops_that_are_at_work() -> None:
    """A child that waits for the caller spends none of its own; the loops above do while something of them runs."""
    play = Play(
        {(): [["p1", "a"]], ("p1",): [["c"]]}, {(): limits(timeout=9.0), ("p1",): limits(timeout=2.0)}, eager=True
    )
    while RunCall("c", ("p1",)) not in outstanding(play.state):
        play.move()
    assert time_left(play.state) == 2.0
    asks = Play({(): [["p1", "a"]], ("p1",): [["c"]]}, play.limits, eager=True, asks=("c",))
    while not any(path == ("p1",) for path in asks.requests):
        asks.move()
    asks.end(("request", ("p1",)))
    while outstanding(asks.state):
        asks.move()
    assert asks.under_way == [("tool", ("a",))]
    assert isinstance(asks.at("p1"), Deciding)
    asks.take(ev.Ticked(seconds=3.0))
    assert (asks.at("p1").ledger.active, asks.state.ledger.active, time_left(asks.state)) == (0.0, 3.0, 6.0)
    asks.move()
    asks.move()
    assert isinstance(asks.state, Deciding)
    assert time_left(asks.state) is None


def test_a_child_that_waits_for_the_caller_is_not_cut_short() -> None:
    """Nothing of it runs, so there is nothing to stop: the caller is asked, and time binds what would run then."""
    play = Play({(): [["p1"]], ("p1",): [["c"]]}, {(): limits(timeout=5.0)}, asks=("c",))
    while not waiting(play.state):
        play.move()
    play.take(ev.Ticked(seconds=5.0))
    while not isinstance(play.state, Deciding):
        play.move()
    play.take(m.decided(**{"p1/c": m.APPROVE}))
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


def test_a_loop_that_was_done_in_time_closes_its_round() -> None:
    """Time that is up with nothing left to run ends the next request, not the round."""
    play = Play({(): [["a", "p1"]]}, {(): limits(timeout=4.0)}, seconds=1.0)
    while not isinstance(play.state, Executed):
        play.move()
    assert play.state.ledger.active == 3.0
    play.take(ev.Ticked(seconds=1.0))
    end = play.run()
    assert (end.termination, m.results(m.history(end)[2])) == (Timeout(4.0), {"a": "done", "p1": "done/p1"})
    play.extend(UNLIMITED)
    assert isinstance(play.run(), Finished)
    assert play.tools == ["a", "p1"]
