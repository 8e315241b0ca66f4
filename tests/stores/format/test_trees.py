"""A tree of loops in one snapshot, in one journal, and in a store."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.machine import making as m
from tests.kit.machine.worlds import World
from tests.recorded.nested_stories import FAILED, LIMITED, NESTED, TREE, WAITING
from tests.stores import journals as j
from toolloop.errors import UnreadableSnapshot
from toolloop.machine.queries import next_deadline, status_of
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.tree import fold, step
from toolloop.machine.values.setup import Limits
from toolloop.stores import FORMAT, Entry, Head, MemoryStore, dump, load
from toolloop.stores.codec import decode_event, digest_snapshot, read_journal

trees = j.lives(120, nested=True)


# --- what was written is read ----------------------------------------------------------------------------------------


@given(trees)
def test_snapshot_journal_and_fold_agree(world: World) -> None:
    """The snapshot of a tree is read as that tree, and so is its journal, event by event and as a whole."""
    state = world.state
    assert load(json.loads(json.dumps(dump(state)))) == state
    written = j.entries(world.journal)
    assert [decode_event(entry) for entry in written] == world.journal
    assert read_journal(written) == fold(world.journal) == state


@given(trees, st.integers(0, 60))
def test_a_journal_may_begin_with_a_whole_tree(world: World, more: int) -> None:
    """What is inside of its calls goes on there."""
    world.adopt().live(more)
    assert read_journal(j.entries(world.journal)) == world.state


def nest(depth: int) -> tuple[State, list[Entry]]:
    """A loop in a loop, and so on."""
    events: list[ev.Event] = [m.make_opened(limits=Limits(max_depth=None))]
    state, path = fold(events), tuple[str, ...]()
    for _ in range(depth):
        asked = (ev.Requested(path=path), evolve(m.make_replied("tool_use", m.call("p", "pure")), path=path))
        for event in asked:
            state = step(state, event)
        path = (*path, "p")
        begun = m.child(state, *path, limits=Limits(max_depth=None))
        state = step(state, begun)
        events += (*asked, begun)
    return state, j.entries(events)


# --- what is damaged is refused --------------------------------------------------------------------------------------


def test_a_value_that_is_not_a_loop_inside_of_a_call_is_refused() -> None:
    """With its place."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"phase": {"name": "Dreaming"}}, "'name' is 'Dreaming'; it may be Ready, Requesting, "),
        ({"phase": {"name": None}}, "'name' is None; it may be Ready"),
        ({"mood": "good"}, r"extra fields found \(mood\) @ "),
        ({"format": 1}, r"extra fields found \(format\)"),
        ({"setup": 5}, "setup"),
        ({"round": 5}, "round"),
        ({"path": ["gone", "p"]}, r"loops\[1\] is out of order"),
    ]
    for change, says in cases:
        body: Any = {key: value for key, value in dump(fold(TREE)).items() if key not in ("format", "digest")}
        body["loops"][1] |= change
        with pytest.raises(UnreadableSnapshot, match=says):
            load({"format": FORMAT, "digest": digest_snapshot(body), **body})


def test_a_journal_of_loops_nested_too_deep_is_refused() -> None:
    """With the entry at which it gets too deep for the loops that there are."""
    path = ["p"] * 2000
    event = json.dumps({"format": FORMAT, "event": "Requested", "path": path})
    with pytest.raises(UnreadableSnapshot, match=f"^entry {len(TREE) + 1} of the journal cannot be read: Requested"):
        read_journal([*j.entries(TREE), Entry("deep", event)])


# --- in a store ------------------------------------------------------------------------------------------------------


def test_a_store_lists_a_tree_by_what_any_of_its_loops_waits_for() -> None:
    """A call that waits deep inside is a call that waits."""
    cases: list[tuple[Any, str]] = [
        (TREE, "running"),
        (WAITING, "needs_decision"),
        (NESTED["nested-decided"][:-2], "runnable"),
        (NESTED["nested-decided"], "runnable"),
        (FAILED, "failed"),
        (LIMITED, "ended"),
        (TREE[:5], "runnable"),
        (TREE[:6], "running"),
    ]
    for story, status in cases:
        state = fold(story)
        store = MemoryStore()
        store.create("loop", j.entries(story), head=Head(status_of(state), next_deadline(state)))
        assert [found.loop_id for found in store.list(status)] == ["loop"]
        assert read_journal(store.load("loop").entries) == state


def test_the_deadline_of_a_tree_is_the_first_of_all_its_calls() -> None:
    """However deep that is."""
    timed = [
        evolve(event, setup=evolve(event.setup, decision_timeout=60.0 if event.path == ("q",) else 600.0))
        if isinstance(event, ev.Opened)
        else event
        for event in WAITING
    ]
    state = fold(timed)
    inside = state.at(("q",))
    assert inside is not None
    in_p, in_q = (event.at for event in timed if isinstance(event, ev.Judged))
    assert next_deadline(state) == m.the_call(inside, "a").expires_at == in_q + 60.0
    late = step(state, ev.Ticked(at=in_q + 60.0))
    assert status_of(late) == "needs_decision"
    assert next_deadline(late) == in_p + 600.0
