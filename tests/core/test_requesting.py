"""While a request is under way: what may be said meanwhile, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from toolloop.core import events as ev
from toolloop.core.effects import EndTurn
from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import decode
from toolloop.core.machine import outstanding, step
from toolloop.core.setup import Limits
from toolloop.core.states import Failed, Finished, Judging, Paused, Ready, Requesting, State
from toolloop.core.terminations import NaturalEnd, Refused, StopCondition, Truncated

HI = {"role": "user", "content": "hi"}
LATER = m.user("later")
STOPPED = StopCondition("enough")


def requesting(*events: ev.Event, **changes: Any) -> Requesting:
    """A loop whose request is under way, after these events."""
    state = m.after(ev.Requested(), *events, **changes)
    assert isinstance(state, Requesting)
    return state


def ended(state: State) -> Finished:
    assert isinstance(state, Finished)
    return state


# --- going out -------------------------------------------------------------------------------------------------------


def test_a_request_is_said_before_it_goes_out() -> None:
    """Then there is nothing to be done but to wait for what comes of it."""
    assert outstanding(requesting()) == ()


@pytest.mark.parametrize("event", [m.replied("end_turn"), ev.RequestFailed(m.FAILURE), ev.RequestCancelled()])
def test_nothing_comes_of_a_request_that_did_not_go_out(event: ev.Event) -> None:
    """A reply that nobody asked for is no reply."""
    with pytest.raises(IllegalCommand, match="while the loop is Ready"):
        step(m.after(), event)


@pytest.mark.parametrize("limited", [{"limits": Limits(max_iterations=0)}, {"depth": 3}])
def test_a_request_that_a_limit_forbids_does_not_go_out(limited: dict[str, Any]) -> None:
    """The state that ends the turn refuses to send."""
    state = m.after(**limited)
    assert outstanding(state) == (EndTurn(),)
    with pytest.raises(IllegalCommand, match="a limit forbids the request"):
        step(state, ev.Requested())


def test_a_second_request_does_not_go_out_beside_the_first() -> None:
    with pytest.raises(IllegalCommand, match="while the loop is Requesting"):
        step(requesting(), ev.Requested())


@pytest.mark.parametrize("event", [ev.HistoryEdited((LATER,)), m.decided(c=m.DENY), ev.Continued(), ev.TurnEnded()])
def test_what_the_reply_must_find_as_it_was_cannot_change(event: ev.Event) -> None:
    """The history that the model answers is the history that its answer joins."""
    with pytest.raises(IllegalCommand, match="while the loop is Requesting"):
        step(requesting(), event)


@pytest.mark.parametrize(
    "event", [ev.ParamsChanged('{"model":"m"}'), ev.Extended(Limits(max_iterations=0)), ev.Ended("c", m.DONE, 0, 1, 1)]
)
def test_what_counts_from_the_next_request_on_may_be_said(event: ev.Event) -> None:
    """It does not touch the request that is under way: a lower limit neither."""
    state = m.go(requesting(), event, m.replied("end_turn", m.text("bye")))
    assert ended(state).termination == NaturalEnd()


def test_what_waits_beside_the_history_goes_along() -> None:
    """A paused reply is sent back, and joins with the reply that ends the pause."""
    paused = m.after(m.replied("pause_turn", m.text("half")))
    assert isinstance(paused, Paused)
    state = m.go(paused, ev.Continued(), ev.Requested())
    assert isinstance(state, Requesting)
    assert state.tail == paused.tail
    for event, kind in ((ev.RequestCancelled(), Ready), (ev.RequestFailed(m.FAILURE), Failed), (ev.Woken(), Ready)):
        back = step(state, event)
        assert isinstance(back, kind)
        assert getattr(back, "tail", None) == paused.tail
    assert len(m.history(step(state, m.replied("end_turn", m.text("whole"))))) == 3


# --- injecting -------------------------------------------------------------------------------------------------------


def test_what_is_injected_comes_after_the_reply() -> None:
    """The model has not heard it, so the loop goes on."""
    state = m.go(requesting(), ev.Injected((LATER,)), m.replied("end_turn", m.text("bye")))
    assert isinstance(state, Ready)
    assert m.history(state) == [HI, {"role": "assistant", "content": [m.text("bye")]}, decode(LATER)]


@pytest.mark.parametrize("end", [(ev.RequestCancelled(),), (ev.Woken(),), (ev.Forked("copy"),)])
def test_what_is_injected_goes_out_with_the_next_request_if_this_one_is_lost(end: tuple[ev.Event, ...]) -> None:
    """It stands where it would have stood if it had been said before."""
    state = m.go(requesting(ev.Injected((LATER,))), *end)
    assert isinstance(state, Ready)
    assert m.history(state) == [HI, decode(LATER)]
    assert state.ledger.held == ()


@given(st.lists(st.sampled_from(["one", "two", "three"]), max_size=4))
def test_injections_keep_their_order(words: list[str]) -> None:
    state = m.go(requesting(), *(ev.Injected((m.user(word),)) for word in words), ev.RequestCancelled())
    assert m.history(state)[1:] == [{"role": "user", "content": word} for word in words]


# --- stopping --------------------------------------------------------------------------------------------------------


def test_a_stop_waits_for_the_request() -> None:
    """The reply is paid for, and may be there already: it is taken before the loop ends. The first word stays."""
    state = m.go(requesting(), ev.Stopped("enough"), ev.Stopped("really"))
    assert isinstance(state, Requesting)
    assert (state.stopped, state.reason) == (True, "enough")


@pytest.mark.parametrize(
    ("reply", "history"),
    [
        (m.replied("tool_use", m.call("c")), 3),
        (m.replied("tool_use", m.text("no call")), 1),
        (m.replied(None, m.text("cut")), 1),
        (m.replied("pause_turn", m.text("half")), 1),
    ],
)
def test_a_stop_ends_the_loop_where_the_reply_leaves_it(reply: ev.Replied, history: int) -> None:
    """Calls did not run, a pause is dropped, a reply that makes no sense is no failure any more; it all counted."""
    stopped = ended(m.go(requesting(), ev.Stopped("enough"), reply))
    assert stopped == m.go(requesting(), reply, ev.Stopped("enough"))
    assert (stopped.termination, stopped.ledger.iterations, len(m.history(stopped))) == (STOPPED, 1, history)
    assert stopped.ledger.response == reply.reply.text


def test_a_stop_ends_a_loop_that_what_was_injected_would_have_kept_going() -> None:
    """What was said stays in the history."""
    state = m.go(requesting(ev.Injected((LATER,)), ev.Stopped("enough")), m.replied("end_turn", m.text("bye")))
    assert ended(state).termination == STOPPED
    assert m.history(state)[-1] == decode(LATER)


def test_a_stop_comes_before_stop_when() -> None:
    """Nobody is asked any more."""
    reply = m.replied("end_turn", m.text("bye"))
    assert isinstance(m.go(requesting(callables=frozenset({"stop_when"})), reply), Judging)
    state = m.go(requesting(ev.Stopped("enough"), callables=frozenset({"stop_when"})), reply)
    assert ended(state).termination == STOPPED


@pytest.mark.parametrize(
    ("reply", "termination"),
    [
        (m.replied("end_turn", m.text("bye")), NaturalEnd()),
        (m.replied("max_tokens", m.text("by")), Truncated("max_tokens")),
        (m.replied("refusal"), Refused()),
    ],
)
def test_a_reply_that_ends_the_loop_ends_it_for_its_own_reason(reply: ev.Replied, termination: object) -> None:
    """A stop that came meanwhile changes nothing."""
    assert ended(m.go(requesting(), ev.Stopped("enough"), reply)).termination == termination


@pytest.mark.parametrize("event", [ev.RequestFailed(m.FAILURE), ev.RequestCancelled(), ev.Woken()])
def test_a_stop_ends_a_loop_whose_request_brought_nothing(event: ev.Event) -> None:
    """Failed, cancelled or lost: who said stop has no use for it. Nothing was consumed."""
    state = ended(m.go(requesting(ev.Injected((LATER,))), ev.Stopped("enough"), event))
    assert (state.termination, state.ledger.iterations) == (STOPPED, 0)
    assert m.history(state) == [HI, decode(LATER)]


def test_a_copy_does_not_stop() -> None:
    """The word was for the loop that it is a copy of; nobody waits for a reply in it."""
    assert isinstance(m.go(requesting(), ev.Stopped("enough"), ev.Forked("copy")), Ready)


# --- waking ----------------------------------------------------------------------------------------------------------


def test_a_request_whose_driver_is_gone_is_made_again() -> None:
    """Nobody will hear its reply; as if it had not been made."""
    assert step(requesting(), ev.Woken()) == m.after()
    woken = step(requesting(), ev.Woken(m.setup(max_parallel_tools=1), driver="another"))
    assert woken == m.after(max_parallel_tools=1)
