"""What follows when the server refuses a message thread: the whole history, in the same turn."""

from __future__ import annotations

import logging
import threading
from typing import Any, cast

import pytest
from attrs import frozen

from tests.kit.concurrency import Background, wait_for
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import TOOLS, params
from tests.kit.world import open_over_http
from tests.requests.threaded import ON, Gated, adds, refusals, shape
from toolloop import LoopConfig, MemoryStore, ToolLoopHandle, tool
from toolloop.errors import Conflict, ModelError
from toolloop.events import RequestStarted, ThreadRefused
from toolloop.providers import AnthropicProvider
from toolloop.testing import FakeMessagesAPI, call, delayed, fault, reply, streamed

CODES = (
    "thread_not_found",
    "thread_already_continued",
    "thread_continue_in_flight",
    "thread_fingerprint_mismatch",
    "thread_unsupported_request",
)


@pytest.mark.parametrize("code", CODES)
def test_a_refusal_falls_back_to_the_whole_history(code: str, caplog: pytest.LogCaptureFixture) -> None:
    """In the same turn, once, with an event and a line in the log; no call runs twice, and no error is seen."""
    caplog.set_level(logging.INFO, "toolloop")
    ran: list[Any] = []
    codes, seen = iter([None, code]), list[Any]()

    @tool
    def work() -> str:
        """Work."""
        ran.append(1)
        return "done"

    script = [reply(calls=[call("work")]), reply(calls=[call("work")]), reply("end"), reply("bye")]
    with FakeMessagesAPI(script, refuse_thread=lambda _: next(codes, None)) as api:
        config = LoopConfig(threads=True, observers=[seen.append])
        handle = ToolLoopHandle(api.client(), params=params(), tools=[work], config=config)
        done = expect_completed(handle.run())
        assert (done.text, done.iterations, len(ran)) == ("end", 3, 2)
        assert [event for event in seen if isinstance(event, ThreadRefused)] == [ThreadRefused(2, code)]
        then = ["whole 3", "whole 5"] if code == "thread_unsupported_request" else ["create 3", "continue 1"]
        assert shape(api) == ["create 1", "continue 1", *then]
        assert [record.getMessage() for record in caplog.records if code in record.getMessage()] == [
            f"the server refused the message thread ({code}); repeating the request with the whole history"
        ]


def test_the_events_tell_of_the_refusal_between_the_two_requests() -> None:
    """And of nothing else."""
    with open_over_http([*adds(1), reply("end")], threads=True, refusals=1) as at:
        at.turn().continue_loop()
        at.api.forget_threads()
        kinds = [type(event) for event in at.expect_done().events]
        assert kinds[:3] == [RequestStarted, ThreadRefused, RequestStarted]


def test_where_no_thread_can_be_created_the_whole_history_is_sent() -> None:
    """Until something that a thread freezes changes: then it is tried again."""
    refuses = threading.Event()
    refuses.set()

    def refuse(_: Any) -> str | None:
        return "thread_unsupported_request" if refuses.is_set() else None

    with FakeMessagesAPI([*adds(3), reply("end")], refuse_thread=refuse) as api:
        handle = ToolLoopHandle(api.client(), params=params(), tools=TOOLS, config=ON)
        for _ in range(2):
            expect_yielded(handle.next_turn()).continue_loop()
        assert shape(api) == ["create 1", "whole 1", "whole 3"]
        refuses.clear()
        handle.update_params(system="Be brief.")
        assert expect_completed(handle.run()).text == "end"
        assert shape(api)[3:] == ["create 5", "continue 1"]


@pytest.mark.parametrize("code", CODES)
def test_a_thread_that_cannot_be_created_is_asked_for_once(code: str) -> None:
    """Whatever the reason. The second refusal would be the last one, so that this test ends."""
    codes = iter([code, code])
    with FakeMessagesAPI([*adds(1), reply("end")], refuse_thread=lambda _: next(codes, None)) as api:
        handle = ToolLoopHandle(api.client(), params=params(), tools=TOOLS, config=ON)
        assert expect_completed(handle.run()).text == "end"
        assert shape(api) == ["create 1", "whole 1", "whole 3"]


@pytest.mark.parametrize("code", ["thread_not_found", "thread_fingerprint_mismatch"])
def test_a_server_that_refuses_each_thread_at_once_is_not_asked_again(code: str) -> None:
    """One thread may expire. If the next one is refused likewise before it was continued, none is kept."""

    def refuse(body: Any) -> str | None:
        return code if body["thread"]["type"] == "continue" else None

    with FakeMessagesAPI([*adds(4), reply("end")], refuse_thread=refuse) as api:
        handle = ToolLoopHandle(api.client(), params=params(), tools=TOOLS, config=ON)
        assert expect_completed(handle.run()).text == "end"
        assert shape(api) == ["create 1", "continue 1", "create 3", "continue 1", "whole 5", "whole 7", "whole 9"]


