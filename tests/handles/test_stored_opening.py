"""Loops in a store: made, found, opened again, copied; and that making a handle does no I/O."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.kit.concurrency import Background, cross, either_kind, run_async
from tests.kit.failing import FailingStore
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import PAY, SEND, params
from tests.kit.world import APPROVED, ID, AnyHandle, World, approve_all, each_store, store_at, wait
from toolloop import AsyncToolLoopHandle, Deny, Inbox, ToolLoopHandle, Worker
from toolloop.errors import Conflict, Drift, InvalidHistory, LoopNotFound, UnreadableSnapshot
from toolloop.inbox import audit
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Entry, Head
from toolloop.testing import reply


@either_kind
def test_the_constructor_asks_the_store_nothing(kind: str) -> None:
    """Not before the loop is driven, or told something."""
    store = FailingStore(MemoryStore())
    world = World(kind, store)
    peer = world.make()
    assert peer.handle.pending == ()
    assert peer.handle.state == peer.handle.state
    assert store.asked == []
    peer.run(approve_all)
    assert store.asked[0] == "create"
    assert world.status() == "ended"


@each_store
def test_open_creates_at_once_and_finds_again(where: str, tmp_path: Path) -> None:
    """With `params` it makes what is not there, before it is driven; then any process finds it."""
    world = World("sync", store_at(where, tmp_path))
    with pytest.raises(LoopNotFound, match="'loop'") as caught:
        wait("sync", _kind("sync").open(world.store, ID, world.provider(), **world.parts()))
    assert caught.value.loop_id == ID
    first = world.open()
    assert (world.journal(), world.status()) == (["Opened"], "runnable")
    second = world.open()
    assert second.handle.state == first.handle.state
    assert second.run(approve_all).unwrap().text == "done"
    assert expect_completed(world.open().next_turn()).text == "done"
    assert len(world.requests) == 3


def _kind(kind: str) -> Any:
    return ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle


@each_store
def test_a_second_loop_of_one_id_is_refused_to_the_constructor(where: str, tmp_path: Path) -> None:
    """It would be another loop; `open` is for those that are there. Nothing is sent, and the first is untouched."""
    world = World("sync", store_at(where, tmp_path))
    world.open()
    before = world.store.load(ID)
    peer = world.make()
    for _ in range(2):
        with pytest.raises(Conflict, match="'loop'") as caught:
            peer.next_turn()
        assert caught.value.loop_id == ID
        with pytest.raises(Conflict):
            peer.say(lambda: peer.handle.update_params(max_tokens=99))
    assert (world.requests, world.store.load(ID)) == ([], before)


@each_store
def test_of_those_who_create_a_loop_at_one_moment_all_have_the_same(where: str, tmp_path: Path) -> None:
    """`open` from many threads: one creates, the others load."""
    world = World("sync", store_at(where, tmp_path))
    barrier = threading.Barrier(6)

    def create() -> AnyHandle:
        cross(barrier)
        return world.open()

    peers = [each.result() for each in [Background(create) for _ in range(6)]]
    assert world.journal() == ["Opened"]
    assert len({repr(peer.handle.snapshot()) for peer in peers}) == 1


@each_store
def test_a_loop_goes_on_in_another_handle_where_it_stood(where: str, tmp_path: Path) -> None:
    """At every stop: who opens it sees what the other saw, and nothing is asked or run again."""
    world = World("sync", store_at(where, tmp_path))
    peer = world.open()
    for _ in range(20):
        peer.close()
        again = world.open()
        assert again.handle.snapshot() == peer.handle.snapshot()
        assert [call.digest for call in again.handle.pending] == [call.digest for call in peer.handle.pending]
        peer = again
        turn = peer.handle.pending_turn
        if turn is None:
            result = peer.next_turn()
            if getattr(result, "text", None) is not None:
                break
        elif turn.pending:
            peer.decide(**{turn.pending[0].id: APPROVED})
        else:
            peer.say(turn.continue_loop)
    assert expect_completed(peer.next_turn()).text == "done"
    assert (sorted(world.ran), len(world.requests)) == (["t1", "t2", "t3"], 3)


@each_store
def test_a_fork_is_a_loop_of_its_own_in_the_store(where: str, tmp_path: Path) -> None:
    """It goes its own way, under its own lease; the first is as it was."""
    world = World("sync", store_at(where, tmp_path))
    peer = world.open()
    expect_yielded(peer.run())
    copy = AnyHandle("sync", peer.handle.fork("copy"))
    assert sorted(loop.loop_id for loop in world.store.list()) == ["copy", ID]
    copy.decide(t2=Deny("no"), t3=APPROVED)
    assert copy.run().unwrap().text == "done"
    assert world.row("copy").status == "ended"
    assert world.journal("copy")[0] == "Adopted"
    assert world.status() == "needs_decision"
    assert peer.run(approve_all).unwrap().text == "done"
    assert world.ran.count("t2") == 1
    assert world.state("copy") == copy.handle.state


def test_open_without_await_says_so() -> None:
    """It is the usual slip with an async handle."""
    world = World("asyncio", MemoryStore())
    opening: Any = AsyncToolLoopHandle.open(world.store, ID, world.provider(), params=params())
    with pytest.raises(AttributeError, match=r"await AsyncToolLoopHandle\.open"):
        opening.next_turn()
    assert not hasattr(opening, "run")


@pytest.mark.parametrize("loop_id", ["a\nb", "\x1b[1m", "\x7f", "x" * 257, "ä" * 129])
def test_an_id_of_a_new_loop_can_be_shown(loop_id: str) -> None:
    """A stored loop with such an id still opens."""
    world = World("sync", MemoryStore())
    with pytest.raises(ValueError, match="loop_id has"):
        world.open(loop_id)
    peer = world.open()
    with pytest.raises(ValueError, match="loop_id has"):
        peer.handle.fork(loop_id)
    assert peer.handle.fork("x" * 256).loop_id == "x" * 256  # the longest
    entries, row = world.store.load(ID).entries, world.row()
    body = entries[0].body.replace(f'"loop_id":"{ID}"', f'"loop_id":{json.dumps(loop_id)}')
    world.store.create(loop_id, [evolve(entries[0], body=body)], head=row.head)
    assert world.open(loop_id, params=None).handle.loop_id == loop_id


def test_a_closed_handle_stays_usable() -> None:
    """`close()` gives back what it holds, and no more; twice is once."""
    world = World("sync", MemoryStore())
    peer = world.open()
    peer.close()
    expect_yielded(peer.run())
    assert world.row().lease is None
    peer.close()
    peer.close()
    assert peer.run(approve_all).unwrap().text == "done"


def test_async_with_stores_what_was_said_even_when_the_block_raises() -> None:
    """A decision that was taken is kept, whatever becomes of its caller."""
    world = World("asyncio", MemoryStore(), script=(reply(calls=[SEND]), reply("done")))

    async def main() -> None:
        parts = world.parts(params=params())
        async with AsyncToolLoopHandle.open(world.store, ID, world.provider(), **parts) as handle:
            expect_yielded(await handle.run()).approve_all(by="ana")
            raise KeyError

    with pytest.raises(KeyError):
        run_async("asyncio", main)
    assert (world.journal()[-1], world.status()) == ("Decided", "runnable")


def test_open_can_be_awaited_for_the_handle() -> None:
    """Without `async with`, for those who close it themselves."""
    world = World("asyncio", MemoryStore(), script=(reply("done"),))

    async def main() -> None:
        handle = await AsyncToolLoopHandle.open(world.store, ID, world.provider(), **world.parts(params=params()))
        assert (await handle.run()).unwrap().text == "done"
        await handle.aclose()

    run_async("asyncio", main)


def test_close_is_a_deprecated_name_of_aclose() -> None:
    """It still gives the lease back."""
    world = World("asyncio", MemoryStore(), script=(reply("done"),))

    async def main() -> None:
        handle = await AsyncToolLoopHandle.open(world.store, ID, world.provider(), **world.parts(params=params()))
        await handle.run()
        with pytest.warns(DeprecationWarning, match=r"is now AsyncToolLoopHandle\.aclose\(\)") as caught:
            await handle.close()
        assert caught[0].filename == __file__

    run_async("asyncio", main)
    assert world.store.head(ID).lease is None


def test_flush_looks_at_what_others_stored() -> None:
    """For who holds a handle and does not drive it: then it shows, and takes decisions on, what there is now."""
    world = World("sync", MemoryStore())
    watching, driving = world.open(), world.open()
    expect_yielded(driving.run())
    assert watching.handle.snapshot() != driving.handle.snapshot()
    watching.flush()
    assert [call.id for call in watching.handle.pending] == ["t2"]
    assert watching.handle.snapshot() == driving.handle.snapshot()
    watching.decide(t2=APPROVED)
    driving.flush()
    assert driving.handle.pending == ()
    assert driving.text() == "done"


def test_what_cannot_be_read_is_said_and_left_alone() -> None:
    """A damaged journal names the entry; a foreign one is none."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    assert world.open().run().unwrap().text == "done"
    entries = world.store.load(ID).entries
    for name, bad in {
        "torn": entries[2].body[:-9],
        "foreign": '{"hello": 1}',
        "newer": '{"format":2,"event":"X"}',
    }.items():
        broken = [*entries[:2], Entry("x", bad), *entries[3:]]
        world.store.create(name, broken, head=Head("runnable"))
        with pytest.raises(UnreadableSnapshot) as caught:
            world.open(name)
        assert caught.value.__dict__["entry"] == 3
        assert world.store.load(name).entries == tuple(broken)


