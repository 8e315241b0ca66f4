"""Go back in a journal: to the end of an iteration, or to just before a message."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given

from tests.kit.effort import examples
from tests.kit.machine.worlds import World, lives
from tests.kit.support import expect_yielded
from tests.recorded.rare_stories import RARE
from toolloop import Budget, LoopConfig, MemoryStore, ToolLoopHandle, tool
from toolloop._usage import Usage
from toolloop.errors import IllegalCommand
from toolloop.machine.message_ids import list_with_ids
from toolloop.machine.queries import call_changes
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Finished, State, round_of
from toolloop.machine.rewinding import rewind
from toolloop.machine.tree import begin, step
from toolloop.machine.values.calls import Status
from toolloop.stores.codec import replay
from toolloop.testing import ScriptedProvider, call, reply


@tool
def add(x: int) -> int:
    """Add."""
    return x


def steps(world: World) -> list[tuple[ev.Event, State]]:
    """The events of a life, each with the state after it."""
    return list(zip(world.journal, world.states, strict=False))


@examples(60)
@given(lives)
def test_each_point_of_a_journal_is_found_or_refused(world: World) -> None:
    """What is found was never later than the point, and has a usage of zero."""
    for at in range(1, world.states[-1].root.iterations + 2):
        with suppress(IllegalCommand):
            found = rewind(steps(world), at).root
            assert (found.iterations, found.total_usage) == (at, Usage())


@examples(60)
@given(lives)
def test_the_id_of_the_message_before_which_a_loop_is_copied_is_gone(world: World) -> None:
    """Each id of the copy names the message that it names in the original."""
    seen = {pair for state in world.states for pair in list_with_ids(state.root)}
    for name in dict.fromkeys(name for state in world.states for name in state.root.ids):
        with suppress(IllegalCommand):
            found = rewind(steps(world), name).root
            there = set(list_with_ids(found))
            assert (name in dict(there), there - seen, found.total_usage) == (False, set(), Usage())


_OPEN = (Status.PROPOSED, Status.WAITING)


def calls_of(state: State) -> dict[tuple[tuple[str, ...], int], Status]:
    """The calls of the open rounds: their paths and iterations."""
    rounds = [(path, found) for path, loop in state.loops.items() if (found := round_of(loop)) is not None]
    return {((*path, call.id), found.iteration): call.status for path, found in rounds for call in found.calls}


@examples(60)
@given(lives)
def test_a_call_that_an_event_changed_differs_before_and_after(world: World) -> None:
    """Each differs between them, and stands at its path. The open ones that are gone are among them."""
    for (_, before), (event, after) in pairwise(steps(world)):
        changes = [*call_changes(before, event, after)]
        for path, was, now in changes:
            assert was is not now
            assert {each.id for each in (was, now) if each is not None} == {path[-1]}
        left = calls_of(after)
        gone = {path for (path, at), status in calls_of(before).items() if status in _OPEN and (path, at) not in left}
        assert {path for path, _, now in changes if now is None} == gone


def test_an_iteration_that_a_limit_cut_off_is_found_with_its_open_round() -> None:
    """The copy is the loop after that limit, which can be raised in it."""
    handle = ToolLoopHandle(
        ScriptedProvider([reply(calls=[call("add", {"x": 1}), call("add", {"x": 2})])]),
        params={"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
        tools=[add],
        config=LoopConfig(budget=Budget(tool_calls=1)),
        store=(store := MemoryStore()),
        loop_id="loop",
    )
    handle.run()
    found = rewind(replay(store.load("loop").entries), 1).root
    assert isinstance(found.phase, Finished)
    assert found.phase.round is not None


def test_a_message_that_a_limit_left_queued_is_cut_off_before_an_edit_too() -> None:
    """The edited history begins with it."""
    handle = ToolLoopHandle(
        ScriptedProvider([reply(calls=[call("ask", {"x": 1}), call("ask", {"x": 2})])]),
        params={"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
        tools=[tool(name="ask", needs_approval=True)(add.function)],
        config=LoopConfig(budget=Budget(tool_calls=1)),
        store=(store := MemoryStore()),
        loop_id="loop",
    )
    turn = expect_yielded(handle.next_turn())
    for waiting in turn.pending:
        turn.approve(waiting)
    turn.inject_and_continue("more")
    handle.run()
    handle.messages_mut()[0]["content"] = "Begin"
    handle.flush()
    *_, last = handle.view(messages=True)["messages"]
    assert last["content"] == "more"
    found = rewind(replay(store.load("loop").entries), last["id"]).root
    assert last["id"] not in dict(list_with_ids(found))
    assert '"hi"' in found.messages[0]


def test_a_message_of_the_loop_itself_is_not_a_point() -> None:
    """Such as the answer to a result that does not fit."""
    states = [begin(RARE["rare-output"][0])]  # type: ignore[arg-type]  # it is an Opened
    for event in RARE["rare-output"][1:]:
        states.append(step(states[-1], event))
    journal = list(zip(RARE["rare-output"], states, strict=True))
    names = [name for name, text in list_with_ids(states[-1].root) if "Again" in text]
    with pytest.raises(IllegalCommand, match="the loop itself made the message"):
        rewind(journal, names[0])
