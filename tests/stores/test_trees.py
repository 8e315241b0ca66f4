"""A tree of loops in one snapshot, in one journal, and in a store."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.worlds import World
from tests.stores.nested_stories import FAILED, LIMITED, NESTED, TREE, WAITING, at, opened
from tests.stores.test_audit_trees import GOOD
from toolloop.core import events as ev
from toolloop.core.machine import fold, next_deadline, status_of, step
from toolloop.core.setup import Limits
from toolloop.core.states import State
from toolloop.core.tree import loop_at, loops
from toolloop.core.values import Result
from toolloop.errors import UnreadableSnapshot
from toolloop.stores import FORMAT, Entry, Head, MemoryStore, dump, load
from toolloop.stores.codec import digest_of
from toolloop.stores.events import decode_event, encode_event, read_journal

trees = st.tuples(st.integers(0, 2**32), st.integers(0, 120)).map(
    lambda life: World(random.Random(life[0]), nested=True).live(life[1])
)


def bodies(*events: ev.Event) -> list[str]:
    return [encode_event(event) for event in events]


# --- what was written is read ----------------------------------------------------------------------------------------


@given(trees)
def test_snapshot_journal_and_fold_agree(world: World) -> None:
    """The snapshot of a tree is read as that tree, and so is its journal, event by event and as a whole."""
    state = world.state
    assert load(json.loads(json.dumps(dump(state)))) == state
    written = bodies(*world.journal)
    assert [decode_event(body) for body in written] == world.journal
    assert read_journal(written) == fold(world.journal) == state


@given(trees, st.integers(0, 60))
def test_a_journal_may_begin_with_a_whole_tree(world: World, more: int) -> None:
    """What is inside of its calls goes on there."""
    world.adopt().live(more)
    assert read_journal(bodies(*world.journal)) == world.state


@pytest.mark.parametrize("name", NESTED)
def test_every_beginning_of_a_story_sleeps_and_wakes(name: str) -> None:
    """Whatever is inside of a call at that moment: a request, calls that wait, a failure, what a limit cut off."""
    story = NESTED[name]
    for end in range(1, len(story) + 1):
        state = fold(story[:end])
        asleep = load(json.loads(json.dumps(dump(state))))
        assert asleep == read_journal(bodies(*story[:end])) == state
        for event in story[end:]:
            asleep = step(asleep, event)
        assert asleep == fold(story)


def test_a_loop_alone_is_written_as_ever() -> None:
    """Nothing of a tree is in it."""
    world = World(random.Random(7), nested=False).live(80)
    assert not any("path" in json.loads(body) for body in bodies(*world.journal))
    asleep = json.dumps(dump(world.state))
    assert "child" not in asleep
    assert "within" not in asleep


@pytest.mark.parametrize("depth", [5, 20])
def test_a_deep_tree_is_read_too(depth: int) -> None:
    """Each loop in a call of the one above."""
    state, written = deep(depth)
    assert len(list(loops(state))) == depth + 1
    assert load(json.loads(json.dumps(dump(state)))) == read_journal(written) == state


def deep(depth: int) -> tuple[State, list[str]]:
    """A loop in a loop, and so on."""
    events: list[ev.Event] = [m.opened(limits=Limits(max_depth=None))]
    state, path = fold(events), tuple[str, ...]()
    for _ in range(depth):
        asked = (ev.Requested(path=path), evolve(m.replied("tool_use", m.call("p", "pure")), path=path))
        for event in asked:
            state = step(state, event)
        path = (*path, "p")
        begun = m.child(state, *path, limits=Limits(max_depth=None))
        state = step(state, begun)
        events += (*asked, begun)
    return state, bodies(*events)


# --- what is damaged is refused --------------------------------------------------------------------------------------


def body_of(state: State) -> Any:
    """What a snapshot holds, to be spoiled."""
    return {key: value for key, value in dump(state).items() if key not in ("format", "digest")}


def refuse(body: Any, says: str) -> None:
    with pytest.raises(UnreadableSnapshot, match=says):
        load({"format": FORMAT, "digest": digest_of(body), **body})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"state": "Dreaming"}, "'state' is 'Dreaming'; it may be Ready, Requesting, "),
        ({"state": None}, "'state' is None; it may be Ready"),
        ({"mood": "good"}, r"extra fields found \(mood\) @ Running.round.calls\[0\].child"),
        ({"format": 1}, r"extra fields found \(format\)"),
        ({"ledger": 5}, r"Running.round.calls\[0\].child.ledger"),
        ({"round": None}, r"Running.round.calls\[0\].child.round"),
    ],
)
def test_what_is_no_loop_inside_of_a_call_is_refused(change: dict[str, Any], says: str) -> None:
    """With its place."""
    body = body_of(fold(TREE))
    body["round"]["calls"][0]["child"] |= change
    refuse(body, says)


@pytest.mark.parametrize("child", [5, "Ready", [], True])
def test_what_is_no_object_is_no_loop(child: Any) -> None:
    body = body_of(fold(TREE))
    body["round"]["calls"][0]["child"] = child
    refuse(body, "expected an object, not ")


@pytest.mark.parametrize("within", [[], [[2, "p", 1]], [[1, "q", 1]], [[1, "p", 2]], [[1, "p", 1], [1, "p", 1]]])
@pytest.mark.parametrize("place", [(0,), (0, 1)])
def test_a_loop_of_another_place_is_refused(place: tuple[int, ...], within: Any) -> None:
    """It says inside of which calls it runs: it cannot be moved to another."""
    call = place_in(body := body_of(fold(TREE)), *place)
    call["child"]["ledger"]["setup"]["within"] = within if len(place) == 1 else [[1, "q", 1], *within]
    refuse(body, f"the loop inside the call {call['id']!r} is none that could be there")


def place_in(body: Any, *numbers: int) -> Any:
    """A call of the tree: the number of the call in each loop."""
    for number in numbers[:-1]:
        body = body["round"]["calls"][number]["child"]
    return body["round"]["calls"][numbers[-1]]


@pytest.mark.parametrize("story", [LIMITED, FAILED], ids=["a limit", "a failure"])
def test_it_is_refused_in_a_round_that_stands_still_too(story: Any) -> None:
    """With which a loop goes on that has failed, or that a limit has ended."""
    body = body_of(fold(story))
    holder = body.get("back", body)
    holder["round"]["calls"][0]["child"]["ledger"]["setup"]["within"] = [[7, "p", 1]]
    refuse(body, "the loop inside the call 'p' is none that could be there")


@pytest.mark.parametrize("status", ["proposed", "waiting", "decided", "cleared", "settled"])
def test_only_a_call_that_runs_has_a_loop_inside(status: str) -> None:
    """A machine leaves none in any other."""
    body = body_of(fold(TREE))
    place_in(body, 1)["status"] = status
    refuse(body, "the loop inside the call 'q'")


def test_no_loop_inside_of_a_call_waits_for_a_command() -> None:
    """It goes on by itself: a machine leaves none where it would wait."""
    executed = m.after(m.replied("tool_use", m.call("a", "pure")), ev.Started("a"), m.ended("a"), ev.TurnEnded())
    body, own = body_of(fold(TREE)), body_of(executed)
    own["ledger"]["setup"] = place_in(body, 1)["child"]["ledger"]["setup"]
    place_in(body, 1)["child"] = own
    refuse(body, "the loop inside the call 'q'")


def test_a_closed_round_has_no_loop_inside() -> None:
    """All its calls have their results."""
    executed = body_of(
        m.after(m.replied("tool_use", m.call("p", "pure")), ev.Started("p"), m.ended("p"), ev.TurnEnded())
    )
    executed["round"]["calls"][0]["child"] = place_in(body_of(fold(TREE)), 0)["child"]
    refuse(executed, "the loop inside the call 'p'")


@pytest.mark.parametrize("how_deep", [100, 110, 1000])
def test_a_snapshot_of_loops_nested_too_deep_is_refused(how_deep: int) -> None:
    """No traceback from below."""
    body = body_of(fold(TREE))
    for _ in range(how_deep):
        body, child = body_of(fold(TREE)), {"state": "Running", **body}
        place_in(body, 1)["child"] = child
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        whole = {"format": FORMAT, "digest": digest_of(body), **body}
        text = json.dumps(whole)
    finally:
        sys.setrecursionlimit(usual)
    with pytest.raises(UnreadableSnapshot, match=r"damaged|nested too deep"):
        load(whole)
    with pytest.raises(UnreadableSnapshot, match=r"damaged|nested too deep|it is no JSON: maximum recursion"):
        decode_event(f'{{"format":{FORMAT},"event":"Adopted","state":{text}}}')


def test_a_journal_of_loops_nested_too_deep_is_refused() -> None:
    """With the entry at which it gets too deep."""
    path = ["p"] * 2000
    event = json.dumps({"format": FORMAT, "event": "Requested", "path": path})
    with pytest.raises(UnreadableSnapshot, match=f"^entry {len(TREE) + 1} of the journal cannot be read: Requested"):
        read_journal([*bodies(*TREE), event])


def test_a_journal_does_not_begin_inside_of_a_call() -> None:
    """Whichever its first event is."""
    for first in (opened("p"), ev.Adopted(fold(TREE), path=("p",))):
        with pytest.raises(UnreadableSnapshot, match=r"entry 1 .* starts with Opened or Adopted, and this one with"):
            read_journal(bodies(first))


@pytest.mark.parametrize("path", [5, "p", [5], [None], {}, [["p"]], None])
def test_a_path_is_a_list_of_texts(path: Any) -> None:
    """Of every event, of those with a long text too."""
    for event in (ev.Requested(), m.replied("end_turn", m.text("so")), ev.Ended("a", Result('"x"'))):
        name = f'"{type(event).__name__}"'
        body = encode_event(event).replace(name, f'{name},"path":{json.dumps(path)}', 1)
        with pytest.raises(UnreadableSnapshot):
            decode_event(body)


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_what_happens_inside_of_a_call_is_kept_as_it_is_said() -> None:
    """Replies and results stand in the journal as their very text, wherever in a tree they come from."""
    reply = next(event for event in TREE if isinstance(event, ev.Replied) and event.path)
    assert encode_event(reply).endswith(f'"message":{reply.reply.text}}}}}')
    end = ev.Ended("a", Result('[{"type":"text", "text":"é"}]'), path=("p", "q"))
    assert encode_event(end).endswith('"content":[{"type":"text", "text":"é"}]}}')


def test_a_journal_of_a_tree_costs_what_is_said_and_a_little_more() -> None:
    """250 bytes beside it for each event, and the path; the beginning of a loop aside, for that has its setup."""
    for entry in GOOD:
        event, more = decode_event(entry.body), 0
        match event:
            case ev.Opened():
                continue
            case ev.Replied():
                more = len(event.reply.text)
            case ev.Ended():
                more = len(event.result.content)
            case ev.Decided():
                more = sum(len(json.dumps(ruling.content)) for _, ruling in event.rulings)
        assert len(entry.id) + len(entry.body) <= 250 + more + len(json.dumps(["path", *event.path]))


# --- in a store ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "status"),
    [
        (TREE, "running"),
        (WAITING, "needs_decision"),
        (NESTED["nested-decided"][:-2], "runnable"),
        (NESTED["nested-decided"], "runnable"),
        (FAILED, "ended"),
        (LIMITED, "ended"),
        (TREE[:5], "runnable"),
        (TREE[:6], "running"),
    ],
)
def test_a_store_lists_a_tree_by_what_any_of_its_loops_waits_for(story: Any, status: str) -> None:
    """A call that waits deep inside is a call that waits."""
    state = fold(story)
    store = MemoryStore()
    entries = [Entry(str(number), body) for number, body in enumerate(bodies(*story))]
    store.create("loop", entries, head=Head(status_of(state), next_deadline(state)))
    assert [found.loop_id for found in store.list(status)] == ["loop"]
    assert read_journal(entry.body for entry in store.load("loop").entries) == state


def test_the_deadline_of_a_tree_is_the_first_of_all_its_calls() -> None:
    """However deep that is."""
    timed = [
        evolve(event, setup=evolve(event.setup, decision_timeout=60.0 if event.path == ("q",) else 600.0))
        if isinstance(event, ev.Opened)
        else event
        for event in WAITING
    ]
    state = fold(timed)
    inside = loop_at(state, ("q",))
    assert inside is not None
    in_p, in_q = (event.at for event in timed if isinstance(event, ev.Judged))
    assert next_deadline(state) == m.the_call(inside, "a").expires_at == in_q + 60.0
    late = step(state, ev.Ticked(at=in_q + 60.0))
    assert status_of(late) == "needs_decision"
    assert next_deadline(late) == in_p + 600.0


def test_the_journal_of_the_same_tree_is_read_in_any_layout() -> None:
    """A store that keeps JSON its own way changes the text, not what it says."""
    moved = [json.dumps(dict(sorted(json.loads(body).items())), indent=1) for body in bodies(*TREE)]
    assert read_journal(moved).ledger.usage_log == fold(TREE).ledger.usage_log
    assert [type(loop) for _, loop in loops(read_journal(moved))] == [type(loop) for _, loop in loops(fold(TREE))]


def test_what_is_said_of_a_loop_is_said_at_its_path() -> None:
    """The path is the third of what an event may have, before what is its own."""
    (event,) = at("p/q", ev.Started("a"))
    assert json.loads(encode_event(event)) == {
        "format": FORMAT,
        "event": "Started",
        "at": 101.0,
        "path": ["p", "q"],
        "call_id": "a",
    }
