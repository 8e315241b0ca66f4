"""What a store lists loops by: whose turn it is, and until when, right at every stop of a story."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.loop.concurrency import either_kind
from tests.loop.stored import APPROVED, LOOK, PAY, SEND, World, held
from tests.loop.support import completed, failed, params, yielded
from toolloop import Answer, Deny, InjectMessages, Stop
from toolloop.errors import CallerError, Conflict, ModelError
from toolloop.machine import status_of
from toolloop.stores.memory import MemoryStore
from toolloop.testing import reply

NOW = 1_800_000_000.0
EXTERNAL = {"name": "ask", "input_schema": {"type": "object", "properties": {}}}


def test_the_status_is_right_at_every_stop() -> None:
    """From the creation to the end, also while a request or a tool is under way."""
    world = World("sync", MemoryStore())
    seen: list[tuple[str, str]] = []

    def look(at: str) -> None:
        seen.append((at, world.status()))

    for place in ("request", "t1", "t2", "t3"):
        world.on[place] = lambda place=place: look(place)  # type: ignore[misc]
    party = world.open()
    look("created")
    yielded(party.next_turn())
    look("tools executed")
    party.say(party.turn().continue_loop)
    look("continued")
    yielded(party.next_turn())
    look("two wait")
    party.decide(t2=Deny("no"))
    look("decided")
    party.say(party.turn().continue_loop)
    look("to run")
    yielded(party.next_turn())
    party.say(party.turn().continue_loop)
    completed(party.next_turn())
    look("done")
    party.say(lambda: party.handle.follow_up([{"role": "user", "content": "more"}]))
    look("followed up")
    party.say(lambda: party.handle.resume(Stop()))
    look("stopped")
    assert seen == [
        ("created", "runnable"),
        ("request", "running"),
        ("t1", "running"),
        ("tools executed", "needs_command"),
        ("continued", "runnable"),
        ("request", "running"),
        ("two wait", "needs_decision"),
        ("decided", "needs_command"),
        ("to run", "runnable"),
        ("t3", "running"),
        ("request", "running"),
        ("done", "ended"),
        ("followed up", "runnable"),
        ("stopped", "ended"),
    ]


@either_kind
def test_the_head_always_says_what_the_journal_says(kind: str) -> None:
    """After every single turn and word, whoever said it."""
    world = World(kind, MemoryStore())
    parties = [party := world.open(), world.open()]
    for number in range(30):
        assert world.status() == status_of(world.state())
        party = parties[number % 2]
        if party.handle.is_finished:
            break
        turn = party.handle.pending_turn
        with suppress(CallerError, Conflict):  # the other was there meanwhile; now this one has seen it
            if turn is None:
                party.next_turn()
            elif turn.pending:
                party.decide(**{turn.pending[0].id: APPROVED})
            else:
                party.say(turn.continue_loop)
    world.assert_once()
    assert completed(party.run()).text == "done"


def test_other_stops_have_their_status_too() -> None:
    """A pause, an external call, a failed request, an injection: each says who is to act."""
    script = (reply("wait", stop_reason="pause_turn"), reply(calls=[("ask", {})]), ModelError("overloaded"))
    world = World("sync", MemoryStore(), script=script)
    party = world.open(params=params(tools=[EXTERNAL]))
    assert (yielded(party.next_turn()).reason, world.status()) == ("paused", "needs_command")
    party.say(lambda: party.turn().inject_and_continue([{"role": "user", "content": "go on"}]))
    assert world.status() == "runnable"
    (call,) = yielded(party.next_turn()).pending
    assert (call.why, world.status()) == ("external", "needs_decision")
    party.decide(**{call.id: Answer("yes")})
    assert world.status() == "needs_command"
    party.say(lambda: party.handle.resume(InjectMessages([{"role": "user", "content": "quick"}])))
    assert world.status() == "runnable"
    failed(party.run())
    assert world.status() == "ended"
    party.say(party.handle.retry)
    assert world.status() == "runnable"


def test_a_call_that_nobody_saw_end_waits_for_a_decision() -> None:
    """The loop was taken over while it ran: it is listed among those that wait for somebody."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    with held(world, "t1", world.open()) as turn:
        assert world.status() == "running"
        other = world.open(take_over=True)
        assert [call.why for call in other.handle.pending] == ["uncertain"]
        assert world.status() == "needs_decision"
    with pytest.raises(Exception, match="loop"):
        turn.result()


def test_the_earliest_deadline_is_listed() -> None:
    """And gone with the last call that has one."""
    world = World("sync", MemoryStore(), config={"decision_timeout": 60.0}, now=lambda: NOW)
    world.script = (reply(calls=[SEND, {**SEND, "id": "t9"}, LOOK]), reply("done"))
    party = world.open()
    assert world.listed().deadline is None
    yielded(party.next_turn())
    assert world.listed().deadline == NOW + 60
    party.decide(t2=APPROVED)
    assert world.listed().deadline == NOW + 60
    party.decide(t9=Deny("no"))
    assert world.listed().deadline is None


def test_loops_are_listed_by_status_page_by_page() -> None:
    """Newest first, among loops in every status."""
    world = World("sync", MemoryStore(), script=(reply(calls=[SEND]), reply("done")))
    for number in range(9):
        party = world.open(f"loop{number}")
        if number % 3:
            party.run()
        if number % 3 == 2:
            party.decide(t2=Deny("no"))
    by_status = {
        status: [loop.loop_id for loop in world.store.list(status)] for status in ("runnable", "needs_decision")
    }
    assert by_status["runnable"] == ["loop6", "loop3", "loop0"]
    assert by_status["needs_decision"] == ["loop7", "loop4", "loop1"]
    page = world.store.list("needs_command", limit=2)
    assert [loop.loop_id for loop in page] == ["loop8", "loop5"]
    assert [loop.loop_id for loop in world.store.list("needs_command", before=page[-1].cursor)] == ["loop2"]
