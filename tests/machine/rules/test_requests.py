"""A request: what comes of it by its stop reason, what may be said meanwhile, pauses, containers, compactions."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from anthropic.types import StopReason
from anthropic.types.beta import BetaStopReason
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.machine import making as m
from toolloop.errors import IllegalCommand
from toolloop.machine.queries import outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, EndTurn, Judge
from toolloop.machine.record.loop import Failed, Failure, Requesting, State, Thread
from toolloop.machine.tree import fork, step
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import Limits, Texts
from toolloop.machine.values.stop_reasons import STOP_REASONS
from toolloop.terminations import InvalidOutput, NaturalEnd, Refused, StopCondition, Termination, Truncated

HI = {"role": "user", "content": "hi"}
LATER = m.user("later")
STOP_WHEN = frozenset({"stop_when"})
STOPPED = StopCondition("enough")
BYE = m.make_replied("end_turn", m.text("bye"))


def says(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def send_request(*events: ev.Event, **changes: Any) -> State:
    """A loop whose request is in progress, after these events."""
    return m.state_after(ev.Requested(), *events, **changes)


# --- stop reasons ----------------------------------------------------------------------------------------------------


def test_every_stop_reason_of_the_api_is_in_the_table() -> None:
    """A new one fails here instead of in a user's loop."""
    assert set(STOP_REASONS) >= {*get_args(StopReason), *get_args(BetaStopReason)}


@pytest.mark.parametrize("blocks", [[], [m.text("")], [m.text(" \n")], [m.thinking()], [m.text(""), m.thinking()]])
def test_an_end_with_nothing_to_send_back_does_not_join(blocks: list[object]) -> None:
    """An empty reply ends the loop and leaves the history as it was; `response` keeps it."""
    state = m.state_after(m.make_replied("end_turn", *blocks))
    assert (m.termination(state), m.history(state)) == (NaturalEnd(), [HI])
    assert state.root.response is not None


@pytest.mark.parametrize("reason", ["end_turn", "pause_turn", "tool_use"])
def test_stop_when_sees_each_reply_before_anything_follows(reason: str) -> None:
    """If it lets it pass, things go on as without; if it ends the loop, no call runs."""
    calls = [m.call("c")] if reason == "tool_use" else []
    reply = m.make_replied(reason, m.text("words"), *calls)
    state = m.state_after(reply, callables=STOP_WHEN)
    assert outstanding(state) == (Judge(calls=("c",) if calls else (), stop_when=True),)
    passed, without = step(state, ev.Judged()), m.state_after(reply)
    assert m.history(passed) == m.history(without)
    assert m.phase(passed) == (m.phase(without) if not calls else "Running")
    assert outstanding(without) == ((Judge(calls=("c",)),) if calls else outstanding(passed))
    ended = step(state, ev.Judged(stop=True, reason="enough"))
    assert m.termination(ended) == STOPPED
    assert [m.results(message) for message in m.history(ended)[2:]] == ([{"c": Texts().not_run}] if calls else [])
    over = m.state_after(m.make_replied("end_turn", m.call("c")), callables=STOP_WHEN)
    assert outstanding(over) == (Judge(calls=(), stop_when=True),)  # the model ended its turn: its call does not run
    again = m.state_after(
        m.make_replied("tool_use", m.call("c")), m.asks("c"), m.make_decided(c=m.approve({})), callables=STOP_WHEN
    )
    assert outstanding(step(again, ev.Continued())) == (Judge(calls=("c",)),)  # it was asked about this reply


def test_a_reply_that_makes_no_sense_is_a_failure_that_says_why() -> None:
    """As data; the event also has whether the same request may get a better reply."""
    again = m.state_after(m.make_replied("tool_use", m.text("no call")))
    assert again.root.phase == Failed(
        Failure("protocol", "the stop reason is tool_use, but the reply has no tool_use block", retryable=True)
    )
    many = m.state_after(m.make_replied("tool_use", m.call("a"), m.call("b")), limits=Limits(max_calls_per_reply=1))
    said = (
        "the reply has 2 calls, and the limit is 1, so none of them runs. Call retry() for another reply, or open the "
        "loop with a higher LoopConfig.max_calls_per_reply"
    )
    assert many.root.phase == Failed(Failure("protocol", said))
    enough = m.state_after(m.make_replied("tool_use", m.call("a"), m.call("b")), limits=Limits(max_calls_per_reply=2))
    assert m.phase(enough) == "Judging"


