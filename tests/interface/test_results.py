"""The three results, and the calls they show."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from attrs.exceptions import FrozenInstanceError

from tests.kit.each import each
from tests.kit.support import expect_refusal
from tests.kit.tools import HUNDRED, user
from tests.kit.world import open_over_http
from toolloop import Ask, Deny, ToolResult, Usage
from toolloop.errors import IllegalCommand, ModelError
from toolloop.machine.values.jsontext import to_canonical
from toolloop.terminations import Failed, NaturalEnd
from toolloop.testing import fault, reply

WRITE = ("write", {"path": "a", "text": "b"})
ADD = ("add", {"a": 1, "b": 2})
MIXED = reply("Let me see.", calls=[ADD, WRITE, WRITE], usage=HUNDRED)


def test_a_decision_turn_shows_all_calls_the_waiting_ones_and_open_slots() -> None:
    """Nothing has run while a call waits; calls are in the model's order, with a slot for each."""
    with open_over_http([MIXED]) as at:
        turn = at.turn()
        assert (turn.reason, turn.iterations) == ("decision_required", 1)
        assert [(call.name, call.status, call.why) for call in turn.calls] == [
            ("add", "cleared", None),
            ("write", "waiting", "approval"),
            ("write", "waiting", "approval"),
        ]
        assert turn.pending == turn.calls[1:]
        assert (turn.results, at.did) == ((None, None, None), [])


def test_a_turn_tells_content_message_and_usage() -> None:
    """The blocks beside the calls, their text, the message as received, the usage of this iteration and of all."""
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    with open_over_http([reply(calls=[ADD], usage=HUNDRED), reply(content=blocks, calls=[ADD], usage=HUNDRED)]) as at:
        at.turn().continue_loop()
        turn = at.turn()
        assert turn.assistant_content == tuple(blocks)
        assert turn.text == "one\ntwo"
        assert turn.message["role"] == "assistant"
        assert [block["type"] for block in turn.message["content"]] == ["text", "text", "tool_use"]
        assert (turn.usage, turn.total_usage) == (
            Usage(input_tokens=100, output_tokens=50),
            Usage(input_tokens=200, output_tokens=100),
        )
        assert turn.results == (ToolResult(turn.calls[0].id, "3"),)


def test_assistant_text_and_iteration_are_deprecated_names() -> None:
    """They were always equal to `text` and `iterations`."""
    with open_over_http([MIXED]) as at:
        turn = at.turn()
        with pytest.warns(DeprecationWarning, match=r"is now Yielded\.text") as caught:
            assert turn.assistant_text == turn.text == "Let me see."
        assert caught[0].filename == __file__
        with pytest.warns(DeprecationWarning, match=r"is now Yielded\.iterations"):
            assert turn.iteration == turn.iterations == 1


def test_calls_pending_and_results_are_live_until_the_turn_is_spent() -> None:
    """Each decision shows at once, from any handle; after the command the turn keeps what it last showed."""
    with open_over_http([MIXED]) as at:
        turn = at.turn()
        first, second = turn.pending
        at.handle.decide({first.id: Deny("no")})
        assert turn.pending == (second,)
        assert [result and result.is_error for result in turn.results] == [None, True, None]
        turn.answer(second, "mine")
        assert len(turn.pending) == 0
        assert [call.status for call in turn.calls] == ["cleared", "settled", "settled"]
        turn.continue_loop()
        at.turn()
        assert [call.status for call in turn.calls] == ["cleared", "settled", "settled"]


@each(
    "use",
    [
        lambda turn: turn.approve(turn.calls[1]),
        lambda turn: turn.deny(turn.calls[1], "no"),
        lambda turn: turn.answer(turn.calls[1], "x"),
        lambda turn: turn.rerun(turn.calls[1]),
        lambda turn: turn.approve_all(),
        lambda turn: turn.continue_loop(),
        lambda turn: turn.inject_and_continue([user()]),
        lambda turn: turn.stop(),
    ],
)
def test_a_spent_turn_refuses_every_move(use: Any) -> None:
    """A `Yielded` is spent by its command."""
    with open_over_http([MIXED]) as at:
        turn = at.turn()
        turn.approve_all()
        turn.continue_loop()
        with expect_refusal(at.handle, IllegalCommand, "stale", "next_turn()") as caught:
            use(turn)
        assert caught.value.state == "stale"
        assert caught.value.asked


