"""Outcomes of replies: every row of the stop-reason table, and replies that make no sense."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.support import expect_completed, expect_error, expect_yielded, results_in
from tests.kit.tools import TOOLS, assistant, params, user
from tests.kit.world import open_over_http
from toolloop import Deny, MemoryStore, ToolLoopHandle
from toolloop.errors import ModelError, ProtocolError
from toolloop.events import BlocksLeftOut, InputDelta
from toolloop.history import check
from toolloop.providers import Request
from toolloop.terminations import Failed, NaturalEnd, Refused, Truncated
from toolloop.testing import ScriptedProvider, call, fault, reply, server_call, server_result, verbatim

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
    with open_over_http([reply(stop_reason=reason, **CONTENTS[content]), reply("fine")], asked=SEARCHING) as at:
        done = at.expect_done()
        assert done.response is not None
        assert done.response["stop_reason"] == reason
        assert at.did == []
        at.handle.follow_up([user("and now?")])
        assert at.handle.run().unwrap().text == "fine"
        middle = at.list_sent()[1:-1]
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
    with open_over_http([reply(stop_reason="refusal", stop_details=details)]) as at:
        assert at.expect_done().termination == Refused("cyber", "It looks like an attack.")


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
    """A paused reply waits beside the history, goes back unchanged, and joins with the reply that ends the pause."""
    paused = reply("so far", content=[server_call("web_search", {"query": "x"})], stop_reason=reason)
    ending = reply(content=[server_result("web_search"), text("found")])
    with open_over_http([paused, ending, reply("fine")], asked=SEARCHING) as at:
        turn = at.turn()
        assert (turn.reason, turn.calls, turn.pending) == ("paused", (), ())
        assert at.handle.messages == (user(),)
        turn.continue_loop()
        done = at.expect_done()
        assert at.list_sent(1) == [user(), turn.message]
        assert done.termination == NaturalEnd()
        assert len(at.handle.messages) == 3
        at.handle.follow_up([user("more")])
        assert at.handle.run().unwrap().text == "fine"
        assert at.list_sent() == [*at.list_sent(1), at.handle.messages[2], user("more")]


def test_a_tool_use_stop_without_a_call_is_an_error_that_counts_and_does_not_join() -> None:
    """It counts in usage and iterations, and the same request may be tried again."""
    with open_over_http([reply("hm", stop_reason="tool_use"), reply("fine")]) as at:
        failed = at.expect_failed()
        assert isinstance(failed.error, ProtocolError)
        assert (failed.iterations, failed.total_usage.input_tokens, len(at.handle.messages)) == (1, 10, 1)
        at.handle.retry()
        assert at.expect_done().iterations == 2
        assert at.list_sent(0) == at.list_sent(1)


def test_the_response_of_a_failed_loop_is_the_last_reply_that_made_sense() -> None:
    """Neither a failed request nor a reply that is an error stands for it."""
    asks = reply("Adding.", calls=[("add", {"a": 1, "b": 2})])
    with open_over_http([asks, reply("hm", stop_reason="tool_use"), fault(400)]) as at:
        at.turn().continue_loop()
        message = at.handle.into_result().response
        assert message is not None
        assert message["content"][0]["text"] == "Adding."
        for iterations in (2, 2):
            error, result = at.expect_failed().error, at.handle.into_result()
            assert (result.response, result.iterations) == (message, iterations)
            assert isinstance(result.termination, Failed)
            assert str(result.termination.error) == str(error)
            at.handle.retry()


@each("reason", [None, 5])
def test_a_reply_without_a_stop_reason_is_a_retryable_error(reason: object) -> None:
    """No stop reason means that the reply was cut off on the way: nothing of it joins."""
    body = {"type": "message", "role": "assistant", "content": [text("so")], "stop_reason": reason, "model": "m"}
    answer = verbatim(200, {"content-type": "application/json"}, json.dumps(body))
    with open_over_http([answer, reply("fine")]) as at:
        failed = at.expect_failed()
        assert isinstance(failed.error, ProtocolError)
        assert (failed.retryable, at.handle.messages) == (True, (user(),))
        at.handle.retry()
        assert at.expect_done().text == "fine"


def test_a_reply_joins_verbatim() -> None:
    """Block order, unknown blocks, key order and integers of any size come back as they came."""
    big = 12345678901234567890123456789
    blocks: list[Any] = [
        {"type": "text", "text": "a", "citations": None},
        {"type": "tool_use", "id": "toolu_1", "name": "unseen", "input": {"path": "x", "b": big, "a": [1.50, 1e10]}},
    ]
    with open_over_http([reply(content=blocks), reply("fine")]) as at:
        at.turn().continue_loop()
        at.expect_done()
        sent = at.api.requests[1].body.decode()
        assert f'"input":{{"path":"x","b":{big},"a":[1.5,10000000000.0]}}' in sent
        assert at.list_sent()[1] == assistant(blocks)


@each(
    ("reason", "content", "left_out"),
    [
        ("end_turn", "thinking", [BlocksLeftOut(1, ("thinking",))]),
        ("end_turn", "blank text", [BlocksLeftOut(1, ("text",))]),
        ("max_tokens", "thinking and calls", [BlocksLeftOut(1, ("thinking", "tool_use"))]),
        ("refusal", "thinking", []),
    ],
)
def test_the_parts_left_out_are_reported(reason: str, content: str, left_out: list[BlocksLeftOut]) -> None:
    """What of a reply does not join, an event names; a refusal as a whole does not join."""
    with open_over_http([reply(stop_reason=reason, **CONTENTS[content])]) as at:
        assert [event for event in at.expect_done().events if isinstance(event, BlocksLeftOut)] == left_out


@given(st.text(min_size=1, max_size=60))
@example("functions.pay:0")
@example("call|1")
@example("toolu_1\n")
@example("\ud800")
@example("a" * 5000)
@examples(30)
def test_an_id_that_the_api_would_refuse_is_replaced_before_anything_runs(given_id: str) -> None:
    """The calls run once, the request with their results is accepted, and so is an edit of the history after that."""
    calls = [call("picture", {"kind": "png"}, id=given_id), call("add", {"a": 1, "b": 2}, id="other")]
    with open_over_http([reply(calls=calls), reply("fine"), reply("more")]) as at:
        turn = at.turn()
        assert [each.id for each in turn.calls] == [block["id"] for block in turn.message["content"]]
        assert (turn.calls[0].id == given_id) == bool(re.fullmatch("[a-zA-Z0-9_-]+", given_id))
        assert [result is not None and result.is_error for result in turn.results] == [False, False]
        turn.continue_loop()
        at.expect_done()
        assert sorted(name for name, *_ in at.did) == ["add", "picture"]
        at.handle.messages_mut()[0] = user("edited")
        at.handle.follow_up([user("and now?")])
        assert at.handle.run().unwrap().text == "more"
        assert check(at.list_sent()) == []


@each("streams", [False, True])
def test_a_replaced_id_is_the_same_wherever_it_is_shown(streams: bool) -> None:
    """In pieces of the reply, in events, in the response and after waking up; it begins with what is readable of it."""
    with open_over_http(
        [reply(calls=[call("write", {"path": "a", "text": "b"}, id="functions.pay:0")]), reply("fine")]
    ) as at:
        pieces: list[Any] = []
        if streams:
            with at.handle.stream_turn() as stream:
                pieces = [event for event in stream if isinstance(event, InputDelta)]
        turn = expect_yielded(at.handle.pending_turn if streams else at.handle.next_turn())
        (name,) = {turn.calls[0].id, turn.message["content"][0]["id"], *(piece.call_id for piece in pieces)}
        assert re.fullmatch("functions_pay_0_[0-9a-f]{12}", name)
        assert bool(pieces) == streams
        copy = ToolLoopHandle.restore(at.handle.snapshot(), ScriptedProvider([reply("fine")]), tools=TOOLS)
        copy.decide({name: Deny("no")})
        assert expect_completed(copy.run()).text == "fine"


@each("streams", [False, True])
def test_the_given_id_is_kept_beside_the_new_one(streams: bool) -> None:
    """In the response and in the journal, for a comparison with the records of the server."""
    store = MemoryStore()
    provider = ScriptedProvider([reply(calls=[call("write", {}, id="functions.pay:0")], stop_reason="max_tokens")])
    with ToolLoopHandle.open(store, "loop", provider, tools=TOOLS, params=params()) as handle:
        if streams:
            with handle.stream_turn() as stream:
                list(stream)
        response = expect_completed(handle.next_turn()).response
    assert response is not None
    (new,) = (block["id"] for block in response["content"])
    assert response["given_ids"] == {new: "functions.pay:0"}
    texts = [entry.text for entry in store.load("loop").entries if entry.text]
    assert [json.loads(text).get("given_ids") for text in texts] == [{new: "functions.pay:0"}]


def test_the_id_of_a_server_call_is_replaced_with_that_of_its_result_in_a_later_reply() -> None:
    """A pause may come between them."""
    paused = reply(content=[server_call("web_search", {"query": "x"}) | {"id": "search:0"}], stop_reason="pause_turn")
    ending = reply(content=[server_result("web_search") | {"tool_use_id": "search:0"}, text("found")])
    with open_over_http([paused, ending, reply("fine")], asked=SEARCHING) as at:
        at.turn().continue_loop()
        assert at.expect_done().text == "found"
        at.handle.follow_up([user("and now?")])
        at.expect_done()
        assert check(at.list_sent()) == []
        ids = {block.get("id", block.get("tool_use_id")) for m in at.list_sent()[1:3] for block in m["content"]} - {
            None
        }
        assert [name.startswith("srvtoolu_search_0_") for name in ids] == [True]


class Gives:
    """A provider of a user. Its first reply is what it was made with; then it says fine."""

    def __init__(self, first: Any) -> None:
        self.replies = [first, {"content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"}]

    def send(self, request: Request) -> Any:
        return self.replies.pop(0)


def nest(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"in": value}
    return value


def make_saying(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"content": list(blocks), "stop_reason": "end_turn", **more}


def make_usage(**changes: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}, **changes}
    return make_saying({key: value for key, value in block.items() if value != "left out"}, stop_reason="tool_use")


NO_REPLIES: dict[str, Any] = {
    "nothing": None,
    "a text": "x",
    "bytes": b"{}",
    "a list": [],
    "some object": object(),
    "no content": {"stop_reason": "end_turn"},
    "content that is a text": {"content": "x", "stop_reason": "end_turn"},
    "a block that is a text": make_saying("x"),
    "a block of no type": make_saying({"text": "x"}),
    "a block whose type is a number": make_saying({"type": 5}),
    "text without a text": make_saying({"type": "text"}),
    "text that is null": make_saying({"type": "text", "text": None}),
    "text that is a number": make_saying({"type": "text", "text": 5}),
    "a stop reason that is a number": make_saying(stop_reason=5),
    "a call without an id": make_usage(id="left out"),
    "a call whose id is empty": make_usage(id=""),
    "a call whose id is a number": make_usage(id=5),
    "a call without a name": make_usage(name="left out"),
    "a call without an input": make_usage(input="left out"),
    "a call whose input is a list": make_usage(input=[]),
    "two calls of one id": make_saying(*[make_usage()["content"][0]] * 2, stop_reason="tool_use"),
    "something that is not JSON": make_saying({"type": "text", "text": "x", "more": {1}}),
    "not a number": make_saying({"type": "text", "text": "x", "more": float("nan")}),
    "an input nested too deep": make_usage(input=nest(100_000)),
}


@each("given", NO_REPLIES.values())
def test_a_reply_that_makes_no_sense_is_an_error_result(given: Any) -> None:
    """It joins nothing and breaks nothing: the loop can be read, put to sleep, and told to try again."""
    handle = ToolLoopHandle(Gives(given), params=params())
    error = expect_error(handle.next_turn())
    assert isinstance(error.error, ProtocolError)
    assert str(error.error).strip()
    assert expect_error(handle.next_turn()) is error
    assert (handle.messages, handle.is_finished, handle.view()["state"]) == ((user(),), True, "Failed")
    assert isinstance(handle.into_result().iterations, int)
    copy = ToolLoopHandle.restore(handle.snapshot(), Gives(given))
    assert isinstance(expect_error(copy.next_turn()).error, ProtocolError)
    handle.retry()
    assert expect_completed(handle.next_turn()).text == "fine"


class MuteError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


@each("error", [MuteError(), OSError("down"), RecursionError(), KeyError(1)])
def test_whatever_a_provider_raises_is_an_error_result(error: Exception) -> None:
    """The outside world failed; the exception is the cause, and its type is named."""
    handle = ToolLoopHandle(ScriptedProvider([error, reply("fine")]), params=params())
    result = expect_error(handle.next_turn())
    assert isinstance(result.error, ModelError)
    assert type(error).__name__ in str(result.error)
    assert result.error.__cause__ is error
    handle.retry()
    assert expect_completed(handle.next_turn()).text == "fine"


@each("levels", [600, 900])
def test_a_reply_that_is_nested_deep_does_not_stand_in_the_way_of_an_edit(levels: int) -> None:
    """Parts that no caller edited are kept unchanged, however deep; the rest of the history can be edited."""
    deep = call("add", {"a": nest(levels)}, id="toolu_1")
    handle = ToolLoopHandle(ScriptedProvider([reply(calls=[deep]), reply("so"), reply("fine")]), params=params())
    assert expect_completed(handle.run()).text == "so"
    working = handle.messages_mut()
    working[0] = user("edited")
    handle.follow_up([user("more")])
    assert expect_completed(handle.run()).text == "fine"
    assert handle.messages[0] == user("edited")
    assert handle.messages[1]["content"] == [deep]


def test_a_surrogate_of_the_model_does_not_stand_in_the_way_of_an_edit() -> None:
    """What no caller may say, the model may have said: it is kept beside an edit."""
    handle = ToolLoopHandle(ScriptedProvider([reply("a\ud800"), reply("fine")]), params=params())
    handle.run()
    handle.messages_mut()[0] = user("edited")
    handle.follow_up([user("more")])
    assert expect_completed(handle.run()).text == "fine"
    assert handle.messages[1]["content"] == [{"type": "text", "text": "a\ud800"}]
