"""Every row of the stop-reason table, through the handle and the API; a follow-up is accepted after each."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from tests.each import each
from tests.loop.concurrency import Background, awaited
from tests.loop.support import assistant, completed, params, results_in, scene, user
from toolloop import Stop
from toolloop.errors import ProtocolError
from toolloop.events import BlocksLeftOut
from toolloop.terminations import NaturalEnd, PauseLimit, Refused, StopCondition, Truncated
from toolloop.testing import call, delayed, fault, reply, server_call, server_result, verbatim

SEARCH = {"type": "web_search_20250305", "name": "web_search"}
SEARCHING = params(tools=[SEARCH])
ADD = call("add", {"a": 1, "b": 2})


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


# What each reply holds, and which of its blocks are left to join a history where a cut or a natural end is the fate.
CONTENTS: dict[str, dict[str, Any]] = {
    "text": {"text": "so far"},
    "calls": {"calls": [ADD]},
    "both": {"text": "so far", "calls": [ADD]},
    "thinking": {"thinking": "hm"},
    "thinking and calls": {"thinking": "hm", "calls": [ADD]},
    "nothing": {},
    "blank text": {"text": "  "},
    "open server call": {"text": "so far", "content": [server_call("web_search", {"query": "x"})]},
    "server call": {"content": [server_call("web_search", {"query": "x"}), server_result("web_search")]},
}
JOINS_AT_AN_END = {
    "text": ["text"],
    "calls": ["tool_use"],
    "both": ["text", "tool_use"],
    "thinking": [],
    "thinking and calls": ["thinking", "tool_use"],
    "nothing": [],
    "blank text": [],
    "open server call": ["text"],
    "server call": ["server_tool_use", "web_search_tool_result"],
}
JOINS_AT_A_CUT = JOINS_AT_AN_END | {"calls": [], "both": ["text"], "thinking and calls": []}


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def follow(reason: str, content: str, joining: list[str], *, answered: bool) -> Any:
    """Drive one reply to its end and follow up; check what joined and what went out. Gives the end."""
    with scene([reply(stop_reason=reason, **CONTENTS[content]), reply("fine")], asked=SEARCHING) as at:
        done = at.done()
        assert done.response is not None
        assert done.response["stop_reason"] == reason
        assert at.ran == []
        at.handle.follow_up([user("and now?")])
        assert at.handle.run().unwrap().text == "fine"
        middle = at.sent()[1:-1]
        assert [kinds(message) for message in middle if message["role"] == "assistant"] == (
            [joining] if joining else []
        )
        told = [block for message in middle if message["role"] == "user" for block in results_in(message)]
        assert [block["is_error"] for block in told] == ([True] if answered else [])
        assert all("was not run" in block["content"] for block in told)
        return done


@each(("reason", "content"), [*(("end_turn", content) for content in CONTENTS), ("stop_sequence", "both")])
def test_a_natural_end_joins_and_its_calls_do_not_run(reason: str, content: str) -> None:
    """What has content joins; calls in it are settled as not run."""
    joining = JOINS_AT_AN_END[content]
    done = follow(reason, content, joining, answered="tool_use" in joining)
    assert done.termination == NaturalEnd()


@each(
    ("reason", "content"),
    [*(("max_tokens", content) for content in CONTENTS), ("model_context_window_exceeded", "both")],
)
def test_a_cut_reply_joins_without_its_calls(reason: str, content: str) -> None:
    """What was cut off joins without calls; the full reply is in the response."""
    done = follow(reason, content, JOINS_AT_A_CUT[content], answered=False)
    assert done.termination == Truncated(reason)
    has_calls = any(block["type"] == "tool_use" for block in done.response["content"])
    assert has_calls == ("calls" in CONTENTS[content])


@each("content", ["text", "both", "thinking and calls", "nothing"])
def test_a_refusal_does_not_join(content: str) -> None:
    """Nothing of a refusal joins, and no call in it runs."""
    assert follow("refusal", content, [], answered=False).termination == Refused(None, None)


def test_a_refusal_tells_category_and_explanation() -> None:
    """The API's own words about a refusal are in the termination."""
    details = {"type": "refusal", "category": "cyber", "explanation": "It looks like an attack."}
    with scene([reply(stop_reason="refusal", stop_details=details)]) as at:
        assert at.done().termination == Refused("cyber", "It looks like an attack.")


