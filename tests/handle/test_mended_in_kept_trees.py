"""What went wrong once in loops inside calls that are kept: in a store, in a snapshot, among other tools."""

from __future__ import annotations

import inspect
import itertools
import json
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, cast

import pytest

from tests.handle.concurrency import awaited, each_kind, told, turn
from tests.handle.family import Family, bare, kid, parallel, task
from tests.handle.stepping import assert_sound
from tests.handle.support import HUNDRED, add, completed, params, yielded
from tests.handle.test_cancel_interrupts import ask
from tests.handle.test_mended_in_trees import GATED, TWICE, gate, go_on, run
from toolloop import (
    Approve,
    Ask,
    IterationUsage,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    sub_loop,
    tool,
)
from toolloop.core import events as ev
from toolloop.core.tree import loop_at
from toolloop.core.values import Result
from toolloop.errors import DecisionConflict, Drift
from toolloop.events import CallDecided, CallFinished, LoopFinished
from toolloop.handle.staged import id_of
from toolloop.handle.storing import StoringRecorder
from toolloop.stores.events import read_journal
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Entry, Head, Lease
from toolloop.testing import ScriptedProvider, call, reply


def names(store: MemoryStore) -> list[tuple[str, str]]:
    """The stored events: id and name."""
    return [(entry.id, json.loads(entry.body)["event"]) for entry in store.load("loop").entries]


@each_kind
def test_what_a_tool_spends_is_stored_while_it_still_runs(kind: str) -> None:
    """A process that dies meanwhile has not lost it."""
    stored, seen = threading.Event(), list[int]()

    class Store(MemoryStore):
        def append(
            self,
            loop_id: str,
            entries: Sequence[Entry],
            *,
            expected_rev: int | None,
            head: Head | None = None,
            lease: Lease | None = None,
        ) -> int:
            rev = super().append(loop_id, entries, expected_rev=expected_rev, head=head, lease=lease)
            if any('"event":"Spent"' in entry.body for entry in entries):
                stored.set()
            return rev

    @tool
    def ask(context: ToolContext) -> str:
        """Ask somebody else."""
        provider = ScriptedProvider([reply("own words", usage=HUNDRED)])
        completed(ToolLoopHandle(provider, params=params(), context=context).run())
        awaited(stored)
        state = read_journal([entry.body for entry in store.load("loop").entries])
        seen.append(state.ledger.total_usage.input_tokens - 10)
        return "asked"

    store = Store()
    said = {"go": [reply(calls=[call("ask", {}, id="a")]), reply("done")]}
    assert told(turn(kind, Family(kind, said, [ask]).loop(store=store))) == ["asked"]
    assert seen == [100]


def test_what_was_spent_elsewhere_leaves_a_turn_as_it_is() -> None:
    """No command was given; the calls that wait are decided through it as before."""
    store = MemoryStore()
    family = Family("sync", {"go": GATED}, [gate])
    first = family.loop(store=store)
    yielded(turn("sync", first))
    second = ToolLoopHandle.open(store, "loop", family.provider(), **family.parts())
    waiting = second.pending_turn
    assert isinstance(waiting, Yielded)
    first._record(ev.Spent("left behind", IterationUsage(1), at=1.0))
    assert isinstance(first, ToolLoopHandle)
    first.flush()
    second.flush()
    assert len(second.usage_log) == 2
    assert second.pending_turn is waiting
    go_on(waiting)
    assert told(second.next_turn()) == ["passed"]


@each_kind
def test_a_stored_tree_whose_ids_come_again_is_stored_like_any_other(kind: str) -> None:
    """Each end has an id of its own, and nothing waits to be stored in the end."""
    store = MemoryStore()
    said = {"go": TWICE, "one": [reply(calls=[call("add", {"a": 1, "b": 2}, id="c1")]), reply("it is 3")]}
    handle = Family(kind, said, [kid([add])]).loop(store=store)
    run(kind, handle)
    ends = [entry_id for entry_id, name in names(store) if name == "Ended"]
    assert len(ends) == len(set(ends)) == 4
    assert read_journal([entry.body for entry in store.load("loop").entries]) == handle.state
    assert store.lease("loop") is None
    assert_sound(store)


def test_the_id_of_an_end_says_which_run_of_which_call_was_above_it() -> None:
    """A second loop in the same call, too; an end that is in no other call has the id that it has ever had."""
    runs = [((1, 1),), ((1, 2),), ((2, 1),)]
    ended = [ev.Ended("c", Result('"x"'), iteration=1, attempt=1, above=above, path=("k",)) for above in runs]
    assert len({id_of(each, "fact") for each in ended}) == 3
    assert id_of(ev.Ended("c", Result('"x"'), iteration=1, attempt=1), "fact") == "end--uHjsb-5DN"


