"""Deadlines of decisions: time is an input, and a deadline binds whether anybody ticks or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import define

from tests.loop.concurrency import either_kind
from tests.loop.stored import APPROVED, LOOK, PAY, SEND, World, held
from tests.loop.support import results_in, yielded
from toolloop import Answer, Ask, Deny
from toolloop.errors import CallerError, Conflict, UnknownCall
from toolloop.machine.setup import Texts
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Store
from toolloop.testing import reply

START = 1_800_000_000.0
SCRIPT = (reply(calls=[SEND, LOOK]), reply("done"))


@define
class Clock:
    """A clock that goes when it is told to."""

    now: float = START

    def __call__(self) -> float:
        return self.now


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(START, UTC) + timedelta(seconds=seconds)


def world(kind: str, clock: Clock, store: Store | None = None, **config: Any) -> World:
    config = {"decision_timeout": 60.0, **config}
    return World(kind, store or MemoryStore(), script=SCRIPT, config=config, now=clock)


def told(of: World) -> list[tuple[str, bool]]:
    """What the model was told of the calls, and whether as an error."""
    return [(each["content"], each.get("is_error", False)) for each in results_in(of.requests[-1]["messages"][-1])]


EXPIRED = (Texts().expired, True)


def test_a_call_that_nobody_decides_in_time_expires() -> None:
    """`run()` goes on without it, in whatever process; it is no denial, it never ran, and the model hears the truth."""
    clock = Clock()
    at = world("sync", clock, MemoryStore())
    party = at.open()
    turn = yielded(party.run())
    assert (party.handle.next_deadline, turn.pending[0].expires_at) == (moment(60), moment(60))
    clock.now += 59
    assert yielded(party.run()) is turn
    clock.now += 1
    assert at.open().run().unwrap().text == "done"
    assert told(at) == [EXPIRED, ("look a", False)]
    assert at.ran == ["t3"]
    assert party.run().unwrap().text == "done"


def test_a_deadline_binds_without_a_tick() -> None:
    """A decision that comes late is refused, and the error says what happened; the journal has nothing of it."""
    clock = Clock()
    at = world("sync", clock, MemoryStore())
    party = at.open()
    yielded(party.run())
    clock.now += 60
    for other in (party, at.open()):
        for decision in (APPROVED, Deny("no"), Answer("sent")):
            with pytest.raises(UnknownCall, match="expired"):
                other.decide(t2=decision)
    assert "Decided" not in at.journal()
    assert party.text() == "done"
    assert at.ran == ["t3"]


def test_a_decision_in_time_holds_though_the_turn_comes_later() -> None:
    """What counts is when it was said."""
    clock = Clock()
    at = world("sync", clock)
    party = at.open()
    yielded(party.run())
    clock.now += 59.9
    party.decide(t2=APPROVED)
    clock.now += 1000
    assert at.open().run().unwrap().text == "done"
    assert sorted(at.ran) == ["t2", "t3"]


@either_kind
def test_whoever_sleeps_elsewhere_ticks_by_the_list(kind: str) -> None:
    """A scheduler reads deadlines from the store, and lets those expire whose time has come."""
    clock = Clock()
    at = world(kind, clock, MemoryStore())
    yielded(at.open().run())
    (due,) = at.store.list("needs_decision")
    assert due.deadline == START + 60
    waker = at.open(due.loop_id)
    waker.say(lambda: waker.handle.tick(START + 59))
    assert [call.id for call in waker.handle.pending] == ["t2"]
    assert at.status() == "needs_decision"
    waker.say(lambda: waker.handle.tick(moment(60)))
    assert waker.handle.pending == ()
    assert (at.listed().status, at.listed().deadline, waker.handle.next_deadline) == ("needs_command", None, None)
    assert waker.text() == "done"
    assert told(at)[0] == EXPIRED


def test_a_policy_says_for_how_long_it_asks() -> None:
    """`Ask(expires_in)` for one call, `decision_timeout` for the others, the earliest first."""
    clock = Clock()
    script = (reply(calls=[SEND, {**SEND, "id": "t8"}]), reply("done"))

    def policy(call: Any, view: Any) -> Ask:
        return Ask("soon", expires_in=5) if call.id == "t8" else Ask()

    at = world("sync", clock, on_tool_call=policy)
    at.script = script
    party = at.open()
    assert [call.expires_at for call in yielded(party.run()).pending] == [moment(60), moment(5)]
    clock.now += 10
    party.decide(t2=APPROVED)
    assert party.handle.pending == ()
    assert party.text() == "done"
    assert told(at) == [("send ana", False), EXPIRED]
    assert at.ran == ["t2"]


def test_what_one_handle_lets_expire_no_other_decides() -> None:
    """A click and a tick at the same deadline: the tick was first, and the click is refused."""
    clock = Clock()
    at = world("sync", clock)
    first = at.open()
    yielded(first.run())
    second = at.open()
    first.say(lambda: first.handle.tick(START + 61))
    with pytest.raises(CallerError, match="t2"):
        second.decide(t2=APPROVED)
    assert second.text() == "done"
    assert at.ran == ["t3"]


def test_a_call_that_was_started_never_expires() -> None:
    """Uncertain calls wait for as long as it takes: somebody has to say what happened."""
    clock = Clock()
    at = world("sync", clock)
    at.script = (reply(calls=[PAY]), reply("done"))
    with held(at, "t1", at.open()) as turn:
        other = at.open(take_over=True)
        assert [(call.why, call.expires_at) for call in other.handle.pending] == [("uncertain", None)]
        clock.now += 10_000
        other.say(lambda: other.handle.tick(clock.now))
        assert [call.why for call in other.handle.pending] == ["uncertain"]
        other.decide(t1=Deny("nobody knows"))
    with pytest.raises(Conflict):
        turn.result()
    assert other.text() == "done"


def test_the_journal_keeps_an_expiry_for_who_opens_it_later() -> None:
    """The clock of a later reader may be wrong: what has expired has expired."""
    clock = Clock()
    at = world("sync", clock)
    party = at.open()
    yielded(party.run())
    party.say(lambda: party.handle.tick(START + 60))
    clock.now = START - 1000
    later = at.open()
    assert later.handle.pending == ()
    assert later.text() == "done"
    assert told(at)[0] == EXPIRED
