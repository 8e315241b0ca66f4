"""Message threads: the server holds the conversation, and a request carries only what is new."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from anthropic import Anthropic, DefaultHttpxClient, omit

from tests.kit.each import each
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import TOOLS, params, user
from tests.kit.world import World, open_over_http
from tests.requests.threaded import ADD, ON, Gated, adds, list_taken, refusals, shape
from toolloop import LoopConfig, MemoryStore, ToolLoopHandle, ToolRunner, sub_loop
from toolloop.compaction import DropRounds
from toolloop.providers import AnthropicProvider
from toolloop.testing import (
    FakeMessagesAPI,
    ScriptedProvider,
    call,
    compacted,
    reply,
    server_call,
    server_result,
)

# --- what is sent ---


def test_a_request_carries_only_what_is_new_and_the_model_sees_all() -> None:
    """The one that creates the thread has system and tools; the next ones repeat neither."""
    with open_over_http([*adds(2), reply("done")], asked=params(system="Be brief."), threads=True) as at:
        assert expect_completed(at.handle.run()).text == "done"
        assert shape(at.api) == ["create 1", "continue 1", "continue 1"]
        first, *others = [request.json for request in at.api.requests]
        assert {"system", "tools"} <= first.keys()
        assert [{"system", "tools"} & other.keys() for other in others] == [set(), set()]
        assert list(at.handle.messages[:-1]) == at.api.requests[-1].whole["messages"]
        assert at.handle.usage_log == at.handle.into_result().usage_log


def test_a_follow_up_goes_on_in_the_thread() -> None:
    """The history of the first user turn is not sent again."""
    with open_over_http([reply("one"), reply("two")], threads=True) as at:
        at.expect_done()
        at.handle.follow_up("And?")
        at.expect_done()
        assert (shape(at.api), list_taken(at.api)) == (["create 1", "continue 1"], [1, 3])


def test_a_paused_reply_goes_on_with_no_messages() -> None:
    """The server holds it; a client call beside an open server call is answered alone."""
    search = {"type": "web_search_20250305", "name": "web_search"}
    paused = reply("so far", content=[server_call("web_search", {"query": "x"})], stop_reason="pause_turn")
    found = reply(content=[server_result("web_search"), {"type": "text", "text": "found"}])
    with open_over_http([paused, found, reply("bye")], asked=params(tools=[search]), threads=True) as at:
        assert expect_completed(at.handle.run()).text == "found"
        at.handle.follow_up("Thanks")
        at.expect_done()
        assert shape(at.api) == ["create 1", "continue 0", "continue 1"]
        assert list(at.handle.messages[:-1]) == at.api.requests[-1].whole["messages"]


@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=pytest.mark.deep)])
def test_the_bytes_of_a_request_do_not_grow(rounds: int) -> None:
    """Each request has the size of its new messages, to the digits of an id."""
    config = LoopConfig(threads=True, max_iterations=None)
    with FakeMessagesAPI([*adds(rounds), reply("done")], enforce=rounds < 100) as api:
        handle = ToolLoopHandle(api.client(), params=params(), tools=TOOLS, config=config)
        handle.run()
        sizes = [len(request.body) for request in api.requests]
        assert len(handle.messages) == 2 * rounds + 2
        for at in (10, 100, 1000):
            assert at > rounds or abs(sizes[at] - sizes[1]) <= 8
        assert max(sizes[1:]) - min(sizes[1:]) <= 8


def test_a_request_that_only_compacts_is_of_no_thread() -> None:
    """Another conversation follows it: the summary."""
    asked = params(betas=["compact-2026-09-04"])
    with open_over_http([*adds(1), compacted("so far"), reply("done")], asked=asked, threads=True) as at:
        at.turn().continue_loop()
        at.handle.update_params(compaction={"type": "summarize"})
        at.handle.run()
        assert shape(at.api) == ["create 1", "whole 3", "create 1"]


def test_a_runner_and_a_loop_inside_a_call_have_threads_of_their_own() -> None:
    """The setting of each loop is its own."""
    asked = {"model": "claude-opus-5-5", "max_tokens": 64}
    inner = sub_loop("dig", "Dig.", params=asked, tools=[TOOLS[0]], config=ON)
    script = [reply(calls=[call("dig", {"prompt": "deep"})]), reply(calls=[ADD]), reply("found"), reply("end")]
    with FakeMessagesAPI(script) as api:
        runner = ToolRunner(api.client(), params=params(), tools=[inner], threads=True)
        assert [message["stop_reason"] for message in runner] == ["tool_use", "end_turn"]
        assert shape(api) == ["create 1", "create 1", "continue 1", "continue 1"]
        whole = ToolRunner(api.client(), params=params(), config=ON, threads=False)
        assert whole.params["messages"] == [user()]
        with pytest.raises(ValueError, match="threads is 1; give True or False"):
            ToolRunner(api.client(), params=params(), threads=1)  # type: ignore[call-overload]  # what is tested


def test_a_streamed_turn_falls_back_too() -> None:
    """In a handle and in a runner: the refusal comes before the stream."""
    for streams_runner in (False, True):
        with FakeMessagesAPI([*adds(1), reply("done")]) as api:
            if streams_runner:
                runner = ToolRunner(api.client(), params=params(), tools=TOOLS, threads=True, stream=True)
                for stream in runner:
                    last = stream.get_final_message()
                    api.forget_threads()
                assert last["content"] == [{"type": "text", "text": "done"}]
            else:
                handle = ToolLoopHandle(api.client(), params=params(), tools=TOOLS, config=ON)
                expect_yielded(handle.next_turn()).continue_loop()
                api.forget_threads()
                with handle.stream_turn() as stream_:
                    assert stream_.finish().text == "done"
            assert shape(api) == ["create 1", "continue 1", "create 3"]


# --- what starts a new thread ---


def _edit(at: World) -> None:
    at.handle.messages_mut()[0] = user("another question")


def _edit_and_take_back(at: World) -> None:
    _edit(at)
    assert at.handle.messages[0] == user("another question")
    at.handle.messages_mut()[0] = user()


def _replace_last(at: World) -> None:
    at.handle.stop()
    at.expect_done()
    at.handle.follow_up("another question", replace_last=True)


def _drop(at: World) -> None:
    at.handle.messages_mut()[:] = DropRounds(1)(at.handle.messages)


OTHER_TOOL = {"name": "elsewhere", "description": "d", "input_schema": {"type": "object"}}
CHANGES: dict[str, Callable[[World], Any]] = {
    "an edit": _edit,
    "a compaction": _drop,
    "replace_last": _replace_last,
    "system": lambda at: at.handle.update_params(system="Be brief."),
    "tools": lambda at: at.handle.update_params(tools=[OTHER_TOOL]),
    "betas": lambda at: at.handle.update_params(betas=["context-1m-2025-08-07"]),
    "betas in a header": lambda at: at.handle.update_params(extra_headers={"anthropic-beta": "context-1m-2025-08-07"}),
    "the model": lambda at: at.handle.update_params(model="claude-opus-5"),
}
KEEPS: dict[str, Callable[[World], Any]] = {
    "nothing": lambda _: None,
    "another parameter": lambda at: at.handle.update_params(max_tokens=512),
    "an injection": lambda at: at.handle.pending_turn.inject_and_continue("mind this"),
    "an edit that is taken back": _edit_and_take_back,
}


@each("change", CHANGES)
def test_what_changes_what_the_server_holds_starts_a_new_thread(change: str) -> None:
    """In the same turn, with the whole history; the server refuses nothing."""
    with open_over_http([*adds(3), reply("done"), reply("bye")], threads=True) as at:
        for _ in range(2):
            at.turn().continue_loop()
        at.turn()
        CHANGES[change](at)
        if at.handle.pending_turn is not None:
            at.handle.pending_turn.continue_loop()
        assert refusals(at.expect_done()) == []
        at.handle.follow_up("more")
        at.expect_done()
        *_, changed, last = shape(at.api)
        count = len(at.api.requests[3].whole["messages"])
        assert (changed, last) == (f"create {count}", "continue 1")


@each("change", KEEPS)
def test_what_the_server_holds_goes_on(change: str) -> None:
    """Also if a history was changed, and is again what it was."""
    with open_over_http([*adds(2), reply("done")], threads=True) as at:
        at.turn().continue_loop()
        at.turn()
        KEEPS[change](at)
        if at.handle.pending_turn is not None:
            at.handle.pending_turn.continue_loop()
        at.expect_done()
        assert [text.split()[0] for text in shape(at.api)] == ["create", "continue", "continue"]


NOT_AS_IT_CAME: dict[str, Any] = {
    "refused": reply("no", stop_reason="refusal"),
    "cut off": reply("so", calls=[ADD], stop_reason="max_tokens"),
    "with a blank text": reply("  ", content=[{"type": "text", "text": "so"}]),
    "by a fallback model": reply("so", usage={"iterations": [{"type": "message"}, {"type": "fallback_message"}]}),
}


@each("said", NOT_AS_IT_CAME)
def test_a_reply_that_the_history_has_changed_is_of_no_thread(said: str) -> None:
    """The next request creates a thread with the history as it is."""
    with open_over_http([NOT_AS_IT_CAME[said], reply("yes")], threads=True) as at:
        at.expect_done()
        at.handle.follow_up("again")
        assert refusals(at.expect_done()) == []
        assert [text.split()[0] for text in shape(at.api)] == ["create", "create"]


def test_a_fork_leaves_the_thread_to_the_original() -> None:
    """Each message can be continued once."""
    with open_over_http([*adds(1), reply("one"), reply("two")], threads=True) as at:
        at.turn().continue_loop()
        fork = at.handle.fork()
        for handle in (at.handle, fork):
            assert refusals(expect_completed(handle.run())) == []
        assert shape(at.api) == ["create 1", "continue 1", "create 3"]


@pytest.mark.parametrize("is_stored", [False, True], ids=["snapshot", "store"])
def test_a_thread_goes_on_in_another_process(is_stored: bool) -> None:
    """Two copies of one snapshot are two loops: the second one is refused, and starts a thread of its own."""
    store = MemoryStore()
    with FakeMessagesAPI([*adds(1), reply("one"), reply("two")]) as api:
        parts: dict[str, Any] = {"tools": TOOLS}
        if is_stored:
            with ToolLoopHandle.open(store, "x", api.client(), params=params(), config=ON, **parts) as handle:
                expect_yielded(handle.next_turn()).continue_loop()
            with ToolLoopHandle.open(store, "x", api.client(), **parts) as handle:
                assert expect_completed(handle.run()).text == "one"
            assert shape(api) == ["create 1", "continue 1"]
            return
        handle = ToolLoopHandle(api.client(), params=params(), config=ON, **parts)
        expect_yielded(handle.next_turn()).continue_loop()
        snapshot = json.loads(json.dumps(handle.snapshot()))
        copies = [ToolLoopHandle.restore(snapshot, api.client(), **parts) for _ in range(2)]
        assert [refusals(expect_completed(copy.run())) for copy in copies] == [[], ["thread_already_continued"]]
        assert shape(api) == ["create 1", "continue 1", "continue 1", "create 3"]


# --- who takes threads ---


class Sub(Anthropic):
    """A subclass may edit the JSON of a request."""


def test_other_clients_get_the_whole_history() -> None:
    """Subclasses, clients with betas of their own, and providers without `takes_threads`."""
    with FakeMessagesAPI([reply(str(number)) for number in range(6)]) as api:
        with DefaultHttpxClient(trust_env=False, verify=False) as http:
            clients: list[Any] = [
                Sub(api_key="k", base_url=api.url, http_client=http, max_retries=0),
                api.client(default_headers={"anthropic-beta": "context-1m-2025-08-07"}),
                Gated(AnthropicProvider(api.client()), takes_threads=False),
            ]
            clients[-1].go.set()
            for client in clients:
                handle = ToolLoopHandle(client, params=params(), config=ON)
                handle.run()
                handle.follow_up("more")
                handle.run()
        assert shape(api) == ["whole 1", "whole 3"] * 3


THREADS = "message-threads-2026-08-12"
GIVEN: dict[str, tuple[dict[str, Any], str]] = {
    "betas": ({"betas": ["a", "b"]}, f"a,b,{THREADS}"),
    "headers": ({"extra_headers": {"Anthropic-Beta": "a,b"}}, f"a,b,{THREADS}"),
    "that of threads": ({"betas": [THREADS, "a"]}, f"{THREADS},a"),
    "none": ({"betas": ["a"], "extra_headers": {"anthropic-beta": omit}}, THREADS),
}


@each("given", GIVEN)
def test_the_betas_of_the_caller_stay(given: str) -> None:
    """The beta of threads goes behind them, wherever they were given, and once."""
    asked, sent = GIVEN[given]
    with open_over_http([reply("one")], asked=params(**asked), threads=True) as at:
        at.expect_done()
        assert at.api.requests[0].headers["anthropic-beta"] == sent


@pytest.mark.parametrize("inside", [False, True], ids=["params", "extra_body"])
def test_the_loop_keeps_the_thread(*, inside: bool) -> None:
    """A thread in the parameters would be another one in each request."""
    given: dict[str, Any] = {"thread": {"type": "create"}}
    with pytest.raises(ValueError, match="thread"):
        ToolLoopHandle(ScriptedProvider([]), params=params(**({"extra_body": given} if inside else given)), config=ON)
