"""Time passes wherever it likes: between two looks of a driver, while a grant stands, and on another's handle."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loop.concurrency import either_kind
from tests.loop.stepping import Asked, assert_sound, past, stepping
from tests.loop.stored import APPROVED, LOOK, PAY, SEND, AnyHandle, World, approve_all
from tests.loop.support import results_in, yielded
from toolloop import Approve, Ask, Completed, Grant, Yielded
from toolloop.errors import UnknownCall
from toolloop.machine.setup import Texts
from toolloop.stores.memory import MemoryStore
from toolloop.testing import call, reply

START = 1_800_000_000.0
END = 253_402_300_800.0  # the year 10,000
OTHER = call("send", {"to": "ben"}, id="t4")


def until(seconds: float) -> datetime:
    return datetime.fromtimestamp(START + seconds, UTC)


def again(call_id: str) -> dict[str, Any]:
    """The same letter once more, in a later round."""
    return {**SEND, "id": call_id}


def granted(world: World, grant: Grant) -> AnyHandle:
    """A loop in whose first round a letter was allowed for later, too; its second round is the next to come."""
    peer = world.open()
    yielded(peer.run())
    peer.say(lambda: peer.turn().approve("t2", by="ana", remember=grant))
    peer.say(peer.turn().continue_loop)
    yielded(peer.next_turn())
    return peer


# --- grants ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["revoked", "over"])
def test_what_a_grant_had_cleared_does_not_run_when_the_grant_is_gone(ends: str) -> None:
    """It had not started, for it waited for a neighbour: now it waits itself."""
    now = [START]
    world = World("sync", MemoryStore(), now=lambda: now[0])
    world.script = (reply(calls=[SEND]), reply(calls=[again("t5"), OTHER]), reply("done"))
    peer = granted(world, Grant(expires_at=until(60)))
    turn = yielded(peer.run())
    assert [each.id for each in turn.pending] == ["t4"]
    if ends == "revoked":
        peer.say(lambda: peer.handle.grants.revoke(peer.handle.grants[0]))
    else:
        now[0] += 60
    peer.decide(t4=APPROVED)
    waits = yielded(peer.run())
    assert ([each.id for each in waits.pending], world.ran) == (["t5"], ["t2"])
    assert peer.run(approve_all).unwrap().text == "done"
    assert_sound(world.store)


def test_a_grant_that_is_revoked_in_a_tool_lets_no_further_call_of_the_round_run() -> None:
    """They run one by one; the last one asks."""
    world = World("sync", MemoryStore(), config={"max_parallel_tools": 1})
    world.script = (reply(calls=[SEND]), reply(calls=[again("t5"), PAY, again("t6")]), reply("done"))
    peer = granted(world, Grant())

    def revoke() -> None:
        other = world.open()
        other.say(lambda: other.handle.grants.revoke("1/t2"))

    world.on["t1"] = revoke
    waits = yielded(peer.run())
    assert ([each.id for each in waits.pending], world.ran) == (["t6"], ["t2", "t5", "t1"])
    assert_sound(world.store)


def test_a_grant_that_ends_while_a_policy_thinks_makes_the_call_wait() -> None:
    """Between the judgement and the start: the loop goes on, and asks."""
    now = [START]
    slow = [0.0]

    def policy(*_: Any) -> Ask:
        now[0] += slow[0]
        return Ask()

    world = World("sync", MemoryStore(), now=lambda: now[0], config={"on_tool_call": policy})
    world.script = (reply(calls=[SEND]), reply(calls=[again("t5"), again("t6")]), reply("done"))
    peer = granted(world, Grant(expires_at=until(15)))
    slow[0] = 10.0
    waits = yielded(peer.run())
    assert [each.id for each in waits.pending] == ["t5", "t6"]
    assert peer.run(approve_all).unwrap().text == "done"
    assert world.ran == ["t2", "t5", "t6"]
    assert_sound(world.store)


@settings(max_examples=60)
@given(jumps=st.lists(st.sampled_from([0.0, 0.0, 4.0, 11.0]), max_size=60), data=st.data())
def test_a_driver_finds_its_way_whenever_the_clock_jumps(jumps: list[float], data: st.DataObject) -> None:
    """Between any two looks at it: nothing is refused to the driver, and the loop comes to its end."""
    now, left = [START], list(jumps)

    def clock() -> float:
        now[0] += left.pop() if left else 0.0
        return now[0]

    execution = data.draw(st.sampled_from(["barrier", "ready"]))
    config = {"decision_timeout": data.draw(st.sampled_from([None, 10.0])), "execution": execution}
    world = World(
        "sync", MemoryStore(), now=clock, config={**config, "max_parallel_tools": data.draw(st.integers(1, 2))}
    )
    calls = data.draw(st.lists(st.sampled_from([again("t5"), OTHER, LOOK, PAY]), unique_by=lambda each: each["id"]))
    world.script = (reply(calls=[SEND]), *([reply(calls=calls)] if calls else []), reply("done"))
    peer = world.open()

    def ask(turn: Yielded) -> None:
        for each in turn.pending:
            peer.handle.decide({each.id: Approve(remember=Grant(expires_at=until(20)))})

    for _ in range(9):
        try:
            result = peer.run(ask)
        except UnknownCall:  # it expired while it was decided, and that is told
            continue
        if isinstance(result, Completed):
            break
    assert isinstance(result, Completed)
    world.assert_once()
    assert_sound(world.store)


# --- expiry ----------------------------------------------------------------------------------------------------------


def half(asked: Any, _: Any) -> Ask:
    return Ask(expires_in=60.0 if asked.id == "t2" else None)


HALF = (reply(calls=[SEND, OTHER]), reply("done"))
WAYS: dict[str, Callable[[AnyHandle], object]] = {
    "decide all that are pending": lambda peer: peer.decide(**{each.id: APPROVED for each in peer.handle.pending}),
    "approve_all()": lambda peer: peer.say(peer.turn().approve_all),
    "run(ask)": lambda peer: peer.run(approve_all),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("opened", ["late", "in time"])
def test_of_calls_that_wait_those_that_expired_are_in_nobodys_way(way: str, opened: str) -> None:
    """They are no longer pending, so deciding what is pending decides the others."""
    now = [START]
    world = World("sync", MemoryStore(), script=HALF, now=lambda: now[0], config={"on_tool_call": half})
    peer = world.open()
    yielded(peer.run())
    now[0] += 60
    if opened == "late":
        peer = world.open()
        assert [each.id for each in peer.handle.pending] == ["t4"]
        assert [each["id"] for each in peer.handle.view()["pending"]] == ["t4"]
    if way == "decide all that are pending" and opened == "in time":
        with pytest.raises(UnknownCall, match="expired"):
            WAYS[way](peer)
    WAYS[way](peer)
    assert peer.text() == "done"
    assert world.ran == ["t4"]
    told = [each["content"] for each in results_in(world.requests[-1]["messages"][-1])]
    assert told == [Texts().expired, "send ben"]


@either_kind
def test_two_handles_may_notice_one_expiry(kind: str) -> None:
    """The slower one finds that it is done, and what it says is judged by how the loop stands."""
    now = [START]
    world = World(kind, MemoryStore(), script=HALF, now=lambda: now[0], config={"decision_timeout": 60.0})
    first = world.open()
    yielded(first.run())
    others = [world.open() for _ in range(3)]
    now[0] += 60
    assert first.text() == "done"
    others[0].say(lambda: others[0].handle.tick(now[0]))
    with pytest.raises(UnknownCall, match="t2"):
        others[1].decide(t2=APPROVED)
    assert others[2].text() == "done"
    assert world.ran == []


def test_who_opens_a_loop_may_find_that_it_went_on_in_that_very_moment() -> None:
    """It loaded the loop with an expired call; by the time it says so, somebody else has driven it to its end."""
    now = [START]
    world, store = stepping("sync", script=HALF, now=lambda: now[0], config={"decision_timeout": 60.0})
    first = past(world).open(context=world.parts()["context"])
    yielded(first.run())
    now[0] += 60

    def drive(asked: Asked) -> None:
        if asked.events == ("Ticked",):
            store.before = lambda _: None
            assert first.text() == "done"

    store.before = drive
    second = world.open()
    assert second.text() == "done"
    assert_sound(store)


@either_kind
def test_a_decision_is_not_made_before_what_the_loop_has_heard_of(kind: str) -> None:
    """The clock of whoever decides may be slow: the loop's own time never goes back."""
    now = [START + 60]
    world = World(kind, MemoryStore(), script=HALF, now=lambda: now[0])
    peer = world.open()
    yielded(peer.run())
    now[0] = START
    peer.decide(t2=APPROVED)
    decided = next(each for each in peer.turn().calls if each.id == "t2").decision
    assert decided is not None
    assert decided.at == until(60)