@each_kind
def test_a_decision_on_what_a_lost_loop_asked_is_none_on_what_the_next_one_asks(kind: str) -> None:
    """The same call of the same loop tool, run a second time: whoever decided about the first has not seen this."""
    family = Family(kind, {"go": parallel("one"), "one": GATED}, [kid([gate])])
    handle = family.loop()
    first = yielded(turn(kind, handle))
    shown = first.pending[0]
    first.approve(shown)
    lost = family.restored(handle.snapshot(), tools=[], on_drift="accept")
    go_on(cast("Yielded", lost.pending_turn))
    uncertain = yielded(turn(kind, lost))
    uncertain.rerun(uncertain.pending[0])
    again = family.restored(lost.snapshot(), on_drift="accept")
    cast("Yielded", again.pending_turn).continue_loop()
    asks = yielded(turn(kind, again))
    assert [each.path for each in asks.pending] == [shown.path]
    with pytest.raises(DecisionConflict, match="'one/g' was made for another call"):
        asks.approve(shown)


@each_kind
def test_what_a_loop_came_to_is_taken_although_its_tool_is_gone(kind: str) -> None:
    """It is known by then: only the call's result was not recorded yet."""
    snapshots: list[Any] = []

    def watch(event: Any) -> None:
        if isinstance(event, LoopFinished) and event.path:
            snapshots.append(handle.snapshot())

    family = Family(kind, {"go": parallel("one"), "one": [reply("said")]}, [kid()], config={"observers": [watch]})
    handle = family.loop()
    turn(kind, handle)
    awake = family.restored(snapshots[0], tools=[add], on_drift="accept")
    assert told(turn(kind, awake)) == ["said"]
    assert family.asked == ["go", "one"]


@each_kind
def test_observers_inside_hear_of_what_is_said_before_the_loop_is_driven_again(kind: str) -> None:
    """Those of a loop that woke up elsewhere, too."""
    seen: list[Any] = []
    family = Family(kind, {"go": parallel("one"), "one": GATED}, [kid([gate], observers=[seen.append])])
    handle = family.loop()
    turn(kind, handle)
    seen.clear()
    family.restored(handle.snapshot()).decide({"g": Approve()})
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
    family = Family("sync", {"go": parallel("one"), "one": GATED}, [kid([gate])])
    handle = family.loop()
    turn("sync", handle)
    with pytest.raises(Drift) as caught:
        family.restored(handle.snapshot(), tools=[now])
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
    family = Family("sync", said, [inner], config={"max_depth": None, "observers": [watch]})
    handle = family.loop()
    assert isinstance(handle, ToolLoopHandle)
    handle.run()
    assert max(len(entry.path) for entry in handle.usage_log) == 31
    told_so = [body for body in family.bodies if b"nested too deep: 32, and 32 is the limit" in body]
    assert len(told_so) == 1
    awake = family.restored(snapshots[0])
    assert loop_at(awake.state, ("one",) * 31) is not None
    run("sync", awake)


@each_kind
def test_a_journal_says_nothing_of_a_judgement_that_lets_a_loop_begin(kind: str) -> None:
    """As of one that lets another tool run; it folds to the same."""
    store = MemoryStore()
    said = {"go": parallel("one", "two"), "one": [reply("1")], "two": [reply("2")]}
    handle = Family(kind, said, [kid()]).loop(store=store)
    assert told(turn(kind, handle)) == ["1", "2"]
    stored = [name for _, name in names(store)]
    assert (stored.count("Opened"), stored.count("Judged")) == (3, 0)
    assert read_journal([entry.body for entry in store.load("loop").entries]) == handle.state


# Where a Ctrl-C may strike: not at a `with`, for none is handled between the end of its block and the lock's release.
STORES = StoringRecorder._store
SOURCE, FIRST = inspect.getsourcelines(STORES)
PLACES = {FIRST + at for at, line in enumerate(SOURCE) if not line.strip().startswith("with ")}


class Strike:
    """Raises KeyboardInterrupt at the n-th line of what stores, and takes note of it."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self.line if frame.f_code is STORES.__code__ else None

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_lineno in PLACES:
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self.line


def test_a_ctrl_c_in_the_bookkeeping_of_a_store_leaves_a_loop_that_goes_on() -> None:
    """Wherever it strikes: nothing is stored twice, nothing is lost, and the lease is given back."""
    for at in itertools.count(1):
        strike, store = Strike(at), MemoryStore()
        said = {"go": [reply(calls=[call("add", {"a": 1, "b": 2})]), reply("all done")]}
        handle = Family("sync", said, [add]).loop(store=store)
        assert isinstance(handle, ToolLoopHandle)
        before = sys.gettrace()
        sys.settrace(strike.enter)
        try:
            handle.run()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert completed(handle.run(ask)).text == "all done", f"line {at}"
        assert store.lease("loop") is None
        assert_sound(store)
        if strike.count < at:
            break
    assert at > 50