def test_the_end_of_a_loop_says_what_the_reply_said_of_it() -> None:
    """Why it was refused; of one that was cut off, the text joins and the calls do not."""
    details = {"category": "cyber", "explanation": "not that"}
    assert m.termination(m.state_after(m.make_replied("refusal", stop_details=details))) == Refused("cyber", "not that")
    cut = m.state_after(m.make_replied("max_tokens", m.text("so far"), m.call("c")))
    assert (m.termination(cut), m.history(cut)) == (Truncated("max_tokens"), [HI, says(m.text("so far"))])


def test_thinking_ends_a_paused_reply_and_no_other() -> None:
    """The model goes on from there; the API does not take it back at the end of a round."""
    paused = m.state_after(m.make_replied("pause_turn", m.text("half"), m.thinking()))
    assert list(map(decode, paused.root.unjoined)) == [says(m.text("half"), m.thinking())]
    ran = m.state_after(
        m.make_replied("tool_use", m.call("c"), m.thinking()), ev.Started("c"), m.make_ended("c"), ev.TurnEnded()
    )
    assert m.history(ran)[1] == says(m.call("c"))


def test_the_usage_log_says_how_long_a_reply_took() -> None:
    assert m.state_after(evolve(BYE, took=2.5)).root.usage_log[-1].seconds == 2.5


# --- going out, and meanwhile ----------------------------------------------------------------------------------------


def test_nothing_comes_of_a_request_that_did_not_go_out() -> None:
    """Nor does a second one go out beside the first, nor one that a limit forbids."""
    assert outstanding(send_request()) == ()
    for event in (BYE, ev.RequestFailed(m.FAILURE), ev.RequestFailed()):
        with pytest.raises(IllegalCommand, match="while the loop is Ready"):
            step(m.state_after(), event)
    for limited in ({"limits": Limits(max_iterations=0)}, {"depth": 3}):
        assert outstanding(m.state_after(**limited)) == (EndTurn(),)
        with pytest.raises(IllegalCommand, match="a limit forbids the request"):
            step(m.state_after(**limited), ev.Requested())
    late = step(send_request(limits=Limits(timeout=5.0)), ev.Ticked(seconds=5.0))
    assert outstanding(late) == (CancelRequest(),)


@pytest.mark.parametrize(
    "event",
    [ev.HistoryEdited(), m.make_decided(c=m.DENY), ev.Continued(), ev.TurnEnded(), ev.Requested(), ev.HistoryTaken()],
)
def test_what_the_reply_must_find_as_it_was_cannot_change(event: ev.Event) -> None:
    """The history that the model answers is the history that its answer joins."""
    with pytest.raises(IllegalCommand, match="while the loop is Requesting"):
        step(send_request(), event)


@pytest.mark.parametrize(
    "event", [ev.Changed('{"model":"m"}'), ev.Changed(limits=Limits(max_iterations=0)), ev.Ended("c", m.DONE, 0, 1, 1)]
)
def test_what_counts_from_the_next_request_on_may_be_said(event: ev.Event) -> None:
    """It does not touch the request in progress: a lower limit neither."""
    assert m.termination(m.go(send_request(), event, BYE)) == NaturalEnd()


@given(st.lists(st.sampled_from(["one", "two", "three"]), max_size=4), st.sampled_from(["cancelled", "woken", "fork"]))
def test_what_is_injected_goes_out_with_the_next_request_if_this_one_is_lost(words: list[str], how: str) -> None:
    """In the caller's order, where it would have stood if it had been said before; also after a failure."""
    state = m.go(send_request(), *(ev.Continued((m.user(word),)) for word in words))
    lost = {"cancelled": step(state, ev.RequestFailed()), "woken": step(state, ev.Woken())}
    after = fork(state, "copy", 0.0) if how == "fork" else lost[how]
    assert (m.phase(after), after.root.queued) == ("Ready", ())
    assert m.history(after)[1:] == [{"role": "user", "content": word} for word in words]
    retried = m.go(state, ev.RequestFailed(m.FAILURE), ev.Continued())
    assert m.history(retried) == m.history(after)


