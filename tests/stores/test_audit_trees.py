"""An audit of a tree of loops: each promise is looked after in each of them, and each action says where it was done."""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.worlds import World
from tests.stores import journals as j
from tests.stores.nested_stories import LIMITED, NESTED, TREE, WAITING, at, opened
from toolloop import LoopConfig, sub_loop
from toolloop.core import events as ev
from toolloop.core.machine import fold
from toolloop.core.setup import ToolFacts
from toolloop.core.usage import IterationUsage
from toolloop.core.values import Result, Ruling
from toolloop.stores import audit
from toolloop.stores.events import encode_event
from toolloop.testing import call, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 256}
ONE_BY_ONE = LoopConfig(max_parallel_tools=1)
research = sub_loop("research", "Look into it.", params=PARAMS, tools=[j.look, j.write], config=ONE_BY_ONE)
# The loop of `journals`, inside of a call.
GOOD = j.a_journal(
    (reply(calls=[call("research", {"prompt": "the typo"}, id="r")]), *j.REPLIES, reply("all done")), tools=[research]
)
EVENTS = j.events(GOOD)


def rules(journal: Any) -> list[tuple[str, str | None, tuple[str, ...]]]:
    """What an audit finds in these events: rules, calls and paths. The digests of told stories are invented."""
    bodies = [encode_event(event) for event in journal]
    return [
        (problem.rule, problem.call_id, problem.path)
        for problem in audit(bodies).problems
        if problem.rule != "ran_something_else"
    ]


def told(journal: Any, since: int = 0) -> list[tuple[str, tuple[str, ...], str | None]]:
    """What was done, where, and to which call, from an event on."""
    actions = audit([encode_event(event) for event in journal]).actions
    return [(act.what, act.path, act.call_id) for act in actions if act.entry > since]


# --- good journals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(len(GOOD) + 1))
def test_a_good_journal_is_good_wherever_it_is_cut(length: int) -> None:
    """Nothing is said about what is not there yet."""
    assert audit(GOOD[:length]).problems == ()


@pytest.mark.parametrize("name", NESTED)
def test_stories_of_trees_are_good(name: str) -> None:
    assert rules(NESTED[name]) == []


@given(seed=st.integers(0, 2**32), adopts=st.integers(0, 100))
def test_whatever_the_machine_takes_keeps_its_promises(seed: int, adopts: int) -> None:
    """Journals of invented trees, from their beginning or from a state in their midst.

    Their drivers invent ends and uses, and ask nobody; only that an audit may find there.
    """
    world = World(random.Random(seed), nested=True).live(adopts)
    if adopts:
        world.adopt()
    world.live(60)
    found = {problem.rule for problem in audit(j.entries(world.journal)).problems}
    assert found <= {"ended_without_start", "spent_without_start", "not_asked"}


# --- who did what where ----------------------------------------------------------------------------------------------


def test_it_says_in_which_loop_something_was_done() -> None:
    """What happens inside of a call is told as it is of any loop, with the path."""
    actions = audit(GOOD).actions
    assert [act.what for act in actions if not act.path] == [
        *("opened", "requested", "replied", "proposed", "started", "continued", "ended"),
        *("round closed", "continued", "requested", "replied", "finished"),
    ]
    inside = [act.what for act in actions if act.path == ("r",)]
    assert inside == [act.what for act in audit(j.a_journal()).actions if act.what != "continued"]


def test_a_call_is_asked_for_by_its_id_or_by_its_path() -> None:
    """Ids may repeat in a tree."""
    audited = audit(GOOD)
    assert [act.what for act in audited.of_call("r/denied")] == ["proposed", "asked", "denied"]
    assert audited.of_call("denied") == audited.of_call("r/denied")
    assert audited.of_call("r/r") == ()


def test_a_loop_begins_with_the_start_of_its_call() -> None:
    """And it ends with its end."""
    started = j.find(EVENTS, ev.Opened, None) + 1
    while not EVENTS[started].path:
        started += 1
    assert told(EVENTS[: started + 1], started) == [("started", (), "r"), ("opened", ("r",), None)]
    ended = j.find(EVENTS, ev.Ended, "r")
    assert told(EVENTS[: ended + 1], ended) == [("ended", (), "r")]


def test_what_a_call_used_is_told() -> None:
    """Of one that runs; and of one that is long gone, in a loop that is."""
    usage = IterationUsage(1, "m")
    spent = NESTED["spent"]
    assert told(spent, len(spent) - 1) == [("spent", (), "a")]
    gone = [*WAITING, ev.Stopped(), ev.Spent("p", usage), ev.Spent("a", usage, path=("x",))]
    assert told(gone, len(WAITING) + 1) == [("spent", (), "p"), ("spent", ("x",), "a")]
    assert rules(gone) == [("spent_without_start", "a", ("x",))]


def test_a_stop_tells_what_became_of_every_open_call() -> None:
    """Also of those in loops that it cut off."""
    stopped = NESTED["nested-stopped"]
    assert set(told(stopped, len(stopped) - 1)) == {
        *(("stopped", (), None), ("cancelled", (), "p"), ("cancelled", (), "q"), ("finished", (), None)),
        *(("not run", ("p",), "a"), ("not run", ("q",), "a"), ("not run", ("q",), "b")),
    }
    cancelled = [*TREE, ev.Stopped()]
    assert ("request lost", ("q",), None) in told(cancelled, len(TREE))
    assert ("cancelled", ("p",), "a") in told(cancelled, len(TREE))


