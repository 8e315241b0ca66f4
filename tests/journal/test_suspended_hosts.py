"""A host that is suspended while its lease ends: what it finds taken over does not run, and all else runs once."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import define
from hypothesis import given, strategies as st

from tests.kit import inside
from tests.kit.concurrency import either_kind, run_async
from tests.kit.effort import examples
from tests.kit.failing import Asked, FailingStore
from tests.kit.postgres import in_postgres
from tests.kit.tools import LOOK, PAY, SEND
from tests.kit.world import AnyHandle, World, approve_all, assert_sound, store_at
from toolloop import Completed, ToolContext, ToolLoopHandle, Yielded, tool
from toolloop.errors import CallerError, Conflict
from toolloop.stores.memory import MemoryStore
from toolloop.testing import reply
from toolloop.types import Turn

AN_HOUR = 3600.0
SCRIPT = (reply(calls=[PAY]), reply("done"))
TWO = (reply(calls=[PAY, LOOK]), reply(calls=[SEND, {**PAY, "id": "t9"}]), reply("done"))
each_store = pytest.mark.parametrize("where", ["sqlite", in_postgres])


@define
class Host:
    """A clock that goes on while its host is suspended."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def driver_on(host: Host, world: World) -> AnyHandle:
    """A driver on this host."""
    peer = world.make()
    inside.set_boot_clock(peer.handle, host)
    return peer


def run_streamed(peer: AnyHandle) -> Turn:
    """Drive as `run()` does, and read a stream meanwhile."""
    if isinstance(peer.handle, ToolLoopHandle):
        with peer.handle.stream() as sync_stream:
            return sync_stream.finish()
    handle = peer.handle

    async def main() -> Turn:
        async with handle.stream() as stream:
            return cast("Turn", await stream.finish())

    return run_async(peer.kind, main)


def deny_all(turn: Yielded) -> None:
    for each in turn.pending:
        turn.deny(each, "no", by="ana")


@each_store
@either_kind
def test_a_call_that_was_denied_while_its_host_was_suspended_does_not_run(
    where: str, kind: str, tmp_path: Path
) -> None:
    """Its start was stored, and it was not launched. The driver finds out that it has lost the loop."""
    store, host = FailingStore(store_at(where, tmp_path)), Host()
    world = World(kind, store, SCRIPT)

    def suspend(asked: Asked) -> None:
        if "Started" in asked.events:
            other = world.take_over()
            assert isinstance(other.run(deny_all), Completed)
            other.close()
            host.now += AN_HOUR  # not before: the thread that renews leases may wake at any time

    store.after = suspend
    with pytest.raises(Conflict):
        driver_on(host, world).run()
    assert world.ran == []
    assert_sound(store)


@each_store
@either_kind
def test_a_driver_goes_on_after_its_host_was_suspended(where: str, kind: str, tmp_path: Path) -> None:
    """No other driver came meanwhile: the lease is renewed, each call runs once, and none is uncertain."""
    store, host, asked_for = FailingStore(store_at(where, tmp_path)), Host(), list[str]()
    world = World(kind, store, TWO, config={"max_parallel_tools": 2})

    def suspend(asked: Asked) -> None:
        host.now += AN_HOUR * ("Started" in asked.events)

    def ask(turn: Yielded) -> None:
        asked_for.extend(str(each.why) for each in turn.pending)
        approve_all(turn)

    store.after = suspend
    assert driver_on(host, world).run(ask).unwrap().text == "done"
    assert asked_for == ["approval"]
    assert sorted(world.ran) == ["t1", "t2", "t3", "t9"]
    starts = [each for each in store.calls if "Started" in each.events]
    assert [each.name for each in store.calls].count("renew") == len(starts) > 0
    assert_sound(store)


def test_a_driver_whose_loop_was_taken_over_while_its_host_was_suspended_begins_nothing() -> None:
    """Wherever it was suspended: it runs no tool and sends no request after that."""
    for number in range(1, 100):
        store, host = FailingStore(MemoryStore()), Host()
        world = World("sync", store, TWO, config={"max_parallel_tools": 2})
        begun = list[int]()

        def suspend(_: Asked, at: Any = (number, store, host, world, begun)) -> None:
            number, store, host, world, begun = at
            if len(store.calls) == number and store.inner.list():
                other = world.take_over()
                assert isinstance(other.run(deny_all), Completed)
                other.close()
                host.now += AN_HOUR
                begun.append(len(world.ran) + len(world.requests))

        store.after = suspend
        with suppress(CallerError, Conflict):
            driver_on(host, world).run(approve_all)
        assert [len(world.ran) + len(world.requests)] == begun or not begun, (number, store.calls[number - 1])
        assert_sound(store)
        if len(store.calls) < number:
            assert number > 10
            return
    raise AssertionError("it was suspended to the last")


@examples(30)
@given(
    jumps=st.lists(st.sampled_from([0.0, 0.0, 30.0, 55.0, AN_HOUR]), max_size=60),
    kind=st.sampled_from(["sync", "asyncio"]),
    parallel=st.sampled_from([1, 8]),
    is_streamed=st.booleans(),
)
def test_a_host_may_be_suspended_at_any_moment(jumps: list[float], kind: str, parallel: int, is_streamed: bool) -> None:
    """Whenever the clock jumps: each call runs once, none is uncertain, and the loop ends."""
    host, left = Host(), list(jumps)

    def clock() -> float:
        host.now += left.pop() if left else 0.0
        return host.now

    world = World(kind, MemoryStore(), TWO, config={"max_parallel_tools": parallel})
    peer = driver_on(host, world)
    inside.set_boot_clock(peer.handle, clock)
    while isinstance(turn := run_streamed(peer) if is_streamed else peer.run(), Yielded):
        assert {each.why for each in turn.pending} == {"approval"}
        peer.say(turn.approve_all)
    assert turn.unwrap().text == "done"
    assert sorted(world.ran) == ["t1", "t2", "t3", "t9"]
    assert_sound(world.store)


@either_kind
def test_a_tool_gets_the_end_of_the_lease(kind: str) -> None:
    """As the store has it, also after a renewal; without a store there is none."""
    host, store, seen = Host(), MemoryStore(), list[tuple[datetime | None, datetime | None]]()

    def read_stored() -> datetime | None:
        lease = store.head("loop").lease
        return None if lease is None else datetime.fromtimestamp(lease.until, UTC)

    @tool
    def pay(amount: int, context: ToolContext) -> str:
        """Pay."""
        seen.append((context.lease_ends_at, read_stored()))
        host.now += AN_HOUR
        inside.renew_leases()
        seen.append((context.lease_ends_at, read_stored()))
        return f"paid {amount}"

    world = World(kind, store, SCRIPT, tools=[pay])
    assert driver_on(host, world).run().unwrap().text == "done"
    (first, first_stored), (second, second_stored) = seen
    assert (first, second) == (first_stored, second_stored)
    assert first is not None
    assert second is not None
    assert first < second
    seen.clear()
    assert world.make(store=None).run().unwrap().text == "done"
    assert [ends for ends, _ in seen] == [None, None]
