"""What holds for every loop, whatever happens in it."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.effects import CancelRequest, Conclude, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import IllegalCommand, UnknownCall
from toolloop.core.jsontext import decode, encode
from toolloop.core.machine import is_due, outstanding, step
from toolloop.core.policy import startable
from toolloop.core.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Open,
    Paused,
    Proposed,
    Ready,
    Running,
    State,
    TooDeep,
)
from toolloop.core.stops import Fate
from toolloop.core.tree import loop_at, loops, under_way
from toolloop.core.usage import Usage
from toolloop.core.values import Call, Result, Status

lives = st.tuples(st.integers(0, 2**32), st.integers(0, 90)).map(
    lambda life: World(random.Random(life[0])).live(life[1])
)
unedited = st.tuples(st.integers(0, 2**32), st.integers(0, 90)).map(
    lambda life: World(random.Random(life[0]), without=(ev.HistoryEdited,)).live(life[1])
)


def open_calls(state: State) -> tuple[Call, ...]:
    """The calls of the open round."""
    return state.round.calls if isinstance(state, Open) else ()


def everywhere(world: World) -> list[State]:
    """Every state of every loop in the tree."""
    return [loop for state in world.states for _, loop in loops(state)]


@given(lives)
def test_only_a_cleared_call_starts(world: World) -> None:
    """A denied, undecided, settled or running call never starts; under `barrier` nothing does while one waits."""
    for state in world.states:
        for path, loop in loops(state):
            if isinstance(loop, Running):
                free = {call.id for call in startable(loop.ledger.setup, loop.round)}
                assert free <= {call.id for call in loop.round.having(Status.CLEARED)}
                assert not (free and loop.ledger.setup.execution == "barrier" and loop.round.having(Status.WAITING))
                for call in loop.round.calls:
                    if call.id not in free:
                        with pytest.raises(IllegalCommand):
                            step(state, ev.Started(call.id, path=path))
                        with pytest.raises(IllegalCommand):
                            step(state, m.child(state, *path, call.id))


@given(lives)
def test_a_call_starts_once_unless_it_is_repeatable_or_rerun_by_name(world: World) -> None:
    """Between two starts of a call it was lost, and its tool may be repeated or the caller said `rerun`."""
    started: dict[tuple[str, ...], int] = {}
    for place, event in enumerate(world.journal):
        call = m.started_by(event)
        if call is None:
            continue
        if call in started:
            between = world.journal[started[call] : place]
            loop = loop_at(world.states[place], call[:-1])
            assert loop is not None
            assert any(isinstance(other, ev.Woken | ev.Forked | ev.Cancelled) for other in between)
            assert loop.ledger.setup.repeatable(m.the_call(loop, call[-1]).name) or any(
                (name, ruling.kind) == ("/".join(call), "rerun")
                for other in between
                if isinstance(other, ev.Decided)
                for name, ruling in other.rulings
            )
        # What begins anew inside of it has calls of its own.
        started = {other: at for other, at in started.items() if other[: len(call)] != call} | {call: place}


@given(lives)
def test_what_never_ran_is_only_said_of_calls_that_never_started(world: World) -> None:
    """A result that says "did not run" belongs to a call that was not started."""
    answers = {
        block["tool_use_id"]: block["content"]
        for message in m.history(world.state)
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    }
    for call in {call for call in map(m.started_by, world.journal) if call is not None and len(call) == 1}:
        text = json.dumps(answers.get(call[0]))
        assert "was not run" not in text
        assert "did not run" not in text


@given(lives)
def test_a_result_is_the_first_and_only_one(world: World) -> None:
    """Once a call is settled, its result stays."""
    for earlier, later in pairwise(world.states):
        for path, before in loops(earlier):
            after = loop_at(later, path)
            if not isinstance(before, Judging | Deciding | Running) or not isinstance(
                after, Judging | Deciding | Running
            ):
                continue
            for one, other in zip(before.round.calls, after.round.calls, strict=True):
                assert (one.id, one.name, one.input) == (other.id, other.name, other.input)
                if one.status is Status.SETTLED:
                    assert other.result == one.result is not None
                assert (other.status is Status.SETTLED) == (other.result is not None)


def check_pairing(messages: list[Any]) -> None:
    """Each call is answered once, in the next message, results first and in the model's order; nothing else is."""
    asked: list[str] = []
    for message in [*messages, decode(m.user())]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert results == asked
        assert all(block["type"] == "tool_result" for block in blocks[: len(results)])
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert not asked or message["role"] == "assistant"


@given(lives)
def test_every_call_in_the_history_has_its_one_result(world: World) -> None:
    """In the closed history, and in all that a request would send, every call is paired."""
    for state in everywhere(world):
        check_pairing(m.history(state))
        if isinstance(state, Ready | Executed | Failed):
            check_pairing([*m.history(state), *map(decode, state.tail)])


