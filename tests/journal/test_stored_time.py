"""Time of a stored loop: deadlines of decisions, grants that end, and clocks that jump."""

from __future__ import annotations

import json
import math
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import define
from hypothesis import given, strategies as st

from tests.kit.concurrency import either_kind
from tests.kit.effort import examples
from tests.kit.support import expect_yielded, results_in
from tests.kit.tools import LOOK, PAY, SEND
from tests.kit.world import APPROVED, World, approve_all, assert_sound
from toolloop import Answer, Approve, Ask, Completed, Deny, Grant, LoopConfig, ToolLoopHandle, Yielded, tool
from toolloop.errors import AlreadyDecided, CallerError, Conflict
from toolloop.machine.values.setup import Texts
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Store
from toolloop.testing import ScriptedProvider, call, reply

START = 1_800_000_000.0
SCRIPT = (reply(calls=[SEND, LOOK]), reply("done"))


@define
class Clock:
    """A clock that the test advances."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@tool(needs_approval=True)
def ask() -> str:
    """Ask."""
    return "so"


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(START, UTC) + timedelta(seconds=seconds)


def world(kind: str, clock: Clock, store: Store | None = None, **config: Any) -> World:
    config = {"decision_timeout": 60.0, **config}
    return World(kind, store or MemoryStore(), script=SCRIPT, config=config, clock=clock)


def list_told(of: World) -> list[tuple[str, bool]]:
    """The results of the calls that the model got, and whether each is an error."""
    return [(each["content"], each.get("is_error", False)) for each in results_in(of.requests[-1]["messages"][-1])]


EXPIRED = (Texts().expired, True)


def test_a_call_that_is_not_decided_in_time_expires() -> None:
    """`run()` goes on without it, in any process; it is not a denial, it never ran, and the model gets the truth."""
    clock = Clock()
    at = world("sync", clock, MemoryStore())
    party = at.open()
    turn = expect_yielded(party.run())
    assert (party.handle.next_deadline, turn.pending[0].expires_at) == (moment(60), moment(60))
    clock.now += 59
    assert expect_yielded(party.run()) is turn
    clock.now += 1
    assert at.open().run().unwrap().text == "done"
    assert list_told(at) == [EXPIRED, ("text of a", False)]
    assert at.ran == ["t3"]
    assert party.run().unwrap().text == "done"


def test_a_deadline_binds_without_a_tick() -> None:
    """A decision that comes late is refused, and the error says what happened; the journal has nothing of it."""
    clock = Clock()
    at = world("sync", clock, MemoryStore())
    party = at.open()
    expect_yielded(party.run())
    clock.now += 60
    for other in (party, at.open()):
        for decision in (APPROVED, Deny("no"), Answer("sent")):
            with pytest.raises(AlreadyDecided, match="expired"):
                other.decide(t2=decision)
    assert "Decided" not in at.journal()
    assert party.text() == "done"
    assert at.ran == ["t3"]


@either_kind
def test_a_process_that_sleeps_elsewhere_ticks_by_the_list(kind: str) -> None:
    """A scheduler reads deadlines from the store, and lets those expire whose time has come."""
    clock = Clock()
    at = world(kind, clock, MemoryStore())
    expect_yielded(at.open().run())
    (due,) = at.store.list("needs_decision")
    assert due.deadline == START + 60
    waker = at.open(due.loop_id)
    waker.say(lambda: waker.handle.tick(START + 59))
    assert [call.id for call in waker.handle.pending] == ["t2"]
    assert at.status() == "needs_decision"
    waker.say(lambda: waker.handle.tick(moment(60)))
    assert waker.handle.pending == ()
    assert (at.row().status, at.row().deadline, waker.handle.next_deadline) == ("runnable", None, None)
    assert waker.text() == "done"
    assert list_told(at)[0] == EXPIRED


ASKED = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def ends_of_a_race(handles: int) -> list[object]:
    """What came of handles that run at once, when the deadline of both calls has just passed."""
    clock, store, ready = Clock(), MemoryStore(), threading.Barrier(handles)
    came: list[object] = []
    given: dict[str, Any] = {"tools": [ask], "config": LoopConfig(decision_timeout=60), "params": ASKED, "clock": clock}

    def run(handle: ToolLoopHandle) -> None:
        ready.wait()
        try:
            came.append(handle.run())
        except Exception as error:  # noqa: BLE001 - the test looks at whatever it is
            came.append(error)

    calls = [call("ask", {}, id="one"), call("ask", {}, id="two")]
    with ToolLoopHandle.open(store, "loop", ScriptedProvider([reply(calls=calls)]), **given) as first:
        assert isinstance(first.run(), Yielded)
    opened = [ToolLoopHandle.open(store, "loop", ScriptedProvider([reply("done")]), **given) for _ in range(handles)]
    clock.now += 61
    threads = [threading.Thread(target=run, args=(handle,)) for handle in opened]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return came


@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=pytest.mark.deep)])
def test_handles_that_see_a_deadline_pass_at_once_end_or_conflict(rounds: int) -> None:
    """One drives what follows the expiry, and no other gets an error about its own run."""
    for _ in range(rounds):
        kinds = {type(each) for each in ends_of_a_race(4)}
        assert Completed in kinds
        assert kinds <= {Completed, Conflict}


@pytest.mark.parametrize("says", [math.nan, math.inf, -math.inf])
def test_the_end_of_a_tool_is_stored_though_the_clock_says_no_time(says: float) -> None:
    """The time stands still; nothing is raised, and nothing that happened is lost."""
    clock, store = Clock(), MemoryStore()

    @tool
    def breaks_the_clock() -> str:
        """Break the clock."""
        clock.now = says
        return "broken"

    script = [reply(calls=[call("breaks_the_clock", {}, id="one")]), reply("done")]
    given: dict[str, Any] = {"tools": [breaks_the_clock], "clock": clock, "store": store, "loop_id": "loop"}
    assert ToolLoopHandle(ScriptedProvider(script), params=ASKED, **given).run().unwrap().text == "done"
    woken = ToolLoopHandle.open(store, "loop", ScriptedProvider([]), tools=[breaks_the_clock], clock=clock)
    assert [result["content"] for result in results_in(woken.messages[2])] == ["broken"]


def test_what_one_handle_lets_expire_no_other_decides() -> None:
    """A click and a tick at the same deadline: the tick was first, and the click is refused."""
    clock = Clock()
    at = world("sync", clock)
    first = at.open()
    expect_yielded(first.run())
    second = at.open()
    first.say(lambda: first.handle.tick(START + 61))
    with pytest.raises(CallerError, match="t2"):
        second.decide(t2=APPROVED)
    assert second.text() == "done"
    assert at.ran == ["t3"]


END = 253_402_300_800.0  # the year 10,000
OTHER = call("send", {"to": "ben"}, id="t4")


def time_until(seconds: float) -> datetime:
    return datetime.fromtimestamp(START + seconds, UTC)


def send_again(call_id: str) -> dict[str, Any]:
    """The same letter once more, in a later round."""
    return {**SEND, "id": call_id}


@examples(60)
@given(jumps=st.lists(st.sampled_from([0.0, 0.0, 4.0, 11.0]), max_size=60), data=st.data())
def test_a_driver_finds_its_way_whenever_the_clock_jumps(jumps: list[float], data: st.DataObject) -> None:
    """Between any two looks at it: nothing is refused to the driver, and the loop ends."""
    now, left = [START], list(jumps)

    def clock() -> float:
        now[0] += left.pop() if left else 0.0
        return now[0]

    execution = data.draw(st.sampled_from(["barrier", "ready"]))
    config = {"decision_timeout": data.draw(st.sampled_from([None, 10.0])), "execution": execution}
    config["on_expiry"] = data.draw(st.sampled_from(["continue", "stop"]))
    world = World(
        "sync", MemoryStore(), clock=clock, config={**config, "max_parallel_tools": data.draw(st.integers(1, 2))}
    )
    calls = data.draw(
        st.lists(st.sampled_from([send_again("t5"), OTHER, LOOK, PAY]), unique_by=lambda each: each["id"])
    )
    world.script = (reply(calls=[SEND]), *([reply(calls=calls)] if calls else []), reply("done"))
    peer = world.open()

    def ask(turn: Yielded) -> None:
        for each in turn.pending:
            peer.handle.decide({each.id: Approve(remember=Grant(expires_at=time_until(20)))})

    for _ in range(9):
        try:
            result = peer.run(ask)
        except AlreadyDecided:  # it expired while it was decided, and that is told
            continue
        if isinstance(result, Completed):
            break
    assert isinstance(result, Completed)
    world.assert_once()
    assert_sound(world.store)


HALF = (reply(calls=[SEND, OTHER]), reply("done"))
# --- far away --------------------------------------------------------------------------------------------------------


FAR: dict[str, Any] = {
    "milliseconds": START * 1000,
    "a huge float": 1e300,
    "a huge int": 10**400,
}


@pytest.mark.parametrize(("says", "far"), [*FAR.items(), ("config", None)], ids=[*FAR, "config"])
def test_a_far_deadline_is_one_that_can_be_shown(says: str, far: Any) -> None:
    """With every policy and config: the loop waits, all who open it can look at it, and it goes on."""
    world = World("sync", MemoryStore(), script=(reply(calls=[SEND]), reply("done")), clock=lambda: START)
    world.config = {"decision_timeout": 1e300} if says == "config" else {"on_tool_call": lambda *_: Ask(expires_in=far)}
    expect_yielded(world.open().run())
    peer = world.open()
    for each in peer.handle.pending_turn.calls:
        assert each.expires_at is None or each.expires_at.year < 10_000
    assert json.dumps(peer.handle.view())
    assert repr(peer.handle.next_deadline)
    assert peer.run(approve_all).unwrap().text == "done"
    assert world.ran == ["t2"]


@pytest.mark.parametrize("far", [END, START * 1000 * 1000, 1e300, 10**400, -1e300, float("inf"), float("nan")])
def test_a_tick_beyond_the_calendar_is_refused(far: Any) -> None:
    """The loop's clock never goes back, so it would be there for ever."""
    world = World("sync", MemoryStore(), script=HALF, config={"decision_timeout": 60.0}, clock=lambda: START)
    peer = world.open()
    expect_yielded(peer.run())
    with pytest.raises(ValueError, match=r"tick\(\)"):
        peer.handle.tick(far)
    assert len(peer.handle.pending) == 2
