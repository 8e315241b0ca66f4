"""Limits where loops run inside of calls: a budget holds the whole tree back, and `extend` goes on in its middle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.playing import PARTS, UNLIMITED, USES, Path, Play, Script, asleep, limits, told, trees
from toolloop.core import events as ev
from toolloop.core.effects import RunCall, SendRequest
from toolloop.core.errors import IllegalCommand
from toolloop.core.limits import left, spent
from toolloop.core.machine import outstanding, step
from toolloop.core.setup import Limits
from toolloop.core.states import Finished
from toolloop.core.terminations import BudgetExceeded, MaxIterations, NaturalEnd, PauseLimit
from toolloop.core.texts import Texts
from toolloop.core.usage import IterationUsage

# 12 requests and 11 calls: tools beside two children, of which one has a child that pauses.
TREE: dict[Path, Script] = {
    (): [["a", "p1", "p2"], ["b"]],
    ("p1",): [["c", "d"], ["e"]],
    ("p2",): [["p3", "f"]],
    ("p2", "p3"): [["g"], [], ["h"]],
}
both_orders = pytest.mark.parametrize("eager", [False, True])


# --- a budget of the whole tree --------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(trees(), st.sampled_from(PARTS), st.booleans(), st.booleans())
def test_a_tree_that_is_extended_bit_by_bit_is_the_tree_without_a_limit(
    tree: dict[Path, Script], what: str, eager: bool, sleeps: bool
) -> None:
    """Each time it stops at the very figure, and one more gives one more; in the end all ran once, and no more."""
    whole = Play(tree)
    play = Play(tree, {(): limits(**{what: 0})}, eager)
    end, limit, loops = play.run(), 0, 1
    while end.termination != NaturalEnd():
        used = spent(end.ledger, what)
        assert end.termination == BudgetExceeded(what, limit, used)
        assert left(end.ledger)[what] == 0
        assert play.under_way == []
        assert used == limit or used < limit + loops * USES[what]
        before, limit = list(play.begun), used + 1
        if sleeps:
            asleep(play)
        play.extend(limits(**{what: limit}))
        loops = play.count()
        end = play.run()
        more = [kind for kind, _ in play.begun[len(before) :]]
        assert more.count("tool" if what == "tool_calls" else "request") in range(1 + (loops if eager else 1))
    assert told(end) == told(whole.run())
    assert sorted(play.begun) == sorted(whole.begun)


@both_orders
@pytest.mark.parametrize("sleeps", [False, True])
@pytest.mark.parametrize("what", PARTS)
def test_a_limit_that_is_not_raised_enough_ends_the_tree_again_at_once(what: str, sleeps: bool, eager: bool) -> None:
    """Other limits, or the same one as it was: nothing is begun, and it stands where it stood."""
    play = Play(TREE, {(): limits(**{what: 4})}, eager)
    end = play.run()
    begun = list(play.begun)
    if sleeps:
        asleep(play)
    others = {other: 99 for other in PARTS if other != what}
    for changed in ({what: 4}, {what: 0}, {what: 4, **others, "timeout": 99.0, "max_iterations": 99}):
        play.extend(limits(**changed))
        again = play.run()
        assert again.termination == BudgetExceeded(what, 0 if changed == {what: 0} else 4, spent(end.ledger, what))
        assert (again.back, m.history(again)) == (end.back, m.history(end))
    assert play.begun == begun


@both_orders
@pytest.mark.parametrize(
    ("what", "last"),
    [("requests", 11), ("tool_calls", 11), ("input_tokens", 55), ("output_tokens", 22), ("total_tokens", 77)],
)
def test_a_budget_binds_a_tree_at_its_very_figure(what: str, last: int, eager: bool) -> None:
    """What was used before the last request is the most that forbids it: one more, and the tree ends by itself."""
    for limit, over in ((last - 1, True), (last, True), (last + 1, False)):
        end = Play(TREE, {(): limits(**{what: limit})}, eager).run()
        assert isinstance(end.termination, BudgetExceeded if over else NaturalEnd)
    assert len(Play(TREE, {(): limits(**{what: last + 1})}, eager).run().ledger.usage_log) == 12


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
    end = play.run()
    assert end.termination == BudgetExceeded("requests", 2, 2)
    assert play.requests == [(), ("p1",)]


@pytest.mark.parametrize("deep", [False, True])
def test_the_last_tool_is_for_one_of_those_that_want_it(deep: bool) -> None:
    """Whether a loop or a tool begins: the budget of the outermost loop counts both, on every level."""
    inner = "p5" if deep else "t5"
    tree = {(): [["p1"]], ("p1",): [["p2"]], ("p1", "p2"): [["t3", inner]]}
    play = Play(tree, {(): limits(tool_calls=3)}, eager=True)
    end = play.run()
    assert end.termination == BudgetExceeded("tool_calls", 3, 3)
    assert play.tools == ["p1", "p1/p2", "p1/p2/t3"]
    play.extend(limits(tool_calls=4))
    assert play.run().termination == BudgetExceeded("tool_calls", 4, 4)
    assert play.tools[3:] == [f"p1/p2/{inner}"]


def test_no_tool_starts_in_spite_of_a_loop_above() -> None:
    """What the outermost loop forbids is refused at every level, and nothing changes."""
    play = Play({(): [["p1"]], ("p1",): [["p2"]], ("p1", "p2"): [["t", "p3"]]}, {(): limits(tool_calls=9)})
    while RunCall("t", ("p1", "p2")) not in outstanding(play.state):
        play.move()
    spent_up = step(play.state, ev.Extended(limits(tool_calls=2)))
    for started in (ev.Started("t", path=("p1", "p2")), play.opened(("p1", "p2"), "p3")):
        assert step(play.state, started) != play.state
        with pytest.raises(IllegalCommand, match="a loop above forbids another tool"):
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


def test_a_spent_budget_of_tools_lets_a_child_that_needs_none_come_to_its_end() -> None:
    """It is a tool that was begun, like any other; the loop that has the budget makes no more requests."""
    play = Play({(): [["p1"]]}, {(): limits(tool_calls=1)})
    end = play.run()
    assert end.termination == BudgetExceeded("tool_calls", 1, 1)
    assert play.requests == [(), ("p1",)]
    assert m.results(m.history(end)[2]) == {"p1": "done/p1"}


@both_orders
@pytest.mark.parametrize("what", PARTS)
def test_what_a_budget_leaves_is_a_history_that_the_api_takes(what: str, eager: bool) -> None:
    """Each call has its result: that of a child says that it did not run to its end."""
    for count in range(1, 12):
        limit = count * (USES[what] or 1)
        end = Play(TREE, {(): limits(**{what: limit})}, eager).run()
        for asked, answered in zip(m.history(end)[1::2], m.history(end)[2::2], strict=True):
            calls = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
            assert list(m.results(answered)) == calls


@pytest.mark.parametrize("path", [(), ("p1",)])
def test_what_a_loop_of_a_tools_own_spent_counts_and_is_not_held_back(path: Path) -> None:
    """The tool drives that itself, so a budget above may be passed by all of it; then nothing more begins."""
    tree: dict[Path, Script] = {(): [["a"]]} if not path else {(): [["p1"]], ("p1",): [["a"]]}
    play = Play(tree, {(): limits(requests=3)}, eager=True)
    while ("tool", (*path, "a")) not in play.under_way:
        play.move()
    for number in range(3):
        play.take(ev.Spent("a", IterationUsage(number + 1), path=path))
    assert play.run().termination == BudgetExceeded("requests", 3, 4 + len(path))
    play.extend(limits(requests=9))
    assert play.run().termination == NaturalEnd()
    assert play.tools == [*path, "/".join((*path, "a"))]


# --- limits of a child, and of a loop between ------------------------------------------------------------------------

PAUSING: Script = [["c"], [], [], ["d"]]  # five requests, two tools, two pauses
CUT = "<<{reason}>> {text}"
TEXTS = Texts(cut_short=CUT, no_answer="<<{reason}>>")


def of_child(own: Limits, script: Script = PAUSING, *, path: Path = ("p1",), **more: Any) -> tuple[Play, str]:
    """A tree in which the loop at a path has limits of its own, after its end; and what its call came to."""
    above = {path[:number]: [[path[number]]] for number in range(len(path))}
    play = Play({**above, path: script}, {path: own}, texts=TEXTS, **more)
    said: list[str] = []
    while not isinstance(play.state, Finished):
        play.move()
        match play.journal[-1]:
            case ev.Ended(call_id=call_id, result=result) as ended if (*ended.path, call_id) == path:
                said.append(result.content.strip('"'))
    assert play.state.termination == NaturalEnd()
    assert len(said) == 1
    return play, said[0]


@pytest.mark.parametrize("path", [("p1",), ("p1", "p2")])
@pytest.mark.parametrize(
    ("name", "last", "reason"),
    [
        ("max_iterations", 4, "max iterations"),
        ("requests", 4, "budget exceeded"),
        ("tool_calls", 2, "budget exceeded"),
        ("input_tokens", 20, "budget exceeded"),
        ("output_tokens", 8, "budget exceeded"),
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
    done = (3, 1) if name == "max_pauses" else (4, 2)
    assert (play.requests.count(path), len(play.tools) - len(path)) == done
    assert play.requests[0] == play.requests[-1] == ()
    play, said = of_child(limits(**{name: last + 1}), path=path, seconds=1.0)
    assert said == "/".join(("done", *path))
    assert (play.requests.count(path), len(play.tools) - len(path)) == (5, 2)
    less, _ = of_child(limits(**{name: last - 1}), path=path, seconds=1.0)
    assert len(less.begun) < len(play.begun)


@pytest.mark.parametrize("name", ["max_iterations", "timeout", *PARTS])
def test_a_child_with_a_limit_of_nothing_says_nothing(name: str) -> None:
    """Its first request does not go out."""
    play, said = of_child(limits(**{name: 0}))
    kind = {"max_iterations": "max iterations", "timeout": "timeout"}.get(name, "budget exceeded")
    assert play.requests == [(), ()]
    assert said.startswith(f"<<{kind} (")
    assert said.endswith(")>>")


@pytest.mark.parametrize(("depth", "deep"), [(1, True), (2, True), (3, False), (None, False)])
def test_a_child_too_deep_says_so(depth: int | None, deep: bool) -> None:
    """At its `max_depth` a child makes no request, and its call is told."""
    play, said = of_child(limits(max_depth=depth), path=("p1", "p2"))
    assert said == (f"<<it is nested too deep: 2, and {depth} is the limit>>" if deep else "done/p1/p2")
    assert (("p1", "p2") in play.requests) is not deep


def test_extending_the_outermost_loop_does_not_extend_a_child() -> None:
    """Its limits are its own, whatever the loop above is given."""
    tree: dict[Path, Script] = {(): [["p1"], ["p2"]], ("p1",): PAUSING, ("p2",): PAUSING}
    one = limits(max_iterations=1)
    play = Play(tree, {(): limits(requests=2), ("p1",): one, ("p2",): one})
    assert play.run().termination == BudgetExceeded("requests", 2, 2)
    play.extend(UNLIMITED)
    assert play.run().termination == NaturalEnd()
    assert play.requests == [(), ("p1",), (), ("p2",), ()]


@both_orders
@pytest.mark.parametrize("what", PARTS)
def test_a_budget_of_a_loop_between_holds_back_what_is_inside_of_it(what: str, eager: bool) -> None:
    """That loop ends with all below, at the very figure, and its call is told; the loops beside and above go on."""
    uses = {"requests": 6, "tool_calls": 4, "input_tokens": 30, "output_tokens": 12, "total_tokens": 42}[what]
    last = {"requests": 5, "tool_calls": 4, "input_tokens": 25, "output_tokens": 10, "total_tokens": 35}[what]
    for limit in range(uses + 2):
        play = Play(TREE, {("p2",): limits(**{what: limit})}, eager, texts=TEXTS)
        end = play.run()
        used = sum(entry.path[:1] == ("p2",) for entry in end.ledger.usage_log) * USES[what]
        if what == "tool_calls":
            used = sum(name.startswith("p2/") for name in end.ledger.ran)
        said = m.results(m.history(end)[2])["p2"]
        assert end.termination == NaturalEnd()
        assert (said == "done/p2") == (limit > last)
        assert (said == "done/p2") or "budget exceeded" in said
        assert used <= limit if what in ("requests", "tool_calls") else used < limit + 2 * USES[what]
        assert play.requests.count(("p1",)) == 3


@both_orders
@pytest.mark.parametrize("what", PARTS)
def test_the_narrowest_budget_above_is_the_one_that_binds(what: str, eager: bool) -> None:
    """One of a loop between that leaves more does not widen that of the outermost."""
    for limit in range(0, 60, 3):
        alone = Play(TREE, {(): limits(**{what: limit})}, eager)
        beside = Play(TREE, {(): limits(**{what: limit}), ("p2",): limits(**{what: 99})}, eager)
        assert alone.run().termination == beside.run().termination
        assert alone.begun == beside.begun


def test_a_loop_that_its_own_budget_holds_ends_by_itself_whatever_holds_those_above() -> None:
    """To end needs no budget: its call is answered first, and then the loop above sees what it may still do."""
    tree: dict[Path, Script] = {(): [["p1"]], ("p1",): [["p2"]], ("p1", "p2"): [["c", "d"]]}
    play = Play(tree, {(): limits(tool_calls=3), ("p1",): limits(tool_calls=2)}, texts=TEXTS)
    end = play.run()
    assert end.termination == BudgetExceeded("tool_calls", 3, 3)
    assert m.results(m.history(end)[2]) == {
        "p1": CUT.format(reason="budget exceeded (what: tool_calls, limit: 2, spent: 2)", text="half")
    }
    assert play.tools == ["p1", "p1/p2", "p1/p2/c"]


# --- iterations and pauses of the outermost loop ---------------------------------------------------------------------


@both_orders
@pytest.mark.parametrize("sleeps", [False, True])
def test_iterations_of_children_are_none_of_the_loop_above(eager: bool, sleeps: bool) -> None:
    """It ends after as many replies of its own; each one more is one more."""
    play = Play(TREE, {(): limits(max_iterations=0)}, eager)
    answered = []
    for limit in range(4):
        end = play.run()
        answered.append(len(end.ledger.usage_log))
        assert end.termination == (NaturalEnd() if limit == 3 else MaxIterations(limit))
        assert (end.ledger.iterations, left(end.ledger)["iterations"]) == (limit, 0)
        if sleeps:
            asleep(play)
        play.extend(limits(max_iterations=limit + 1))
    assert answered == [0, 10, 11, 12]
    assert told(play.state) == told(Play(TREE).run())


def test_pauses_of_children_are_none_of_the_loop_above() -> None:
    """A child that pauses while its parent may not."""
    tree: dict[Path, Script] = {(): [["p1"], []], ("p1",): [[], []]}
    play = Play(tree, {(): limits(max_pauses=0)})
    assert play.run().termination == PauseLimit(0)
    assert play.requests == [(), ("p1",), ("p1",), ("p1",), ()]
    play.extend(limits(max_pauses=1))
    assert play.run().termination == NaturalEnd()


# --- a further user turn ---------------------------------------------------------------------------------------------


def test_a_further_user_turn_counts_anew_what_is_its_own() -> None:
    """Iterations and seconds, those inside of calls too; the budget is that of the whole loop."""
    play = Play(TREE, {(): limits(max_iterations=3, timeout=20.0, requests=13)}, seconds=1.0)
    end = play.run()
    assert (end.termination, end.ledger.active, left(end.ledger)["seconds"]) == (NaturalEnd(), 20.0, 0)
    play.take(ev.FollowedUp((m.user("more"),)))
    assert left(play.state.ledger) | {"requests": 1, "iterations": 3, "seconds": 20.0} == left(play.state.ledger)
    assert play.run().termination == NaturalEnd()
    play.take(ev.FollowedUp((m.user("more"),)))
    assert play.run().termination == BudgetExceeded("requests", 13, 13)
