"""Two handles on one stored loop: any may read and decide, one drives, and what was overtaken is refused, not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from attrs import define, field

from tests.kit.concurrency import Background, cross, either_kind, run_async
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import LOOK, PAY, SEND, params, user
from tests.kit.world import APPROVED, AnyHandle, World, approve_all, hold_at
from toolloop import (
    Answer,
    Approve,
    AsyncToolLoopHandle,
    Completed,
    Deny,
    LoopConfig,
    Stop,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import CallerError, Conflict, DecisionConflict, IllegalCommand, ModelError
from toolloop.machine import Finished
from toolloop.machine.values.calls import Decision
from toolloop.stores import MemoryStore
from toolloop.stores.process import name_this_process
from toolloop.stores.protocol import Entry
from toolloop.terminations import StopCondition
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply
from toolloop.testing.promises import check_promises

MORE = [{"role": "user", "content": "one more thing"}]


def pair(world: World) -> tuple[AnyHandle, AnyHandle]:
    """Two handles, the first of which has driven to where a decision is needed."""
    first = world.open()
    expect_yielded(first.run())
    return first, world.open()


def list_said(request: Any) -> list[Any]:
    return [message["content"] for message in request["messages"] if message["role"] == "user"]


# --- decisions -------------------------------------------------------------------------------------------------------


@either_kind
def test_a_decision_is_not_lost_while_another_handle_drives(kind: str) -> None:
    """It is said while a tool runs; the driver finds it when it stores the end."""
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY, SEND]), reply("done")))
    world.config = {"execution": "ready"}
    first, second = pair(world)
    first.say(first.turn().continue_loop)
    with hold_at(world, "t1", first) as turn:
        second.decide(t2=Approve(by="ben"))
        assert second.handle.pending == ()
    assert [call.status for call in expect_yielded(turn.result()).calls] == ["settled", "decided"]
    assert first.handle.pending == ()
    assert first.text() == "done"
    assert world.ran == ["t1", "t2"]


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
        assert world.status() in ("needs_command", "runnable")  # the last word may be of the one that did not drive


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
        assert expect_completed(first.run()).text == "done"
        assert first.handle.state == second.handle.state
        world.assert_once()


# --- who drives ------------------------------------------------------------------------------------------------------


def test_one_drives_and_the_others_learn_who() -> None:
    """`Conflict` names the owner and until when; meanwhile any caller can read."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first, second = world.open(), world.open()
    with hold_at(world, "t1", first) as turn:
        lease = world.store.head("loop").lease
        assert lease is not None
        for peer in (second, world.open()):
            with pytest.raises(Conflict, match="is being driven by process") as caught:
                peer.next_turn()
            assert (caught.value.owner, caught.value.until, caught.value.token) == (
                lease.owner,
                lease.until,
                lease.token,
            )
            assert lease.owner.startswith(name_this_process())
        assert [call["id"] for call in world.open().handle.view()["pending"]] == []
    assert expect_yielded(turn.result()).reason == "tools_executed"
    assert world.row().lease is None
    assert second.run().unwrap().text == "done"
    assert world.ran == ["t1"]


