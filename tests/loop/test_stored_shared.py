"""Two handles on one stored loop: any may read and decide, one drives, and what was overtaken is refused, not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.loop.concurrency import Background, cross, either_kind
from tests.loop.stored import (
    APPROVED,
    LOOK,
    PAY,
    SEND,
    AnyHandle,
    World,
    approve_all,
    held,
)
from tests.loop.support import completed, failed, yielded
from toolloop import Answer, Approve, Deny, InjectMessages, Stop
from toolloop.errors import CallerError, Conflict, DecisionConflict, IllegalCommand, ModelError, UnknownCall
from toolloop.machine import Finished
from toolloop.machine.values import Decision
from toolloop.stores.memory import MemoryStore
from toolloop.stores.process import this_process
from toolloop.terminations import NaturalEnd, StopCondition
from toolloop.testing import reply

MORE = [{"role": "user", "content": "one more thing"}]


def pair(world: World) -> tuple[AnyHandle, AnyHandle]:
    """Two handles, the first of which has driven to where somebody has to say something."""
    first = world.open()
    yielded(first.run())
    return first, world.open()


def said(request: Any) -> list[Any]:
    return [message["content"] for message in request["messages"] if message["role"] == "user"]


# --- decisions -------------------------------------------------------------------------------------------------------


@either_kind
def test_a_decision_is_not_lost_while_another_handle_drives(kind: str) -> None:
    """It is said while a tool runs; the driver finds it when it stores the end."""
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY, SEND]), reply("done")))
    world.config = {"execution": "ready"}
    first, second = pair(world)
    first.say(first.turn().continue_loop)
    with held(world, "t1", first) as turn:
        second.decide(t2=Approve(by="ben"))
        assert second.handle.pending == ()
    assert [call.status for call in yielded(turn.result()).calls] == ["settled", "decided"]
    assert first.handle.pending == ()
    assert first.text() == "done"
    assert world.ran == ["t1", "t2"]


def test_a_handle_that_waits_learns_what_was_decided_elsewhere() -> None:
    """`run()` goes on, though its own view was an old one."""
    world = World("sync", MemoryStore())
    first, second = pair(world)
    assert isinstance(first.run(), type(first.turn()))
    second.decide(t2=APPROVED)
    assert first.text() == "done"
    world.assert_once()


@either_kind
@pytest.mark.parametrize("other", [Deny("no"), Answer("sent"), Approve(input={"to": "ben"})], ids=repr)
def test_of_two_decisions_that_differ_the_second_is_refused(kind: str, other: Decision) -> None:
    """The first is the decision; both handles say so afterwards."""
    world = World(kind, MemoryStore())
    first, second = pair(world)
    second.decide(t2=APPROVED)
    with pytest.raises(DecisionConflict, match="t2"):
        first.decide(t2=other)
    assert first.handle.pending == second.handle.pending == ()
    assert first.handle.state == second.handle.state == world.state()
    assert first.text() == "done"
    assert sorted(world.ran) == ["t1", "t2", "t3"]


def test_the_same_decision_twice_is_one() -> None:
    """Two people click the same button."""
    world = World("sync", MemoryStore())
    first, second = pair(world)
    second.decide(t2=APPROVED)
    first.decide(t2=APPROVED)
    assert second.text() == "done"
    world.assert_once()


@either_kind
def test_decisions_about_two_calls_at_one_moment_both_count(kind: str) -> None:
    """Neither is lost to the other's compare-and-swap, however often it is tried."""
    for _ in range(20):
        world = World(kind, MemoryStore(), script=(reply(calls=[SEND, {**SEND, "id": "t4"}]), reply("done")))
        peers, barrier = pair(world), threading.Barrier(2)

        def decide(peer: AnyHandle, call_id: str, at: threading.Barrier = barrier) -> None:
            cross(at)
            peer.decide(**{call_id: APPROVED})

        sides = [Background(partial(decide, *each)) for each in zip(peers, ("t2", "t4"), strict=True)]
        for side in sides:
            side.result()
        assert world.open().handle.pending == ()
        assert world.status() == "needs_command"


@either_kind
def test_a_stale_turn_refuses_what_came_too_late(kind: str) -> None:
    """Another one went on: nothing that the old `Yielded` is asked for happens, and then the handle is up to date."""
    words: list[Callable[[Any], object]] = [
        lambda turn: turn.continue_loop(),
        lambda turn: turn.approve("t2"),
        lambda turn: turn.deny("t2", "no"),
        lambda turn: turn.inject_and_continue(MORE),
    ]
    for word in words:
        world = World(kind, MemoryStore())
        first, second = pair(world)
        turn = first.turn()
        second.run(approve_all)
        before = world.store.load("loop")
        with pytest.raises((Conflict, CallerError)):
            first.say(lambda word=word, turn=turn: word(turn))  # type: ignore[misc]
        assert world.store.load("loop") == before
        if kind == "sync":  # an event loop does not wait for a store here: an async handle looks when it is driven
            assert first.handle.pending_turn is None
            assert first.handle.pending == ()
            assert first.handle.state == second.handle.state
        assert completed(first.run()).text == "done"
        assert first.handle.state == second.handle.state
        world.assert_once()


