"""A tree of loops is driven as one: side by side, to any depth, by both handles; and each goes its own way."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from tests.handle.concurrency import DEADLINE, cross, each_kind, on_both_backends, told, turn
from tests.handle.family import Family, join, kid, parallel, task
from tests.handle.support import add, broken, completed, failed, params, user, yielded
from toolloop import Approve, Budget, ToolContext, ToolLoopHandle, sub_loop, tool
from toolloop.errors import ModelError
from toolloop.events import CallFinished, CallStarted, LoopFinished, RequestStarted
from toolloop.terminations import BudgetExceeded
from toolloop.testing import call, reply

ADD = call("add", {"a": 1, "b": 2}, id="sum")
COUNTS = [reply(calls=[ADD]), reply("it is 3")]


@each_kind
def test_a_loop_inside_a_call_answers_it_with_its_last_text(kind: str) -> None:
    """It has its own messages and tools; what it used counts in the tree, with the path."""
    family = Family(kind, {"go": parallel("one"), "one": COUNTS}, [kid([add])])
    handle = family.loop()
    executed = yielded(turn(kind, handle))
    assert told(executed) == ["it is 3"]
    assert family.asked == ["go", "one", "one"]
    assert [(entry.path, entry.iteration) for entry in handle.usage_log] == [((), 1), (("one",), 1), (("one",), 2)]
    executed.continue_loop()
    assert completed(turn(kind, handle)).text == "all done"
    assert handle.iterations == 2
    assert handle.total_usage.output_tokens == 4 * 5


@each_kind
def test_children_make_their_requests_at_once(kind: str) -> None:
    """Each waits for the others before it is answered."""
    barrier = threading.Barrier(3)
    names = ("one", "two", "three")
    family = Family(kind, {"go": parallel(*names), **{name: [reply(f"from {name}")] for name in names}}, [kid()])
    family.on = dict.fromkeys(names, lambda: cross(barrier))
    assert told(turn(kind, family.loop())) == ["from one", "from two", "from three"]


@each_kind
@pytest.mark.parametrize("is_async", [False, True])
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
    handle = Family(kind, said, [kid([meet]), meet]).loop()
    assert told(turn(kind, handle)) == ["one met", "root", "two met"]


@each_kind
def test_a_tree_is_as_deep_as_its_limit_and_no_deeper(kind: str) -> None:
    """The call of the loop that is too deep gets an error, and the others go on."""
    deeper = [lambda: reply(calls=[task("deeper")]), reply("back")]
    said: dict[str, Any] = {"go": [reply(calls=[task("deeper")]), reply("done")], "deeper": deeper}
    inner = kid(name="kid")
    for _ in range(3):
        inner = kid([inner])
    family = Family(kind, said, [inner])
    handle = family.loop()
    assert told(turn(kind, handle)) == ["back"]
    paths = [entry.path for entry in handle.usage_log]
    assert paths == [(), ("deeper",), ("deeper",) * 2, ("deeper",) * 2, ("deeper",)]
    assert b"nested too deep" in family.bodies[3]


@each_kind
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
    family = Family(kind, said, [kid([write])])
    handle = family.loop()
    waiting = yielded(turn(kind, handle))
    assert [each.path for each in waiting.pending] == [("one", "w"), ("two", "w")]
    assert [slot and slot.content for slot in waiting.results] == [None, None, "nothing to write"]
    waiting.deny(waiting.pending[1], "no")
    handle.decide({"one/w": Approve()})
    waiting.continue_loop()
    assert told(turn(kind, handle)) == ["one is done", "two is done", "nothing to write"]
    assert ran == [("one", 2, 1)]


# --- failures --------------------------------------------------------------------------------------------------------


@each_kind
def test_a_request_of_a_child_that_may_be_made_again_fails_the_turn(kind: str) -> None:
    """The error is the very one that was raised; what the others did stands, and `retry` goes on in the child."""
    answers: list[Any] = [ModelError("overloaded", retryable=True, retry_after=2.0), reply("at last")]
    error = answers[0]
    said = {"go": parallel("one", "two"), "one": [lambda: answers.pop(0)], "two": COUNTS}
    family = Family(kind, said, [kid([add])])
    handle = family.loop()
    error_result = failed(turn(kind, handle))
    assert error_result.error is error
    assert (error_result.retryable, error_result.retry_after, error_result.iterations) == (True, 2.0, 1)
    assert family.asked.count("two") == 2
    handle.retry()
    assert told(turn(kind, handle)) == ["at last", "it is 3"]
    assert family.asked.count("two") == 2


@each_kind
def test_a_request_of_a_child_that_cannot_be_mended_is_an_error_of_its_call(kind: str) -> None:
    """The model above is told, and goes on."""
    said = {"go": parallel("one"), "one": [ModelError("no such model")]}
    handle = Family(kind, said, [kid()]).loop()
    executed = yielded(turn(kind, handle))
    (result,) = executed.results
    assert result is not None
    assert result.is_error
    assert "no such model" in str(result.content)
    executed.continue_loop()
    assert completed(turn(kind, handle)).text == "all done"


@each_kind
def test_what_keeps_a_child_from_beginning_is_the_result_of_its_call(kind: str) -> None:
    """A params function that raises, or gives something the API would refuse."""

    def bad(given: Any) -> Any:
        raise LookupError(f"no model for {given['prompt']}")

    tools = [sub_loop("kid", "d", params=bad), sub_loop("odd", "d", params=lambda _: params(messages=[]))]
    said = {"go": [reply(calls=[task("one"), task("two", "odd")]), reply("fine")]}
    executed = yielded(turn(kind, Family(kind, said, tools).loop()))
    one, two = executed.results
    assert one is not None
    assert (one.is_error, one.content) == (True, "LookupError: no model for one")
    assert two is not None
    assert two.is_error
    assert "InvalidHistory" in str(two.content)


@each_kind
def test_a_tool_that_fails_inside_is_told_inside(kind: str) -> None:
    """The child's model sees it, and answers."""
    said = {"go": parallel("one"), "one": [reply(calls=[call("broken", {}, id="b")]), reply("it failed")]}
    family = Family(kind, said, [kid([broken])])
    assert told(turn(kind, family.loop())) == ["it failed"]
    assert b"the disk is gone" in family.bodies[-1]


