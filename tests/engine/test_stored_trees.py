"""Loops inside calls in a store or a snapshot: ends, ids, usage, and drift."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Any

import pytest

from tests.engine.test_sub_loop_calls import gate
from tests.kit.concurrency import DEADLINE, either_kind, list_contents, run_async, turn
from tests.kit.each import each
from tests.kit.failing import FailingStore, Moment, moment_of_append
from tests.kit.loop_trees import ask_in_parallel, join, kid, make_bare, tree_of
from tests.kit.support import expect_completed
from tests.kit.tools import add
from toolloop import Approve, AsyncToolLoopHandle, LoopConfig, ToolCall, ToolLoopHandle, sub_loop, tool
from toolloop.errors import Drift, StoreError
from toolloop.events import DriftAdopted
from toolloop.stores.codec import decode_event, read_journal
from toolloop.stores.memory import MemoryStore
from toolloop.testing import call, reply
from toolloop.testing.promises import check_promises


@either_kind
def test_what_a_loop_came_to_is_taken_although_its_tool_is_gone(kind: str) -> None:
    """It is known by then: only the call's result was not recorded yet."""
    snapshots: list[Any] = []

    def look(_call: ToolCall, _content: Any) -> None:
        snapshots.append(handle.snapshot())

    config = {"result_filters": [look]}
    loop_tree = tree_of(kind, {"go": ask_in_parallel("one"), "one": [reply("said")]}, [kid()], config=config)
    handle = loop_tree.loop()
    turn(kind, handle)
    awake = loop_tree.restore(snapshots[0], tools=[add], on_drift="accept")
    assert list_contents(turn(kind, awake)) == ["said"]
    assert loop_tree.asked == ["go", "one"]


@tool(name="gate", needs_approval=True)
def other_gate(door: int) -> str:
    """Open a door."""
    return str(door)


@tool(name="kid")
def no_loop(prompt: Annotated[str, "The task, with everything that is needed for it."]) -> str:
    """Do a part of it."""
    return prompt


# Tools in place of the one whose loop waits for an approval; what changed, and whether that is adopted.
CHANGED: list[tuple[Any, tuple[str, ...], bool]] = [
    (kid([gate, add]), ("tool 'kid/add' is new",), True),
    (kid([gate], stop_when=lambda _: None), ("config.stop_when of tool 'kid' is new",), True),
    (sub_loop("kid", "Do it.", params=make_bare(), tools=[gate]), ("the definition of tool 'kid' changed",), True),
    (
        sub_loop("kid", "Do a part of it.", params=make_bare(system="New."), tools=[gate]),
        ("the parameters of tool 'kid' changed",),
        True,
    ),
    (kid([]), ("tool 'kid/gate' is missing",), False),
    (kid([other_gate]), ("the schema of tool 'kid/gate' changed",), False),
    (
        kid([tool(gate.function, name="gate")]),
        ("the approval of tool 'kid/gate' changed from always to never",),
        False,
    ),
    (
        no_loop,
        ("the nested loop of tool 'kid' is missing",),
        False,
    ),
]


@each(("now", "changes", "is_adopted"), CHANGED)
def test_a_loop_inside_a_call_is_compared_too(now: Any, changes: tuple[str, ...], is_adopted: bool) -> None:
    """With the tool that began it, before anything is recorded."""
    said = {"go": ask_in_parallel("one"), "one": [reply(calls=[call("gate", id="g")]), reply("back")]}
    loop_tree = tree_of("sync", said, [kid([gate])])
    handle = loop_tree.loop()
    turn("sync", handle)
    snapshot = handle.snapshot()
    for on_drift in ("strict", "raise"):
        seen: list[Any] = []
        config = LoopConfig(observers=[seen.append])
        awake = ToolLoopHandle.restore(snapshot, loop_tree.provider(), tools=[now], config=config, on_drift=on_drift)
        assert [each.path for each in awake.pending] == [("one", "g")]
        awake.decide({"g": Approve()})
        before = awake.snapshot()
        if is_adopted and on_drift == "raise":
            assert awake.run().unwrap().text == "all done"
            adopted = {event.path: event.changes for event in seen if isinstance(event, DriftAdopted)}
            assert adopted.pop(()) == changes
            assert adopted in ({}, {("one",): (changes[0].replace("kid/", "").replace(" of tool 'kid'", ""),)})
            continue
        with pytest.raises(Drift) as caught:
            awake.run()
        assert (caught.value.changes, awake.snapshot()) == (changes, before)
        assert not any(isinstance(event, DriftAdopted) for event in seen)


