"""Loops inside calls: where they begin, what is said of them, how they stand still, fail, and end."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.kit.machine import making as m
from tests.kit.machine.making import the_call
from tests.kit.machine.nested import ask, at, begin_with_calls, finish, kinds, loop_inside, waits
from tests.kit.machine.worlds import BELOW, EVENTS
from toolloop._usage import IterationUsage, Usage
from toolloop.errors import (
    DecisionConflict,
    IllegalCommand,
    UndecidedCalls,
)
from toolloop.machine.queries import driven, driven_at, everywhere, outstanding, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, Conclude, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.loop import Failed, Failure, State, is_over
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.tree import step
from toolloop.machine.values.calls import DecisionRecord, GrantSpec, Status, Wait, Why
from toolloop.machine.values.setup import Budget, Limits
from toolloop.machine.values.splicing import Splice
from toolloop.terminations import Timeout

FAILS = (ev.Requested(), ev.RequestFailed(m.FAILURE))

# --- where a loop begins ---------------------------------------------------------------------------------------------


def test_a_loop_that_begins_is_the_start_of_its_call() -> None:
    """It counts as one, at the time of the loop above; the judgement before it may be left out of the journal."""
    judging = m.go(m.state_after(), *ask("", "p", "q"), ev.Ticked(at=70.0))
    state = step(judging, m.child(judging, "p"))
    assert state == m.go(judging, ev.Judged(), m.child(judging, "p"))
    call = the_call(state, "p")
    assert (call.status, call.attempts, call.has_loop, list(state.root.started)) == (Status.RUNNING, 1, True, ["p"])
    assert (len(loop_inside(state).messages), len(loop_inside(state).started), loop_inside(state).now) == (1, 0, 70.0)
    assert outstanding(state) == (RunCall("q"), SendRequest(("p",)))


@pytest.mark.parametrize(
    "events",
    [
        (m.asks("p"),),
        (m.make_judged(p=m.DENY),),
        (ev.Judged(), ev.Started("p")),
        (ev.Judged(), ev.Started("p"), m.make_ended("p")),
        (m.asks("p"), m.make_decided(p=m.APPROVE), ev.Woken()),
    ],
)
def test_nothing_begins_in_a_call_that_may_not_start(events: tuple[ev.Event, ...]) -> None:
    """Denied, undecided, running, settled, to be judged; nor where there is no such call, or no round."""
    state = m.go(m.state_after(), *ask("", "p"), *events)
    for name in ("p", "nobody"):
        with pytest.raises(IllegalCommand):
            step(state, m.child(state, name))
    opened = m.child(m.go(m.state_after(), *ask("", "p")), "p")
    for other in (m.state_after(), m.state_after(ev.Requested()), m.state_after(ev.Stopped())):
        with pytest.raises(IllegalCommand):
            step(other, opened)
    with pytest.raises(IllegalCommand, match="there is no loop inside the call 'x/y'"):
        step(state, evolve(opened, path=("x", "y", "z")))


@pytest.mark.parametrize("within", [(), ((1, "q", 1),), ((2, "p", 1),), ((1, "p", 2),), ((1, "p", 1), (1, "p", 1))])
def test_a_loop_says_where_it_begins(within: tuple[tuple[int, str, int], ...]) -> None:
    """Its setup has the iterations and calls above it; that of another place is refused, also when it wakes."""
    state = m.go(m.state_after(), *ask("", "p"))
    opened = m.child(state, "p")
    with pytest.raises(IllegalCommand, match="the setup of the new loop is not for the call 'p'"):
        step(state, evolve(opened, setup=evolve(opened.setup, within=within)))
    with pytest.raises(IllegalCommand, match="the setup is for a loop at another path"):
        step(step(state, opened), ev.Woken(evolve(opened.setup, within=within), path=("p",)))


# --- what is said of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in EVENTS if kind not in BELOW], ids=lambda kind: kind.__name__)
def test_what_the_caller_says_is_said_to_the_outermost_loop(kind: type[ev.Event]) -> None:
    """It reaches down from there; an edit of a history below is a compaction, or refused."""
    said = {
        ev.Decided: m.make_decided(a=m.DENY),
        ev.Approved: ev.Approved(m.make_decided(a=m.DENY).decisions),
        ev.FollowedUp: ev.FollowedUp((m.user(),)),
        ev.Said: ev.Said("1", (m.user(),)),
        ev.Withdrawn: ev.Withdrawn("1"),
        ev.MetadataChanged: ev.MetadataChanged((("title", None, "Refund"),)),
    }
    event = said.get(kind) or kind()
    for refused in (event, ev.HistoryEdited((Splice(0, 1, (m.user(),)),))):
        with pytest.raises(IllegalCommand, match="is only for the outermost loop"):
            step(begin_with_calls("p"), evolve(refused, path=("p",)))
    compacted = step(begin_with_calls("p"), ev.HistoryEdited((Splice(0, 1, (m.user(),)),), "drop_rounds", path=("p",)))
    assert loop_inside(compacted).compacted == (("drop_rounds", 0),)


@pytest.mark.parametrize("path", ["x", "p/x", "p/a/b"])
def test_what_is_said_of_a_loop_that_is_not_there_is_refused(path: str) -> None:
    """But for an end that names its run: it comes too late, and what it spent counts where there is a loop."""
    state = m.go(begin_with_calls("p"), *ask("p", "a"))
    for event in (ev.Requested(), m.make_ended("a"), ev.Woken()):
        with pytest.raises(IllegalCommand, match=f"there is no loop inside the call '{path}'"):
            m.go(state, *at(path, event))
    late = ev.Ended("a", m.DONE, iteration=1, attempt=1)
    assert m.go(state, *at(path, late)) == state
    entry = IterationUsage(1, usage=Usage(5), path=("b",))
    spent = m.go(state, *at(path, evolve(late, spent=(entry,))))
    assert spent.root.total_usage == state.root.total_usage + Usage(5)
    assert spent.root.usage_log[-1].path == (*path.split("/"), "a", "b")


def test_where_the_loop_above_stands_still_so_does_what_is_inside() -> None:
    """But for what may be told at any time."""
    state = m.go(begin_with_calls("p", "q"), *waits("p"), *waits("q"), ev.TurnEnded())
    assert kinds(state) == {"": "Waiting", "p": "Waiting", "q": "Waiting"}
    assert driven_at(state, ("p",)) is None
    running = begin_with_calls("p", "q")
    assert (driven_at(running, ("p",)), driven_at(running, ("p", "a"))) == (running.at(("p",)), None)
    for event in (ev.TurnEnded(), ev.Requested(), ev.Judged(), ev.Started("a"), m.child(state, "p", "a")):
        with pytest.raises(IllegalCommand, match=r"the loop above is not running|is not allowed while"):
            m.go(state, event if event.path else evolve(event, path=("p",)))
    for any_time in (ev.Ended("a", m.DONE, iteration=1, attempt=1), ev.Woken()):
        assert kinds(m.go(state, *at("p", any_time))) == kinds(state)
    grant = evolve(m.APPROVE, remember=GrantSpec(match="{}"))
    granted = step(state, ev.Decided((("p/a", grant),)))
    assert len(loop_inside(granted).grants) == 1
    assert loop_inside(m.go(granted, *at("p", ev.GrantRevoked("1/a")))).grants == ()


def test_what_a_loop_uses_and_starts_counts_in_every_loop_above() -> None:
    """With the calls that lead to it from there; also what a tool's own loops used."""
    state = m.go(begin_with_calls("p", inside=("p/b",)), *ask("p/b", "c"), *at("p/b", ev.Started("c")))
    top, middle, low = state.root, loop_inside(state), loop_inside(state, "p/b")
    assert [entry.path for entry in top.usage_log] == [(), ("p",), ("p", "b")]
    assert [entry.path for entry in middle.usage_log] == [(), ("b",)]
    assert [loop.total_usage.total_tokens for loop in (top, middle, low)] == [15, 10, 5]
    assert [[*loop.started] for loop in (top, middle, low)] == [["p", "p/b", "p/b/c"], ["b", "b/c"], ["c"]]
    assert [loop.iterations for loop in (top, middle, low)] == [1, 1, 1]
    entry = IterationUsage(1, usage=Usage(1, 1), path=("own",))
    spent = m.go(state, *at("p/b", ev.Ended("c", m.DONE, spent=(entry,))))
    assert spent.root.usage_log[-1].path == ("p", "b", "c", "own")
    assert [loop.total_usage.total_tokens for _, loop in driven(spent)] == [17, 12, 7]