@each_kind
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
    family = Family(kind, said, [kid([add], stop_when=stop_when), kid([add], name="other")])
    family.on["one"] = family.on["two"] = meet
    handle = family.loop()
    with pytest.raises(LookupError, match="a bug"):
        turn(kind, handle)
    assert told(turn(kind, handle)) == ["it is 3", "it is 3"]


# --- limits ----------------------------------------------------------------------------------------------------------


@each_kind
def test_a_limit_of_a_child_is_its_own(kind: str) -> None:
    """It ends the child, whose call says so; the loop above goes on."""
    said = {"go": parallel("one"), "one": [reply("let me see", calls=[ADD])]}
    handle = Family(kind, said, [kid([add], max_iterations=2)]).loop()
    executed = yielded(turn(kind, handle))
    assert [result and result.is_error for result in executed.results] == [True]
    assert "max iterations" in told(executed)[0]


@each_kind
def test_a_budget_that_ends_in_a_child_is_extended_in_the_child(kind: str) -> None:
    """The outermost loop ends with its own termination; `extend` goes on inside, and nothing is done twice."""
    family = Family(kind, {"go": parallel("one", "two"), "one": COUNTS, "two": COUNTS}, [kid([add])])
    family.config = {"budget": Budget(requests=4)}
    handle = family.loop()
    assert completed(turn(kind, handle)).termination == BudgetExceeded("requests", 4, 4)
    assert len(family.asked) == 4
    handle.extend(budget=Budget(requests=10))
    assert told(turn(kind, handle)) == ["it is 3", "it is 3"]
    assert sorted(family.asked) == ["go", *["one"] * 2, *["two"] * 2]


@each_kind
def test_the_time_of_a_child_is_its_own(kind: str) -> None:
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
    family = Family(kind, said, [kid([stand], name="brief", timeout=0.05), kid([add])])
    family.on["asks"] = lambda: gate.wait(DEADLINE)
    texts = told(turn(kind, family.loop()))
    assert ["timeout" in text for text in texts] == [True, True, False]
    assert texts[2] == "it is 3"
    gate.set()
    join()


@on_both_backends
def test_an_async_tool_of_a_child_that_is_out_of_time_is_cancelled_alone(backend: str) -> None:
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
    executed = yielded(turn(backend, Family(backend, said, [kid([stand], name="brief", timeout=0.05), wait]).loop()))
    assert told(executed)[1] == "waited"
    assert seen == ["cancelled"]


# --- who watches -----------------------------------------------------------------------------------------------------


@each_kind
def test_observers_are_told_of_their_own_loop_and_of_those_inside(kind: str) -> None:
    """Those of the outermost loop hear of all."""
    seen: dict[str, list[Any]] = {"root": [], "kid": [], "inner": []}
    inner = kid([add], name="inner", observers=[seen["inner"].append])
    said = {
        "go": parallel("one"),
        "one": [reply(calls=[task("deep", "inner")]), reply("fine")],
        "deep": COUNTS,
    }
    family = Family(kind, said, [kid([inner], observers=[seen["kid"].append])])
    family.config = {"observers": [seen["root"].append]}
    executed = yielded(turn(kind, family.loop()))
    assert tuple(seen["root"]) == executed.events
    assert seen["kid"] == [event for event in seen["root"] if event.path[:1] == ("one",)]
    assert seen["inner"] == [event for event in seen["root"] if event.path[:2] == ("one", "deep")]
    kinds = [type(event) for event in seen["inner"]]
    assert [kinds.count(each) for each in (RequestStarted, CallStarted, CallFinished, LoopFinished)] == [2, 1, 1, 1]


@each_kind
def test_a_filter_of_the_loop_above_sees_what_a_child_came_to(kind: str) -> None:
    """As it sees the results of its other tools; the filters of the child see those of its own."""
    family = Family(kind, {"go": parallel("one"), "one": COUNTS}, [])
    family.tools = [kid([add], result_filters=[lambda _call, content: f"inside {content}"])]
    family.config = {"result_filters": [lambda call, content: f"{call.name} says: {content}"]}
    assert told(turn(kind, family.loop())) == ["kid says: it is 3"]
    assert b"inside 3" in family.bodies[-1]


@each_kind
def test_what_a_tool_spends_in_a_loop_of_its_own_counts_in_the_tree(kind: str) -> None:
    """A tool of a child drives a handle of its own."""

    @tool
    def ask(context: ToolContext) -> str:
        """Ask somebody else."""
        own = Family("sync", {"go": [reply("own words")]}, [])
        handle = ToolLoopHandle(own, params=params(messages=[user("go")]), context=context)
        assert handle.depth == 2
        return str(completed(handle.run()).text)

    said = {"go": parallel("one"), "one": [reply(calls=[call("ask", {}, id="a")]), reply("asked")]}
    handle = Family(kind, said, [kid([ask])]).loop()
    assert told(turn(kind, handle)) == ["asked"]
    assert [entry.path for entry in handle.usage_log] == [(), ("one",), ("one", "a"), ("one",)]
