"""What holds for every loop, whatever happens in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.kit.machine import making as m
from tests.kit.machine.worlds import World, lives
from toolloop._messages.check import check_order
from toolloop._usage import Usage
from toolloop.errors import IllegalCommand, UnknownCall
from toolloop.machine.queries import (
    driven,
    everywhere,
    find_open_round,
    is_due,
    next_deadline,
    outstanding,
    status_of,
    under_way,
    waiting,
)
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, Conclude, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.loop import (
    Failed,
    Judging,
    Loop,
    Ready,
    Requesting,
    Running,
    State,
    Stopping,
    Waiting,
    round_of,
)
from toolloop.machine.rules.calls import list_startable
from toolloop.machine.rules.saying import list_kept_texts
from toolloop.machine.tree import step
from toolloop.machine.values.calls import Call, Outcome, Status
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.stop_reasons import RUN


def open_calls(loop: Loop | None) -> Sequence[Call]:
    """The calls of the open round."""
    round_ = find_open_round(loop) if loop else None
    return round_.calls if round_ else ()


def steps(world: World) -> list[tuple[State, ev.Event, State]]:
    """Each event of a life, with the states around it."""
    return list(zip(world.states, world.journal[1:], world.states[1:], strict=False))


def all_loops(world: World) -> list[Loop]:
    """Every loop of the tree, in every state of it."""
    return [loop for state in world.states for loop in state.loops.values()]


# --- calls -----------------------------------------------------------------------------------------------------------


@examples(20)
@given(lives)
def test_only_a_cleared_call_starts(world: World) -> None:
    """A denied, undecided, settled or running call never does; under `barrier` none does while one waits."""
    for state in world.states:
        for path, loop in driven(state):
            if not isinstance(loop.phase, Running):
                continue
            free = {call.id for call in list_startable(loop)}
            assert free <= {call.id for call in loop.calls.having(Status.CLEARED)}
            assert not (free and loop.setup.execution == "barrier" and loop.calls.having(Status.WAITING))
            for call in loop.calls:
                if call.id not in free:
                    with pytest.raises(IllegalCommand):
                        step(state, ev.Started(call.id, path=path))
                    with pytest.raises(IllegalCommand):
                        step(state, m.child(state, *path, call.id))


@examples(25)
@given(lives)
def test_a_denied_call_never_starts_and_no_call_starts_twice_unseen(world: World) -> None:
    """Between two starts of a call it was lost, and its tool may be repeated, or a caller gave `Rerun`."""
    for before, event, after in steps(world):
        started = m.find_started(event)
        if started is None:
            continue
        loop = before.loops[started[:-1]]
        call, now = m.the_call(loop, started[-1]), m.the_call(after.loops[started[:-1]], started[-1])
        assert call.status in (Status.CLEARED, Status.PROPOSED)
        assert now.attempts == call.attempts + 1
        assert call.decision is None or call.decision.kind in ("approve", "rerun")
        rerun = call.decision is not None and call.decision.kind == "rerun"
        assert call.attempts == 0 or loop.setup.repeatable(call.name) or rerun or call.decision is not None


@examples(25)
@given(lives)
def test_a_result_is_the_first_and_only_one(world: World) -> None:
    """Once a call is settled its result stays, until the caller takes the history into their own hands."""
    for before, event, after in steps(world):
        for path, loop in driven(before):
            calls = {call.id: call for call in open_calls(after.at(path))}
            same = not isinstance(event, ev.HistoryTaken) and bool(calls)
            for call in open_calls(loop):
                assert (call.status is Status.SETTLED) == (call.result is not None)
                if same and call.result is not None and loop.iterations == after.loops[path].iterations:
                    assert calls[call.id].result == call.result


@examples(25)
@given(lives)
def test_no_call_waits_beyond_its_deadline(world: World) -> None:
    """Not once a later time was recorded; and what expired was not decided, and does not start."""
    for before, event, after in steps(world):
        for path, loop in driven(before):
            later = {call.id: call for call in open_calls(after.at(path))}
            for call in open_calls(loop):
                is_over = call.status is Status.WAITING and (call.expires_at or 1e99) <= after.root.now
                if is_over and call.id in later:
                    result = later[call.id].result
                    assert result is not None
                    assert result.outcome is Outcome.EXPIRED
                if is_over and isinstance(event, ev.Decided):
                    assert "/".join((*path, call.id)) not in dict(event.decisions)


# --- histories -------------------------------------------------------------------------------------------------------


def blocks_of(message: Any) -> list[Any]:
    return message["content"] if isinstance(message["content"], list) else []


# What the caller of these worlds does: a system message before a further one; a result of code, or of a member of a
# toolset, with anything in it.
CALLERS = {"system-place", "code-results-only", "result-content"}
# A paused reply goes out as it came, so that the server resumes it.
RESUMED = {"thinking-last"}


@examples(30)
@given(lives)
def test_every_history_is_one_that_the_api_takes(world: World) -> None:
    """Closed, and as a request would send it: each call has its one result, in the next message and in order."""
    for loop in all_loops(world)[::3]:
        assert {problem.rule for problem in check_order(m.history(loop))} <= CALLERS
        if isinstance(loop.phase, (Ready, Requesting)):
            sent = [*m.history(loop), *map(decode, loop.unjoined)]
            assert {problem.rule for problem in check_order(sent)} <= CALLERS | RESUMED


@examples(20)
@given(lives)
def test_what_the_api_wants_beyond_pairing(world: World) -> None:
    """No server call is left open, only results answer code, and no system message follows the model."""
    for loop in all_loops(world):
        messages = m.history(loop)
        done = {block.get("tool_use_id") for message in messages for block in blocks_of(message)}
        asked = {block["id"] for msg in messages for block in blocks_of(msg) if block["type"] == "server_tool_use"}
        assert asked <= done
        for before, message in pairwise([*messages, *(map(decode, loop.unjoined))]):
            assert message["role"] != "system" or before["role"] != "assistant"
            if any("caller" in block for block in blocks_of(before)):
                assert {block["type"] for block in blocks_of(message)} == {"tool_result"}


@examples(25)
@given(lives)
def test_what_a_person_says_is_never_lost_or_said_twice(world: World) -> None:
    """In a world without edits it joins once, or is kept, or was withdrawn before; and the order stays."""
    world = World(world.rng, without=(ev.HistoryEdited, ev.HistoryTaken), loop_detection=None).live(60)
    root, first = world.state.root, world.states[0].root
    start = set(first.messages) | set(first.queued)
    gone = {event.id for event in world.journal if isinstance(event, ev.Withdrawn)}
    events = [event for event in world.journal if isinstance(event, (ev.Continued, ev.FollowedUp, ev.Said))]
    said = [text for each in events if not (isinstance(each, ev.Said) and each.id in gone) for text in each.messages]
    there = [text for text in (*root.messages, *root.queued, *list_kept_texts(root)) if text in set(said) - start]
    assert sorted(there) == sorted(set(said) - start)
    withdrawn = {text for each in events if isinstance(each, ev.Said) and each.id in gone for text in each.messages}
    assert withdrawn.isdisjoint((*root.messages, *root.queued, *list_kept_texts(root)))
    prompts = [text for text in there if '"system"' not in text]
    assert prompts == [text for text in said if '"system"' not in text and text not in start]
    assert [each.id for each in events if isinstance(each, ev.Said)] == list(root.said)


# --- usage, time, and what is kept -----------------------------------------------------------------------------------


@examples(25)
@given(lives)
def test_usage_adds_up_in_every_loop(world: World) -> None:
    """What each reply, summary and tool used counts in its loop and in all above it; and so does what started."""
    for before, event, after in steps(world):
        used: list[tuple[tuple[str, ...], Usage]] = []
        match event:
            case ev.Replied():
                used = [((), event.reply.usage)]
            case ev.HistoryEdited(spent=spent) if spent is not None:
                used = [((), spent.usage)]
            case ev.Ended():
                used = [((event.call_id, *entry.path), entry.usage) for entry in event.spent]
        new = after.root.usage_log[len(before.root.usage_log) :]
        assert [(entry.path, entry.usage) for entry in new] == [((*event.path, *path), usage) for path, usage in used]
        started = m.find_started(event)
        names = after.root.started[len(before.root.started) :]
        assert names == ([] if started is None else ["/".join(started)])
    for loop in all_loops(world):
        assert loop.total_usage == sum((entry.usage for entry in loop.usage_log), Usage())
        own = [entry.iteration for entry in loop.usage_log if not entry.path and entry.kind == "reply"]
        assert own == [*range(1, loop.iterations + 1)]


@examples(25)
@given(lives)
def test_time_never_runs_backwards_and_a_turn_leaves_nothing_open(world: World) -> None:
    """Nor do active seconds but with a user turn; a container and a round are kept only while a turn is open."""
    for before, event, after in steps(world):
        assert after.root.now >= before.root.now
        assert after.root.active >= before.root.active or isinstance(event, (ev.FollowedUp, ev.Said))
    for loop in all_loops(world):
        assert loop.container is None or round_of(loop) or loop.unjoined
        has_round = isinstance(loop.phase, (Judging, Running, Stopping)) or (
            isinstance(loop.phase, Waiting) and loop.phase.reason == "decision_required"
        )
        assert (loop.round is not None) == has_round or (isinstance(loop.phase, Failed) and loop.round)
        assert not isinstance(loop.phase, Running) or (loop.round and loop.round.calls)
        resumes = isinstance(loop.phase, Waiting) and loop.phase.reason == "tools_executed" and not loop.unjoined
        assert not (resumes and loop.queued)


@examples(25)
@given(lives)
def test_the_map_of_loops_is_the_tree_of_calls(world: World) -> None:
    """A loop is there as long as its call runs; no other stands where the loop above stands still."""
    for state in world.states:
        assert {path for path, _ in everywhere(state)} == set(state.loops)
        assert {path for path, _ in driven(state)} <= set(state.loops)
        for path, loop in state.loops.items():
            assert not path or path[:-1] in state.loops
            assert loop.setup.path == path
            assert not path or (isinstance(loop.phase, Waiting) <= (m.phase(loop) == "decision_required"))


# --- what is to be done ----------------------------------------------------------------------------------------------


@examples(25)
@given(lives)
def test_nothing_is_outstanding_where_it_is_the_callers_turn(world: World) -> None:
    """Each status says whose turn it is; what a person must decide comes first."""
    for state in world.states:
        effects, status = outstanding(state), status_of(state)
        assert effects == outstanding(evolve(state))
        asked = [(path, call) for path, loop in driven(state) for call in open_calls(loop) if call.status == "waiting"]
        assert waiting(state) == asked
        assert (status == "needs_decision") == bool(asked)
        assert next_deadline(state) == min((call.expires_at for _, call in asked if call.expires_at), default=None)
        begun = [loop for _, loop in driven(state) if isinstance(loop.phase, Requesting)]
        runs = [call for _, loop in driven(state) for call in open_calls(loop)]  # one may run while another one waits
        is_stopping = isinstance(state.root.phase, Stopping)
        own = [call for call in runs if call.status == "running" and not call.has_loop]
        assert under_way(state) == bool(begun or own or is_stopping)
        if not isinstance(state.root.phase, (Ready, Requesting, Judging, Running)):
            assert not effects
            assert status in ("needs_decision", "needs_command", "stopping", "failed", "ended")
            assert (status == "stopping") == is_stopping
        else:
            assert effects or under_way(state)
            assert (status == "runnable") <= bool(effects)


@examples(20)
@given(lives, st.sampled_from([0.0, 1.0, 1e6]))
def test_what_is_outstanding_can_be_done(world: World, later: float) -> None:
    """The machine takes what comes of its own effects, whatever expires meanwhile; only of what it asked for."""
    for state in world.states:
        for effect in outstanding(state):
            when: dict[str, Any] = {"at": state.root.now + later, "path": effect.path}
            loop = state.loops[effect.path]
            match effect:
                case SendRequest():
                    step(step(state, ev.Requested(**when)), evolve(m.make_replied("end_turn"), path=effect.path))
                case CancelRequest():
                    step(state, ev.RequestFailed(**when))
                case EndTurn():
                    step(state, ev.TurnEnded(**when))
                case RunCall(call_id=call_id) if not is_due(state, when["at"]):  # the grant it runs by may expire
                    step(state, ev.Started(call_id, **when))
                    step(state, evolve(m.child(state, *effect.path, call_id), at=when["at"]))
                case Conclude(call_id=call_id):
                    step(state, ev.Ended(call_id, m.DONE, **when))
                case Judge(calls=calls):
                    step(state, evolve(m.asks(*calls), **when))
                    if calls and isinstance(loop.phase, Judging) and loop.phase.action is RUN:
                        with pytest.raises(UnknownCall):
                            step(state, evolve(m.asks("toolu_foreign"), path=effect.path))
        for path, loop in driven(state):
            alone = State(
                {each[len(path) :]: below for each, below in state.loops.items() if each[: len(path)] == path}
            )
            if isinstance(loop.phase, (Ready, Running)) and EndTurn() not in outstanding(alone):
                with pytest.raises(IllegalCommand):
                    step(state, ev.TurnEnded(path=path))


@examples(20)
@given(lives)
def test_a_driver_comes_to_an_end_with_each_turn(world: World) -> None:
    """Done what is outstanding, it is the caller's turn: no loop hangs, and none runs for ever by itself."""
    count = len(world.journal)
    world.finish_work()
    assert world.nested or len(world.journal) - count < 60
    assert outstanding(world.state) == ()


