"""What a store lists loops by: whose turn it is, at every stop of a story."""

from __future__ import annotations

from contextlib import suppress

from tests.loop.concurrency import either_kind
from tests.loop.stored import APPROVED, World
from tests.loop.support import completed, yielded
from toolloop import Deny, Stop
from toolloop.errors import CallerError, Conflict
from toolloop.machine import status_of
from toolloop.stores.memory import MemoryStore


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
