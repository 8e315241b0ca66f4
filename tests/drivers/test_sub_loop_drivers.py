"""A tree of loops is driven as one: side by side, to any depth, by both handles; and each goes its own way."""

from __future__ import annotations

import threading
from typing import Any

import anyio

from tests.kit.concurrency import cross, either_kind, list_contents, turn
from tests.kit.each import each
from tests.kit.loop_trees import ask_in_parallel, kid, task, tree_of
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import add, params, user
from toolloop import Approve, ToolContext, ToolLoopHandle, tool
from toolloop.errors import ModelError
from toolloop.events import CallFinished, CallStarted, LoopFinished, RequestStarted
from toolloop.testing import call, reply

ADD = call("add", {"a": 1, "b": 2}, id="sum")
COUNTS = [reply(calls=[ADD]), reply("it is 3")]


@either_kind
def test_a_loop_inside_a_call_answers_it_with_its_last_text(kind: str) -> None:
    """It has its own messages and tools; what it used counts in the tree, with the path."""
    loop_tree = tree_of(kind, {"go": ask_in_parallel("one"), "one": COUNTS}, [kid([add])])
    handle = loop_tree.loop()
    executed = expect_yielded(turn(kind, handle))
    assert list_contents(executed) == ["it is 3"]
    assert loop_tree.asked == ["go", "one", "one"]
    assert [(entry.path, entry.iteration) for entry in handle.usage_log] == [((), 1), (("one",), 1), (("one",), 2)]
    executed.continue_loop()
    assert expect_completed(turn(kind, handle)).text == "all done"
    assert handle.iterations == 2
    assert handle.total_usage.output_tokens == 4 * 5


@either_kind
@each("is_async", [False, True])
def test_tools_of_children_run_at_once(kind: str, is_async: bool) -> None:
    """Those of different loops meet, and a tool of the outermost loop is among them."""
    if is_async and kind == "sync":
        return
    barrier = threading.Barrier(3)

    @tool(name="meet")
    def thread(who: str) -> str:
        """Meet the others."""
        cross(barrier)
        return who

    @tool(name="meet")
    async def task_(who: str) -> str:
        """Meet the others."""
        await anyio.to_thread.run_sync(cross, barrier)
        return who

    meet = task_ if is_async else thread
    said = {
        "go": [reply(calls=[task("one"), call("meet", {"who": "root"}), task("two")]), reply("done")],
        "one": [reply(calls=[call("meet", {"who": "one"}, id="m")]), reply("one met")],
        "two": [reply(calls=[call("meet", {"who": "two"}, id="m")]), reply("two met")],
    }
    handle = tree_of(kind, said, [kid([meet]), meet]).loop()
    assert list_contents(turn(kind, handle)) == ["one met", "root", "two met"]


@either_kind
def test_calls_of_children_wait_side_by_side_and_are_decided_in_any_order(kind: str) -> None:
    """The turn ends when nothing moves any more; the children go on where they stood."""
    ran: list[Any] = []

    @tool(needs_approval=True)
    def write(who: str, context: ToolContext) -> str:
        """Write."""
        ran.append((who, context.depth, context.iteration))
        return f"{who} wrote"

    said: dict[str, Any] = {"go": ask_in_parallel("one", "two", "three"), "three": [reply("nothing to write")]}
    for who in ("one", "two"):
        said[who] = [reply(calls=[call("write", {"who": who}, id="w")]), reply(f"{who} is done")]
    loop_tree = tree_of(kind, said, [kid([write])])
    handle = loop_tree.loop()
    waiting = expect_yielded(turn(kind, handle))
    assert [each.path for each in waiting.pending] == [("one", "w"), ("two", "w")]
    assert [slot and slot.content for slot in waiting.results] == [None, None, "nothing to write"]
    waiting.deny(waiting.pending[1], "no")
    handle.decide({"one/w": Approve()})
    waiting.continue_loop()
    assert list_contents(turn(kind, handle)) == ["one is done", "two is done", "nothing to write"]
    assert ran == [("one", 2, 1)]


# --- failures --------------------------------------------------------------------------------------------------------


@either_kind
def test_a_request_of_a_child_that_may_be_made_again_fails_the_turn(kind: str) -> None:
    """The error is the very one that was raised; what the others did stands, and `retry` goes on in the child."""
    answers: list[Any] = [ModelError("overloaded", retryable=True, retry_after=2.0), reply("at last")]
    error = answers[0]
    said = {"go": ask_in_parallel("one", "two"), "one": [lambda: answers.pop(0)], "two": COUNTS}
    loop_tree = tree_of(kind, said, [kid([add])])
    handle = loop_tree.loop()
    error_result = expect_error(turn(kind, handle))
    assert error_result.error is error
    assert (error_result.retryable, error_result.retry_after, error_result.iterations) == (True, 2.0, 1)
    assert loop_tree.asked.count("two") == 2
    handle.retry()
    assert list_contents(turn(kind, handle)) == ["at last", "it is 3"]
    assert loop_tree.asked.count("two") == 2


# --- who watches -----------------------------------------------------------------------------------------------------


def test_observers_get_events_of_their_own_loop_and_of_those_inside() -> None:
    """Observers of the outermost loop receive all events."""
    seen: dict[str, list[Any]] = {"root": [], "kid": [], "inner": []}
    inner = kid([add], name="inner", observers=[seen["inner"].append])
    said = {
        "go": ask_in_parallel("one"),
        "one": [reply(calls=[task("deep", "inner")]), reply("fine")],
        "deep": COUNTS,
    }
    loop_tree = tree_of("sync", said, [kid([inner], observers=[seen["kid"].append])])
    loop_tree.config = {"observers": [seen["root"].append]}
    executed = expect_yielded(turn("sync", loop_tree.loop()))
    assert tuple(seen["root"]) == executed.events
    assert seen["kid"] == [event for event in seen["root"] if event.path[:1] == ("one",)]
    assert seen["inner"] == [event for event in seen["root"] if event.path[:2] == ("one", "deep")]
    kinds = [type(event) for event in seen["inner"]]
    assert [kinds.count(each) for each in (RequestStarted, CallStarted, CallFinished, LoopFinished)] == [2, 1, 1, 1]


@either_kind
def test_what_a_tool_spends_in_a_loop_of_its_own_counts_in_the_tree(kind: str) -> None:
    """A tool of a child drives a handle of its own."""

    @tool
    def ask(context: ToolContext) -> str:
        """Ask another person."""
        own = tree_of("sync", {"go": [reply("own words")]}).provider()
        handle = ToolLoopHandle(own, params=params(messages=[user("go")]), context=context)
        assert handle.depth == 2
        return str(expect_completed(handle.run()).text)

    said = {"go": ask_in_parallel("one"), "one": [reply(calls=[call("ask", {}, id="a")]), reply("asked")]}
    handle = tree_of(kind, said, [kid([ask])]).loop()
    assert list_contents(turn(kind, handle)) == ["asked"]
    assert [entry.path for entry in handle.usage_log] == [(), ("one",), ("one", "a"), ("one",)]
