"""A driver that lost its loop: it gets an error, from any call that notices; it starts no more; its runs are kept."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from typing import Any

import anyio
import pytest

from tests.kit import inside
from tests.kit.concurrency import DEADLINE, Background, either_kind, on_both_backends, wait_for, wait_in_loop_for
from tests.kit.failing import Asked
from tests.kit.tools import LOOK, PAY, look
from tests.kit.world import AnyHandle, World, assert_sound, hold_at, make_failing_world
from toolloop import Answer, LoopConfig, tool
from toolloop.errors import CallerError, Conflict
from toolloop.machine.record import journal_events as ev
from toolloop.stores.codec import encode_event
from toolloop.stores.memory import MemoryStore
from toolloop.testing import reply

ONE = (reply(calls=[PAY]), reply("done"))
TWO = (reply(calls=[LOOK, PAY]), reply("done"))
ONE_BY_ONE: dict[str, Any] = {"max_parallel_tools": 1}


def bystander(peer: AnyHandle) -> None:
    """Another caller gives a command through the driver's handle, and so is the first to learn what others stored."""
    with suppress(CallerError, Conflict):  # it may come too late; that is not what matters
        peer.say(lambda: peer.handle.update_params(max_tokens=99))


def expect_loss(driver: Background[Any]) -> None:
    """The driver gets an error that another has its loop; it does not hang."""
    with pytest.raises(Conflict):
        driver.result()


@either_kind
def test_a_driver_learns_of_a_loss_that_another_caller_noticed_first(kind: str) -> None:
    """It was in a policy, so nothing of its own was on its way to be refused."""
    world = World(kind, MemoryStore(), script=ONE)
    thinking, go = threading.Event(), threading.Event()

    def think(_: Any) -> None:
        thinking.set()
        wait_for(go)

    async def wait(_: Any) -> None:
        thinking.set()
        await wait_in_loop_for(go)

    driver = world.open(config=LoopConfig(stop_when=think if kind == "sync" else wait))
    turn = Background(driver.next_turn)
    wait_for(thinking)
    second = world.open(take_over=True, config=LoopConfig(stop_when=lambda view: None))
    with hold_at(world, "t1", second) as running:
        bystander(driver)
        go.set()
        expect_loss(turn)
    running.result()
    assert world.ran == ["t1"]
    assert_sound(world.store)


@either_kind
def test_a_driver_does_not_wait_for_a_call_that_the_new_one_runs(kind: str) -> None:
    """It is a call of the same round, so to the old driver the loop looks as if it were still at work."""
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY, LOOK]), reply("done")), config=ONE_BY_ONE)
    first = world.open()
    with hold_at(world, "t1", first) as old:
        second = world.open(take_over=True)
        second.decide(t1=Answer("it was paid", by="ben"))
        with hold_at(world, "t3", second) as new:
            bystander(first)
            old.go.set()
            expect_loss(old)
        new.result()
    assert second.run().unwrap().text == "done"
    assert world.ran == ["t1", "t3"]
    assert_sound(world.store)


# --- between the record of a start, and the start -------------------------------------------------------------------


@either_kind
def test_a_start_that_another_driver_recorded_is_not_ours(kind: str) -> None:
    """Ours was refused for a word from elsewhere; when it was looked at again, the new driver ran that very call."""
    world, store = make_failing_world(kind, script=ONE)
    first, going_on = world.open(), ExitStack()
    second: list[Any] = []

    def before(asked: Asked) -> None:
        if "Started" in asked.events and not second:
            tick = [encode_event("elsewhere", ev.Ticked())]  # anybody may say that at any time
            store.inner.append("loop", tick, expected_rev=None)
            second.append(world.take_over())
            second.append(going_on.enter_context(hold_at(world, "t1", second[0])))

    store.before = before
    with going_on:
        expect_loss(Background(first.next_turn))
    second[1].result()
    assert world.ran == ["t1"]
    assert_sound(store)


# --- what was begun --------------------------------------------------------------------------------------------------


@on_both_backends
@pytest.mark.parametrize("sort", ["task", "thread"])
def test_what_runs_is_not_cancelled_when_the_loop_is_lost(backend: str, sort: str) -> None:
    """The driver notices it when another call ends. A payment that is half done is the worst way out: it is kept."""
    begun, go, cut = threading.Event(), threading.Event(), threading.Event()

    @tool(name="pay")
    async def task(amount: int) -> str:
        """Pay."""
        begun.set()
        try:
            await anyio.to_thread.run_sync(go.wait, abandon_on_cancel=True)
        except BaseException:
            cut.set()
            raise
        return "paid"

    @tool(name="pay")
    def thread(amount: int) -> str:
        """Pay."""
        begun.set()
        wait_for(go)
        return "paid"

    world = World(backend, MemoryStore(), script=TWO, tools=[task if sort == "task" else thread, look])
    first = world.open()
    with hold_at(world, "t3", first) as turn:
        wait_for(begun)
        second = world.open(take_over=True)
        second.decide(t1=Answer("was it?"))
        bystander(first)
        turn.go.set()
        assert not cut.wait(0.1)
        threads = [job.thread for job in inside.tool_runs_of(first.handle).values() if job.thread is not None]
        go.set()
        expect_loss(turn)
    for thread_ in threads:
        thread_.join(DEADLINE)
    ends = [entry.text for entry in world.store.load("loop").entries if '"Ended"' in entry.body]
    assert any("paid" in str(end) for end in ends)
    assert_sound(world.store)
