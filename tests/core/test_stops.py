"""The table of stop reasons: total, and each row by example (DESIGN section 4)."""

from __future__ import annotations

from typing import get_args

import pytest
from anthropic.types import StopReason
from anthropic.types.beta import BetaStopReason

from tests.core import making as m
from toolloop.core import events as ev
from toolloop.core.effects import Judge
from toolloop.core.jsontext import decode
from toolloop.core.machine import outstanding, step
from toolloop.core.states import Failed, Finished, Judging, Paused, Ready
from toolloop.core.stops import STOP_REASONS, Fate
from toolloop.core.terminations import NaturalEnd, Refused, StopCondition, Truncated

HI = {"role": "user", "content": "hi"}
STOP_WHEN = frozenset({"stop_when"})


def says(*blocks: object) -> dict[str, object]:
    return {"role": "assistant", "content": list(blocks)}


def test_the_table_is_the_sdks_literals() -> None:
    """A stop reason that the SDK learns fails the build until it has a row."""
    assert set(STOP_REASONS) == set(get_args(StopReason)) | set(get_args(BetaStopReason))


def test_every_fate_has_a_stop_reason() -> None:
    """No fate is there that no word leads to."""
    assert set(STOP_REASONS.values()) == set(Fate)


def test_tool_use_has_its_calls_judged_and_run() -> None:
    """`tool_use`: the reply waits beside the history, and its calls are to be judged."""
    state = m.after(m.replied("tool_use", m.text("look"), m.call("c1"), m.call("c2")))
    assert isinstance(state, Judging)
    assert outstanding(state) == (Judge(calls=("c1", "c2")),)
    assert m.history(state) == [HI]


def test_tool_use_without_a_call_is_a_failure_that_counts() -> None:
    """`tool_use` with no call: a retryable protocol failure; usage and iteration count, the reply does not join."""
    state = m.after(m.replied("tool_use", m.text("well"), m.server_call("s"), usage={"output_tokens": 7}))
    assert isinstance(state, Failed)
    assert (state.failure.kind, state.failure.retryable) == ("protocol", True)
    assert (state.ledger.iterations, state.ledger.total_usage.output_tokens) == (1, 7)
    assert m.history(state) == [HI]
    assert isinstance(step(state, ev.Retried()), Ready)


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "a_reason_of_next_year"])
def test_an_end_joins_and_ends(reason: str) -> None:
    """`end_turn`, `stop_sequence` and anything unknown: the reply joins, and the loop ends naturally."""
    state = m.after(m.replied(reason, m.text("done")))
    assert isinstance(state, Finished)
    assert state.termination == NaturalEnd()
    assert m.history(state) == [HI, says(m.text("done"))]


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "a_reason_of_next_year"])
def test_a_call_in_an_end_is_answered_as_not_run(reason: str) -> None:
    """A call under a reason that ends the loop never runs, and has its result all the same."""
    state = m.after(m.replied(reason, m.call("c")))
    assert isinstance(state, Finished)
    assert m.history(state)[1] == says(m.call("c"))
    assert m.results(m.history(state)[2]) == {"c": state.ledger.setup.texts.not_run}


@pytest.mark.parametrize("blocks", [[], [m.text("")], [m.text(" \n")], [m.thinking()], [m.text(""), m.thinking()]])
def test_an_end_with_nothing_to_send_back_does_not_join(blocks: list[object]) -> None:
    """An empty reply ends the loop and leaves the history as it was; `response` keeps it."""
    state = m.after(m.replied("end_turn", *blocks))
    assert isinstance(state, Finished)
    assert m.history(state) == [HI]
    assert state.ledger.response is not None


@pytest.mark.parametrize("reason", ["pause_turn", "compaction"])
def test_a_pause_waits_beside_the_history_and_joins_with_what_ends_it(reason: str) -> None:
    """`pause_turn`, `compaction`: the reply is sent back with no user turn, and joins with the reply that ends it."""
    paused = m.after(m.replied(reason, m.text("half"), m.server_call("s")))
    assert isinstance(paused, Paused)
    assert m.history(paused) == [HI]
    resumed = step(paused, ev.Continued())
    assert isinstance(resumed, Ready)
    assert [decode(message) for message in resumed.tail] == [says(m.text("half"), m.server_call("s"))]
    done = m.go(resumed, m.replied("end_turn", m.server_result("s"), m.text("whole")))
    assert m.history(done) == [
        HI,
        says(m.text("half"), m.server_call("s")),
        says(m.server_result("s"), m.text("whole")),
    ]