@examples(25)
@given(lives)
def test_time_alone_changes_only_what_is_due(world: World) -> None:
    """A tick before the next deadline tells the time and no more; at it something expires."""
    for state in world.states[::5]:
        later = state.root.now + 1000.0
        if not isinstance(state.root.phase, (Ready, Requesting, Judging, Running, Waiting)):
            assert not is_due(state, later)
            continue
        then = step(state, ev.Ticked(at=later))
        aged = {path: loop._replace(now=then.loops[path].now) for path, loop in state.loops.items()}
        assert is_due(state, later) == (then.loops != aged)
        assert not is_due(then, later)
        deadline = next_deadline(state)
        if deadline is not None and deadline > state.root.now:
            assert is_due(state, deadline)
            assert next_deadline(step(state, ev.Ticked(at=deadline))) != deadline


@given(st.permutations(range(4)))
def test_the_order_of_ends_and_decisions_does_not_matter(order: list[int]) -> None:
    """One by one, in any order, or all at once."""
    decisions = {"c0": m.APPROVE, "c1": m.DENY, "c2": m.answer(), "c3": m.approve({"a": 2})}
    asking = m.state_after(m.make_replied("tool_use", *map(m.call, decisions)), m.asks(*decisions))
    at_once = step(asking, m.make_decided(**decisions))
    assert m.go(asking, *(m.make_decided(**{f"c{n}": decisions[f"c{n}"]}) for n in order)) == at_once
    running = m.state_after(m.make_replied("tool_use", *map(m.call, decisions)), *map(ev.Started, decisions))
    ends = [m.make_ended(name, f"result of {name}") for name in decisions]
    assert m.go(running, *(ends[n] for n in order), ev.TurnEnded()) == m.go(running, *ends, ev.TurnEnded())


