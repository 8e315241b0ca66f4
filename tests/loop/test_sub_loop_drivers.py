"""A tree of loops is driven as one: side by side, to any depth, by both handles; and each goes its own way."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from tests.each import each
from tests.loop.concurrency import DEADLINE, cross, either_kind, told, turn
from tests.loop.loop_trees import LoopTree, join, kid, parallel, task
from tests.loop.support import add, broken, completed, failed, params, user, yielded
from toolloop import Approve, Budget, ToolContext, ToolLoopHandle, sub_loop, tool
from toolloop.errors import ModelError
from toolloop.events import CallFinished, CallStarted, LoopFinished, RequestStarted
from toolloop.terminations import BudgetExceeded
from toolloop.testing import call, reply

ADD = call("add", {"a": 1, "b": 2}, id="sum")
COUNTS = [reply(calls=[ADD]), reply("it is 3")]


@either_kind
def test_a_loop_inside_a_call_answers_it_with_its_last_text(kind: str) -> None:
    """It has its own messages and tools; what it used counts in the tree, with the path."""
    loop_tree = LoopTree(kind, {"go": parallel("one"), "one": COUNTS}, [kid([add])])
    handle = loop_tree.loop()
    executed = yielded(turn(kind, handle))
    assert told(executed) == ["it is 3"]
    assert loop_tree.asked == ["go", "one", "one"]
    assert [(entry.path, entry.iteration) for entry in handle.usage_log] == [((), 1), (("one",), 1), (("one",), 2)]
    executed.continue_loop()
    assert completed(turn(kind, handle)).text == "all done"
    assert handle.iterations == 2
    assert handle.total_usage.output_tokens == 4 * 5


@either_kind
def test_children_make_their_requests_at_once(kind: str) -> None:
    """Each waits for the others before it is answered."""
    barrier = threading.Barrier(3)
    names = ("one", "two", "three")
    loop_tree = LoopTree(kind, {"go": parallel(*names), **{name: [reply(f"from {name}")] for name in names}}, [kid()])
    loop_tree.on = dict.fromkeys(names, lambda: cross(barrier))
    assert told(turn(kind, loop_tree.loop())) == ["from one", "from two", "from three"]


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
    handle = LoopTree(kind, said, [kid([meet]), meet]).loop()
    assert told(turn(kind, handle)) == ["one met", "root", "two met"]


@either_kind
def test_a_tree_is_as_deep_as_its_limit_and_no_deeper(kind: str) -> None:
    """The call of the loop that is too deep gets an error, and the others go on."""
    deeper = [lambda: reply(calls=[task("deeper")]), reply("back")]
    said: dict[str, Any] = {"go": [reply(calls=[task("deeper")]), reply("done")], "deeper": deeper}
    inner = kid(name="kid")
    for _ in range(3):
        inner = kid([inner])
    loop_tree = LoopTree(kind, said, [inner])
    handle = loop_tree.loop()
    assert told(turn(kind, handle)) == ["back"]
    paths = [entry.path for entry in handle.usage_log]
    assert paths == [(), ("deeper",), ("deeper",) * 2, ("deeper",) * 2, ("deeper",)]
    assert b"nested too deep" in loop_tree.bodies[3]


@either_kind
def test_calls_of_children_wait_side_by_side_and_are_decided_in_any_order(kind: str) -> None:
    """The turn ends when nothing moves any more; the children go on where they stood."""
    ran: list[Any] = []

    @tool(needs_approval=True)
    def write(who: str, context: ToolContext) -> str:
        """Write."""
        ran.append((who, context.depth, context.iteration))
        return f"{who} wrote"

    said: dict[str, Any] = {"go": parallel("one", "two", "three"), "three": [reply("nothing to write")]}
    for who in ("one", "two"):
        said[who] = [reply(calls=[call("write", {"who": who}, id="w")]), reply(f"{who} is done")]
    loop_tree = LoopTree(kind, said, [kid([write])])
    handle = loop_tree.loop()
    waiting = yielded(turn(kind, handle))
    assert [each.path for each in waiting.pending] == [("one", "w"), ("two", "w")]
    assert [slot and slot.content for slot in waiting.results] == [None, None, "nothing to write"]
    waiting.deny(waiting.pending[1], "no")
    handle.decide({"one/w": Approve()})
    waiting.continue_loop()
    assert told(turn(kind, handle)) == ["one is done", "two is done", "nothing to write"]
    assert ran == [("one", 2, 1)]


# --- failures --------------------------------------------------------------------------------------------------------


@either_kind
def test_a_request_of_a_child_that_may_be_made_again_fails_the_turn(kind: str) -> None:
    """The error is the very one that was raised; what the others did stands, and `retry` goes on in the child."""
    answers: list[Any] = [ModelError("overloaded", retryable=True, retry_after=2.0), reply("at last")]
    error = answers[0]
    said = {"go": parallel("one", "two"), "one": [lambda: answers.pop(0)], "two": COUNTS}
    loop_tree = LoopTree(kind, said, [kid([add])])
    handle = loop_tree.loop()
    error_result = failed(turn(kind, handle))
    assert error_result.error is error
    assert (error_result.retryable, error_result.retry_after, error_result.iterations) == (True, 2.0, 1)
    assert loop_tree.asked.count("two") == 2
    handle.retry()
    assert told(turn(kind, handle)) == ["at last", "it is 3"]
    assert loop_tree.asked.count("two") == 2


@either_kind
def test_a_request_of_a_child_that_cannot_be_mended_is_an_error_of_its_call(kind: str) -> None:
    """The model above is told, and goes on."""
    said = {"go": parallel("one"), "one": [ModelError("no such model")]}
    handle = LoopTree(kind, said, [kid()]).loop()
    executed = yielded(turn(kind, handle))
    (result,) = executed.results
    assert result is not None
    assert result.is_error
    assert "no such model" in str(result.content)
    executed.continue_loop()
    assert completed(turn(kind, handle)).text == "all done"


def test_what_keeps_a_child_from_beginning_is_the_result_of_its_call() -> None:
    """A params function that raises, or gives something the API would refuse."""

    def bad(given: Any) -> Any:
        raise LookupError(f"no model for {given['prompt']}")

    tools = [sub_loop("kid", "d", params=bad), sub_loop("odd", "d", params=lambda _: params(messages=[]))]
    said = {"go": [reply(calls=[task("one"), task("two", "odd")]), reply("fine")]}
    executed = yielded(turn("sync", LoopTree("sync", said, tools).loop()))
    one, two = executed.results
    assert one is not None
    assert (one.is_error, one.content) == (True, "LookupError: no model for one")
    assert two is not None
    assert two.is_error
    assert "InvalidHistory" in str(two.content)


@either_kind
def test_a_tool_that_fails_inside_is_told_inside(kind: str) -> None:
    """The child's model sees it, and answers."""
    said = {"go": parallel("one"), "one": [reply(calls=[call("broken", {}, id="b")]), reply("it failed")]}
    loop_tree = LoopTree(kind, said, [kid([broken])])
    assert told(turn(kind, loop_tree.loop())) == ["it failed"]
    assert b"the disk is gone" in loop_tree.bodies[-1]