# --- it goes on by itself --------------------------------------------------------------------------------------------


def test_a_loop_inside_a_call_waits_for_no_command() -> None:
    """After a round, or a pause, it asks again."""
    state = m.go(begin_with_calls("p"), *ask("p", "a"), *at("p", ev.Started("a"), m.make_ended("a"), ev.TurnEnded()))
    assert kinds(state) == {"": "Running", "p": "Ready"}
    paused = m.go(state, *at("p", ev.Requested(), m.make_replied("pause_turn", m.text("so"), m.server_call("s"))))
    assert (kinds(paused)["p"], len(loop_inside(paused).unjoined), outstanding(paused)) == (
        "Ready",
        1,
        (SendRequest(("p",)),),
    )


def test_once_it_is_over_its_call_has_its_result() -> None:
    """And not before: not by an end without a name, nor by one with it. A failure that may pass does not end it."""
    state = m.go(begin_with_calls("p"), *ask("p", "a"))
    with pytest.raises(IllegalCommand, match="the loop inside 'p' is not over"):
        step(state, m.make_ended("p"))
    for run in ((1, 1), (1, 0), (2, 1)):
        assert step(state, ev.Ended("p", m.DONE, 0.0, *run)) == state
    failing = m.go(begin_with_calls("p"), *at("p", *FAILS))
    assert not is_over(loop_inside(failing))
    for words in (finish("p"), at("p", ev.Requested(), ev.RequestFailed(Failure("model", "gone", 404)))):
        done = m.go(begin_with_calls("p"), *words)
        assert outstanding(done) == (Conclude("p"),)
        closed = m.go(done, m.make_ended("p", "found"), ev.TurnEnded())
        assert m.results(m.history(closed)[2]) == {"p": "found"}
        assert set(closed.loops) == {()}


