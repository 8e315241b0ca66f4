"""A tree of loops as a whole: how it fails, ends, wakes up and is copied; and what comes of a loop inside a call."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.core import making as m
from tests.core.making import the_call
from tests.core.nested import asked, at, begun, inside, kinds, waits
from toolloop.core import events as ev
from toolloop.core.effects import Conclude, EndTurn, SendRequest
from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import decode
from toolloop.core.machine import outstanding, step
from toolloop.core.setup import Limits, ToolFacts
from toolloop.core.states import Failed, Failure, Finished
from toolloop.core.texts import Texts
from toolloop.core.tree import (
    answer_of,
    children,
    everywhere,
    is_over,
    loop_at,
    loops,
    round_of,
    waiting,
    with_round,
)
from toolloop.core.values import Outcome, Round, Status, Terms, Wait, Why

# --- failures --------------------------------------------------------------------------------------------------------

NEVER = Failure("model", "no such model", status=404)


def test_a_failure_that_may_pass_is_one_of_the_whole_tree() -> None:
    """Once nothing else of it runs; and who tries again does so where it failed."""
    state = m.go(begun("p", inside=("p/b",)), *at("p/b", ev.Requested(), ev.RequestFailed(m.FAILURE)))
    assert outstanding(state) == (EndTurn(("p",)),)
    failed = m.go(state, *at("p", ev.TurnEnded()), ev.TurnEnded())
    assert isinstance(failed, Failed)
    assert failed.failure == evolve(m.FAILURE, path=("p", "b"))
    again = step(failed, ev.Retried())
    assert kinds(again) == {"": "Running", "p": "Running", "p/b": "Ready"}
    assert outstanding(again) == (SendRequest(("p", "b")),)


def test_all_that_failed_is_tried_again() -> None:
    """And what had failed for good has not."""
    failed = m.go(
        begun("p", "q", "r"),
        *at("p", ev.Requested(), ev.RequestFailed(m.FAILURE)),
        *at("q", ev.Requested(), ev.RequestFailed(m.FAILURE)),
        *at("r", ev.Requested(), ev.RequestFailed(NEVER)),
    )
    assert outstanding(failed) == (Conclude("r"),)
    failed = m.go(failed, m.ended("r"), ev.TurnEnded())
    assert kinds(step(failed, ev.Retried())) == {"": "Running", "p": "Ready", "q": "Ready"}
    stopped = step(failed, ev.Stopped())
    assert set(m.results(m.history(stopped)[-1])) == {"p", "q", "r"}


def test_a_grant_that_is_revoked_meanwhile_lets_nothing_run_afterwards() -> None:
    """What it had cleared asks again, also in a round that a failure holds up."""
    given = m.decided(c=evolve(m.APPROVE, remember=Terms(match="{}")))
    state = m.go(m.after(max_parallel_tools=1), *asked("", "c"), m.asks("c"), given, ev.Continued())
    state = m.go(state, ev.Started("c"), m.ended("c"), ev.TurnEnded(), ev.Continued())
    state = m.go(state, *asked("", "p", "d"), m.judged(d=Wait(Why.APPROVAL)))
    state = m.go(state, m.child(state, "p"), *at("p", ev.Requested(), ev.RequestFailed(m.FAILURE)), ev.TurnEnded())
    assert isinstance(state, Failed)
    assert the_call(step(state, ev.Retried()), "d").status is Status.CLEARED
    revoked = m.go(state, ev.GrantRevoked("1/c"), ev.Retried())
    assert (the_call(revoked, "d").status, the_call(revoked, "d").ruling) == (Status.WAITING, None)


# --- another driver, a copy, and limits ------------------------------------------------------------------------------


def test_who_takes_over_takes_all_of_it() -> None:
    """A request inside is made again; a call that ran there is uncertain; the call of the loop is not lost."""
    agent = (ToolFacts("pure", "once", "never", "d"),)
    state = m.go(m.after(tools=agent), *asked("", "p", "q"))
    for name in ("p", "q"):
        state = step(state, m.child(state, name, tools=agent))
    state = m.go(state, *asked("p", "a"), *at("p", ev.Started("a")), *at("q", ev.Requested()), ev.Woken())
    assert kinds(state) == {"": "Running", "p": "Running", "q": "Ready"}
    assert the_call(inside(state), "a").why is Why.UNCERTAIN
    assert the_call(state, "p").status is Status.RUNNING
    other = evolve(inside(state).ledger.setup, tool_timeout=3.0)
    assert inside(step(state, ev.Woken(other, path=("p",)))).ledger.setup == other


def test_a_copy_is_one_of_the_whole_tree() -> None:
    """In it every open call asks again, and what was started is uncertain; no loop of it makes a request unasked."""
    state = m.go(begun("p", "q"), *asked("p", "a", "b"), *at("p", ev.Started("a")), *at("q", ev.Requested()))
    copy = step(state, ev.Forked("copy"))
    assert {loop.ledger.setup.loop_id for _, loop in loops(copy)} == {"copy"}
    assert kinds(copy) == {"": "Deciding", "p": "Deciding", "q": "Ready"}
    assert [call.why for call in inside(copy).round.calls] == [Why.UNCERTAIN, Why.APPROVAL]
    assert outstanding(copy) == ()


def test_a_tree_that_a_limit_ended_goes_on_where_it_stood() -> None:
    """With what was inside of its calls."""
    state = m.go(begun("p", limits=Limits(timeout=5.0)), *asked("p", "a"), *at("p", ev.Started("a")))
    ended = m.go(state, ev.Ticked(seconds=5.0), ev.TurnEnded())
    assert isinstance(ended, Finished)
    late = m.go(ended, *at("p", ev.Ended("a", m.DONE, iteration=1, attempt=1)))
    onward = step(late, ev.Extended(Limits()))
    assert kinds(onward) == {"": "Running", "p": "Running"}
    assert outstanding(onward) == (EndTurn(("p",)),)


def test_nothing_inside_passes_a_limit_above() -> None:
    """Neither a request nor another tool."""
    late = step(begun("p", limits=Limits(timeout=5.0)), ev.Ticked(seconds=5.0))
    with pytest.raises(IllegalCommand, match="a limit of a loop above forbids the request"):
        m.go(late, *at("p", ev.Requested()))


# --- what comes of a loop inside a call ------------------------------------------------------------------------------


def answer(*events: ev.Event, texts: Texts | None = None, **changes: object) -> tuple[str, bool]:
    """What the call is told of a loop to which this happened, and whether it is an error."""
    child = m.after(*events, **changes)
    assert is_over(child)
    result = answer_of(child, texts or Texts())
    assert result.outcome is (Outcome.FAILED if result.is_error else Outcome.RETURNED)
    return decode(result.content), result.is_error


def test_the_last_words_of_a_loop_are_the_answer() -> None:
    """All text of its last reply, in lines; also where the policy of its own ended it."""
    assert answer(m.replied("end_turn", m.text("one"), m.text(" "), m.text("two"))) == ("one\ntwo", False)
    stopped = (m.replied("tool_use", m.text("enough"), m.call("a")), ev.Judged(stop=True, reason="seen it"))
    assert answer(*stopped, callables=frozenset({"stop_when"})) == ("enough", False)


def test_a_loop_that_ends_without_a_word_says_so() -> None:
    """It is no error to have nothing to say; to be stopped with nothing said is."""
    silent = "The loop inside this call came to an end without an answer: "
    assert answer(m.replied("end_turn")) == (f"{silent}it said nothing.", False)
    stopped = (m.replied("tool_use", m.call("a")), ev.Judged(stop=True, reason="seen it"))
    assert answer(*stopped, callables=frozenset({"stop_when"})) == (f"{silent}stop condition (reason: seen it).", False)


def test_a_loop_that_did_not_choose_its_end_gives_no_answer() -> None:
    """What it had said is told with the reason; and it is an error."""
    limited = (m.replied("tool_use", m.text("so far"), m.call("a", "pure")), ev.Started("a"), m.ended("a"))
    text, is_error = answer(*limited, ev.TurnEnded(), ev.Continued(), ev.TurnEnded(), limits=Limits(max_iterations=1))
    assert (text, is_error) == (
        "The loop inside this call was cut short: max iterations (limit: 1). Its last words were: so far",
        True,
    )
    assert answer(m.replied("max_tokens", m.text("half"))) == (
        "The loop inside this call was cut short: truncated (stop reason: max_tokens). Its last words were: half",
        True,
    )


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (
            m.replied("refusal", m.text("no"), stop_details={"explanation": "not that"}),
            "refused (explanation: not that)",
        ),
        (ev.RequestFailed(Failure("model", "no such model", status=404)), "its model request failed: no such model"),
    ],
)
def test_what_was_refused_or_failed_is_told_with_its_reason(event: ev.Event, why: str) -> None:
    """And nothing of what a refusal said."""
    assert answer(event) == (f"The loop inside this call came to an end without an answer: {why}.", True)


def test_a_loop_nested_too_deep_says_so() -> None:
    """With the depth, and the limit."""
    text, is_error = answer(ev.TurnEnded(), depth=2, limits=Limits(max_depth=2))
    assert "it is nested too deep: 2, and 2 is the limit" in text
    assert is_error


def test_the_texts_are_those_of_the_loop_above() -> None:
    """As all that the model is told."""
    own = Texts(no_answer="Nothing came of it: {reason}")
    assert answer(m.replied("end_turn"), texts=own) == ("Nothing came of it: it said nothing", False)


# --- the tree --------------------------------------------------------------------------------------------------------


def test_a_failure_that_may_pass_is_no_end() -> None:
    assert not is_over(m.after(ev.RequestFailed(m.FAILURE)))
    assert not is_over(m.after())


def test_what_waits_is_found_wherever_it_is() -> None:
    """With the path of its loop, the outermost first; where nothing is open there is nothing."""
    state = m.go(begun("p", inside=("p/b",)), *waits("p/b"))
    assert [(path, call.id) for path, call in waiting(state)] == [(("p", "b"), "a")]
    assert waiting(step(state, ev.Stopped())) == []


def test_a_loop_is_found_by_its_path() -> None:
    """The very one; and None where there is none."""
    state = begun("p", inside=("p/b",))
    assert loop_at(state, ()) is state
    assert [loop_at(state, path) for path, _ in loops(state)] == [loop for _, loop in loops(state)]
    assert loop_at(state, ("b",)) is None
    assert loop_at(state, ("p", "b", "c")) is None


def test_what_has_no_round_has_none_to_change() -> None:
    """Nor loops inside of its calls."""
    for state in (m.after(), m.after(ev.Requested()), m.after(m.replied("end_turn", m.text("bye")))):
        assert round_of(state) is None
        assert with_round(state, Round(1, None)) is state
        assert children(round_of(state)) == []


def test_a_loop_that_stands_still_may_go_on_with_what_is_inside() -> None:
    """After a limit the loops inside are no part of the open tree, but they are there."""
    state = begun("p", limits=Limits(timeout=1.0))
    assert list(everywhere(state)) == list(loops(state))
    ended = m.go(state, ev.Ticked(seconds=2.0), ev.TurnEnded())
    assert [path for path, _ in loops(ended)] == [()]
    assert [path for path, _ in everywhere(ended)] == [(), ("p",)]