# --- far away --------------------------------------------------------------------------------------------------------

FAR: dict[str, Any] = {
    "milliseconds": START * 1000,
    "a huge float": 1e300,
    "a huge int": 10**400,
}


@pytest.mark.parametrize(("says", "far"), [*FAR.items(), ("config", None)], ids=[*FAR, "config"])
def test_a_far_deadline_is_one_that_can_be_shown(says: str, far: Any) -> None:
    """Whatever a policy or the config says: the loop waits, everybody who opens it can look at it, and it goes on."""
    world = World("sync", MemoryStore(), script=(reply(calls=[SEND]), reply("done")), now=lambda: START)
    world.config = {"decision_timeout": 1e300} if says == "config" else {"on_tool_call": lambda *_: Ask(expires_in=far)}
    yielded(world.open().run())
    peer = world.open()
    for each in peer.handle.pending_turn.calls:  # type: ignore[union-attr]
        assert each.expires_at is None or each.expires_at.year < 10_000
    assert json.dumps(peer.handle.view())
    assert repr(peer.handle.next_deadline)
    assert peer.run(approve_all).unwrap().text == "done"
    assert world.ran == ["t2"]


@pytest.mark.parametrize("far", [END, START * 1000 * 1000, 1e300, 10**400, -1e300, float("inf"), float("nan")])
def test_a_tick_beyond_the_calendar_is_refused(far: Any) -> None:
    """The loop's clock never goes back, so it would be there for ever."""
    world = World("sync", MemoryStore(), script=HALF, config={"decision_timeout": 60.0}, now=lambda: START)
    peer = world.open()
    yielded(peer.run())
    with pytest.raises(ValueError, match=r"tick\(\)"):
        peer.handle.tick(far)
    assert len(peer.handle.pending) == 2