def test_what_is_known_of_a_thread_is_what_came_last() -> None:
    """With a reply of any kind, or with a refusal; a reply without a thread leaves it. A fork has none."""
    held, gone = Thread("msg_1", 2, "f"), Thread(None, 0, "", "thread_not_found")
    for reason in ("tool_use", "refusal", "end_turn"):
        after = step(send_request(), evolve(m.make_replied(reason, m.text("so")), thread=held))
        assert after.root.thread == held
        assert fork(after, "copy", 0.0).root.thread is None
    more = m.go(after, ev.FollowedUp((m.user("more"),)), ev.Requested())
    assert m.go(more, BYE).root.thread == held
    assert m.go(more, ev.RequestFailed(m.FAILURE)).root.thread == held
    refused = step(more, ev.RequestFailed(thread=gone))
    assert (m.phase(refused), refused.root.thread, m.history(refused)) == ("Ready", gone, m.history(more))
    assert more.root.requests - refused.root.requests == 1  # it is the same request that is sent again
    stopped = m.go(more, ev.Stopped("enough"), ev.RequestFailed(thread=gone))
    assert m.termination(stopped) == StopCondition("enough")


def test_a_stop_waits_for_the_request() -> None:
    """The reply is paid for: it is taken before the loop ends. The first word stays; a copy does not stop."""
    state = m.go(send_request(), ev.Stopped("enough"), ev.Stopped("really"))
    assert state.root.phase == Requesting(stopping=True, reason="enough")
    assert m.phase(fork(state, "copy", 0.0)) == "Ready"


@pytest.mark.parametrize(
    ("reply", "history"),
    [
        (m.make_replied("tool_use", m.call("c")), 3),
        (m.make_replied("tool_use", m.text("no call")), 1),
        (m.make_replied("pause_turn", m.text("half")), 1),
    ],
)
def test_a_stop_ends_the_loop_where_the_reply_leaves_it(reply: ev.Replied, history: int) -> None:
    """Calls did not run, a pause is dropped, a reply that makes no sense no longer fails the loop; it all counted."""
    state = m.go(send_request(), ev.Stopped("enough"), reply)
    assert state == m.go(send_request(), reply, ev.Stopped("enough"))
    assert (m.termination(state), state.root.iterations, len(m.history(state))) == (STOPPED, 1, history)


@pytest.mark.parametrize(
    ("reply", "termination"),
    [
        (BYE, NaturalEnd()),
        (m.make_replied("max_tokens", m.text("by")), Truncated("max_tokens")),
        (m.make_replied("refusal"), Refused()),
    ],
)
def test_a_reply_that_ends_the_loop_ends_it_for_its_own_reason(reply: ev.Replied, termination: Termination) -> None:
    """But `stop_when` is not asked any more, and what was injected does not keep a stopped loop going."""
    assert m.termination(m.go(send_request(), ev.Stopped("enough"), reply)) == termination
    assert m.termination(m.go(send_request(callables=STOP_WHEN), ev.Stopped("enough"), BYE)) == STOPPED
    injected = m.go(send_request(), ev.Continued((LATER,)), ev.Stopped("enough"), BYE)
    assert (m.termination(injected), m.history(injected)[-1]) == (STOPPED, decode(LATER))


@pytest.mark.parametrize("event", [ev.RequestFailed(m.FAILURE), ev.RequestFailed(), ev.Woken()])
def test_a_stop_ends_a_loop_whose_request_brought_nothing(event: ev.Event) -> None:
    """Failed, cancelled or lost: who said stop has no use for it. Nothing was consumed."""
    state = m.go(send_request(), ev.Continued((LATER,)), ev.Stopped("enough"), event)
    assert (m.termination(state), state.root.iterations, m.history(state)) == (STOPPED, 0, [HI, decode(LATER)])


# --- containers ------------------------------------------------------------------------------------------------------

BOX = {"container": {"id": "box"}}


def test_a_container_comes_back_with_what_a_limit_ended() -> None:
    """Unless it was taken away meanwhile."""
    paused = (m.make_replied("pause_turn", m.server_call("s"), **BOX), ev.Continued(), ev.TurnEnded())
    limited = m.state_after(*paused, limits=Limits(max_pauses=0))
    assert step(limited, ev.Changed(limits=Limits())).root.container == "box"
    gone = m.go(limited, ev.Changed("{}", ("container",)), ev.Changed(limits=Limits()))
    assert gone == State({(): step(limited, ev.Changed(limits=Limits())).root._replace(container=None)})
    waiting = m.state_after(*paused[:1])
    assert (waiting.root.container, step(waiting, ev.Changed("{}", ("container",))).root.container) == ("box", None)