@given(lives)
def test_an_open_round_has_calls(world: World) -> None:
    """Nobody is asked about a round without calls, and none is run."""
    for state in everywhere(world):
        assert not isinstance(state, Deciding | Running) or state.round.calls


@given(lives)
def test_no_server_call_is_left_open_in_the_closed_history(world: World) -> None:
    """A server call joins with its result, or not at all."""
    for state in everywhere(world):
        blocks = [b for msg in m.history(state) if isinstance(msg["content"], list) for b in msg["content"]]
        done = {block.get("tool_use_id") for block in blocks}
        assert {block["id"] for block in blocks if block["type"] == "server_tool_use"} <= done


@given(lives)
def test_only_results_answer_calls_of_code(world: World) -> None:
    """Nothing stands between them and the model's next word: no note, no injection, no further turn."""
    for state in everywhere(world):
        messages = [*m.history(state), *map(decode, getattr(state, "tail", ()))]
        by_code = False
        for message in [*messages, *([] if getattr(state, "tail", ()) else [decode(m.user())])]:
            blocks = message["content"] if isinstance(message["content"], list) else [m.text("")]
            assert not by_code or message["role"] == "assistant" or {b["type"] for b in blocks} == {"tool_result"}
            if message["role"] == "assistant":
                by_code = any("caller" in block for block in blocks)


@given(lives)
def test_a_system_message_follows_the_user(world: World) -> None:
    """Never the model, and never nothing: such a request would be refused."""
    for state in everywhere(world):
        messages = m.history(state)
        for before, message in pairwise(messages):
            assert message["role"] != "system" or before["role"] != "assistant"


def may_be_left_out(block: Any, rest: list[Any]) -> bool:
    """Whether a block of a reply may be missing in the history: the documented exceptions, and they alone."""
    if block["type"] == "thinking":
        return all(may_be_left_out(later, []) or later["type"] == "thinking" for later in rest)
    return block["type"] in ("server_tool_use", "tool_use") or (block["type"] == "text" and not block["text"].strip())


@given(lives)
def test_the_models_words_join_verbatim(world: World) -> None:
    """An assistant message is a reply, but for blank text, thinking at its end, and calls that cannot be answered.

    Thinking that came after such a call goes with it: it is bound to all before it.
    """
    replies = [list(event.reply.blocks) for event in world.journal if isinstance(event, ev.Replied) and not event.path]
    kept = {block.get("id") for message in m.history(world.state) for block in blocks_of(message)}
    lost = [any(block["type"] in CALLS and block["id"] not in kept for block in reply) for reply in replies]
    for message in m.history(world.state):
        if message["role"] == "assistant":
            assert any(
                is_made_of(message["content"], reply, bound=any(lost[:place])) for place, reply in enumerate(replies)
            )


CALLS = ("server_tool_use", "tool_use")


def blocks_of(message: Any) -> list[Any]:
    return message["content"] if isinstance(message["content"], list) else []


def is_made_of(kept: list[Any], reply: list[Any], *, bound: bool) -> bool:
    left = [encode(block) for block in kept]
    for place, block in enumerate(reply):
        if left and left[0] == encode(block):
            left.pop(0)
        elif not (bound and block["type"] == "thinking") and not may_be_left_out(block, reply[place + 1 :]):
            return False
        else:
            bound = bound or block["type"] in CALLS
    return not left


@given(lives)
def test_usage_adds_up(world: World) -> None:
    """The total is the sum of all replies and summaries in the tree, and each own reply is an iteration."""
    used = []
    for event in world.journal:
        if isinstance(event, ev.Replied):
            used.append((event.path, event.reply.usage))
        elif isinstance(event, ev.Spent):
            used.append(((*event.path, event.call_id, *event.usage.path), event.usage.usage))
        elif isinstance(event, ev.Compacted) and event.summary is not None:
            used.append((event.path, event.summary.usage))
    ledger = world.state.ledger
    assert [(entry.path, entry.usage) for entry in ledger.usage_log] == used
    assert ledger.total_usage == sum((usage for _, usage in used), Usage())
    own = [entry.iteration for entry in ledger.usage_log if not entry.path and entry.kind == "reply"]
    assert own == [*range(1, ledger.iterations + 1)]
    assert list(ledger.ran) == ["/".join(call) for call in map(m.started_by, world.journal) if call is not None]
    for loop in everywhere(world):
        assert loop.ledger.total_usage == sum((entry.usage for entry in loop.ledger.usage_log), Usage())


@given(lives)
def test_what_is_outstanding_follows_from_the_state_alone(world: World) -> None:
    """Equal states have equal effects; and where the caller has the word there are none."""
    for state in world.states:
        assert outstanding(state) == outstanding(evolve(state))
        caller_has_the_word = isinstance(state, Proposed | Deciding | Executed | Paused | Finished | Failed | TooDeep)
        assert bool(outstanding(state)) != caller_has_the_word or under_way(state)


