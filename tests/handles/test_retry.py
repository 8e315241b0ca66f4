"""`retry` and `follow_up`: after each kind of error, and after each kind of end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.loop_trees import kid, task, tree_of
from tests.kit.support import expect_completed, expect_refusal, expect_yielded
from tests.kit.tools import TOOLS, assistant, params, user
from tests.kit.world import open_over_http
from toolloop import Error, ToolLoopHandle
from toolloop.errors import InvalidHistory, ModelError, OutsideError, ProtocolError
from toolloop.stores import MemoryStore
from toolloop.terminations import Refused
from toolloop.testing import ScriptedProvider, call, dropped, fault, html, reply, verbatim

ADD = reply(calls=[("add", {"a": 1, "b": 2})])
END = reply("end")
JSON_TYPE = {"content-type": "application/json"}
TWICE = reply(calls=[call("add", id="x"), call("add", id="x")])  # it has a usage
ERRORS: dict[str, tuple[Any, type[Exception], bool, float | None]] = {
    "400": (fault(400), ModelError, False, None),
    "401": (fault(401), ModelError, False, None),
    "403": (fault(403), ModelError, False, None),
    "404": (fault(404), ModelError, False, None),
    "413": (fault(413), ModelError, False, None),
    "429": (fault(429, retry_after=2.5), ModelError, True, 2.5),
    "429 without a time": (fault(429), ModelError, True, None),
    "500": (fault(500), ModelError, True, None),
    "504": (fault(504), ModelError, True, None),
    "529": (fault(529, retry_after=30), ModelError, True, 30.0),
    "a dropped connection": (dropped(), ModelError, True, None),
    "a web page": (html(), OutsideError, False, None),
    "an empty object": (verbatim(200, JSON_TYPE, "{}"), ProtocolError, True, None),
    "a list": (verbatim(200, JSON_TYPE, "[]"), OutsideError, True, None),
    "cut-off JSON": (verbatim(200, JSON_TYPE, '{"type":"message","content":[{"type":"te'), OutsideError, True, None),
    "content that is none": (
        verbatim(200, JSON_TYPE, '{"content": "x", "stop_reason": "end_turn"}'),
        ProtocolError,
        True,
        None,
    ),
    "a call without an id": (
        verbatim(200, JSON_TYPE, '{"content": [{"type": "tool_use", "name": "add"}], "stop_reason": "tool_use"}'),
        ProtocolError,
        True,
        None,
    ),
    "two calls of one id": (TWICE, ProtocolError, True, None),
}


@each(("answer", "kind", "retryable", "wait"), ERRORS.values())
def test_after_any_error_the_loop_is_as_it_was_and_retry_sends_the_same_bytes(
    answer: Any, kind: type[Exception], retryable: bool, wait: float | None
) -> None:
    """Nothing was consumed but the tokens of a reply that cannot be read; the second request is the first again."""
    with open_over_http([ADD, answer, END]) as at:
        at.turn().continue_loop()
        messages, used = at.handle.messages, at.handle.total_usage
        error = at.expect_failed()
        assert isinstance(error.error, kind)
        assert str(error.error)
        if kind is not OutsideError:
            assert (error.retryable, error.retry_after) == (retryable, wait)
        assert (error.iterations, at.handle.messages) == (1, messages)
        assert (error.total_usage == used) is (answer is not TWICE)
        assert at.handle.next_turn() is error
        at.handle.retry()
        assert not at.handle.is_finished
        assert at.expect_done().text == "end"
        assert at.api.requests[-1].body == at.api.requests[-2].body


def test_retry_can_fail_again_with_an_error_of_its_own() -> None:
    """Each failure is a result of its own; a loop can be retried any number of times."""
    with open_over_http([fault(529), fault(400), fault(529), END]) as at:
        seen = []
        for _ in range(3):
            error = at.expect_failed().error
            assert isinstance(error, ModelError)
            seen.append(error.status)
            at.handle.retry()
        assert (seen, at.expect_done().iterations) == ([529, 400, 529], 1)


def test_the_error_is_that_of_the_last_request_whichever_handle_sent_it() -> None:
    """A handle whose request failed shows the error of a later request, which another handle sent."""
    store = MemoryStore()
    with (
        open_over_http([fault(429), fault(400), END]) as at,
        ToolLoopHandle.open(store, "loop", at.client, params=params()) as first,
        ToolLoopHandle.open(store, "loop", at.client) as second,
    ):
        assert isinstance(first.next_turn(), Error)
        second.retry()
        assert isinstance(second.next_turn(), Error)
        first.set_metadata(title="failed twice")
        assert "the API answered 400" in str(first.view()["error"])
        assert first.view() == second.view()


@each("kind", [KeyboardInterrupt, SystemExit])
def test_an_exit_during_a_request_is_as_if_it_had_not_been_made(kind: type[BaseException]) -> None:
    """It is raised; the loop stands before the request, but for the seconds it took, and goes on by `next_turn`."""
    provider = ScriptedProvider([ADD, kind(), END])
    handle = ToolLoopHandle(provider, params=params(), tools=TOOLS)
    expect_yielded(handle.next_turn()).continue_loop()
    before = handle.view(), handle.messages, handle.total_usage
    with pytest.raises(kind):
        handle.next_turn()
    assert (handle.view(), handle.messages, handle.total_usage) == before
    assert expect_completed(handle.next_turn()).text == "end"
    assert provider.bodies[1] == provider.bodies[2]


# --- follow_up ---
def test_a_follow_up_is_a_further_turn_of_the_same_conversation() -> None:
    """The history goes on; iterations count on, limits start again."""
    with open_over_http([ADD, END, ADD, reply("again")], max_iterations=2) as at:
        first = at.handle.run().unwrap()
        at.handle.follow_up([user("and now?")])
        assert not at.handle.is_finished
        done = at.handle.run().unwrap()
        assert (first.text, done.text, done.iterations) == ("end", "again", 4)
        assert [message["role"][0] for message in at.list_sent()] == ["u", "a", "u", "a", "u", "a", "u"]


def test_a_refused_turn_can_be_replaced() -> None:
    """`replace_last` takes the place of the last user turn, whatever it was made of."""
    with open_over_http([END, reply(stop_reason="refusal"), END], asked=params()) as at:
        at.handle.run()
        at.handle.follow_up([user("something bad"), user("really")])
        assert at.expect_done().termination == Refused(None, None)
        at.handle.follow_up([user("something good")], replace_last=True)
        assert at.expect_done().text == "end"
        assert at.list_sent() == [user(), assistant([{"type": "text", "text": "end"}]), user("something good")]


BROKEN: dict[str, tuple[Any, type[Exception]]] = {
    "a blank string": (" ", InvalidHistory),
    "nothing": (None, TypeError),
    "no message at all": ([], ValueError),
    "bytes": ([user(b"x")], TypeError),
    "an assistant message": ([assistant("x")], InvalidHistory),
    "a system message alone": ([{"role": "system", "content": "x"}], InvalidHistory),
    "an orphan result": ([user([{"type": "tool_result", "tool_use_id": "toolu_z", "content": "x"}])], InvalidHistory),
    "a blank text": ([user([{"type": "text", "text": ""}])], InvalidHistory),
}


@each("replace", [False, True])
@each(("messages", "kind"), BROKEN.values())
def test_a_bad_follow_up_is_refused_and_changes_nothing(messages: Any, kind: type[Exception], replace: bool) -> None:
    """The loop stays ended, with the same result."""
    with open_over_http([END, END]) as at:
        done = at.expect_done()
        before = at.handle.snapshot()
        with pytest.raises(kind):
            at.handle.follow_up(messages, replace_last=replace)
        assert at.handle.snapshot() == before
        assert at.handle.next_turn() is done
        at.handle.follow_up([user("fine")])
        assert at.expect_done().text == "end"


def test_a_refused_follow_up_after_an_edit_does_not_adopt_the_edit() -> None:
    """All or nothing: neither the messages nor the edited list is taken."""
    with open_over_http([END, END]) as at:
        at.expect_done()
        working = at.handle.messages_mut()
        working[0] = user("edited")
        with expect_refusal(at.handle, InvalidHistory):
            at.handle.follow_up([{"role": "system", "content": "x"}, user("x")], replace_last=True)
        assert at.handle.messages_mut() is working
        at.handle.follow_up([user("fine")])
        at.expect_done()
        assert at.list_sent()[0] == user("edited")


@each("replace", [False, True])
def test_a_follow_up_gives_a_failed_request_up(replace: bool) -> None:
    """The conversation goes on with the new words; what the failed request would have answered stays or is replaced."""
    with open_over_http([fault(500), END]) as at:
        assert isinstance(at.handle.next_turn(), Error)
        at.handle.follow_up("something else", replace_last=replace)
        assert at.expect_done().text == "end"
        said = [message["content"] for message in at.handle.messages if message["role"] == "user"]
        assert said == (["something else"] if replace else [user()["content"], "something else"])


def test_a_follow_up_gives_up_a_request_that_failed_in_a_call() -> None:
    """The loop inside the call is over, and the call has a result that says that it was cancelled."""
    said: dict[str, Any] = {
        "go": [reply(calls=[task("one")]), reply("end")],
        "one": [ModelError("not now", retryable=True)],
    }
    handle: Any = tree_of("sync", said, [kid()]).loop()
    assert isinstance(handle.run(), Error)
    handle.follow_up("something else")
    assert handle.run().text == "end"
    (answer,) = handle.messages[2]["content"]
    assert (answer["type"], answer["is_error"]) == ("tool_result", True)