def test_an_answer_that_does_not_fit_is_corrected_once() -> None:
    """The model gets the problems, each in a line, as a message of the loop; a second misfit ends the loop."""
    reply, misfit = m.make_replied("end_turn", m.text("{}")), ev.Judged(problems=("no total", "no date"))
    state = m.state_after(reply, output=True)
    assert outstanding(state) == (Judge((), output=True),)
    asked = m.go(m.state_after(reply, output=True, texts=Texts(misfit="Wrong:\n{problems}")), misfit)
    assert m.history(asked)[-1] == {"role": "user", "content": [m.text("Wrong:\n- no total\n- no date")]}
    assert m.termination(m.go(asked, reply, misfit)) == InvalidOutput(("no total", "no date"))
    assert m.termination(m.go(asked, reply, ev.Judged())) == NaturalEnd()
    calls = m.state_after(m.make_replied("tool_use", m.call("c")), output=True)
    assert outstanding(calls) == (Judge(("c",)),)


# --- a history that the server compacts ------------------------------------------------------------------------------

ASKS = encode({"model": "m", "compaction": {"type": "summarize"}})
BLOCK = {"type": "compaction", "content": "all of it"}
ROUND = (m.make_replied("tool_use", m.call("a")), ev.Started("a"), m.make_ended("a"), ev.TurnEnded())


def compact(*blocks: Any, before: tuple[ev.Event, ...] = ROUND, **changes: Any) -> State:
    """A loop that asked for it, after the reply with these blocks."""
    asks = (*before, ev.Continued(), ev.Changed(ASKS), ev.Requested())
    return m.state_after(*asks, m.make_replied("compaction", *blocks), **changes)


def is_replaced(state: State) -> bool:
    return bool(m.history(state)[0] == says(BLOCK)) and bool(decode(state.root.setup.params) == {"model": "m"})


def test_the_servers_block_takes_the_place_of_the_history() -> None:
    """The loop pauses with nothing beside it, the parameter is spent, and it counts as no pause."""
    state = compact(BLOCK)
    assert (m.phase(state), state.root.unjoined, is_replaced(state), len(m.history(state))) == ("paused", (), True, 1)
    assert (state.root.edited_at, state.root.iterations, state.root.pauses) == (2, 2, 0)
    stopped = compact(BLOCK, callables=STOP_WHEN)
    assert m.history(step(stopped, ev.Stopped())) == m.history(state)
    thinks = compact(m.thinking(), BLOCK)  # its thinking came after words that are gone
    assert (len(m.history(thinks)), thinks.root.stale_thinking, state.root.stale_thinking) == (1, 1, 0)


def test_a_block_without_content_leaves_the_history() -> None:
    """The compaction failed: the loop pauses, and the parameter is still spent."""
    state = compact(BLOCK | {"content": None})
    assert (m.phase(state), m.history(state)) == ("paused", m.history(m.state_after(*ROUND, ev.Continued())))
    assert decode(state.root.setup.params) == {"model": "m"}


@pytest.mark.parametrize("params", ["{}", '{"compaction":null}', '{"system":"\\"compaction\\""}'])
def test_an_unrequested_block_is_a_pause(params: str) -> None:
    """It goes out again, after what it stands for; and so does one in an open turn, or any other pause."""
    state = m.state_after(ev.Changed(params), ev.Requested(), m.make_replied("compaction", BLOCK))
    assert (m.phase(state), len(m.history(state)), len(state.root.unjoined)) == ("paused", 1, 1)
    assert state.root.setup.params == params
    beside = compact(BLOCK, before=(ev.Requested(), m.make_replied("pause_turn", m.text("so far"), m.server_call("s"))))
    assert (len(beside.root.unjoined), beside.root.setup.params) == (2, ASKS)
    other = m.state_after(ev.Changed(ASKS), ev.Requested(), m.make_replied("pause_turn", m.text("so far")))
    assert (len(other.root.unjoined), other.root.setup.params) == (1, ASKS)