@each(("approval", "is_weaker"), [(True, False), (False, True)])
def test_an_accepted_change_inside_a_call_begins_the_count_of_its_calls_again(approval: bool, is_weaker: bool) -> None:
    """The approval was for the gate of before. A stricter gate is not a reason to ask again."""
    said = {"go": ask_in_parallel("one"), "one": [reply(calls=[call("gate", id="g")]), reply("back")]}
    loop_tree = tree_of("sync", said, [kid([tool(gate.function, name="gate", needs_approval=lambda _: True)])])
    handle = loop_tree.loop()
    turn("sync", handle)
    handle.decide({"g": Approve(by="ana")})
    now = kid([tool(gate.function, name="gate", needs_approval=approval)])
    awake = ToolLoopHandle.restore(handle.snapshot(), loop_tree.provider(), tools=[now], on_drift="accept")
    turned = awake.run()
    if is_weaker:
        assert [(each.path, each.approvals, each.decision) for each in turned.pending] == [(("one", "g"), (), None)]
        awake.decide({"g": Approve(by="bo")})
        turned = awake.run()
    assert turned.unwrap().text == "all done"


SAID = {"go": ask_in_parallel("one", "two"), "one": [reply("back")], "two": [reply("back too")]}


def run_to_the_end(handle: ToolLoopHandle | AsyncToolLoopHandle, kind: str) -> Any:
    """Drive on, whatever the store does once."""

    def once() -> Any:
        return handle.run() if isinstance(handle, ToolLoopHandle) else run_async(kind, handle.run)

    try:
        return once()
    except StoreError:
        return once()


@either_kind
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_tree_outlives_a_store_that_fails_once_anywhere(kind: str, moment: Moment) -> None:
    """What a call with a loop inside came to is said again, if that was not stored; and so is what began nothing."""
    for number in range(1, 30):
        asked: list[str] = []

        def params_of(given: dict[str, Any], asked: list[str] = asked) -> dict[str, Any]:
            asked.append(str(given["prompt"]))
            if given["prompt"] == "two":
                raise RuntimeError("there are no parameters")
            return make_bare()

        store = FailingStore(MemoryStore(), error=lambda: OSError("the disk is full"))
        store.fails = moment_of_append(store, number, moment)
        loop_tree = tree_of(kind, SAID, [sub_loop("kid", "Do a part of it.", params=params_of)])
        done = expect_completed(run_to_the_end(loop_tree.loop(store=store), kind))
        assert done.text == "all done"
        assert "two" in asked
        found = check_promises(store.inner.load("loop").entries)
        assert found.broken == (), number
        if store.asked.count("append") < number:
            return
    pytest.fail("the story never ends")


def test_what_follows_by_itself_is_stored_without_a_time() -> None:
    """The active seconds are still counted: with the next event that tells something, and in its own loop."""
    policy = 0.03
    began = time.monotonic()
    said = {"go": ask_in_parallel("one"), "one": [reply(calls=[call("add", {"a": 1, "b": 2}, id="c")]), reply("said")]}
    handle = tree_of(
        "sync", said, [kid([add])], config={"on_tool_call": lambda *_: threading.Event().wait(policy) or None}
    ).loop(store=(store := MemoryStore()), clock=lambda: 5.0)
    assert expect_completed(handle.run()).text == "all done"
    entries = store.load("loop").entries
    events = [decode_event(entry) for entry in entries]
    assert {type(event).__name__ for event in events if event.at} == {"Opened", "Replied", "Ended"}
    assert all(event.seconds == 0 for event in events if not event.at)
    assert next(event for event in events if event.path).seconds >= policy  # which passed before that loop began
    root = read_journal(entries).root
    assert root.active == pytest.approx(sum(event.seconds for event in events))
    assert policy <= root.active <= time.monotonic() - began
    assert sum(each.seconds for each in root.usage_log) + policy <= time.monotonic() - began


def test_a_tool_that_is_left_behind_keeps_no_lease() -> None:
    """Its own time was up, and its loop and the one above it went on without it to their ends."""
    gate = threading.Event()

    @tool(timeout=0.05)
    def hang() -> None:
        """Hang."""
        gate.wait(DEADLINE)

    said = {"go": ask_in_parallel("one"), "one": [reply(calls=[call("hang", {}, id="h")]), reply("gave up")]}
    store = MemoryStore()
    try:
        handle = tree_of("sync", said, [kid([hang])]).loop(store=store)
        assert expect_completed(run_to_the_end(handle, "sync")).text == "all done"
        assert store.head("loop").lease is None
    finally:
        gate.set()
        join()
    assert check_promises(store.load("loop").entries).broken == ()