def test_a_call_that_is_cancelled_or_stopped_loses_the_loop_inside() -> None:
    """Whatever that was about; its request is given up when its own loop has no time left."""
    state = m.go(begin_with_calls("p", inside=("p/b",)), *at("p/b", ev.Requested()))
    cancelled = step(state, ev.Ended("p", None))
    assert (set(cancelled.loops), the_call(cancelled, "p").status) == ({()}, Status.SETTLED)
    stopped = step(state, ev.Stopped())
    assert set(stopped.loops) == {()}
    assert "was cancelled while it ran" in str(m.history(stopped)[-1])
    short = m.go(m.state_after(), *ask("", "p"))
    short = m.go(step(short, m.child(short, "p", limits=Limits(timeout=5.0))), *at("p", ev.Requested()))
    late = step(short, ev.Ticked(seconds=5.0))
    assert (outstanding(short), outstanding(late)) == ((), (CancelRequest(("p",)),))
    ended = m.go(late, *at("p", ev.RequestFailed(), ev.TurnEnded()))
    assert (m.termination(loop_inside(ended)), outstanding(ended)) == (Timeout(5.0), (Conclude("p"),))


# --- the caller ------------------------------------------------------------------------------------------------------


def test_a_decision_names_a_call_by_its_path() -> None:
    """Of all loops at once, or one by one; an edit is judged where it was made."""
    asking = m.go(begin_with_calls("p", "q"), *waits("p"), *waits("q"), ev.TurnEnded())
    at_once = step(asking, ev.Decided((("p/a", m.APPROVE), ("q/a", m.DENY))))
    assert at_once == m.go(asking, ev.Decided((("q/a", m.DENY),)), ev.Decided((("p/a", m.APPROVE),)))
    assert the_call(loop_inside(at_once, "p"), "a").status is Status.DECIDED
    assert outstanding(step(at_once, ev.Continued())) == (RunCall("a", ("p",)), EndTurn(("q",)))
    edited = m.go(begin_with_calls("p"), *waits("p"), ev.TurnEnded(), ev.Decided((("p/a", m.approve({"a": 2})),)))
    assert outstanding(step(edited, ev.Continued())) == (Judge(("a",), path=("p",)),)
    failed = m.go(begin_with_calls("p"), *at("p", *FAILS), ev.TurnEnded())
    for ended in (m.go(begin_with_calls("p"), *waits("p"), ev.Stopped()), failed):
        with pytest.raises(IllegalCommand, match="a decision is not allowed"):
            step(ended, ev.Decided((("p/a", m.DENY),)))