@given(lives, st.sampled_from([0.0, 1.0, 1e6]))
def test_what_is_outstanding_can_be_done(world: World, later: float) -> None:
    """The machine takes what comes of its own effects, whatever expires meanwhile; only of what it asked for."""
    for state in world.states:
        for effect in outstanding(state):
            when: dict[str, Any] = {"at": state.ledger.now + later, "path": effect.path}
            match effect:
                case SendRequest():
                    replied = evolve(m.replied("end_turn", m.text("bye")), path=effect.path)
                    step(step(state, ev.Requested(**when)), replied)
                case CancelRequest():
                    step(state, ev.RequestCancelled(**when))
                case EndTurn():
                    step(state, ev.TurnEnded(**when))
                case RunCall(call_id=call_id) if not is_due(state, when["at"]):  # the grant it runs by may expire
                    step(state, ev.Started(call_id, **when))
                    step(state, evolve(m.child(state, *effect.path, call_id), at=when["at"]))
                case Conclude(call_id=call_id):
                    step(state, ev.Ended(call_id, m.DONE, **when))
                case Judge(calls=calls):
                    step(state, evolve(m.asks(*calls), **when))
                    loop = loop_at(state, effect.path)
                    if calls and isinstance(loop, Judging) and loop.fate is Fate.RUN:
                        with pytest.raises(UnknownCall):
                            step(state, evolve(m.asks("toolu_foreign"), path=effect.path))
        for path, loop in loops(state):
            if isinstance(loop, Ready | Running) and EndTurn() not in outstanding(loop):
                with pytest.raises(IllegalCommand):
                    step(state, ev.TurnEnded(path=path))


@given(lives)
def test_a_driver_comes_to_an_end_with_each_turn(world: World) -> None:
    """Done what is outstanding, the caller has the word: no loop hangs, and none runs for ever by itself."""
    steps = len(world.journal)
    world.finish_work()
    assert world.nested or len(world.journal) - steps < 60
    assert outstanding(world.state) == ()


@given(unedited)
def test_an_injected_message_is_never_lost(world: World) -> None:
    """Each joins once, or is held; and the caller's order stays."""
    sent = [
        message
        for event in world.journal
        if isinstance(event, ev.Injected | ev.FollowedUp)
        for message in event.messages
    ]
    ledger = world.state.ledger
    there = [message for message in (*ledger.messages, *ledger.held) if message in set(sent)]
    assert sorted(there) == sorted(sent)
    prompts = [message for message in there if '"system"' not in message]
    assert prompts == [message for message in sent if '"system"' not in message]


@given(lives)
def test_nothing_is_held_where_it_could_stand(world: World) -> None:
    """Once a round is closed in the history, what was held is there too."""
    for before, event, after in zip(world.states, world.journal[1:], world.states[1:], strict=False):
        if isinstance(before, Running) and isinstance(event, ev.TurnEnded) and isinstance(after, Executed):
            assert not (after.ledger.held and not after.tail)


@given(lives)
def test_a_container_is_kept_only_while_the_turn_is_open(world: World) -> None:
    """With an open round, or with messages that wait beside the history; never with the end of a loop."""
    for state in everywhere(world):
        if not isinstance(state, Open):
            beside: Any = getattr(state, "tail", ()) or (isinstance(state, Failed) and state.round)
            assert state.ledger.container is None or beside


@given(st.permutations(range(5)), st.integers(1, 5))
def test_the_order_in_which_calls_end_does_not_matter(order: list[int], how_many: int) -> None:
    """Whatever call ends first, the state is the same, and so is the history."""
    names = [f"c{number}" for number in range(how_many)]
    state = m.after(m.replied("tool_use", *map(m.call, names)), m.judged(), *map(ev.Started, names))
    ends = [m.ended(name, f"result of {name}") for name in names]
    shuffled = [ends[number] for number in order if number < how_many]
    assert m.go(state, *shuffled, ev.TurnEnded()) == m.go(state, *ends, ev.TurnEnded())


@given(st.permutations(range(4)))
def test_the_order_of_decisions_does_not_matter(order: list[int]) -> None:
    """Decisions one by one, in any order, are the decisions all at once."""
    rulings = {"c0": m.APPROVE, "c1": m.DENY, "c2": m.answer(), "c3": m.approve({"a": 2})}
    state = m.after(m.replied("tool_use", *map(m.call, rulings)), m.asks(*rulings))
    at_once = step(state, m.decided(**rulings))
    one_by_one = m.go(state, *(m.decided(**{f"c{number}": rulings[f"c{number}"]}) for number in order))
    assert one_by_one == at_once


def test_a_second_end_of_a_call_is_refused() -> None:
    """The first end of a call is its one result."""
    state = m.after(m.replied("tool_use", m.call("c")), m.judged(), ev.Started("c"), m.ended("c"))
    with pytest.raises(IllegalCommand, match="no call that runs"):
        step(state, ev.Ended("c", Result('"again"')))