def test_a_stop_from_elsewhere_in_a_tool_ends_the_loop() -> None:
    """When the tool has ended: its result counts, also for the handle that stopped it."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first, second = world.open(), world.open()
    with hold_at(world, "t1", first) as turn:
        second.say(lambda: second.handle.resume(Stop("enough")))
        assert world.status() == "stopping"
    assert expect_completed(turn.result()).termination == StopCondition("enough")
    assert (world.journal()[-1], world.ran) == ("Ended", ["t1"])
    after = world.state()
    assert isinstance(after.root.phase, Finished)
    assert "cancelled" not in after.root.messages[-1]


# --- taking over -----------------------------------------------------------------------------------------------------


@either_kind
def test_an_end_after_a_take_over_counts_if_no_decision_was_recorded(kind: str) -> None:
    """The call waits as uncertain with the new driver; then its real end comes, and that is its result."""
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first = world.open()
    with hold_at(world, "t1", first) as turn:
        second = world.open(take_over=True)
        assert [(call.id, call.why) for call in second.handle.pending] == [("t1", "uncertain")]
    with pytest.raises(Conflict):
        turn.result()
    assert second.run().unwrap().text == "done"
    assert list_said(world.requests[-1])[-1][0]["content"] == "pay 1"
    assert first.run().unwrap().text == "done"
    assert (world.ran, len(world.requests)) == (["t1"], 2)


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
    expect_yielded(first.next_turn())
    second = world.open()
    second.say(second.turn().continue_loop)
    expect_yielded(second.next_turn())
    before = world.store.load("loop")
    lost = "the history was changed elsewhere" if word == "an edit" else "continued elsewhere"
    with pytest.raises((Conflict, IllegalCommand), match=lost):
        first.say(lambda: RACING[word](first))
    assert world.store.load("loop") == before
    assert first.handle.state == second.handle.state
    assert [call.id for call in first.turn().calls] == ["t3"]
    first.say(lambda: RACING[word](first))
    assert first.run().unwrap().text == "done"
    assert world.ran == ["t1", "t3"]


def test_of_two_follow_ups_and_of_two_retries_one_counts() -> None:
    """After the end, too, each word is about the loop as it stood."""
    world = World("sync", MemoryStore(), script=(reply("one"), reply("two"), ModelError("overloaded")))
    expect_completed(world.open().run())
    first, second = world.open(), world.open()
    second.say(lambda: second.handle.follow_up(MORE))
    with pytest.raises((Conflict, CallerError)):
        first.say(lambda: first.handle.follow_up([{"role": "user", "content": "other"}]))
    assert expect_completed(first.run()).text == "two"
    assert list_said(world.requests[-1]) == ["hello", "one more thing"]
    first.say(lambda: first.handle.follow_up(MORE))
    expect_error(first.run())
    world.script = (*world.script[:2], reply("three"))
    third, fourth = world.open(), world.open()
    third.say(third.handle.retry)
    with pytest.raises((Conflict, CallerError)):
        fourth.say(fourth.handle.retry)
    assert expect_completed(fourth.run()).text == "three"
    assert len(world.requests) == 4


ID = "loop"


class Interrupted(MemoryStore):
    """Once, another caller gives a command right before an event of this kind is appended."""

    def __init__(self) -> None:
        super().__init__()
        self.before = ""
        self.speak: Callable[[], object] = list

    def append(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        if self.before and any(f'"event":"{self.before}"' in entry.body for entry in entries):
            self.before = ""
            self.speak()
        return super().append(loop_id, entries, **more)


@define
class Scene:
    """A stored loop that pays if it may, and what was sent and done."""

    needs_approval: bool
    store: Interrupted = field(factory=Interrupted)
    sent: list[Any] = field(factory=list)
    paid: list[int] = field(factory=list)

    def tools(self) -> list[Any]:
        @tool(needs_approval=self.needs_approval)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        return [pay]

    def answer(self, request: Any) -> Any:
        self.sent.append(request["messages"])
        asked = any(message["role"] == "assistant" for message in request["messages"])
        return reply("done") if asked else reply(calls=[call("pay", {"amount": 1000}, id="c1")])

    def sync_handle(self) -> ToolLoopHandle:
        return ToolLoopHandle(
            ScriptedProvider(self.answer), params=params(), tools=self.tools(), store=self.store, loop_id=ID
        )

    def async_handle(self, timeout: float | None = None) -> AsyncToolLoopHandle:
        async def answer(request: Any) -> Any:
            return self.answer(request)

        return AsyncToolLoopHandle(
            AsyncScriptedProvider(answer),
            params=params(),
            tools=self.tools(),
            store=self.store,
            loop_id=ID,
            config=LoopConfig(timeout=timeout),
        )

    def speak_elsewhere(self, before: str, say: Callable[[ToolLoopHandle], object]) -> None:
        """Let another handle say something right before an event of this kind is stored."""

        def speak() -> None:
            with ToolLoopHandle.open(self.store, ID, ScriptedProvider([]), tools=self.tools()) as other:
                say(other)

        self.store.before, self.store.speak = before, speak

    def is_sound(self) -> bool:
        return check_promises(self.store.load(ID).entries).broken == ()


def inject(handle: ToolLoopHandle) -> None:
    assert handle.pending_turn is not None
    handle.pending_turn.inject_and_continue([user("THEIRS")])


def edit_messages(handle: ToolLoopHandle) -> None:
    handle.messages_mut()[0]["content"] = "THEIRS"
    assert handle.pending_turn is not None
    handle.pending_turn.continue_loop()


@pytest.mark.parametrize("say", [inject, edit_messages])
def test_a_request_goes_out_with_all_that_stands_before_it(say: Callable[[ToolLoopHandle], None]) -> None:
    """`run()` stores its own going on with the request, and another caller was there first."""
    scene = Scene(needs_approval=False)
    handle = scene.sync_handle()
    assert isinstance(handle.next_turn(), Yielded)
    scene.speak_elsewhere("Requested", say)
    assert isinstance(handle.run(), Completed)
    assert scene.sent[-1] == list(handle.messages)[: len(scene.sent[-1])]
    assert "THEIRS" in str(scene.sent[-1])
    assert len(scene.sent) == 2
    assert scene.is_sound()


def test_an_approval_that_is_refused_runs_nothing() -> None:
    """The other one's decision counts, and with its input."""
    scene = Scene(needs_approval=True)

    async def drive() -> None:
        handle = scene.async_handle()
        turn = await handle.next_turn()
        assert isinstance(turn, Yielded)
        turn.approve("c1", by="me")
        turn.continue_loop()
        scene.speak_elsewhere("Started", lambda other: other.decide({"c1": Approve(input={"amount": 1}, by="boss")}))
        with pytest.raises(DecisionConflict):
            await handle.next_turn()
        assert scene.paid == []
        assert isinstance(await handle.run(), Completed)
        assert scene.paid == [1]

    run_async("asyncio", drive)
    assert scene.is_sound()


@pytest.mark.parametrize("timeout", [None, 100.0])
def test_a_message_that_is_refused_is_not_sent(timeout: float | None) -> None:
    """Also where requests go out side by side, for a limit of time."""
    scene = Scene(needs_approval=False)

    async def drive() -> None:
        handle = scene.async_handle(timeout)
        turn = await handle.next_turn()
        assert isinstance(turn, Yielded)
        turn.inject_and_continue([user("MINE")])
        scene.speak_elsewhere("Continued", inject)  # an append may hold it without the request
        with pytest.raises(Conflict):
            await handle.next_turn()
        assert len(scene.sent) == 1
        assert isinstance(await handle.run(), Completed)

    run_async("asyncio", drive)
    assert "THEIRS" in str(scene.sent[-1])
    assert "MINE" not in str(scene.sent)
    assert scene.is_sound()