def test_next_turn_while_a_turn_waits_is_refused() -> None:
    """A `Yielded` cannot be forgotten: nothing goes on without its command."""
    with open_over_http([MIXED]) as at:
        turn = at.turn()
        with expect_refusal(at.handle, IllegalCommand, "next_turn()", "needs a command", "pending_turn") as caught:
            at.handle.next_turn()
        assert (caught.value.state, caught.value.asked) == ("Waiting", "next_turn()")
        assert caught.value.allowed == ("continue_loop()", "inject_and_continue()", "stop()")
        assert at.handle.pending_turn is turn
        assert at.count == 1


def test_completed_tells_the_last_reply_verbatim() -> None:
    """Termination, response, text, iterations, usage, log; the final message is part of the history."""
    with open_over_http([reply(calls=[ADD], usage=HUNDRED), reply("done", usage=HUNDRED)]) as at:
        done = at.handle.run().unwrap()
        assert done.response is not None
        assert (done.termination, done.text, done.iterations) == (NaturalEnd(), "done", 2)
        assert (done.response["content"], done.response["stop_reason"]) == (
            [{"type": "text", "text": "done"}],
            "end_turn",
        )
        assert [entry.iteration for entry in done.usage_log] == [1, 2]
        assert [entry.stop_reason for entry in done.usage_log] == ["tool_use", "end_turn"]
        assert [entry.request_id for entry in done.usage_log] == ["req_fake_000001", "req_fake_000002"]
        assert all(entry.seconds > 0 and entry.path == () for entry in done.usage_log)
        assert sum((entry.usage for entry in done.usage_log), Usage()) == done.total_usage
        assert at.handle.messages[-1]["content"] == done.response["content"]


def test_an_error_tells_what_and_whether_and_when_to_retry() -> None:
    """The exception, retryable, the seconds to wait; iterations and usage of what was answered."""
    with open_over_http([reply(calls=[ADD], usage=HUNDRED), fault(429, retry_after=7)]) as at:
        at.turn().continue_loop()
        failed = at.expect_failed()
        assert isinstance(failed.error, ModelError)
        assert (failed.retryable, failed.retry_after, failed.iterations) == (True, 7.0, 1)
        assert failed.total_usage.input_tokens == 100
        assert (failed.error.status, failed.error.kind, failed.error.request_id) == (
            429,
            "rate_limit_error",
            "req_fake_000002",
        )
        assert type(failed.error.__cause__).__name__ == "RateLimitError"


def test_an_error_stays_an_error() -> None:
    """Every further turn is the same object, and `into_result` says it too."""
    with open_over_http([fault(400)]) as at:
        failed = at.expect_failed()
        assert at.handle.next_turn() is failed
        assert at.handle.run() is failed
        assert at.handle.into_result().error is failed.error
        assert at.handle.into_result().termination == Failed(failed.error)
        assert (at.handle.is_finished, at.count) == (True, 1)


def test_unwrap_gives_completes_raises_or_names_what_waits() -> None:
    """`Completed` is itself, `Error` raises its error, `Yielded` raises `IllegalCommand`."""
    with open_over_http([MIXED, reply("done"), fault(400)]) as at:
        turn = at.turn()
        with expect_refusal(at.handle, IllegalCommand, "write", turn.pending[0].id) as caught:
            turn.unwrap()
        assert caught.value.asked == "unwrap()"
        turn.approve_all()
        turn.continue_loop()
        executed = at.turn()
        with expect_refusal(at.handle, IllegalCommand, "a command"):
            executed.unwrap()
        executed.continue_loop()
        done = at.expect_done()
        assert done.unwrap() is done
        at.handle.follow_up([user()])
        failed = at.expect_failed()
        with pytest.raises(ModelError) as raised:
            failed.unwrap()
        assert raised.value is failed.error