def test_stopping_a_pause_drops_the_paused_reply() -> None:
    """What was paused is the beginning of an answer: a stop keeps it in `response` alone."""
    state = m.after(m.replied("pause_turn", m.text("half")), ev.Stopped("enough"))
    assert isinstance(state, Finished)
    assert state.termination == StopCondition("enough")
    assert m.history(state) == [HI]
    assert state.ledger.response is not None
    assert "half" in state.ledger.response


@pytest.mark.parametrize("end", [ev.Stopped("enough"), ev.Judged(stop=True, reason="enough")])
def test_stop_when_drops_a_paused_reply_too(end: ev.Event) -> None:
    """Whether the caller or `stop_when` ends a pause, the history is the same."""
    state = m.after(m.replied("pause_turn", m.text("half")), end, callables=STOP_WHEN)
    assert isinstance(state, Finished)
    assert state.termination == StopCondition("enough")
    assert m.history(state) == [HI]


def test_a_client_call_in_a_pause_runs_first() -> None:
    """A paused reply with a client call is treated as `tool_use`."""
    state = m.after(m.replied("pause_turn", m.server_call("s"), m.call("c")))
    assert isinstance(state, Judging)
    assert state.fate is Fate.RUN


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_a_cut_reply_joins_without_its_calls(reason: str) -> None:
    """`max_tokens`, a full window: no call runs, none joins, nor do open server calls; `response` keeps them."""
    state = m.after(m.replied(reason, m.text("so"), m.server_call("s"), m.thinking(), m.call("c")))
    assert isinstance(state, Finished)
    assert state.termination == Truncated(reason)
    assert m.history(state) == [HI, says(m.text("so"))]
    assert state.ledger.response is not None
    assert '"c"' in state.ledger.response


def test_a_cut_reply_with_nothing_left_does_not_join() -> None:
    """A reply that was cut off in its only call leaves the history as it was."""
    assert m.history(m.after(m.replied("max_tokens", m.thinking(), m.call("c")))) == [HI]


def test_a_refusal_does_not_join() -> None:
    """`refusal`: nothing of it joins, no call in it runs, and the API's words are in the termination."""
    details = {"type": "refusal", "category": "cyber", "explanation": "no"}
    state = m.after(m.replied("refusal", m.text("I will"), m.call("c"), stop_details=details))
    assert isinstance(state, Finished)
    assert state.termination == Refused("cyber", "no")
    assert m.history(state) == [HI]


def test_a_refusal_without_details_says_nothing_more() -> None:
    """Older replies say nothing about why."""
    state = m.after(m.replied("refusal"))
    assert isinstance(state, Finished)
    assert state.termination == Refused()


def test_a_reply_without_a_stop_reason_was_cut_off_on_the_way() -> None:
    """No stop reason after a stream: a retryable protocol failure, and nothing joins."""
    state = m.after(m.replied(None, m.text("so")))
    assert isinstance(state, Failed)
    assert (state.failure.kind, state.failure.retryable) == ("protocol", True)
    assert m.history(state) == [HI]


@pytest.mark.parametrize("reason", ["end_turn", "pause_turn"])
def test_stop_when_sees_a_reply_before_it_ends_or_pauses(reason: str) -> None:
    """With `stop_when` set, every reply that joins is shown to it; if it lets it pass, things go on as without."""
    reply = m.replied(reason, m.text("words"))
    state = m.after(reply, callables=STOP_WHEN)
    assert isinstance(state, Judging)
    assert outstanding(state) == (Judge(calls=(), stop_when=True),)
    passed = step(state, ev.Judged())
    assert type(passed) is type(m.after(reply))
    assert m.history(passed) == m.history(m.after(reply))


def test_stop_when_ends_before_any_tool_runs() -> None:
    """What `stop_when` ends has its calls answered as not run."""
    state = m.after(m.replied("tool_use", m.call("c")), ev.Judged(stop=True, reason="why"), callables=STOP_WHEN)
    assert isinstance(state, Finished)
    assert state.termination == StopCondition("why")
    assert m.results(m.history(state)[2]) == {"c": state.ledger.setup.texts.not_run}


def test_what_was_injected_meanwhile_is_still_to_be_answered() -> None:
    """A natural end with a held message is none: the message joins after the reply, and the loop goes on."""
    state = m.after(
        m.replied("end_turn", m.text("bye")), ev.Injected((m.user("wait"),)), ev.Judged(), callables=STOP_WHEN
    )
    assert isinstance(state, Ready)
    assert m.history(state)[1:] == [says(m.text("bye")), {"role": "user", "content": "wait"}]