def test_a_decision_for_a_call_that_has_its_result_is_refused() -> None:
    """The round is over elsewhere; the error says what is known."""
    world = World("sync", MemoryStore())
    first, second = pair(world)
    second.decide(t2=APPROVED)
    second.say(second.turn().continue_loop)
    yielded(second.next_turn())
    with pytest.raises(UnknownCall, match="t2"):
        first.decide(t2=Deny("no"))
    assert yielded(first.turn()).reason == "tools_executed"
    assert first.text() == "done"


# --- who drives ------------------------------------------------------------------------------------------------------


def test_one_drives_and_the_others_are_told_who() -> None:
    """`Conflict` names the owner and until when; meanwhile anybody reads."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first, second = world.open(), world.open()
    with held(world, "t1", first) as turn:
        lease = world.store.lease("loop")
        assert lease is not None
        for peer in (second, world.open()):
            with pytest.raises(Conflict, match="is being driven by process") as caught:
                peer.next_turn()
            assert (caught.value.owner, caught.value.until, caught.value.token) == (
                lease.owner,
                lease.until,
                lease.token,
            )
            assert lease.owner.startswith(this_process())
        assert [call["id"] for call in world.open().handle.view()["pending"]] == []
    assert yielded(turn.result()).reason == "tools_executed"
    assert world.listed().lease is None
    assert second.run().unwrap().text == "done"
    assert world.ran == ["t1"]


def test_a_stop_from_elsewhere_in_a_request_counts_once_it_is_answered() -> None:
    """The answer was paid for and is kept; then the loop ends, and nothing of it runs."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first, second = world.open(), world.open()
    with held(world, "request", first) as turn:
        second.say(lambda: second.handle.resume(Stop("enough")))
    done = completed(turn.result())
    assert (done.termination, done.iterations, world.ran) == (StopCondition("enough"), 1, [])
    assert completed(world.open().next_turn()).termination == StopCondition("enough")


def test_a_stop_from_elsewhere_in_a_tool_ends_the_loop() -> None:
    """The tool is let be; its end is told to the journal, and changes nothing."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first, second = world.open(), world.open()
    with held(world, "t1", first) as turn:
        second.say(lambda: second.handle.resume(Stop("enough")))
        assert world.status() == "ended"
        ended = world.state()
    assert completed(turn.result()).termination == StopCondition("enough")
    assert (world.journal()[-1], world.ran) == ("Ended", ["t1"])
    after = world.state()
    assert isinstance(ended.root.phase, Finished)
    assert isinstance(after.root.phase, Finished)
    assert after.root.messages == ended.root.messages


def test_messages_from_elsewhere_join_at_the_next_legal_place() -> None:
    """Said while a request, or a tool, is under way: the model hears them with the results."""
    for place in ("request", "t1"):
        world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
        first, second = world.open(), world.open()
        with held(world, place, first) as turn:
            second.say(lambda second=second: second.handle.resume(InjectMessages(MORE)))  # type: ignore[misc]
        yielded(turn.result())
        assert first.run().unwrap().termination == NaturalEnd()
        heard = said(world.requests[-1])
        assert (heard[-1], heard[-2][0]["type"]) == ("one more thing", "tool_result")
        assert len(world.requests) == 2


# --- taking over -----------------------------------------------------------------------------------------------------


@either_kind
def test_an_end_after_a_take_over_counts_if_nobody_decided(kind: str) -> None:
    """The call waits as uncertain with the new driver; then its real end comes, and that is its result."""
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first = world.open()
    with held(world, "t1", first) as turn:
        second = world.open(take_over=True)
        assert [(call.id, call.why) for call in second.handle.pending] == [("t1", "uncertain")]
    with pytest.raises(Conflict):
        turn.result()
    assert second.run().unwrap().text == "done"
    assert said(world.requests[-1])[-1][0]["content"] == "pay 1"
    assert first.run().unwrap().text == "done"
    assert (world.ran, len(world.requests)) == (["t1"], 2)


def test_an_end_after_a_take_over_is_only_recorded_if_somebody_decided() -> None:
    """The first end of a call wins: what the person said."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first = world.open()
    with held(world, "t1", first) as turn:
        second = world.open(take_over=True)
        second.decide(t1=Answer("it had happened", by="ben"))
        assert second.run().unwrap().text == "done"
        before = world.state()
    with pytest.raises(Conflict):
        turn.result()
    assert said(world.requests[-1])[-1][0]["content"] == "it had happened"
    assert world.journal()[-1] == "Ended"
    assert world.state() == before or world.status() == "ended"
    assert (world.ran, len(world.requests)) == (["t1"], 2)


