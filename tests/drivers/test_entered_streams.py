"""Entering a stream takes the lease and raises what is known, so that a web handler can still answer with a status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from tests.kit.concurrency import run_async
from tests.kit.each import each
from tests.kit.failing import Asked, FailingStore
from tests.kit.support import expect_yielded
from tests.kit.tools import PAY, SEND, STORED_TOOLS, params
from tests.kit.world import APPROVED, AnyHandle, World
from toolloop import AsyncToolLoopHandle, Completed, ToolLoopHandle, Yielded, tool
from toolloop.errors import Conflict, Drift, IllegalCommand
from toolloop.stores.memory import MemoryStore
from toolloop.testing import reply

T = TypeVar("T")
SCRIPT = (reply(calls=[PAY]), reply(calls=[SEND]), reply("done"))
KINDS = ("sync", "asyncio", "trio")
each_stream = each(("kind", "method"), [(kind, method) for kind in KINDS for method in ("stream", "stream_turn")])


def enter(peer: AnyHandle, method: str, act: Callable[[Any], T]) -> T:
    """Enter a stream, do something, and leave it unread."""
    if isinstance(peer.handle, ToolLoopHandle):
        with getattr(peer.handle, method)() as stream:
            return act(stream)

    async def main() -> T:
        async with getattr(peer.handle, method)() as stream:
            return act(stream)

    return run_async(peer.kind, main)


def never(_: Any) -> None:
    raise AssertionError("it was entered")


@each_stream
def test_a_stream_of_a_loop_that_another_driver_holds_cannot_be_entered(kind: str, method: str) -> None:
    """It raises `Conflict`, which names the owner; when that driver is done, it can be entered."""
    world = World(kind, MemoryStore(), SCRIPT)
    first, second = World("sync", world.store, SCRIPT).open(), world.open()

    def enter_while_held(_: Any) -> None:
        lease = world.store.head("loop").lease
        assert lease is not None
        with pytest.raises(Conflict) as caught:
            enter(second, method, never)
        assert caught.value.owner == lease.owner
        assert world.store.head("loop").lease == lease

    enter(first, "stream", enter_while_held)
    assert world.requests == []
    enter(second, method, lambda _: None)
    expect_yielded(second.run())


@each_stream
def test_entering_begins_nothing(kind: str, method: str) -> None:
    """The lease is held in the block, and no request is made, no event is stored and no event is read."""
    world = World(kind, MemoryStore(), SCRIPT)
    peer = world.open()

    def look(stream: Any) -> None:
        assert world.store.head("loop").lease is not None
        assert (world.requests, world.store.load("loop").rev) == ([], 1)
        with pytest.raises(IllegalCommand, match="not over"):
            _ = stream.turn

    enter(peer, method, look)
    assert world.store.head("loop").lease is None
    assert (world.requests, world.store.load("loop").rev) == ([], 1)
    peer.decide(**{each.id: APPROVED for each in expect_yielded(peer.run()).pending})
    assert peer.text() == "done"
    world.assert_once()


@each_stream
def test_what_is_not_allowed_is_refused_on_entering(kind: str, method: str) -> None:
    """An empty conversation, a handle that is driven already, and for one turn a turn that waits for a command."""
    world = World(kind, MemoryStore(), SCRIPT)
    empty = world.open("empty", params=params(messages=[]))
    with pytest.raises(IllegalCommand, match="empty"):
        enter(empty, method, never)
    peer = world.open()

    if isinstance(peer.handle, ToolLoopHandle):
        with pytest.raises(IllegalCommand, match="another caller drives"):
            enter(peer, "stream", lambda _: enter(peer, method, never))
    else:
        handle = peer.handle

        async def twice() -> None:
            async with handle.stream():
                with pytest.raises(IllegalCommand, match="another caller drives"):
                    async with getattr(handle, method)():
                        raise AssertionError("it was entered")

        run_async(kind, twice)
    assert (world.store.head("loop").lease, world.store.head("empty").lease) == (None, None)
    expect_yielded(peer.run())
    if method == "stream_turn":
        with pytest.raises(IllegalCommand, match="needs a command"):
            enter(peer, method, never)
    else:
        assert isinstance(enter(peer, method, lambda stream: stream.turn), Yielded)
    peer.decide(t2=APPROVED)
    assert isinstance(peer.run(), Completed)
    assert isinstance(enter(peer, method, lambda stream: stream.turn), Completed)


@each_stream
def test_drift_is_raised_on_entering(kind: str, method: str) -> None:
    """With a tool that needs no approval any more."""

    @tool
    def send(to: str) -> str:
        """Send a letter, once, if a person allows it."""
        return to

    world = World(kind, MemoryStore(), SCRIPT)
    peer = world.open()
    expect_yielded(peer.run())
    peer.decide(t2=APPROVED)
    changed = world.open(tools=[*(each for each in STORED_TOOLS if each.name != "send"), send])
    if method == "stream_turn":
        changed.say(changed.turn().continue_loop)
    with pytest.raises(Drift):
        enter(changed, method, never)
    assert world.store.head("loop").lease is None
    assert peer.text() == "done"


@each(("backend", "moment"), [(backend, moment) for backend in KINDS[1:] for moment in ("before", "after")])
def test_cancelling_while_a_stream_is_entered_leaves_no_lease(backend: str, moment: str) -> None:
    """A browser that hangs up while the store is asked for the lease."""
    store = FailingStore(MemoryStore())
    world = World(backend, store, SCRIPT)
    handle = world.open().handle
    assert isinstance(handle, AsyncToolLoopHandle)

    async def main() -> None:
        token = anyio.lowlevel.current_token()
        with anyio.CancelScope() as scope:

            def cancel(asked: Asked) -> None:
                if asked.name == "acquire":
                    anyio.from_thread.run_sync(scope.cancel, token=token)

            setattr(store, moment, cancel)
            async with handle.stream():
                raise AssertionError("it was entered")
        assert scope.cancelled_caught

    run_async(backend, main)
    assert store.inner.head("loop").lease is None
    assert world.requests == []
    setattr(store, moment, lambda _: None)
    expect_yielded(AnyHandle(backend, handle).run())