def test_the_loop_goes_on_once_all_is_decided_everywhere() -> None:
    """Under `barrier` a call that waits deep inside holds it up; under `ready` the others go on meanwhile."""
    asking = m.go(begin_with_calls("p"), *waits("p"), ev.TurnEnded())
    with pytest.raises(UndecidedCalls, match="p/a") as refused:
        step(asking, ev.Continued())
    assert refused.value.calls == ("p/a",)
    assert m.phase(m.go(asking, ev.Decided((("p/a", m.DENY),)), ev.Continued())) == "Running"
    state = m.go(m.state_after(execution="ready"), *ask("", "p", "q"))
    for name in "pq":
        state = m.go(step(state, m.child(state, name)), *waits(name))
    onward = m.go(state, ev.TurnEnded(), ev.Decided((("q/a", m.APPROVE),)), ev.Continued())
    assert (kinds(onward), outstanding(onward)) == (
        {"": "Running", "p": "Waiting", "q": "Running"},
        (RunCall("a", ("q",)),),
    )


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_failure_inside_is_the_failure_of_the_loops_above_once_nothing_else_runs() -> None:
    """With its path; to try again is to try it again where it failed, and all below goes on."""
    state = m.go(begin_with_calls("one", "two", inside=("one/deep",)), *at("one/deep", *FAILS))
    assert outstanding(state) == (EndTurn(("one",)), SendRequest(("two",)))
    with pytest.raises(IllegalCommand):
        step(state, ev.TurnEnded())
    failed = m.go(state, *at("one", ev.TurnEnded()), *finish("two"), m.make_ended("two"), ev.TurnEnded())
    assert isinstance(failed.root.phase, Failed)
    assert failed.root.phase.failure == evolve(m.FAILURE, path=("one", "deep"))
    assert ([*kinds(failed)], len(everywhere(failed))) == ([""], 3)
    again = step(failed, ev.Continued())
    assert kinds(again) == {"": "Running", "one": "Running", "one/deep": "Ready"}
    assert kinds(step(failed, ev.Woken())) == {"": "Failed"}


def test_a_waiting_call_is_asked_before_a_failure_is_reported() -> None:
    """An outage in one loop hides no question of another; to go on is to try again, too."""
    state = m.go(begin_with_calls("one", "two"), *at("one", *FAILS), *waits("two"), ev.TurnEnded())
    assert m.phase(state) == "decision_required"
    onward = m.go(state, ev.Decided((("two/a", m.DENY),)), ev.Continued())
    assert kinds(onward) == {"": "Running", "one": "Ready", "two": "Running"}
    elsewhere = m.go(begin_with_calls("one", "two", inside=("one/deep",)), *at("one/deep", *FAILS), *waits("two"))
    assert kinds(m.go(elsewhere, *at("one", ev.TurnEnded())))["one"] == "Failed"  # its own calls do not wait
    deep = m.go(begin_with_calls("one", "two", inside=("one/deep",)), *waits("one/deep"), *at("two", *FAILS))
    deep = m.go(deep, *at("one", ev.TurnEnded()), ev.TurnEnded())
    assert kinds(deep) == {"": "Waiting", "one": "Waiting", "one/deep": "Waiting", "two": "Failed"}
    assert [(path, call.id) for path, call in waiting(deep)] == [(("one", "deep"), "a")]