def test_who_was_taken_over_does_nothing_more() -> None:
    """One of its calls runs, the next was to follow: it does not."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY, LOOK]), reply("done")))
    world.config = {"max_parallel_tools": 1}
    first = world.open()
    with held(world, "t1", first) as turn:
        second = world.open(take_over=True)
        second.decide(t1=Deny("nobody knows"))
    with pytest.raises(Conflict, match="loop"):
        turn.result()
    assert world.ran == ["t1"]
    assert second.run().unwrap().text == "done"
    assert world.ran == ["t1", "t3"]


def test_a_request_that_was_taken_over_is_made_again() -> None:
    """The answer to the first is dropped, for the loop has gone on."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first = world.open()
    with held(world, "request", first) as turn:
        second = world.open(take_over=True)
        yielded(second.next_turn())
    with pytest.raises(Conflict):
        turn.result()
    assert second.run().unwrap().text == "done"
    assert world.journal().count("Replied") == 2
    assert (world.ran, len(world.requests)) == (["t1"], 3)


# --- changes that race -----------------------------------------------------------------------------------------------


def edit(peer: AnyHandle) -> None:
    peer.handle.messages_mut().append({"role": "user", "content": "edited"})
    peer.turn().continue_loop()


RACING: dict[str, Callable[[AnyHandle], object]] = {
    "continue": lambda peer: peer.turn().continue_loop(),
    "inject": lambda peer: peer.turn().inject_and_continue(MORE),
    "an edit": edit,
    "update_params": lambda peer: peer.handle.update_params(max_tokens=9),
    "extend": lambda peer: peer.handle.extend(max_iterations=99),
}


@pytest.mark.parametrize("word", RACING)
def test_a_word_about_a_loop_that_went_on_is_refused(word: str) -> None:
    """Nothing of it is stored, and the handle then shows how the loop stands."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply(calls=[LOOK]), reply("done")))
    first, second = world.open(), world.open()
    yielded(first.next_turn())
    second = world.open()
    second.say(second.turn().continue_loop)
    yielded(second.next_turn())
    before = world.store.load("loop")
    lost = "somebody else changed the history" if word == "an edit" else "went on elsewhere"
    with pytest.raises((Conflict, IllegalCommand), match=lost):
        first.say(lambda: RACING[word](first))
    assert world.store.load("loop") == before
    assert first.handle.state == second.handle.state
    assert [call.id for call in first.turn().calls] == ["t3"]
    first.say(lambda: RACING[word](first))
    assert first.run().unwrap().text == "done"
    assert world.ran == ["t1", "t3"]


@either_kind
def test_changes_of_parameters_do_not_overwrite_each_other(kind: str) -> None:
    """The second is refused, looks again, and both stand."""
    world = World(kind, MemoryStore())
    first, second = pair(world)
    second.say(lambda: second.handle.update_params(temperature=0.5))
    with pytest.raises(Conflict):
        first.say(lambda: first.handle.update_params(max_tokens=9))
    first.say(lambda: first.handle.update_params(max_tokens=9))
    assert first.run(approve_all).unwrap().text == "done"
    assert (world.requests[-1]["temperature"], world.requests[-1]["max_tokens"]) == (0.5, 9)


def test_of_two_follow_ups_and_of_two_retries_one_counts() -> None:
    """After the end, too, each word is about the loop as it stood."""
    world = World("sync", MemoryStore(), script=(reply("one"), reply("two"), ModelError("overloaded")))
    completed(world.open().run())
    first, second = world.open(), world.open()
    second.say(lambda: second.handle.follow_up(MORE))
    with pytest.raises((Conflict, CallerError)):
        first.say(lambda: first.handle.follow_up([{"role": "user", "content": "other"}]))
    assert completed(first.run()).text == "two"
    assert said(world.requests[-1]) == ["hello", "one more thing"]
    first.say(lambda: first.handle.follow_up(MORE))
    failed(first.run())
    world.script = (*world.script[:2], reply("three"))
    third, fourth = world.open(), world.open()
    third.say(third.handle.retry)
    with pytest.raises((Conflict, CallerError)):
        fourth.say(fourth.handle.retry)
    assert completed(fourth.run()).text == "three"
    assert len(world.requests) == 4