@either_kind
def test_a_stop_condition_of_a_child_that_raises_comes_out(kind: str) -> None:
    """What the others did is kept, the state is as before, and the next turn asks again."""
    bugs = [LookupError("a bug")]

    def stop_when(_view: Any) -> None:
        if bugs:
            raise bugs.pop()

    barrier, first = threading.Barrier(2), ["one", "two"]

    def meet() -> None:
        if first:  # the other one may make a second request before the first has raised
            first.pop()
            cross(barrier)

    said = {"go": [reply(calls=[task("one"), task("two", "other")]), reply("fine")], "one": COUNTS, "two": COUNTS}
    loop_tree = LoopTree(kind, said, [kid([add], stop_when=stop_when), kid([add], name="other")])
    loop_tree.on["one"] = loop_tree.on["two"] = meet
    handle = loop_tree.loop()
    with pytest.raises(LookupError, match="a bug"):
        turn(kind, handle)
    assert told(turn(kind, handle)) == ["it is 3", "it is 3"]


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_limit_of_a_child_is_its_own() -> None:
    """It ends the child, whose call says so; the loop above goes on."""
    said = {"go": parallel("one"), "one": [reply("let me see", calls=[ADD])]}
    handle = LoopTree("sync", said, [kid([add], max_iterations=2)]).loop()
    executed = yielded(handle.next_turn())
    assert [result and result.is_error for result in executed.results] == [True]
    assert "max iterations" in told(executed)[0]


@either_kind
def test_a_budget_that_ends_in_a_child_is_extended_in_the_child(kind: str) -> None:
    """The outermost loop ends with its own termination; `extend` goes on inside, and nothing is done twice."""
    loop_tree = LoopTree(kind, {"go": parallel("one", "two"), "one": COUNTS, "two": COUNTS}, [kid([add])])
    loop_tree.config = {"budget": Budget(requests=4)}
    handle = loop_tree.loop()
    assert completed(turn(kind, handle)).termination == BudgetExceeded("requests", 4, 4)
    assert len(loop_tree.asked) == 4
    handle.extend(budget=Budget(requests=10))
    assert told(turn(kind, handle)) == ["it is 3", "it is 3"]
    assert sorted(loop_tree.asked) == ["go", *["one"] * 2, *["two"] * 2]