def test_a_call_that_is_cancelled_takes_the_loop_inside_with_it() -> None:
    """Its calls did not run."""
    assert told([*WAITING[:-1], ev.Cancelled("p")], len(WAITING) - 1) == [
        ("cancelled", (), "p"),
        ("not run", ("p",), "a"),
    ]


def test_who_wakes_a_loop_is_told_once_and_what_is_lost_everywhere() -> None:
    """A request, and calls that ran."""
    assert set(told([*TREE, ev.Woken(driver="another")], len(TREE))) == {
        ("woken", (), None),
        ("lost", ("p",), "a"),
        ("request lost", ("q",), None),
    }
    copied = [act for act in told(NESTED["nested-forked"]) if act[0] == "forked"]
    assert copied == [("forked", (), None)]


def test_decisions_are_told_where_the_calls_are() -> None:
    """One event may decide calls of several loops."""
    decided = NESTED["nested-decided"]
    (which,) = [number for number, event in enumerate(decided) if isinstance(event, ev.Decided)]
    assert told(decided[: which + 1], which) == [("approved", ("p",), "a"), ("denied", ("q",), "a")]


def test_what_expires_inside_is_told_where_it_was() -> None:
    """Whatever is heard then."""
    timed = [
        evolve(event, setup=evolve(event.setup, decision_timeout=5.0)) if isinstance(event, ev.Opened) else event
        for event in WAITING
    ]
    assert told([*timed, ev.Ticked(at=200.0)], len(timed)) == [("expired", ("p",), "a"), ("expired", ("q",), "a")]


# --- spoiled journals ------------------------------------------------------------------------------------------------


def test_a_start_of_what_is_denied_inside_is_found() -> None:
    """A denied call never starts, however deep; and no loop begins in one."""
    denied = [*NESTED["nested-decided"]]
    assert rules([*denied, *at("q", ev.Started("a"))]) == [("started_after_denial", "a", ("q",))]
    assert rules([*denied, m.child(fold(denied), "q", "a")]) == [("started_after_denial", "a", ("q",))]


def test_a_loop_that_begins_twice_in_one_call_is_found() -> None:
    """It is a second start of that call."""
    (begun,) = [event for event in TREE if event.path == ("q",) and isinstance(event, ev.Opened)]
    assert rules([*TREE, begun]) == [("started_twice", "q", ())]


def test_an_end_inside_without_a_start_is_found() -> None:
    """Also in a loop that is over, and in one that never was."""
    end = ev.Ended("c", Result('"x"'), iteration=1, attempt=1)
    for path in ("p", "p/p", "x"):
        assert rules([*TREE, *at(path, end)]) == [("ended_without_start", "c", tuple(path.split("/")))]


def test_an_end_in_the_loop_of_an_earlier_run_is_late_and_no_more() -> None:
    """The call was run again by name, with another loop inside; what ran in the first one may still end."""
    agent = (ToolFacts("agent", "once", "never", "d"),)
    begun = opened("p", tools=agent)
    again = [
        ev.Opened(m.setup(tools=agent), (m.user(),), at=100.0),
        *at("", ev.Requested(), m.replied("tool_use", m.call("p", "agent"))),
        begun,
        *at("p", ev.Requested(), m.replied("tool_use", m.call("a", "agent")), ev.Started("a"), since=104.0),
        *at("", ev.Cancelled("p"), ev.TurnEnded(), ev.Decided((("p", Ruling("rerun")),)), ev.Continued(), since=110.0),
        evolve(begun, setup=evolve(begun.setup, within=((1, "p", 2),))),
    ]
    late = ev.Ended("a", Result('"x"'), iteration=1, attempt=1)
    assert rules([*again, *at("p", late)]) == []
    assert told([*again, *at("p", late)], len(again)) == [("late", ("p",), "a")]
    assert rules([*again, *at("p", evolve(late, attempt=2))]) == [("ended_without_start", "a", ("p",))]


def test_a_reply_inside_that_nobody_asked_for_is_found() -> None:
    """A request is stored before it is sent, in every loop."""
    replied = m.replied("end_turn", m.text("so"))
    assert rules([*TREE, *at("p", replied)]) == [("reply_without_request", None, ("p",))]


def test_what_a_loop_above_forbids_is_found() -> None:
    """It is bound by their limits."""
    assert rules([*LIMITED[:-1], *at("p", ev.Requested())]) == [("impossible", None, ("p",))]


def test_a_problem_inside_says_where_it_is() -> None:
    """In words, too."""
    bodies = [encode_event(event) for event in (*TREE, *at("p/p", ev.Retried()))]
    (problem,) = [problem for problem in audit(bodies).problems if problem.rule == "impossible"]
    assert problem.path == ("p", "p")
    assert problem.message.startswith("inside of p/p: Retried cannot be here: ")


def test_a_journal_that_begins_inside_of_a_call_is_found() -> None:
    """It has no beginning."""
    (begun,) = [event for event in TREE if event.path == ("q",) and isinstance(event, ev.Opened)]
    assert rules([begun]) == [("no_beginning", None, ())]
