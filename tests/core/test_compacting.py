"""Compaction: what a strategy changed, what a summary used, and what the server made of the history."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from tests.core import making as m
from tests.core.nested import asked, at, begun, inside
from toolloop.core import events as ev
from toolloop.core.binding import all_messages
from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import decode, encode
from toolloop.core.machine import fold, step
from toolloop.core.setup import Budget, Limits
from toolloop.core.splicing import Splice
from toolloop.core.states import Executed, Failed, Finished, Judging, Paused, Ready, Requesting, State
from toolloop.core.terminations import BudgetExceeded, StopCondition
from toolloop.core.usage import IterationUsage, Usage

ASKS = encode({"model": "m", "compaction": {"type": "summarize"}})
BLOCK = {"type": "compaction", "content": "So far: nothing.", "signature": "s"}
USED = IterationUsage(1, "m", usage=Usage(input_tokens=9, output_tokens=2), kind="summary")
SHORT = m.user("in short")
ROUND = (
    ev.Requested(),
    m.replied("tool_use", m.thinking("first"), m.call("a", "pure")),
    ev.Judged(),
    ev.Started("a"),
    m.ended("a"),
    ev.TurnEnded(),
)
DROPPED = ev.Compacted("drop_rounds", (Splice(0, 1, (SHORT,)),), before=90, after=10)


def summing(*events: ev.Event, **changes: Any) -> State:
    """A loop that asks for a summary, after these events."""
    return m.after(*ROUND, *events, ev.Continued(), ev.Requested(summary=True), **changes)


# --- what a strategy does --------------------------------------------------------------------------------------------


def test_a_compaction_changes_the_history_and_nothing_moves() -> None:
    """The caller has the word before and after; how much it left is known by the strategy's name."""
    state = m.after(*ROUND, DROPPED)
    assert isinstance(state, Executed)
    assert state.ledger.messages[0] == SHORT
    assert len(state.ledger.messages) == 3
    assert state.ledger.compacted == (("drop_rounds", 10),)
    assert state.ledger.edited_at == state.ledger.iterations == 1
    assert state.ledger.unbound == ((1, 2),)


def test_a_compaction_that_changed_nothing_binds_what_was_bound() -> None:
    """It is only told."""
    state = m.after(*ROUND, ev.Compacted("mask_results", before=90, after=90, problem="nothing to mask"))
    assert state.ledger.messages == m.after(*ROUND).ledger.messages
    assert (state.ledger.unbound, state.ledger.edited_at) == ((), 0)
    assert state.ledger.compacted == (("mask_results", 90),)


def test_an_edit_forgets_what_compactions_left() -> None:
    """For it was of another history."""
    state = m.after(*ROUND, DROPPED, ev.HistoryEdited(splices=(Splice(0, 1, (m.user("else"),)),)))
    assert state.ledger.compacted == ()


def test_a_request_for_a_summary_ends_with_the_compaction() -> None:
    """The request is next, with the shorter history; and what was said meanwhile is in it."""
    state = m.go(summing(), ev.Injected((m.user("and this"),)), DROPPED)
    assert isinstance(state, Ready)
    assert [state.ledger.messages[0], state.ledger.messages[-1]] == [SHORT, m.user("and this")]


def test_a_summary_is_accounted_and_is_no_iteration() -> None:
    """Whether its text was of use or not: it was paid for."""
    for event in (evolve(DROPPED, summary=USED), ev.Compacted("summarize", summary=USED, problem="it came out longer")):
        ledger = m.go(summing(), event).ledger
        assert list(ledger.usage_log)[-1] == USED
        assert ledger.total_usage == m.after(*ROUND).ledger.total_usage + USED.usage
        assert (ledger.iterations, ledger.turn_iterations, len(ledger.usage_log)) == (1, 1, 2)


def test_a_summary_is_bound_by_the_budget() -> None:
    """It goes out only where a request may, and counts as one."""
    state = m.go(summing(limits=Limits(budget=Budget(requests=2))), evolve(DROPPED, summary=USED))
    for event in (ev.Requested(), ev.Requested(summary=True)):
        with pytest.raises(IllegalCommand, match="a limit forbids the request"):
            step(state, event)
    over = step(state, ev.TurnEnded())
    assert isinstance(over, Finished)
    assert over.termination == BudgetExceeded("requests", 2, 2)