def test_threads_that_expire_now_and_then_are_replaced() -> None:
    """Each of them was continued before."""
    with open_over_http([reply(str(number)) for number in range(6)], threads=True, refusals=2) as at:
        for number in range(6):
            at.expect_done()
            if number % 2:
                at.api.forget_threads()
            if number < 5:
                at.handle.follow_up("more")
        did = [text.split()[0] for text in shape(at.api)]
        assert did == ["create", *["continue", "continue", "create"] * 2, "continue"]


def test_a_request_that_the_server_still_answers_is_made_again() -> None:
    """The client has given it up, so the retry of the caller sends the whole history."""
    script = [*adds(1), delayed(threading.Event(), reply("late")), reply("end")]
    with open_over_http(script, threads=True, refusals=1) as at:
        at.turn().continue_loop()
        at.handle.update_params(timeout=0.2)
        assert at.expect_failed().retryable
        at.handle.update_params(timeout=None)
        at.handle.retry()
        done = at.expect_done()
        assert (done.text, done.iterations, refusals(done)) == ("end", 2, ["thread_continue_in_flight"])
        assert shape(at.api) == ["create 1", "continue 1", "continue 1", "create 3"]


def test_a_request_whose_stream_broke_is_made_again() -> None:
    """The server holds the reply, and the client does not have it."""
    with open_over_http([*adds(1), streamed(reply("lost"), cut=3), reply("end")], threads=True, refusals=1) as at:
        at.turn().continue_loop()
        with at.handle.stream_turn() as stream:
            assert expect_error(stream.finish()).retryable
        at.handle.retry()
        assert refusals(at.expect_done()) == ["thread_already_continued"]
        assert shape(at.api) == ["create 1", "continue 1", "continue 1", "create 3"]


@frozen
class Unwrapped:
    """A provider that lets the errors of the SDK through."""

    inner: AnthropicProvider
    takes_threads: bool = True

    def send(self, request: Any) -> Any:
        try:
            return self.inner.send(request)
        except ModelError as error:
            raise cast("Exception", error.__cause__) from None


def test_a_provider_may_raise_the_errors_of_the_sdk() -> None:
    """A refusal is one, whatever wraps it."""
    with FakeMessagesAPI([reply("one"), reply("two")]) as api:
        handle = ToolLoopHandle(Unwrapped(AnthropicProvider(api.client())), params=params(), config=ON)
        handle.run()
        api.forget_threads()
        handle.follow_up("more")
        assert expect_completed(handle.run()).text == "two"
        assert shape(api) == ["create 1", "continue 1", "create 3"]


def test_an_error_that_refuses_no_thread_is_an_error() -> None:
    """With threads as without: it is the caller's to retry, and the thread goes on."""
    with open_over_http([*adds(1), fault(529), fault(400), reply("end")], threads=True) as at:
        at.turn().continue_loop()
        for is_retryable in (True, False):
            assert at.expect_failed().retryable is is_retryable
            at.handle.retry()
        at.expect_done()
        assert shape(at.api) == ["create 1", *["continue 1"] * 3]


def test_a_driver_that_lost_its_lease_gets_a_conflict_and_sends_nothing_again() -> None:
    """The new driver has continued the thread. The old one is refused, and its second request is not stored."""
    store = MemoryStore()
    with FakeMessagesAPI([*adds(2), reply("end")]) as api:
        client = api.client()
        parts: dict[str, Any] = {"tools": TOOLS, "config": ON}
        first = ToolLoopHandle.open(store, "x", client, params=params(), **parts)
        expect_yielded(first.next_turn()).continue_loop()
        first.close()
        gated = Gated(AnthropicProvider(client))
        old = ToolLoopHandle.open(store, "x", gated, **parts)
        turn = Background(old.next_turn)
        wait_for(gated.arrived)
        with ToolLoopHandle.open(store, "x", client, take_over=True, **parts) as new:
            assert expect_completed(new.run()).text == "end"
            gated.go.set()
            with pytest.raises(Conflict):
                turn.result()
        assert shape(api) == ["create 1", "continue 1", "continue 1", "continue 1"]
        assert [request.refusal for request in api.refused] == ["thread: thread_already_continued"]