def test_params_of_a_loop_that_is_there_are_compared() -> None:
    """Its messages are not looked at; another model is adopted once it is driven; a refusal leaves no trace."""
    world = World("sync", MemoryStore())
    world.open()
    before = world.store.load(ID)
    parts = world.parts(params=params(model="claude-opus-5", messages=[{"role": "user", "content": "else"}]))
    with pytest.raises(Drift) as caught:
        world.open(**{**parts, "on_drift": "strict"}).next_turn()
    assert caught.value.changes == ("parameter 'model' changed",)
    assert world.store.load(ID) == before
    other = world.open(**parts)
    assert world.store.load(ID) == before
    expect_yielded(other.next_turn())
    assert world.requests[-1]["model"] == "claude-opus-5"
    with pytest.raises(InvalidHistory):
        wait(
            "sync",
            _kind("sync").open(
                world.store, "other", world.provider(), **world.parts(params=params(messages=[{"role": "user"}]))
            ),
        )
    assert [loop.loop_id for loop in world.store.list()] == [ID]


_DOORS: dict[str, Callable[[World, Any], object]] = {
    "open": lambda world, loop_id: world.open(loop_id),
    "open of an existing loop": lambda world, loop_id: world.open(loop_id, params=None),
    "constructor": lambda world, loop_id: world.make(loop_id),
    "fork": lambda world, loop_id: world.open().handle.fork(loop_id),
    "drive": lambda world, loop_id: Worker(world.store, world.provider(), world.tools).drive(loop_id),
    "audit": lambda world, loop_id: audit(world.store, loop_id),
    "show": lambda world, loop_id: Inbox(world.store).show(loop_id),
    "trail": lambda world, loop_id: Inbox(world.store).trail(loop_id),
    "decide": lambda world, loop_id: Inbox(world.store).decide(loop_id, {"t1": APPROVED}),
    "say": lambda world, loop_id: Inbox(world.store).say(loop_id, "Hi"),
    "stop": lambda world, loop_id: Inbox(world.store).stop(loop_id),
    "retry": lambda world, loop_id: Inbox(world.store).retry(loop_id),
    "wait": lambda world, loop_id: Inbox(world.store).wait(loop_id, timeout=0.0),
}


@pytest.mark.parametrize("door", _DOORS)
def test_an_id_that_no_store_can_keep_is_refused(door: str) -> None:
    """The callers of a store check it: the error is about the argument, and the store is not asked."""
    store = FailingStore(MemoryStore())
    world = World("sync", store)
    world.open().close()
    asked = len(store.asked)
    for bad, message in (7, "is an int"), ("a\0b", "has a NUL"), ("\ud800", "has a lone surrogate"):
        with pytest.raises((TypeError, ValueError), match=f"loop_id {message}"):
            _DOORS[door](world, bad)
    assert {*store.asked[asked:]} <= ({"load"} if door == "fork" else set())
