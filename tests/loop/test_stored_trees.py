"""Loops inside calls in a store or a snapshot: ids, usage, drift, and interrupts while storing."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tests.loop.concurrency import either_kind, told, turn
from tests.loop.loop_trees import LoopTree, bare, kid, parallel, task
from tests.loop.stepping import assert_sound
from tests.loop.support import HUNDRED, add, completed, params, yielded
from tests.loop.test_sub_loop_calls import GATED, TWICE, gate, go_on, run
from toolloop import (
    Approve,
    Ask,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    sub_loop,
    tool,
)
from toolloop.errors import DecisionConflict, Drift
from toolloop.events import CallDecided, CallFinished, LoopFinished
from toolloop.stores.codec import read_journal
from toolloop.stores.memory import MemoryStore
from toolloop.testing import ScriptedProvider, call, reply


def names(store: MemoryStore) -> list[tuple[str, str]]:
    """The stored events: id and name."""
    return [(entry.id, json.loads(entry.body)["event"]) for entry in store.load("loop").entries]


@either_kind
def test_usage_of_a_loop_in_a_tool_counts_when_the_call_ends(kind: str) -> None:
    """Not before: the call and its usage are stored together."""
    seen = list[int]()

    @tool
    def ask(context: ToolContext) -> str:
        """Ask somebody else."""
        provider = ScriptedProvider([reply("own words", usage=HUNDRED)])
        completed(ToolLoopHandle(provider, params=params(), context=context).run())
        seen.append(handle.total_usage.input_tokens)
        return "asked"

    said = {"go": [reply(calls=[call("ask", {}, id="a")]), reply("done")]}
    store = MemoryStore()
    handle = LoopTree(kind, said, [ask]).loop(store=store)
    assert told(turn(kind, handle)) == ["asked"]
    assert seen == [10]
    assert handle.total_usage.input_tokens == 110
    assert read_journal(store.load("loop").entries) == handle.state


def test_a_stored_tree_whose_ids_come_again_is_stored_like_any_other() -> None:
    """Each end has an id of its own, and nothing waits to be stored in the end."""
    store = MemoryStore()
    said = {"go": TWICE, "one": [reply(calls=[call("add", {"a": 1, "b": 2}, id="c1")]), reply("it is 3")]}
    handle = LoopTree("sync", said, [kid([add])]).loop(store=store)
    run("sync", handle)
    ends = [entry_id for entry_id, name in names(store) if name == "Ended"]
    assert len(ends) == len(set(ends)) == 4
    assert read_journal(store.load("loop").entries) == handle.state
    assert store.lease("loop") is None
    assert_sound(store)


@either_kind
def test_a_decision_on_what_a_lost_loop_asked_is_none_on_what_the_next_one_asks(kind: str) -> None:
    """The same call of the same loop tool, run a second time: whoever decided about the first has not seen this."""
    loop_tree = LoopTree(kind, {"go": parallel("one"), "one": GATED}, [kid([gate])])
    handle = loop_tree.loop()
    first = yielded(turn(kind, handle))
    shown = first.pending[0]
    first.approve(shown)
    lost = loop_tree.restored(handle.snapshot(), tools=[], on_drift="accept")
    go_on(cast("Yielded", lost.pending_turn))
    uncertain = yielded(turn(kind, lost))
    uncertain.rerun(uncertain.pending[0])
    again = loop_tree.restored(lost.snapshot(), on_drift="accept")
    cast("Yielded", again.pending_turn).continue_loop()
    asks = yielded(turn(kind, again))
    assert [each.path for each in asks.pending] == [shown.path]
    with pytest.raises(DecisionConflict, match="'one/g' was made for the call as it was"):
        asks.approve(shown)


@either_kind
def test_what_a_loop_came_to_is_taken_although_its_tool_is_gone(kind: str) -> None:
    """It is known by then: only the call's result was not recorded yet."""
    snapshots: list[Any] = []

    def watch(event: Any) -> None:
        if isinstance(event, LoopFinished) and event.path:
            snapshots.append(handle.snapshot())

    loop_tree = LoopTree(kind, {"go": parallel("one"), "one": [reply("said")]}, [kid()], config={"observers": [watch]})
    handle = loop_tree.loop()
    turn(kind, handle)
    awake = loop_tree.restored(snapshots[0], tools=[add], on_drift="accept")
    assert told(turn(kind, awake)) == ["said"]
    assert loop_tree.asked == ["go", "one"]


def test_observers_inside_hear_of_what_is_said_before_the_loop_is_driven_again() -> None:
    """Those of a loop that woke up elsewhere, too."""
    seen: list[Any] = []
    loop_tree = LoopTree("sync", {"go": parallel("one"), "one": GATED}, [kid([gate], observers=[seen.append])])
    handle = loop_tree.loop()
    handle.next_turn()
    seen.clear()
    loop_tree.restored(handle.snapshot()).decide({"g": Approve()})
    assert [(type(event), event.path) for event in seen] == [(CallDecided, ("one",))]


@pytest.mark.parametrize(
    ("part", "now"),
    [
        ("inner tools", kid([add])),
        ("callables", kid([gate], on_tool_call=lambda _call, _view: Ask())),
        ("parameters", sub_loop("kid", "Do a part of it.", params=bare(system="New."), tools=[gate])),
        ("definition", sub_loop("kid", "Do another part.", params=bare(), tools=[gate])),
    ],
)
def test_drift_says_which_part_of_a_loop_tool_changed(part: str, now: Any) -> None:
    """And nothing else: the caller is to know what to look at."""
    loop_tree = LoopTree("sync", {"go": parallel("one"), "one": GATED}, [kid([gate])])
    handle = loop_tree.loop()
    turn("sync", handle)
    with pytest.raises(Drift) as caught:
        loop_tree.restored(handle.snapshot(), tools=[now])
    assert caught.value.changes == (f"the {part} of the tool 'kid' changed",)


def test_thirty_two_loops_are_inside_each_other_and_no_more() -> None:
    """Where nothing else says so: a snapshot of the deepest is read again, and the model is told the truth."""
    inner = kid(max_depth=None)
    for _ in range(33):
        inner = kid([inner], max_depth=None)
    snapshots: list[Any] = []

    def watch(event: Any) -> None:
        if isinstance(event, CallFinished) and not snapshots:
            snapshots.append(json.loads(json.dumps(handle.snapshot())))

    said = {"go": parallel("one"), "one": [reply(calls=[task("one")]), reply("back")]}
    loop_tree = LoopTree("sync", said, [inner], config={"max_depth": None, "observers": [watch]})
    handle = loop_tree.loop()
    assert isinstance(handle, ToolLoopHandle)
    handle.run()
    assert max(len(entry.path) for entry in handle.usage_log) == 31
    told_so = [body for body in loop_tree.bodies if b"nested too deep: 32, and 32 is the limit" in body]
    assert len(told_so) == 1
    awake = loop_tree.restored(snapshots[0])
    assert awake.state.at(("one",) * 31) is not None
    run("sync", awake)