def test_who_said_stop_during_a_summary_stops_after_it() -> None:
    """What it made of the history is kept."""
    state = m.go(summing(), ev.Stopped("enough"), DROPPED)
    assert isinstance(state, Finished)
    assert state.termination == StopCondition("enough")
    assert state.ledger.messages[0] == SHORT


@pytest.mark.parametrize("event", [m.replied("end_turn", m.text("so")), ev.RequestFailed(m.FAILURE)])
def test_a_summary_is_no_reply_and_its_failure_none_of_the_loop(event: ev.Event) -> None:
    """Only a compaction says what came of it."""
    before = summing()
    with pytest.raises(IllegalCommand, match="is for a summary"):
        step(before, event)
    assert before == summing()


def test_a_request_that_carries_the_history_is_not_interrupted_by_a_compaction() -> None:
    """Its reply is born after the history as it went out."""
    before = m.after(ev.Requested())
    with pytest.raises(IllegalCommand, match="carries the history as it is"):
        step(before, DROPPED)


@pytest.mark.parametrize("summary", [False, True])
def test_what_a_summary_by_hand_used_counts_also_during_a_request(summary: bool) -> None:
    """The loop has gone on meanwhile: nothing else comes of it, and the request is still under way."""
    before = m.after(ev.Requested(summary=summary))
    state = step(before, ev.Compacted("summarize", summary=USED, problem="the loop has gone on", by_hand=True))
    assert isinstance(state, Requesting)
    assert state.summary is summary
    assert list(state.ledger.usage_log) == [USED]
    with pytest.raises(IllegalCommand, match="carries the history as it is"):
        step(before, evolve(DROPPED, by_hand=True))


@pytest.mark.parametrize("lost", [ev.RequestCancelled(), ev.Woken(), ev.Forked("copy")])
def test_a_summary_that_is_lost_changes_nothing(lost: ev.Event) -> None:
    """The driver that comes next asks anew, if it wants one."""
    state = m.go(summing(), lost)
    assert isinstance(state, Ready)
    assert state.ledger.messages == summing().ledger.messages
    assert isinstance(step(state, ev.Requested(summary=True)), Requesting)


def test_a_loop_inside_a_call_is_compacted_by_itself() -> None:
    """Its history, not that above; and what its summary used counts in both."""
    state = m.go(begun("p"), *asked("p", "a"), *at("p", ev.Started("a"), m.ended("a"), ev.TurnEnded()))
    above = state.ledger.messages
    state = m.go(state, *at("p", ev.Requested(summary=True), evolve(DROPPED, summary=USED)))
    assert inside(state).ledger.messages[0] == SHORT
    assert state.ledger.messages == above
    assert list(inside(state).ledger.usage_log)[-1] == USED
    assert list(state.ledger.usage_log)[-1] == evolve(USED, path=("p",))


# --- what the server does --------------------------------------------------------------------------------------------


def compacted(*blocks: Any, before: tuple[ev.Event, ...] = ROUND, **changes: Any) -> State:
    """A loop that asked the server to compact, after its reply."""
    asks = (*before, *([ev.Continued()] if before else []), ev.ParamsChanged(ASKS), ev.Requested())
    return m.after(*asks, m.replied("compaction", *blocks), **changes)


def is_replaced(state: State) -> bool:
    return bool(m.history(state) == [{"role": "assistant", "content": [BLOCK]}])


def is_spent(state: State) -> bool:
    return bool(decode(state.ledger.setup.params) == {"model": "m"})


def test_the_servers_block_takes_the_place_of_the_history() -> None:
    """The loop pauses with nothing beside it, and the parameter is spent."""
    state = compacted(BLOCK)
    assert isinstance(state, Paused)
    assert state.tail == ()
    assert is_replaced(state)
    assert is_spent(state)
    assert state.ledger.edited_at == state.ledger.iterations == 2
    assert state.ledger.unbound == ()


def test_what_the_model_said_beside_the_block_was_born_before_it_was_alone() -> None:
    """So its thinking is unbound."""
    state = compacted(m.thinking(), BLOCK)
    assert len(state.ledger.messages) == 1
    assert state.ledger.unbound == ((0, 1),)


@pytest.mark.parametrize("blocks", [[BLOCK | {"content": None}], [{"type": "compaction"}], [m.text("no")], []])
def test_a_block_without_content_leaves_the_history(blocks: list[Any]) -> None:
    """The compaction failed; it is not asked for once more."""
    state = compacted(*blocks)
    assert isinstance(state, Paused)
    assert (state.tail, is_spent(state)) == ((), True)
    assert list(state.ledger.messages) == list(m.after(*ROUND).ledger.messages)


