"""The usage log in a snapshot: what it keeps of each request, and that nothing is added to what says nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core import making as m
from toolloop.core import events as ev
from toolloop.core.states import State
from toolloop.core.usage import Billed, IterationUsage, Usage
from toolloop.stores import dump, load

PLAIN = {"input_tokens": 7, "output_tokens": 2}
RICH = PLAIN | {
    "service_tier": "standard",
    "speed": "fast",
    "inference_geo": "eu",
    "fallback_credit": {"status": {"type": "not_applied", "reason": "expired"}},
    "iterations": [
        {"type": "compaction", "input_tokens": 50, "output_tokens": 5},
        {"type": "message", "model": "a", "input_tokens": 3, "output_tokens": 1},
        {"type": "message", "model": "a", "input_tokens": 4, "output_tokens": 1},
    ],
}


def after(usage: dict[str, Any], *more: Any) -> State:
    return m.after(ev.Requested(), m.replied("end_turn", m.text("hi"), *more, usage=usage))


def logged(state: State) -> Any:
    (entry,) = dump(state)["ledger"]["usage_log"]
    return entry


@pytest.mark.parametrize("usage", [PLAIN, RICH, PLAIN | {"server_tool_use": {"web_search_requests": 0}}])
def test_a_line_of_the_log_comes_back_as_it_was(usage: dict[str, Any]) -> None:
    """Labels, breakdown and context included."""
    state = after(usage)
    again = load(json.loads(json.dumps(dump(state))))
    (entry,) = again.ledger.usage_log
    assert again == state
    assert [entry] == list(state.ledger.usage_log)
    assert entry.context_tokens == state.ledger.usage_log[-1].context_tokens


def test_a_rich_line_has_everything_in_it() -> None:
    """As JSON, by its names."""
    entry = load(dump(after(RICH))).ledger.usage_log[-1]
    assert entry == IterationUsage(
        iteration=1,
        model=entry.model,
        stop_reason="end_turn",
        request_id=entry.request_id,
        usage=Usage(57, 7),
        seconds=entry.seconds,
        service_tier="standard",
        speed="fast",
        inference_geo="eu",
        fallback_credit="not_applied",
        billed=(Billed("compaction", None, Usage(50, 5)), Billed("message", "a", Usage(7, 2))),
        context=5,
    )
    assert logged(after(RICH))["billed"][1] == {"type": "message", "model": "a", "usage": PLAIN}


def test_a_plain_line_says_nothing_more_than_it_did() -> None:
    """So a loop without any of this is stored in the same bytes as before."""
    line = logged(after(PLAIN))
    assert line.keys() <= {"iteration", "model", "stop_reason", "request_id", "usage", "seconds"}
    assert line["usage"] == PLAIN


@pytest.mark.parametrize(
    "usage",
    [PLAIN | {"server_tool_use": {"web_search_requests": 1}}, PLAIN | {"server_tool_use": {"web_fetch_requests": 1}}],
)
def test_what_the_counts_say_is_not_said_again(usage: dict[str, Any]) -> None:
    """That the server's tools took part is clear, also of a line that was written before it was asked for."""
    state = after(usage, m.server_call("s"), m.server_result("s"))
    assert "context" not in logged(state)
    assert load(dump(state)).ledger.usage_log[-1].context_tokens is None


def test_a_paused_line_says_nothing_more_than_it_did() -> None:
    """Nothing but the server's tools pauses a turn."""
    state = m.after(ev.Requested(), m.replied("pause_turn", m.server_call("s"), usage=PLAIN))
    assert logged(state).keys() <= {"iteration", "model", "stop_reason", "request_id", "usage", "seconds"}
    assert state.ledger.usage_log[-1].context_tokens is None


def test_an_unknown_context_stays_unknown() -> None:
    """The server's tools took several passes; their sum is not taken for it after a sleep."""
    entry = load(dump(after(PLAIN, m.server_call("s"), m.server_result("s")))).ledger.usage_log[-1]
    assert (entry.usage.total_tokens, entry.context_tokens) == (9, None)