def test_retrying_goes_on_in_every_loop_that_stands_still() -> None:
    """Also in one whose call expired before the failure was recorded: nothing waits for the caller there any more."""
    expires = ev.Judged((("a", Wait(Why.APPROVAL, expires_in=5.0)),))
    state = m.go(begin_with_calls("one", "two"), *at("one", *FAILS), *ask("two", "a"), *at("two", expires))
    failed = m.go(state, ev.Ticked(at=6.0), ev.TurnEnded())
    assert m.phase(failed) == "Failed"
    assert kinds(step(failed, ev.Continued())) == {"": "Running", "one": "Ready", "two": "Running"}


def test_a_failure_that_nothing_mends_is_concluded_and_not_tried_again() -> None:
    """Beside one that may pass."""
    gone = ev.RequestFailed(Failure("model", "gone", 404))
    state = m.go(begin_with_calls("one", "two"), *at("one", *FAILS), *at("two", ev.Requested(), gone))
    assert outstanding(state) == (Conclude("two"),)
    limited = m.go(
        begin_with_calls("one", "two", limits=Limits(timeout=5.0)), *at("one", *FAILS), *at("two", ev.Requested(), gone)
    )
    late = step(limited, ev.Ticked(seconds=5.0))
    assert outstanding(late) == (Conclude("two"),)  # also when time is up
    deep = m.go(m.state_after(), *ask("", "p"))
    deep = m.go(step(deep, m.child(deep, "p", limits=Limits(timeout=5.0))), *ask("p", "b"))
    deep = m.go(step(deep, m.child(deep, "p", "b")), *finish("p/b"), ev.Ticked(seconds=5.0))
    assert outstanding(deep) == (Conclude("b", ("p",)),)
    failed = m.go(late, m.make_ended("two"), ev.TurnEnded())
    assert m.phase(failed) == "Failed"
    assert m.phase(step(failed, ev.Continued())) == "Running"


def test_a_failure_is_reported_though_a_budget_is_used_up_that_holds_nothing_back() -> None:
    """No further tool may start, and none is to."""
    state = m.go(begin_with_calls("p", limits=Limits(budget=Budget(tool_calls=1))), *at("p", *FAILS), ev.TurnEnded())
    assert m.phase(state) == "Failed"


# --- ids that repeat -------------------------------------------------------------------------------------------------


def start_calls(state: State) -> State:
    return m.go(state, *ask("k", "c"), *at("k", ev.Judged(), ev.Started("c")))


def second_round() -> State:
    """A loop whose second round has a call of the same id as its first, with the same call running inside."""
    state = m.go(
        begin_with_calls("k"), *ask("k", "c"), *at("k", ev.Judged(), ev.Started("c"), m.make_ended("c"), ev.TurnEnded())
    )
    state = m.go(state, *finish("k"), m.make_ended("k"), ev.TurnEnded(), ev.Continued(), *ask("", "k"))
    return start_calls(step(state, m.child(state, "k")))


def second_run() -> State:
    """A loop whose one call was lost and runs again, with the same call running inside."""
    state = start_calls(begin_with_calls("k", tool="once"))
    state = m.go(state, ev.Ended("k", None), ev.TurnEnded(), m.make_decided(k=m.RERUN), ev.Continued())
    return start_calls(step(state, m.child(state, "k")))


@pytest.mark.parametrize(
    ("state", "earlier", "this"), [(second_round(), (1, 1), (2, 1)), (second_run(), (1, 1), (1, 2))]
)
def test_a_late_end_inside_an_earlier_run_of_the_call_above_is_none(
    state: State, earlier: tuple[int, int], this: tuple[int, int]
) -> None:
    """It says which run of which call was above it; what it spent counts above that."""
    late = ev.Ended("c", m.DONE, iteration=1, attempt=1, above=(earlier,), path=("k",))
    assert step(state, late) == state
    spent = step(state, evolve(late, spent=(IterationUsage(1, usage=Usage(5)),)))
    assert (spent.root.usage_log[-1].path, len(loop_inside(spent, "k").usage_log)) == (("k", "c"), 1)
    settled = step(state, evolve(late, above=(this,)))
    assert the_call(loop_inside(settled, "k"), "c").status is Status.SETTLED


