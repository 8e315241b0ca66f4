"""The container of a reply goes along while the turn is open that its code waits in, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import making as m
from toolloop.core import events as ev
from toolloop.core.setup import Limits
from toolloop.core.states import Deciding, Executed, Failed, Finished, Judging, Paused, Ready, Running, State
from toolloop.core.terminations import MaxIterations
from toolloop.stores import codec

PROGRAM = {"type": "server_tool_use", "id": "srv", "name": "code_execution", "input": {}}
RAN = {"type": "code_execution_tool_result", "tool_use_id": "srv", "content": {}}
HELD = {"container": {"id": "container_1", "expires_at": "2026-11-21T12:00:00Z"}}
EVENTS: tuple[ev.Event, ...] = (
    m.replied("tool_use", PROGRAM, m.code_call("c", "pure"), **HELD),
    m.judged(),
    ev.Started("c"),
    m.ended("c"),
    ev.TurnEnded(),
    ev.Continued(),
)


def container(state: State) -> str | None:
    return state.ledger.container


def waiting(**changes: Any) -> State:
    """A loop whose next request carries the result that a program waits for."""
    return m.after(*EVENTS, **changes)


def test_a_reply_says_in_which_container_its_code_ran() -> None:
    assert m.replied("end_turn", m.text("x"), **HELD).reply.container == "container_1"


@pytest.mark.parametrize("odd", [None, "container_1", {}, {"id": None}, {"id": ""}, {"id": 7}])
def test_a_reply_without_the_id_of_a_container_names_none(odd: Any) -> None:
    assert m.replied("end_turn", m.text("x"), container=odd).reply.container is None


def test_a_round_of_calls_made_by_code_keeps_it_up_to_the_next_request() -> None:
    states = [m.after(*EVENTS[: count + 1]) for count in range(len(EVENTS))]
    assert [type(state) for state in states] == [Judging, Running, Running, Running, Executed, Ready]
    assert {container(state) for state in states} == {"container_1"}


def test_a_reply_that_goes_on_with_the_turn_need_not_name_it_again() -> None:
    state = m.go(waiting(), m.replied("tool_use", m.code_call("d", "pure")))
    assert container(state) == "container_1"


def test_a_reply_that_names_another_one_replaces_it() -> None:
    state = m.go(waiting(), m.replied("tool_use", m.code_call("d", "pure"), container={"id": "container_2"}))
    assert container(state) == "container_2"


def test_a_paused_reply_keeps_it_until_it_is_resumed() -> None:
    paused = m.after(m.replied("pause_turn", PROGRAM, **HELD))
    assert isinstance(paused, Paused)
    assert container(m.go(paused, ev.Continued())) == "container_1"
    assert container(m.go(paused, ev.Continued(), m.replied("end_turn", RAN, m.text("x"), **HELD))) is None


def test_a_paused_reply_of_which_nothing_is_kept_keeps_none() -> None:
    assert container(m.after(m.replied("pause_turn", m.text(" "), **HELD))) is None


@pytest.mark.parametrize("stop", ["end_turn", "max_tokens", "refusal", "a_new_reason"])
def test_it_goes_with_the_turn(stop: str) -> None:
    ended = m.go(waiting(), m.replied(stop, RAN, m.text("x"), **HELD))
    assert isinstance(ended, Finished)
    assert (container(ended), ended.back) == (None, None)


def test_a_round_that_nothing_is_open_in_drops_it() -> None:
    """Where the program is done, the calls are the model's own: the next request needs no container."""
    closed = m.after(m.replied("tool_use", PROGRAM, RAN, m.call("c", "pure"), **HELD), *EVENTS[1:5])
    assert isinstance(closed, Executed)
    assert (container(closed), closed.tail) == (None, ())


def test_a_failed_request_and_a_reply_that_makes_no_sense_keep_it() -> None:
    failed = m.go(waiting(), ev.RequestFailed(m.FAILURE))
    assert container(m.go(failed, ev.Retried())) == "container_1"
    nonsense = m.go(waiting(), m.replied("tool_use", m.text("x"), container={"id": "container_2"}))
    assert isinstance(nonsense, Failed)
    assert container(m.go(nonsense, ev.Retried())) == "container_1"


def test_a_cancelled_request_keeps_it() -> None:
    assert container(m.go(waiting(), ev.RequestCancelled())) == "container_1"


@pytest.mark.parametrize("event", [ev.Woken(), ev.Forked("other")], ids=["woken", "forked"])
def test_a_loop_that_wakes_up_or_is_copied_keeps_it(event: ev.Event) -> None:
    assert container(m.go(waiting(), event)) == "container_1"


def test_a_stop_drops_it() -> None:
    stopped = m.go(waiting(), ev.Stopped("enough"))
    assert container(stopped) is None
    assert container(m.go(stopped, ev.FollowedUp((m.user(),)))) is None


def test_a_loop_that_goes_on_after_a_limit_has_it_again() -> None:
    """As the round and the messages beside the history, it waits with the end that a limit caused."""
    limited = Limits(max_iterations=1)
    open_ = m.after(*EVENTS, limits=limited)
    ended = m.go(open_, ev.TurnEnded())
    assert isinstance(ended, Finished)
    assert ended.termination == MaxIterations(1)
    assert container(ended) is None
    assert container(m.go(ended, ev.Extended(Limits(max_iterations=5)))) == "container_1"
    assert container(m.go(ended, ev.HistoryEdited((m.user(),)), ev.Extended(Limits(max_iterations=5)))) is None


def test_one_that_the_caller_names_or_takes_away_counts_from_then_on() -> None:
    """Whether the loop is under way or has met a limit; other parameters leave it."""
    named = ev.ParamsChanged('{"container":"container_0"}', ("container", "model"))
    assert [container(m.go(waiting(), event)) for event in (named, ev.ParamsChanged("{}", ("container",)))] == [
        None
    ] * 2
    assert container(m.go(waiting(), ev.ParamsChanged("{}", ("model",)))) == "container_1"
    ended = m.go(m.after(*EVENTS, limits=Limits(max_iterations=1)), ev.TurnEnded())
    assert container(m.go(ended, named, ev.Extended(Limits()))) is None
    stopped = m.go(waiting(), ev.Stopped("enough"), named)
    assert isinstance(stopped, Finished)


def test_what_is_said_while_the_turn_is_open_leaves_it() -> None:
    assert container(m.go(waiting(), ev.Injected((m.user("and"),)))) == "container_1"


@pytest.mark.parametrize("count", range(1, len(EVENTS) + 1))
def test_a_snapshot_keeps_it(count: int) -> None:
    state = m.after(*EVENTS[:count])
    snapshot = codec.dump(state)
    assert snapshot["ledger"]["container"] == "container_1"
    assert codec.load(snapshot) == state


def test_a_snapshot_without_one_says_nothing_of_it() -> None:
    assert "container" not in codec.dump(m.after())["ledger"]


def test_waiting_for_a_person_keeps_it() -> None:
    asked = m.after(m.replied("tool_use", PROGRAM, m.code_call("c"), **HELD), m.asks("c"))
    assert isinstance(asked, Deciding)
    assert container(codec.load(codec.dump(asked))) == "container_1"
