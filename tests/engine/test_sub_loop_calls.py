"""Calls of loops inside calls: keys, failures, and trees that wake up elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tests.drivers.test_sub_loop_interrupts import COUNTS, STANDS, make_standing
from tests.kit import inside
from tests.kit.concurrency import DEADLINE, Background, Gate, either_kind, list_contents, run_async, turn, wait_for
from tests.kit.each import each
from tests.kit.loop_trees import Handle, ask_in_parallel, join, kid, task, tree_of
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import add, params, user
from tests.kit.world import assert_sound
from toolloop import (
    AsyncToolLoopHandle,
    ToolLoopHandle,
    Yielded,
    sub_loop,
    tool,
)
from toolloop._drivers.notifier import Notifier
from toolloop.errors import Conflict, Drift
from toolloop.events import CallWaiting
from toolloop.stores.memory import MemoryStore
from toolloop.testing import FakeMessagesAPI, call, reply

GATED = [reply(calls=[call("gate", {}, id="g")]), reply("went through")]


@tool(needs_approval=True)
def gate() -> str:
    """Pass a gate."""
    return "passed"


def go_on(turn: Yielded) -> None:
    """Approve what waits, and go on."""
    turn.approve_all()
    turn.continue_loop()


def test_what_is_under_way_ends_before_a_stop_condition_that_raised_comes_out() -> None:
    """The request of the other loop was paid for: its reply counts, and it is sent once."""
    bugs, out = [LookupError("a bug")], threading.Event()

    def stop_when(_view: Any) -> None:
        if bugs:
            raise bugs.pop()

    class Waiting(Notifier):
        """The driver that waits after the bug lets the request end."""

        def wait(self, seconds: float) -> bool:
            if not bugs:
                out.set()
            return super().wait(seconds)

    said = {"go": [reply(calls=[task("one"), task("two", "other")])], "one": [reply("1")], "two": [reply("2")]}
    loop_tree = tree_of("sync", said, [kid(stop_when=stop_when), kid(name="other")])
    loop_tree.on["two"] = lambda: out.wait(DEADLINE)
    handle = loop_tree.loop()
    assert isinstance(handle, ToolLoopHandle)
    inside.set_notifier(handle, Waiting())
    with pytest.raises(LookupError, match="a bug"):
        handle.next_turn()
    out.set()
    assert sorted(entry.path for entry in handle.usage_log) == [(), ("one",), ("two",)]
    assert list_contents(handle.next_turn()) == ["1", "2"]
    assert sorted(loop_tree.asked) == ["go", "one", "two"]


# --- what goes out ---------------------------------------------------------------------------------------------------


def wire(api: FakeMessagesAPI, tools: Sequence[Any], snapshot: Any = None) -> ToolLoopHandle:
    """A handle on a tree over real HTTP: a new one, or one that slept."""
    if snapshot is not None:
        return ToolLoopHandle.restore(snapshot, api.client(), tools=tools, on_drift="accept")
    return ToolLoopHandle(api.client(), params=params(messages=[user("go")]), tools=tools)


def test_a_loop_whose_history_needs_a_tool_that_is_gone_ends_before_the_api_refuses_it() -> None:
    """That history cannot be edited: the call says so, and the loop above goes on."""

    @tool
    def find() -> list[Any]:
        """Find a tool."""
        return [{"type": "tool_reference", "tool_name": "add"}]

    loop_tree = tree_of("sync", {"go": ask_in_parallel("one"), "one": [reply(calls=[call("find", {})]), *GATED]}, [])
    with FakeMessagesAPI(loop_tree.answer) as api:
        asleep = wire(api, [kid([find, gate, add])])
        expect_yielded(asleep.next_turn())
        awake = wire(api, [kid([find, gate])], asleep.snapshot())
        go_on(cast("Yielded", awake.pending_turn))
        executed = expect_yielded(awake.next_turn())
        (result,) = executed.results
        assert result is not None
        assert result.is_error
        assert "it refers to an unknown tool 'add'" in str(result.content)
        executed.continue_loop()
        assert expect_completed(awake.run()).text == "all done"
        assert api.refused == []


WRITES = [reply(calls=[call("write", {}, id="w")]), reply("wrote it")]


@tool(needs_approval=True)
def write() -> str:
    """Write."""
    return "written"


def approve(handle: Handle) -> None:
    """Approve what waits, and go on."""
    waiting = handle.pending_turn
    assert isinstance(waiting, Yielded)
    waiting.approve_all()
    waiting.continue_loop()


def note_headers(provider: Any, kind: str, headers: list[Any]) -> Any:
    """A provider that passes requests on, and notes their headers."""

    class Sync:
        def send(self, request: Any) -> Any:
            headers.append(request.options.get("extra_headers"))
            return provider.send(request)

    class Async:
        async def send(self, request: Any) -> Any:
            headers.append(request.options.get("extra_headers"))
            return await provider.send(request)

    return Sync() if kind == "sync" else Async()


@either_kind
def test_a_tree_wakes_up_elsewhere(kind: str) -> None:
    """What waits in a child waits there, and a params function is asked once more, for what is in no snapshot."""
    asked: list[Any] = []

    def secret(given: Any) -> Any:
        asked.append(given["prompt"])
        return params(messages=[user("inside")], extra_headers={"x-key": str(len(asked))})

    loop_tree = tree_of(
        kind, {"go": ask_in_parallel("one"), "inside": WRITES}, [sub_loop("kid", "d", params=secret, tools=[write])]
    )
    headers: list[Any] = []
    loop_tree.client = note_headers(loop_tree.provider(), kind, headers)
    handle = loop_tree.loop()
    expect_yielded(turn(kind, handle))
    awake = loop_tree.restore(handle.snapshot())
    assert asked == ["one"]
    approve(awake)
    assert list_contents(turn(kind, awake)) == ["wrote it"]
    assert asked == ["one", "one"]
    assert headers == [None, {"x-key": "1"}, {"x-key": "2"}]


@either_kind
def test_a_params_function_that_fails_after_a_sleep_is_an_error_that_can_be_retried(kind: str) -> None:
    """Nothing of what the child did is lost."""
    bugs = [None, LookupError("no key"), None]

    def secret(_given: Any) -> Any:
        if (bug := bugs.pop(0)) is not None:
            raise bug
        return params(messages=[user("inside")])

    loop_tree = tree_of(
        kind, {"go": ask_in_parallel("one"), "inside": WRITES}, [sub_loop("kid", "d", params=secret, tools=[write])]
    )
    handle = loop_tree.loop()
    expect_yielded(turn(kind, handle))
    awake = loop_tree.restore(handle.snapshot())
    approve(awake)
    error = expect_error(turn(kind, awake))
    assert "no key" in str(error.error)
    assert error.retryable
    awake.retry()
    assert list_contents(turn(kind, awake)) == ["wrote it"]


@either_kind
def test_a_driver_that_is_gone_leaves_a_stored_tree_that_goes_on(kind: str) -> None:
    """What ran in a child is uncertain there, what was asked is asked again, and the journal is sound."""
    gate, asked, seen = Gate(), Gate(), list[bool]()
    store = MemoryStore()
    loop_tree = tree_of(
        kind,
        {"go": ask_in_parallel("one", "two"), "one": STANDS, "two": COUNTS},
        [kid([make_standing(gate, seen), add])],
    )
    loop_tree.on["two"] = asked.stand
    made = ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle
    first = made(
        loop_tree.provider(), params=params(messages=[user("go")]), loop_id="loop", store=store, **loop_tree.parts()
    )
    driving = Background(lambda: turn(kind, first))
    wait_for(gate.arrived)
    wait_for(asked.arrived)
    loop_tree.on.clear()

    def open_stored() -> Handle:
        more: dict[str, Any] = {"params": params(messages=[user("go")]), "take_over": True, **loop_tree.parts()}
        if kind == "sync":
            return ToolLoopHandle.open(store, "loop", loop_tree.provider(), **more)

        async def main() -> AsyncToolLoopHandle:
            return await AsyncToolLoopHandle.open(store, "loop", loop_tree.provider(), **more)

        return run_async(kind, main)

    second = open_stored()
    waiting = expect_yielded(turn(kind, second))
    assert [(each.path, each.why) for each in waiting.pending] == [(("one", "s"), "uncertain")]
    waiting.answer(waiting.pending[0], "it went through, I saw it")
    waiting.continue_loop()
    assert list_contents(turn(kind, second)) == ["went on", "it is 3"]
    asked.opened.set()
    gate.opened.set()
    with pytest.raises(Conflict):
        driving.result()
    join()
    assert_sound(store)


@either_kind
@each("is_deep", [False, True])
def test_a_tree_whose_tool_is_gone_is_lost_with_its_call(kind: str, is_deep: bool) -> None:
    """Only who accepts it gets there; the caller says how it ended. The calls inside are lost with it."""
    said = {"go": ask_in_parallel("one"), "one": ask_in_parallel("two") if is_deep else WRITES, "two": WRITES}
    loop_tree = tree_of(kind, said, [kid([kid([write])] if is_deep else [write])])
    handle = loop_tree.loop()
    expect_yielded(turn(kind, handle))
    refused = loop_tree.restore(handle.snapshot(), tools=[])
    approve(refused)
    with pytest.raises(Drift, match="tool 'kid' is missing"):
        turn(kind, refused)
    awake = loop_tree.restore(handle.snapshot(), tools=[], on_drift="accept")
    approve(awake)
    lost = expect_yielded(turn(kind, awake))
    assert [(each.path, each.why) for each in lost.pending] == [(("one",), "uncertain")]
    assert [(*each.path, each.call_id) for each in lost.events if isinstance(each, CallWaiting)] == [("one",)]
    lost.answer("one", "I did it myself")
    lost.continue_loop()
    executed = expect_yielded(turn(kind, awake))
    assert list_contents(executed) == ["I did it myself"]
    executed.continue_loop()
    assert expect_completed(turn(kind, awake)).text == "all done"
