"""Append first, then act: nothing is done that is not stored, and what is said is stored when the call returns."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import anyio

from tests.loop.concurrency import Background, awaited, either_kind, run_async
from tests.loop.stored import APPROVED, LOOK, PAY, SEND, AnyHandle, Faulty, World, approve_all, each_store, store_at
from tests.loop.support import params, yielded
from toolloop import (
    AsyncToolLoopHandle,
    Continue,
    Grant,
    InjectMessages,
    Stop,
    ToolLoopHandle,
)
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Entry
from toolloop.testing import reply

SIDE_BY_SIDE = (reply(calls=[PAY, LOOK]), reply("done"))


@each_store
@either_kind
def test_nothing_is_performed_before_it_is_stored(kind: str, where: str, tmp_path: Path) -> None:
    """The journal of each moment ends with what is going on: the request, the run."""
    world = World(kind, store_at(where, tmp_path), script=(reply(calls=[PAY]), reply(calls=[SEND]), reply("done")))
    seen: list[str] = []
    for where_ in ("request", "t1", "t2"):
        world.on[where_] = lambda: seen.append(world.journal()[-1])
    assert world.open().run(approve_all).unwrap().text == "done"
    assert seen == ["Requested", "Started", "Requested", "Started", "Requested"]


@each_store
def test_what_happens_is_stored_in_its_order(where: str, tmp_path: Path) -> None:
    """The journal tells the whole story, each event where it belongs."""
    world = World("sync", store_at(where, tmp_path), config={"max_parallel_tools": 1})
    peer = world.open()
    assert peer.run(approve_all).unwrap().text == "done"
    story = [name for name in world.journal() if name not in ("Woken", "Judged")]
    first = ["Opened", "Requested", "Replied", "Started", "Ended", "TurnEnded", "Continued"]
    second = ["Requested", "Replied", "Decided", "Continued", "Started", "Ended", "Started", "Ended", "TurnEnded"]
    assert story == [*first, *second, "Continued", "Requested", "Replied"]
    assert world.state() == peer.handle.state


@each_store
def test_each_of_two_ends_is_stored_when_it_happens(where: str, tmp_path: Path) -> None:
    """The one does not wait for the other: if the process died now, only the second would be unknown."""
    stored = threading.Event()

    def look_for_end(entries: Iterable[Entry]) -> None:
        if any('"Ended"' in entry.body for entry in entries):
            stored.set()

    world = World("sync", Faulty(store_at(where, tmp_path), on_stored=look_for_end), script=SIDE_BY_SIDE)
    world.on["t3"] = lambda: awaited(stored)  # it returns only when the end of the other is stored
    assert yielded(world.open().next_turn()).reason == "tools_executed"
    ends = [entry for entry in world.store.load("loop").entries if '"Ended"' in entry.body]
    assert [call in entry.body for entry, call in zip(ends, ("t1", "t3"), strict=True)] == [True, True]


@each_store
def test_what_is_said_is_stored_when_the_call_returns(where: str, tmp_path: Path) -> None:
    """On the sync handle: each word, and each change."""
    world = World("sync", store_at(where, tmp_path))
    handle = world.open().handle
    assert isinstance(handle, ToolLoopHandle)
    turn = yielded(handle.run())

    def last() -> list[str]:
        return world.journal()[-1:]

    handle.update_params(max_tokens=300)
    assert last() == ["Changed"]
    handle.extend(max_iterations=20)
    assert last() == ["Changed"]
    turn.approve("t2", by="ana", remember=Grant())
    assert last() == ["Decided"]
    handle.grants.revoke(handle.grants[0])
    assert last() == ["GrantRevoked"]
    handle.resume(InjectMessages([{"role": "user", "content": "more"}]))
    assert last() == ["Continued"]
    handle.resume(Stop("enough"))
    assert last() == ["Stopped"]
    handle.follow_up([{"role": "user", "content": "and now?"}])
    assert last() == ["FollowedUp"]
    assert world.state() == handle.state


def test_words_of_an_async_handle_are_stored_by_the_next_await() -> None:
    """They are taken at once; `flush()`, the next turn, and leaving `async with` store them before anything else."""
    world = World("asyncio", MemoryStore(), script=(reply(calls=[SEND]), reply("done")))

    async def main() -> None:
        async with AsyncToolLoopHandle.open(
            world.store, "loop", world.provider(), **world.parts(params=params())
        ) as handle:
            turn = yielded(await handle.run())
            turn.approve("t2", by="ana")
            assert handle.pending == ()
            assert "Decided" not in world.journal()
            await handle.flush()
            assert world.journal()[-1] == "Decided"
            handle.resume(Continue())
        assert world.journal()[-1] == "Continued"
        world.on["t2"] = lambda: world.journal().index("Changed")  # raises where it is not there
        handle.extend(max_iterations=9)
        assert (await handle.run()).unwrap().text == "done"
        assert "Changed" in world.journal()

    run_async("asyncio", main)
    world.assert_once()


def test_what_is_being_stored_is_not_cut_off_by_a_cancellation() -> None:
    """The event loop may give up on the handle; the journal then says what is so, and the loop goes on from there."""
    world = World("asyncio", MemoryStore(), script=(reply(calls=[SEND]), reply("done")))
    peer = world.open()
    turn = yielded(peer.next_turn())

    async def main() -> None:
        assert isinstance(peer.handle, AsyncToolLoopHandle)
        turn.approve("t2", by="ana")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await peer.handle.flush()

    run_async("asyncio", main)
    assert world.journal()[-1] == "Decided"
    assert peer.text() == "done"


def test_a_store_is_asked_by_nobody_who_only_looks() -> None:
    """Reads are of what the handle knows."""
    store = Faulty(MemoryStore())
    peer = World("sync", store).open()
    yielded(peer.run())
    count = len(store.asked)
    handle = peer.handle
    assert handle.pending
    assert handle.pending_turn is not None
    assert handle.messages
    assert handle.view()["pending"]
    assert handle.snapshot()["format"] == 1
    assert list(handle.grants) == []
    assert repr(handle)
    assert len(store.asked) == count


def test_an_event_loop_is_not_held_up_by_a_slow_store() -> None:
    """While the store takes its time, other tasks run, and words are taken."""
    world = World("asyncio", Faulty(MemoryStore()), script=(reply(calls=[SEND]), reply("done")))
    assert isinstance(world.store, Faulty)
    store, peer, go = world.store, world.open(), threading.Event()
    turn = yielded(peer.next_turn())

    def wait(entries: Iterable[Entry]) -> None:
        if any('"Decided"' in entry.body for entry in entries):
            awaited(go)

    store.on_stored = wait

    async def main() -> None:
        assert isinstance(peer.handle, AsyncToolLoopHandle)
        turn.approve("t2", by="ana")
        async with anyio.create_task_group() as group:
            group.start_soon(peer.handle.flush)
            await anyio.lowlevel.checkpoint()
            turn.continue_loop()
            assert peer.handle.pending == ()
            go.set()

    run_async("asyncio", main)
    assert peer.text() == "done"


def test_a_store_may_be_asked_from_any_thread(tmp_path: Path) -> None:
    """One handle, a store in a file, and words from other threads while a turn is in progress."""
    world = World("sync", store_at("sqlite", tmp_path), config={"execution": "ready"})
    world.script = (reply(calls=[PAY, SEND]), reply("done"))
    peer = world.open()
    yielded(peer.next_turn()).continue_loop()
    world.on["t1"] = lambda: Background(lambda: peer.handle.decide({"t2": APPROVED})).result()
    assert AnyHandle.text(peer) == "done"
    assert world.journal().count("Decided") == 1
    assert world.ran == ["t1", "t2"]
