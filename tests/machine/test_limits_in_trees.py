"""Limits where loops run inside calls: a budget or a timeout binds the whole tree, and `extend` goes on inside it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.machine import making as m
from tests.machine.playing import PARTS, UNLIMITED, USES, Play, Script, limits, told, trees
from toolloop.machine import events as ev
from toolloop.machine.effects import CancelRequest, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.errors import IllegalCommand
from toolloop.machine.limits import left, spent
from toolloop.machine.loop import Finished
from toolloop.machine.queries import time_left, waiting
from toolloop.machine.setup import Limits, Texts
from toolloop.machine.state import Path
from toolloop.machine.terminations import BudgetExceeded, MaxIterations, NaturalEnd, PauseLimit, Timeout
from toolloop.machine.tree import outstanding, step

# 12 requests and 11 calls: tools beside two children, of which one has a child that pauses.
TREE: dict[Path, Script] = {
    (): [["a", "p1", "p2"], ["b"]],
    ("p1",): [["c", "d"], ["e"]],
    ("p2",): [["p3", "f"]],
    ("p2", "p3"): [["g"], [], ["h"]],
}
# A tool, a child with a tool, and a child that only speaks.
BUSY: dict[Path, Script] = {(): [["a", "p1", "p2"]], ("p1",): [["c"]]}
both_orders = pytest.mark.parametrize("eager", [False, True])


# --- a budget of the whole tree --------------------------------------------------------------------------------------


@examples(15)
@given(trees(), st.sampled_from(PARTS), st.booleans(), st.booleans())
def test_a_tree_that_is_extended_bit_by_bit_is_the_tree_without_a_limit(
    tree: dict[Path, Script], what: str, eager: bool, sleeps: bool
) -> None:
    """Each time it stops at the very figure, and one more gives one more; in the end all ran once, and no more."""
    whole = Play(tree)
    play = Play(tree, {(): limits(**{what: 0})}, eager)
    end, limit, loops = play.run(), 0, 1
    while end.termination != NaturalEnd():
        used = spent(play.state.root, what)
        assert end.termination == BudgetExceeded(what, limit, used)
        assert left(play.state.root)[what] == 0
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
    assert told(play.state) == told(whole.state)
    assert sorted(play.begun) == sorted(whole.begun)


@both_orders
@pytest.mark.parametrize("what", PARTS)
def test_a_limit_that_is_not_raised_enough_ends_the_tree_again_at_once(what: str, eager: bool) -> None:
    """Other limits, or the same one as it was: nothing is begun, and it stands where it stood."""
    play = Play(TREE, {(): limits(**{what: 4})}, eager)
    end = play.run()
    begun = list(play.begun)
    others = {other: 99 for other in PARTS if other != what}
    for changed in ({what: 4}, {what: 0}, {what: 4, **others, "timeout": 99.0, "max_iterations": 99}):
        play.extend(limits(**changed))
        again = play.run()
        limit = 0 if changed == {what: 0} else 4
        assert again == evolve(end, termination=BudgetExceeded(what, limit, spent(play.state.root, what)))
    assert play.begun == begun


@both_orders
@pytest.mark.parametrize(
    ("what", "last"),
    [("requests", 11), ("tool_calls", 11), ("input_tokens", 55), ("output_tokens", 22), ("total_tokens", 77)],
)
def test_a_budget_binds_a_tree_at_its_very_figure(what: str, last: int, eager: bool) -> None:
    """What was used before the last request is the most that forbids it; each call has its result all the same."""
    for limit, over in ((last - 1, True), (last, True), (last + 1, False)):
        play = Play(TREE, {(): limits(**{what: limit})}, eager)
        assert isinstance(play.run().termination, BudgetExceeded if over else NaturalEnd)
        for asked, answered in zip(m.history(play.state)[1::2], m.history(play.state)[2::2], strict=False):
            calls = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
            assert list(m.results(answered)) == calls


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


@pytest.mark.parametrize("inner", ["t5", "p5"])
def test_the_last_tool_is_for_one_of_those_that_want_it(inner: str) -> None:
    """Whether a loop or a tool begins: the budget of the outermost loop counts both, on every level."""
    tree = {(): [["p1"]], ("p1",): [["p2"]], ("p1", "p2"): [["t3", inner]]}
    play = Play(tree, {(): limits(tool_calls=3)}, eager=True)
    assert play.run().termination == BudgetExceeded("tool_calls", 3, 3)
    assert play.tools == ["p1", "p1/p2", "p1/p2/t3"]
    play.extend(limits(tool_calls=4))
    assert play.run().termination == BudgetExceeded("tool_calls", 4, 4)
    assert play.tools[3:] == [f"p1/p2/{inner}"]


def test_no_tool_starts_in_spite_of_a_loop_above() -> None:
    """What the outermost loop forbids is refused at every level."""
    play = Play({(): [["p1"]], ("p1",): [["p2"]], ("p1", "p2"): [["t", "p3"]]}, {(): limits(tool_calls=9)})
    while RunCall("t", ("p1", "p2")) not in outstanding(play.state):
        play.move()
    spent_up = step(play.state, ev.Changed(limits=limits(tool_calls=2)))
    for started in (ev.Started("t", path=("p1", "p2")), play.opened(("p1", "p2"), "p3")):
        assert step(play.state, started) != play.state
        with pytest.raises(IllegalCommand, match="a limit of a loop above forbids it"):
            step(spent_up, started)


def test_the_part_that_stopped_the_loop_is_the_one_that_is_told() -> None:
    """Where several parts are spent, it is the one that forbids what is next."""
    own = Play({(): [["a", "b"]]}, {(): limits(requests=1, tool_calls=1)})
    assert own.run().termination == BudgetExceeded("tool_calls", 1, 1)
    below = Play({(): [["a", "p1"]], ("p1",): [["c"]]}, {(): limits(output_tokens=2, tool_calls=2)})
    assert below.run().termination == BudgetExceeded("output_tokens", 2, 2)
    below.extend(limits(output_tokens=3, tool_calls=2))
    assert below.run().termination == BudgetExceeded("tool_calls", 2, 2)
    assert below.requests == [(), ("p1",)]
    child = Play({(): [["p1"]]}, {(): limits(tool_calls=1)})  # it needs no tool, and comes to its end
    assert child.run().termination == BudgetExceeded("tool_calls", 1, 1)
    assert m.results(m.history(child.state)[2]) == {"p1": "done/p1"}


# --- limits of a child, and of a loop between ------------------------------------------------------------------------

PAUSING: Script = [["c"], [], [], ["d"]]  # five requests, two tools, two pauses
CUT = "<<{reason}>> {text}"
TEXTS = Texts(cut_short=CUT, no_answer="<<{reason}>>")


def of_child(own: Limits, script: Script = PAUSING, *, path: Path = ("p1",), **more: Any) -> tuple[Play, str]:
    """A tree in which the loop at a path has limits of its own, after its end; and what its call came to."""
    above = {path[:number]: [[path[number]]] for number in range(len(path))}
    play = Play({**above, path: script}, {path: own}, texts=TEXTS, **more)
    said: list[str] = []
    while not isinstance(play.state.root.phase, Finished):
        play.move()
        match play.journal[-1]:
            case ev.Ended(call_id=call_id, result=result) as ended if result and (*ended.path, call_id) == path:
                said.append(result.content.strip('"'))
    assert m.termination(play.state) == NaturalEnd()
    assert len(said) == 1
    return play, said[0]


@pytest.mark.parametrize("path", [("p1",), ("p1", "p2")])
@pytest.mark.parametrize(
    ("name", "last", "reason"),
    [
        ("max_iterations", 4, "max iterations"),
        ("requests", 4, "budget exceeded"),
        ("tool_calls", 2, "budget exceeded"),
        ("total_tokens", 28, "budget exceeded"),
        ("timeout", 6.0, "timeout"),
        ("max_pauses", 1, "pause limit"),
    ],
)
def test_a_limit_of_a_child_ends_the_child_alone(path: Path, name: str, last: Any, reason: str) -> None:
    """Its call is told why, with its last words; the loops above go on. One more, and it ends by itself."""
    play, said = of_child(limits(**{name: last}), path=path, seconds=1.0)
    assert said.startswith(f"<<{reason} (")
    assert f"limit: {last}" in said
    assert said.endswith(">> half")
    assert play.requests[0] == play.requests[-1] == ()
    play, said = of_child(limits(**{name: last + 1}), path=path, seconds=1.0)
    assert said == "/".join(("done", *path))
    assert (play.requests.count(path), len(play.tools) - len(path)) == (5, 2)
    less, said = of_child(limits(**{name: 0}), path=path, seconds=1.0)
    assert (less.requests.count(path) > 0) == (name == "max_pauses")


@pytest.mark.parametrize(("depth", "is_deep"), [(1, True), (2, True), (3, False), (None, False)])
def test_a_child_too_deep_says_so(depth: int | None, *, is_deep: bool) -> None:
    """At its `max_depth` a child makes no request, and its call is told."""
    play, said = of_child(limits(max_depth=depth), path=("p1", "p2"))
    assert said == (f"<<it is nested too deep: 2, and {depth} is the limit>>" if is_deep else "done/p1/p2")
    assert (("p1", "p2") in play.requests) is not is_deep


@both_orders
@pytest.mark.parametrize("what", PARTS)
def test_a_budget_of_a_loop_between_holds_back_what_is_inside_of_it(what: str, eager: bool) -> None:
    """That loop ends with all below, at the very figure; the loops beside go on, and one above widens nothing."""
    last = {"requests": 5, "tool_calls": 4, "input_tokens": 25, "output_tokens": 10, "total_tokens": 35}[what]
    for limit in (0, last - 1, last, last + 1, last + 8):
        play = Play(TREE, {("p2",): limits(**{what: limit}), (): limits(**{what: 999})}, eager, texts=TEXTS)
        assert play.run().termination == NaturalEnd()
        said = m.results(m.history(play.state)[2])["p2"]
        assert (said == "done/p2") == (limit > last)
        assert said == "done/p2" or "budget exceeded" in said
        assert play.requests.count(("p1",)) == 3
    alone = Play(TREE, {(): limits(**{what: last})}, eager)
    beside = Play(TREE, {(): limits(**{what: last}), ("p2",): limits(**{what: 99})}, eager)
    assert alone.run().termination == beside.run().termination
    assert alone.begun == beside.begun


def test_a_loop_that_its_own_budget_holds_ends_by_itself_whatever_holds_those_above() -> None:
    """To end needs no budget: its call is answered first, and then the loop above sees what it may still do."""
    tree: dict[Path, Script] = {(): [["p1"]], ("p1",): [["p2"]], ("p1", "p2"): [["c", "d"]]}
    play = Play(tree, {(): limits(tool_calls=3), ("p1",): limits(tool_calls=2)}, texts=TEXTS)
    assert play.run().termination == BudgetExceeded("tool_calls", 3, 3)
    assert m.results(m.history(play.state)[2]) == {
        "p1": CUT.format(reason="budget exceeded (what: tool_calls, limit: 2, spent: 2)", text="half")
    }
    assert play.tools == ["p1", "p1/p2", "p1/p2/c"]


@both_orders
def test_iterations_and_pauses_of_children_are_none_of_the_loop_above(eager: bool) -> None:
    """It ends after as many replies of its own; each one more is one more."""
    play = Play(TREE, {(): limits(max_iterations=0)}, eager)
    answered = []
    for limit in range(4):
        end = play.run()
        answered.append(len(play.state.root.usage_log))
        assert end.termination == (NaturalEnd() if limit == 3 else MaxIterations(limit))
        play.extend(limits(max_iterations=limit + 1))
    assert answered == [0, 10, 11, 12]
    paused = Play({(): [["p1"], []], ("p1",): [[], []]}, {(): limits(max_pauses=0)})
    assert paused.run().termination == PauseLimit(0)
    assert paused.requests == [(), ("p1",), ("p1",), ("p1",), ()]


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
        assert (play.state.root.active, left(play.state.root)["seconds"]) == (seconds, 0)
        assert (len([path for path in play.begun if play.takes_time(*path)]), play.under_way) == (seconds, [])
        if sleeps:
            play.sleeps()
        seconds += 1
        play.extend(limits(timeout=float(seconds)))
    whole.run()
    assert told(play.state) == told(whole.state)
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
    return play


@pytest.mark.parametrize(("active", "over"), [(4.9, False), (5.0, True), (5.1, True)])
def test_when_time_is_up_the_tree_ends_with_all_that_is_under_way(active: float, *, over: bool) -> None:
    """Nobody waits for anything: each call has a result that says what is known, so the API takes the history."""
    play = busy()
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
    """The end of a tool counts whenever it is told; of one that nobody can tell of any more, somebody must say."""
    play = busy(tool="once")
    play.take(ev.Ticked(seconds=5.0))
    play.run()
    play.loses()
    late = [play.under_way.pop(), play.under_way.pop()]
    ends = [evolve(m.ended(path[-1]), path=path[:-1], iteration=1, attempt=1) for _, path in late]
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
        play.take(m.decided(**{name: m.answer("done") for name in names}))
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


def test_a_child_without_time_leaves_its_tool_behind_and_the_loop_above_goes_on() -> None:
    """What its tool says afterwards has no place any more, and is no mistake."""
    play = busy(("p1",))
    play.take(ev.Ticked(seconds=5.0))
    assert outstanding(play.state) == (EndTurn(("p1",)),)
    late = play.under_way.pop()
    play.run()
    assert "timeout" in m.results(m.history(play.state)[2])["p1"]
    told_late = evolve(m.ended("c"), path=late[1][:-1], iteration=1, attempt=1)
    assert step(play.state, told_late) == play.state


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


def test_a_further_user_turn_counts_anew_what_is_its_own() -> None:
    """Iterations and seconds, those inside of calls too; the budget is that of the whole loop."""
    play = Play(TREE, {(): limits(max_iterations=3, timeout=20.0, requests=13)}, seconds=1.0)
    assert (play.run().termination, play.state.root.active) == (NaturalEnd(), 20.0)
    play.take(ev.FollowedUp((m.user("more"),)))
    assert left(play.state.root) | {"requests": 1, "iterations": 3, "seconds": 20.0} == left(play.state.root)
    assert play.run().termination == NaturalEnd()
    play.take(ev.FollowedUp((m.user("more"),)))
    assert play.run().termination == BudgetExceeded("requests", 13, 13)