def test_results_show_no_content_in_their_repr() -> None:
    """What the model said is not in any repr."""
    with open_over_http(
        [reply("secret", calls=[("write", {"path": "secret", "text": "secret"})]), reply("secret")]
    ) as at:
        turn = at.turn()
        shown = [repr(turn), repr(turn.calls[0])]
        turn.approve_all()
        turn.continue_loop()
        at.turn().continue_loop()
        shown += [repr(at.expect_done()), repr(at.handle)]
        assert [text for text in shown if "secret" in text] == []


def test_a_call_tells_input_effective_input_decision_and_result() -> None:
    """After an edit the model's input and the one that runs are both there; the decision says who, when and why."""
    with open_over_http([reply(calls=[WRITE]), reply("fine")]) as at:
        turn = at.turn()
        turn.approve(turn.pending[0], {"path": "c", "text": "d"}, by="ana", reason="safer")
        (call,) = turn.calls
        assert (call.input, call.effective_input) == ({"path": "a", "text": "b"}, {"path": "c", "text": "d"})
        assert (call.status, call.why, call.path, call.result) == ("decided", None, (call.id,), None)
        assert call.decision is not None
        assert (call.decision.kind, call.decision.by, call.decision.reason) == ("approve", "ana", "safer")
        assert call.decision.at.tzinfo is not None
        turn.continue_loop()
        (call,) = at.turn().calls
        assert (call.status, call.input["path"]) == ("settled", "a")
        assert call.result is not None


def test_a_digest_covers_loop_iteration_path_name_and_input() -> None:
    """SHA-256 over exactly these, in canonical JSON."""
    with open_over_http([reply(calls=[WRITE])]) as at:
        (call,) = at.turn().pending
        parts = ["loop", 1, [call.id], "write", call.effective_input]
        assert call.digest == hashlib.sha256(to_canonical(parts).encode()).hexdigest()
        assert at.handle.view()["pending"][0]["digest"] == call.digest


def test_a_policy_says_why_it_asks() -> None:
    """The reason of an `Ask` is shown with the call."""
    with open_over_http([reply(calls=[ADD])], on_tool_call=lambda call, view: Ask("odd numbers")) as at:
        assert [(call.why, call.reason) for call in at.turn().pending] == [("approval", "odd numbers")]


def test_what_is_handed_out_is_a_copy() -> None:
    """Changing anything that was handed out changes nothing in the loop."""
    with open_over_http([reply("hi", calls=[WRITE]), reply("fine")]) as at:
        turn = at.turn()
        before = json.dumps(at.handle.snapshot())
        at.handle.messages[0]["content"] = "changed"
        turn.message["content"].clear()
        turn.assistant_content[0]["text"] = "changed"
        turn.calls[0].input["path"] = "changed"
        turn.calls[0].effective_input["path"] = "changed"
        at.handle.view()["pending"].clear()
        at.handle.snapshot()["loops"].clear()
        assert json.dumps(at.handle.snapshot()) == before
        turn.approve_all()
        turn.continue_loop()
        result = at.turn()
        with pytest.raises(FrozenInstanceError):
            result.results[0].content = "changed"  # type: ignore[misc, union-attr]
        assert at.did == [("write", "a", "b")]


def test_calls_are_equal_as_long_as_nothing_happened_to_them() -> None:
    """A call that was decided is another than the one that waited; its id and hash stay."""
    with open_over_http([reply(calls=[WRITE])]) as at:
        turn = at.turn()
        (before,) = turn.calls
        assert (turn.calls == (before,), turn.calls[0] is before) == (True, False)
        turn.approve(before)
        assert turn.calls[0] != before
        assert hash(turn.calls[0]) == hash(before)


def test_pending_turn_is_the_turn_that_waits_or_none() -> None:
    """It is the very object that `next_turn` returned, and gone with its command."""
    with open_over_http([reply(calls=[ADD]), reply("fine")]) as at:
        assert at.handle.pending_turn is None
        turn = at.turn()
        assert at.handle.pending_turn is turn
        turn.continue_loop()
        assert at.handle.pending_turn is None
        at.expect_done()
        assert at.handle.pending_turn is None