def test_where_stop_when_is_asked_the_block_waits_for_its_word() -> None:
    """Then it takes its place."""
    state = compacted(BLOCK, callables=frozenset({"stop_when"}))
    assert isinstance(state, Judging)
    assert len(state.ledger.messages) == 3
    assert is_replaced(step(state, ev.Judged()))


@pytest.mark.parametrize("stop", [ev.Judged(stop=True), ev.Stopped()])
def test_who_stops_then_keeps_what_the_server_made(stop: ev.Event) -> None:
    """It was paid for."""
    state = step(compacted(BLOCK, callables=frozenset({"stop_when"})), stop)
    assert isinstance(state, Finished)
    assert is_replaced(state)
    assert is_spent(state)


def test_who_stopped_during_the_request_keeps_it_too() -> None:
    """The loop ends with the block as its history, and may be followed up."""
    asks = (*ROUND, ev.Continued(), ev.ParamsChanged(ASKS), ev.Requested(), ev.Stopped("enough"))
    state = m.after(*asks, m.replied("compaction", BLOCK))
    assert isinstance(state, Finished)
    assert state.termination == StopCondition("enough")
    assert is_replaced(state)
    assert len(step(state, ev.FollowedUp((m.user(),))).ledger.messages) == 2


def test_what_was_injected_meanwhile_comes_after_the_block() -> None:
    """It is not what was compacted."""
    asks = (*ROUND, ev.Continued(), ev.ParamsChanged(ASKS), ev.Requested(), ev.Injected((m.user("and this"),)))
    state = m.go(m.after(*asks), m.replied("compaction", BLOCK), ev.Continued())
    assert m.history(state) == [{"role": "assistant", "content": [BLOCK]}, decode(m.user("and this"))]


def test_a_block_in_an_open_turn_stays_beside() -> None:
    """It goes out again with what the model said before, as any pause."""
    pause = (ev.Requested(), m.replied("pause_turn", m.text("so far"), m.server_call("s")))
    state = compacted(BLOCK, before=pause)
    assert isinstance(state, Paused)
    assert len(state.tail) == 2
    assert not is_spent(state)


@pytest.mark.parametrize("params", ["{}", '{"compaction":null}', '{"system":"\\"compaction\\""}'])
def test_a_block_that_nobody_asked_for_is_a_pause(params: str) -> None:
    """So `pause_after_compaction` has it: the block goes out again, after what it stands for."""
    state = m.after(ev.ParamsChanged(params), ev.Requested(), m.replied("compaction", BLOCK))
    assert isinstance(state, Paused)
    assert (len(state.ledger.messages), len(state.tail)) == (1, 1)
    assert state.ledger.setup.params == params


def test_another_pause_is_none_of_it() -> None:
    """The parameter waits for its own reply."""
    state = m.after(ev.ParamsChanged(ASKS), ev.Requested(), m.replied("pause_turn", m.text("so far")))
    assert isinstance(state, Paused)
    assert (len(state.tail), state.ledger.setup.params) == (1, ASKS)


# --- what the places are counted in ----------------------------------------------------------------------------------


def test_all_messages_are_those_of_the_history_those_beside_it_and_the_open_reply() -> None:
    """In every state."""
    closed = list(m.after(*ROUND).ledger.messages)
    waits = m.after(*ROUND, ev.Continued(), ev.Requested(), m.replied("tool_use", m.call("b")))
    paused = m.after(ev.Requested(), m.replied("pause_turn", m.text("so far")))
    failed = m.after(ev.Requested(), ev.RequestFailed(m.FAILURE))
    assert isinstance(waits, Judging)
    assert isinstance(failed, Failed)
    assert list(all_messages(m.after(*ROUND))) == closed
    assert [decode(text)["role"] for text in all_messages(waits)] == ["user", "assistant", "user", "assistant"]
    assert [decode(text)["role"] for text in all_messages(paused)] == ["user", "assistant"]
    assert len(all_messages(failed)) == 1
    assert list(all_messages(m.go(waits, ev.Stopped()))) == list(m.go(waits, ev.Stopped()).ledger.messages)


def test_a_journal_of_an_edit_as_a_whole_leads_where_it_led() -> None:
    """It was written so once; when it was is not known of it."""
    whole = fold([m.opened(), *ROUND, ev.HistoryEdited((m.user("all of it"),))])
    assert list(whole.ledger.messages) == [m.user("all of it")]
    assert whole.ledger.edited_at == 0