def test_a_late_end_is_compared_with_every_call_above() -> None:
    """Also with those between; and with each of them by its own number. Fewer are compared as far as they go."""
    state = begin_with_calls("p", inside=("p/b",))
    state = m.go(state, *ask("p/b", "c"), *at("p/b", ev.Judged(), ev.Started("c")))
    end = ev.Ended("c", m.DONE, iteration=1, attempt=1, path=("p", "b"))
    for above in (((1, 1), (1, 2)), ((1, 1), (2, 1)), ((2, 1), (1, 1)), ((1, 2),)):
        assert step(state, evolve(end, above=above)) == state
    fitting: list[tuple[tuple[int, int], ...]] = [((1, 1), (1, 1)), ((1, 1),), ()]
    for runs in fitting:
        settled = step(state, evolve(end, above=runs))
        assert the_call(loop_inside(settled, "p/b"), "c").status is Status.SETTLED


def test_a_decision_about_a_call_of_a_lost_loop_is_none_about_the_next() -> None:
    """The second loop in the same call may ask for the same; the digest is still another one."""

    def show(state: State) -> str:
        loop = loop_inside(state, "k")
        assert loop.round is not None
        return digest_of(loop.setup, loop.round.iteration, the_call(loop, "a"))

    first = m.go(begin_with_calls("k", tool="once"), *waits("k"))
    second = m.go(first, ev.Ended("k", None), ev.TurnEnded(), m.make_decided(k=m.RERUN), ev.Continued())
    second = m.go(step(second, m.child(second, "k")), *waits("k"))
    assert loop_inside(second, "k").setup.within == ((1, "k", 2),)
    with pytest.raises(DecisionConflict, match="cannot approve the call 'k/a': it has changed") as refused:
        step(second, ev.Decided((("k/a", DecisionRecord("approve", digest=show(first))),)))
    assert refused.value.call == "k/a"
    decided = step(second, ev.Decided((("k/a", DecisionRecord("approve", digest=show(second))),)))
    assert the_call(loop_inside(decided, "k"), "a").status is Status.DECIDED


# --- a history that is taken -----------------------------------------------------------------------------------------


def test_a_history_that_is_taken_goes_on_with_what_is_inside_of_its_calls() -> None:
    """What runs runs on; what stood still goes on, unless calls wait there; and what is left out is gone."""
    keeps = ev.HistoryTaken(reply=m.make_said(m.call("p", "pure")))
    busy = m.go(begin_with_calls("p", "q"), *at("p", ev.Requested()))
    assert kinds(step(busy, keeps)) == {"": "Running", "p": "Requesting"}
    assert kinds(step(busy, ev.HistoryTaken())) == {"": "Ready"}
    both = ev.HistoryTaken(reply=m.make_said(m.call("p", "pure"), m.call("q", "pure")))
    for still, phase in ((waits("p"), "Waiting"), (at("p", *FAILS), "Failed")):
        mixed = m.go(begin_with_calls("p", "q"), *still, *at("q", ev.Requested()))
        assert kinds(step(mixed, both)) == {"": "Running", "p": phase, "q": "Requesting"}
    failed = m.go(begin_with_calls("p"), *at("p", *FAILS), ev.TurnEnded())
    assert kinds(step(failed, keeps)) == {"": "Running", "p": "Ready"}
    asking = m.go(begin_with_calls("p"), *waits("p"), ev.TurnEnded())
    assert kinds(step(asking, keeps)) == {"": "Waiting", "p": "Waiting"}
    assert m.phase(step(asking, keeps)) == "decision_required"
    decided = m.go(asking, ev.Decided((("p/a", m.APPROVE),)), keeps)
    assert kinds(decided) == {"": "Running", "p": "Running"}


def test_a_request_inside_is_given_up_where_the_loop_above_comes_to_stand_still() -> None:
    """A history with a further call is judged, and its caller is asked: nothing waits for the reply then."""
    busy = m.go(begin_with_calls("p"), *at("p", ev.Requested()))
    judging = step(busy, ev.HistoryTaken(reply=m.make_said(m.call("p", "pure"), m.call("c"))))
    assert kinds(judging) == {"": "Judging", "p": "Requesting"}
    assert kinds(step(judging, m.asks("c"))) == {"": "Waiting", "p": "Ready"}