# --- the model's own words -------------------------------------------------------------------------------------------

CALLS = ("server_tool_use", "tool_use")


@examples(25)
@given(lives)
def test_the_models_words_join_verbatim(world: World) -> None:
    """An assistant message is a reply, but for blank text, thinking at its end, and calls that cannot be answered.

    Thinking that came after such a call goes with it: it is bound to all before it.
    """
    replies = [list(event.reply.blocks) for event in world.journal if isinstance(event, ev.Replied) and not event.path]
    own = [
        decode(event.reply)["content"] for event in world.journal if isinstance(event, ev.HistoryTaken) if event.reply
    ]
    known = [*replies, *(blocks for blocks in own if isinstance(blocks, list))]
    start = set(world.states[0].root.messages) | set(world.states[0].root.unjoined)
    root, first = world.state.root, world.states[0].root
    for text in root.messages:
        message = decode(text)
        if message["role"] == "assistant" and text not in start and not (first.round or first.unjoined):
            assert any(is_made_of(message["content"], blocks) for blocks in known), text


def is_made_of(kept: list[Any], reply: list[Any]) -> bool:
    """Whether blocks are those of a reply but for what may be left out."""
    left = [encode(block) for block in kept]
    for block in reply:
        if left and left[0] == encode(block):
            left.pop(0)
        elif block["type"] not in (*CALLS, "thinking", "text"):
            return False
    return not left
