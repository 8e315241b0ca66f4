"""Standing grants, end to end: given with an approval, used unasked, told, listed, taken back, kept in the journal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.kit.concurrency import either_kind
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.world import World
from toolloop import Grant
from toolloop.errors import IllegalCommand
from toolloop.stores.memory import MemoryStore
from toolloop.testing import call, reply

START = 1_800_000_000.0


def script(*recipients: str) -> tuple[Any, ...]:
    """One letter a round, then the end."""
    letters = (reply(calls=[call("send", {"to": to}, id=f"t{number}")]) for number, to in enumerate(recipients))
    return (*letters, reply("done"))


def list_asked_about(world: World, first: Grant, **more: Any) -> list[str]:
    """Run the loop to its end: the calls that needed a decision, the first of which is approved with a grant."""
    asked: list[str] = []

    def ask(turn: Any) -> None:
        for each in turn.pending:
            asked.append(each.id)
            turn.approve(each, by="ana", reason="as usual", remember=first if each.id == "t0" else None)

    assert expect_completed(world.open(**more).run(ask)).text == "done"
    world.assert_once()
    return asked


def test_the_same_call_runs_unasked_and_another_does_not() -> None:
    """Without arguments a grant is for the tool and the exact input: never for more than was shown."""
    world = World("sync", MemoryStore(), script=script("ana", "ana", "ben", "ana"))
    assert list_asked_about(world, Grant()) == ["t0", "t2"]
    assert world.ran == ["t0", "t1", "t2", "t3"]


def test_a_call_says_by_which_grant_it_ran() -> None:
    """And the grant says who gave it, when, why, and with which call."""
    world = World("sync", MemoryStore(), script=script("ana", "ana"), clock=lambda: START)
    party = world.open()
    turn = expect_yielded(party.run())
    party.say(lambda: turn.approve("t0", by="ana", reason="as usual", remember=Grant()))
    (grant,) = world.open().handle.grants
    assert (grant.id, grant.tool, grant.input, grant.match, grant.uses) == ("1/t0", "send", {"to": "ana"}, None, None)
    assert (grant.by, grant.reason, grant.call_id) == ("ana", "as usual", "t0")
    assert grant.at == datetime.fromtimestamp(START, UTC)
    party.say(turn.continue_loop)
    expect_yielded(party.next_turn())
    party.say(party.turn().continue_loop)
    (second,) = expect_yielded(party.next_turn()).calls
    assert second.decision is not None
    assert (second.decision.grant, second.decision.by, second.decision.reason) == ("1/t0", "ana", "as usual")


@either_kind
def test_a_grant_is_taken_back_from_any_handle(kind: str) -> None:
    """It holds after reopening, until it is revoked; then the next call asks, with every driver."""
    world = World(kind, MemoryStore(), script=script("ana", "ana", "ana"))
    first = world.open()
    turn = expect_yielded(first.run())
    first.say(lambda: turn.approve("t0", by="ana", remember=Grant()))
    first.say(turn.continue_loop)
    expect_yielded(first.next_turn())
    second = world.open()
    second.say(second.turn().continue_loop)
    assert expect_yielded(second.next_turn()).reason == "tools_executed"
    third = world.open()
    third.say(lambda: third.handle.grants.revoke(third.handle.grants[0], by="ben"))
    assert list(third.handle.grants) == []
    assert world.journal()[-1] == "GrantRevoked"
    waits = expect_yielded(second.run())
    assert [call.id for call in waits.pending] == ["t2"]
    assert list(second.handle.grants) == []
    with pytest.raises(IllegalCommand, match="1/t0"):
        second.say(lambda: second.handle.grants.revoke("1/t0"))
    assert world.ran == ["t0", "t1"]


def test_a_wider_grant_is_written_in_full() -> None:
    """For another tool, or other inputs, only what it names; nothing of it stands if it says too little."""
    world = World("sync", MemoryStore(), script=script("ana@home", "ben@home", "ben@work", "eva@home"))
    party = world.open()
    turn = expect_yielded(party.run())
    before = world.store.load("loop")
    with pytest.raises(IllegalCommand, match="look"):
        party.say(lambda: turn.approve("t0", remember=Grant(tool="look")))
    assert world.store.load("loop") == before
    assert list_asked_about(world, Grant(match={"to": "*@home"})) == ["t0", "t2"]