def test_the_time_of_a_child_is_its_own() -> None:
    """Its request is given up, or its tool left behind; its sibling goes on, and the turn does not wait for it."""
    gate = threading.Event()

    @tool
    def stand() -> str:
        """Stand until the turn is over."""
        assert gate.wait(DEADLINE)
        return "never heard"

    said = {
        "go": [reply(calls=[task("asks", "brief"), task("runs", "brief"), task("two")]), reply("fine")],
        "asks": [reply("never heard")],
        "runs": [reply(calls=[call("stand", {}, id="s")])],
        "two": COUNTS,
    }
    loop_tree = LoopTree("sync", said, [kid([stand], name="brief", timeout=0.05), kid([add])])
    loop_tree.on["asks"] = lambda: gate.wait(DEADLINE)
    texts = told(turn("sync", loop_tree.loop()))
    assert ["timeout" in text for text in texts] == [True, True, False]
    assert texts[2] == "it is 3"
    gate.set()
    join()


def test_an_async_tool_of_a_child_that_is_out_of_time_is_cancelled_alone() -> None:
    """The rest of the tree goes on meanwhile."""
    seen: list[str] = []

    @tool
    async def stand() -> str:
        """Wait for ever."""
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("cancelled")
            over.set()
        return "never"

    @tool
    async def wait() -> str:
        """Wait until the other one is cancelled."""
        await anyio.to_thread.run_sync(over.wait, DEADLINE)
        return "waited"

    over = threading.Event()
    said = {
        "go": [reply(calls=[task("one", "brief"), call("wait", {})]), reply("fine")],
        "one": [reply(calls=[call("stand", {}, id="s")])],
    }
    executed = yielded(
        turn("asyncio", LoopTree("asyncio", said, [kid([stand], name="brief", timeout=0.05), wait]).loop())
    )
    assert told(executed)[1] == "waited"
    assert seen == ["cancelled"]


# --- who watches -----------------------------------------------------------------------------------------------------


def test_observers_are_told_of_their_own_loop_and_of_those_inside() -> None:
    """Those of the outermost loop hear of all."""
    seen: dict[str, list[Any]] = {"root": [], "kid": [], "inner": []}
    inner = kid([add], name="inner", observers=[seen["inner"].append])
    said = {
        "go": parallel("one"),
        "one": [reply(calls=[task("deep", "inner")]), reply("fine")],
        "deep": COUNTS,
    }
    loop_tree = LoopTree("sync", said, [kid([inner], observers=[seen["kid"].append])])
    loop_tree.config = {"observers": [seen["root"].append]}
    executed = yielded(turn("sync", loop_tree.loop()))
    assert tuple(seen["root"]) == executed.events
    assert seen["kid"] == [event for event in seen["root"] if event.path[:1] == ("one",)]
    assert seen["inner"] == [event for event in seen["root"] if event.path[:2] == ("one", "deep")]
    kinds = [type(event) for event in seen["inner"]]
    assert [kinds.count(each) for each in (RequestStarted, CallStarted, CallFinished, LoopFinished)] == [2, 1, 1, 1]


@either_kind
def test_a_filter_of_the_loop_above_sees_what_a_child_came_to(kind: str) -> None:
    """As it sees the results of its other tools; the filters of the child see those of its own."""
    loop_tree = LoopTree(kind, {"go": parallel("one"), "one": COUNTS}, [])
    loop_tree.tools = [kid([add], result_filters=[lambda _call, content: f"inside {content}"])]
    loop_tree.config = {"result_filters": [lambda call, content: f"{call.name} says: {content}"]}
    assert told(turn(kind, loop_tree.loop())) == ["kid says: it is 3"]
    assert b"inside 3" in loop_tree.bodies[-1]


@either_kind
def test_what_a_tool_spends_in_a_loop_of_its_own_counts_in_the_tree(kind: str) -> None:
    """A tool of a child drives a handle of its own."""

    @tool
    def ask(context: ToolContext) -> str:
        """Ask somebody else."""
        own = LoopTree("sync", {"go": [reply("own words")]}, [])
        handle = ToolLoopHandle(own, params=params(messages=[user("go")]), context=context)
        assert handle.depth == 2
        return str(completed(handle.run()).text)

    said = {"go": parallel("one"), "one": [reply(calls=[call("ask", {}, id="a")]), reply("asked")]}
    handle = LoopTree(kind, said, [kid([ask])]).loop()
    assert told(turn(kind, handle)) == ["asked"]
    assert [entry.path for entry in handle.usage_log] == [(), ("one",), ("one", "a"), ("one",)]