@each("content", ["text", "both", "thinking and calls", "nothing"])
def test_an_unknown_reason_ends_the_loop_and_nothing_runs(content: str, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown reason is a natural end; the reason is kept in the response, and a warning is logged."""
    joining = JOINS_AT_AN_END[content]
    done = follow("brand_new", content, joining, answered="tool_use" in joining)
    assert done.termination == NaturalEnd()
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [message for message in warned if "brand_new" in message]


@each("reason", ["pause_turn", "compaction"])
def test_a_pause_is_sent_back_without_a_user_turn_and_joins_with_its_end(reason: str) -> None:
    """A paused reply waits beside the history, goes back as it came, and joins with the reply that ends the pause."""
    paused = reply("so far", content=[server_call("web_search", {"query": "x"})], stop_reason=reason)
    ending = reply(content=[server_result("web_search"), text("found")])
    with scene([paused, ending, reply("fine")], asked=SEARCHING) as at:
        turn = at.turn()
        assert (turn.reason, turn.calls, turn.pending) == ("paused", (), ())
        assert at.handle.messages == (user(),)
        turn.continue_loop()
        done = at.done()
        assert at.sent(1) == [user(), turn.message]
        assert done.termination == NaturalEnd()
        assert len(at.handle.messages) == 3
        at.handle.follow_up([user("more")])
        assert at.handle.run().unwrap().text == "fine"
        assert at.sent() == [*at.sent(1), at.handle.messages[2], user("more")]


@each("reason", ["pause_turn", "compaction"])
@each("content", ["calls", "both", "thinking and calls"])
def test_a_client_call_in_a_pause_runs_first(reason: str, content: str) -> None:
    """A paused reply with a client call is a round like any other."""
    with scene([reply(stop_reason=reason, **CONTENTS[content]), reply("fine")]) as at:
        turn = at.turn()
        assert (turn.reason, at.ran) == ("tools_executed", [("add", 1, 2)])
        turn.continue_loop()
        assert at.done().text == "fine"


@each("content", ["text", "thinking", "nothing", "blank text", "open server call", "server call"])
def test_stop_drops_a_pause_and_the_response_keeps_it(content: str) -> None:
    """A paused reply that nothing resumed is the beginning of an answer: it does not join."""
    paused = reply(stop_reason="pause_turn", **CONTENTS[content])
    with scene([paused, reply("fine")], asked=SEARCHING) as at:
        at.turn().stop("enough")
        done = at.done()
        assert done.termination == StopCondition("enough")
        assert done.response is not None
        assert done.response["stop_reason"] == "pause_turn"
        assert at.handle.messages == (user(),)
        at.handle.follow_up([user("again")])
        assert at.handle.run().unwrap().text == "fine"


@each("limit", [0, 1, 2])
def test_a_pause_is_resumed_at_most_so_many_times(limit: int) -> None:
    """Exactly `max_pauses` resumptions go out; then the loop ends, and `extend` lets it go on with the pause."""
    paused = reply("so far", content=[server_call("web_search", {"query": "x"})], stop_reason="pause_turn")
    ending = reply(content=[server_result("web_search")] * (limit + 1) + [text("found")])
    with scene([paused] * (limit + 1) + [ending], asked=SEARCHING, max_pauses=limit) as at:
        done = at.handle.run().unwrap()
        assert (done.termination, at.count) == (PauseLimit(limit), limit + 1)
        assert at.handle.messages == (user(),)
        at.handle.extend(max_pauses=limit + 1)
        assert at.handle.run().unwrap().text == "found"
        assert len(at.sent()) == limit + 2


def test_pauses_count_in_a_row() -> None:
    """A round between two pauses starts the count anew."""
    paused = reply("so far", content=[server_call("web_search", {"query": "x"})], stop_reason="pause_turn")
    between = reply(content=[server_result("web_search")], calls=[ADD])
    ending = reply(content=[server_result("web_search"), text("found")])
    with scene([paused, between, paused, ending], asked=SEARCHING, max_pauses=1) as at:
        assert at.handle.run().unwrap().text == "found"


def test_a_tool_use_stop_without_a_call_is_an_error_that_counts_and_does_not_join() -> None:
    """It counts in usage and iterations, and the same request may be tried again."""
    with scene([reply("hm", stop_reason="tool_use"), reply("fine")]) as at:
        failed = at.failed()
        assert isinstance(failed.error, ProtocolError)
        assert (failed.iterations, failed.total_usage.input_tokens, len(at.handle.messages)) == (1, 10, 1)
        at.handle.retry()
        assert at.done().iterations == 2
        assert at.sent(0) == at.sent(1)


@each("reason", [None, 5])
def test_a_reply_without_a_stop_reason_is_a_retryable_error(reason: object) -> None:
    """No stop reason means that the reply was cut off on the way: nothing of it joins."""
    body = {"type": "message", "role": "assistant", "content": [text("so")], "stop_reason": reason, "model": "m"}
    answer = verbatim(200, {"content-type": "application/json"}, json.dumps(body))
    with scene([answer, reply("fine")]) as at:
        failed = at.failed()
        assert isinstance(failed.error, ProtocolError)
        assert (failed.retryable, at.handle.messages) == (True, (user(),))
        at.handle.retry()
        assert at.done().text == "fine"


def test_a_reply_joins_verbatim() -> None:
    """Block order, unknown blocks, key order and integers of any size come back as they came."""
    big = 12345678901234567890123456789
    blocks: list[Any] = [
        {"type": "text", "text": "a", "citations": None},
        {"type": "tool_use", "id": "toolu_1", "name": "unseen", "input": {"path": "x", "b": big, "a": [1.50, 1e10]}},
    ]
    with scene([reply(content=blocks), reply("fine")]) as at:
        at.turn().continue_loop()
        at.done()
        sent = at.api.requests[1].body.decode()
        assert f'"input":{{"path":"x","b":{big},"a":[1.5,10000000000.0]}}' in sent
        assert at.sent()[1] == assistant(blocks)


@each(("content", "kinds_out"), [("thinking", ("thinking",)), ("blank text", ("text",))])
def test_what_is_left_out_is_told(content: str, kinds_out: tuple[str, ...]) -> None:
    """Blank text and thinking at the end of a reply do not join, and an event says so."""
    with scene([reply(**CONTENTS[content])]) as at:
        left = [event for event in at.done().events if isinstance(event, BlocksLeftOut)]
        assert left == [BlocksLeftOut(1, kinds_out)]


def test_a_stop_during_a_request_wins_over_a_reply_that_makes_no_sense() -> None:
    """It was said before the reply came; nothing of it is lost."""
    answer = delayed(threading.Event(), reply("hm", stop_reason="tool_use"))
    with scene([answer]) as at:
        driver = Background(at.handle.next_turn)
        awaited(answer.arrived)
        at.handle.resume(Stop("enough"))
        answer.release()
        assert completed(driver.result()).termination == StopCondition("enough")


def test_a_stop_during_a_request_wins_over_its_failure() -> None:
    """The loop ends as it was told to, not in an `Error`; a follow-up goes on."""
    answer = delayed(threading.Event(), fault(400))
    with scene([answer, reply("fine")]) as at:
        driver = Background(at.handle.next_turn)
        awaited(answer.arrived)
        at.handle.resume(Stop("enough"))
        answer.release()
        assert completed(driver.result()).termination == StopCondition("enough")
        at.handle.follow_up([user("again")])
        assert at.done().text == "fine"
