"""Commands to a stored loop: they apply to the loop as it is, and every refusal is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.kit.concurrency import either_kind, run_async
from tests.kit.failing import Asked, FailingStore
from tests.kit.support import expect_yielded
from tests.kit.tools import PAY, SEND, STORED_TOOLS, params
from tests.kit.world import APPROVED, AnyHandle, World, approve_all, assert_sound, make_failing_world
from toolloop import AsyncToolLoopHandle, Deny, Grant, InjectMessages
from toolloop.errors import DecisionConflict, Drift, StoreError, UnreadableSnapshot
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Head
from toolloop.testing import reply

TWO = (reply(calls=[SEND, {**SEND, "id": "t4"}]), reply("done"))
MORE = [{"role": "user", "content": "one more thing"}]


# --- said on an old view ---------------------------------------------------------------------------------------------


@either_kind
def test_a_grant_is_revoked_by_a_handle_that_has_not_seen_it(kind: str) -> None:
    """To revoke is a matter of safety: it is looked again before it is refused."""
    world = World(kind, MemoryStore(), script=TWO)
    first = world.open()
    expect_yielded(first.run())
    second = world.open()
    first.say(lambda: first.turn().approve("t2", remember=Grant()))
    if kind != "sync":
        second.flush()  # an event loop does not wait for a store where it is told something
    second.say(lambda: second.handle.grants.revoke("1/t2", by="ben"))
    first.flush()
    assert list(first.handle.grants) == list(second.handle.grants) == []
    assert world.journal()[-1] == "GrantRevoked"


def test_each_refused_command_is_reported() -> None:
    """One by each await, until none is left: a decision may be refused, but is never lost in silence."""
    world = World("asyncio", MemoryStore(), script=TWO)
    first = world.open()
    expect_yielded(first.run())
    second = world.open()
    second.decide(t2=Deny("no"), t4=Deny("no"))
    for call_id in ("t2", "t4"):
        first.handle.decide({call_id: APPROVED})
    for call_id in ("t2", "t4"):
        with pytest.raises(DecisionConflict, match=call_id):
            first.flush()
    first.flush()
    assert first.text() == "done"
    assert world.ran == []


@pytest.mark.parametrize(("backend", "how"), [("asyncio", "scope"), ("asyncio", "cancel()"), ("trio", "scope")])
def test_a_command_that_is_refused_while_the_await_is_cancelled_is_still_reported(backend: str, how: str) -> None:
    """By that await or by the next one."""
    world = World(backend, MemoryStore(), script=TWO)
    first = world.open()
    expect_yielded(first.run())
    world.open().decide(t2=Deny("no"))
    handle = first.handle
    assert isinstance(handle, AsyncToolLoopHandle)
    handle.decide({"t2": APPROVED})

    async def main() -> None:
        if how == "cancel()":
            task = asyncio.ensure_future(handle.flush())
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return
        with anyio.CancelScope() as scope:
            scope.cancel()
            await handle.flush()

    def to_the_end() -> None:
        run_async(backend, main)
        first.flush()

    with pytest.raises(DecisionConflict, match="t2"):
        to_the_end()
    first.flush()  # once is enough


# --- the first word --------------------------------------------------------------------------------------------------


FIRST: dict[str, Callable[[AnyHandle], object]] = {
    "run()": lambda peer: peer.run(approve_all),
    "update_params()": lambda peer: peer.say(lambda: peer.handle.update_params(max_tokens=99)),
    "inject": lambda peer: peer.say(lambda: peer.handle.resume(InjectMessages(MORE))),
    "close()": lambda peer: peer.close(),
}


def fails_once(store: FailingStore) -> None:
    """The very first thing that the store is asked fails."""

    def fail(_: Asked) -> None:
        if len(store.calls) == 1:
            raise StoreError("the disk is gone")

    store.before = fail


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("made", ["new", "restored"])
def test_a_loop_that_could_not_be_created_at_first_is_created_by_the_next_call(first: str, made: str) -> None:
    """Its journal starts as it must, whatever is said in between."""
    world, store = make_failing_world("sync")
    peer = world.make()
    if made == "restored":
        snapshot = peer.handle.snapshot()
        peer = AnyHandle("sync", type(peer.handle).restore(snapshot, world.provider(), **world.parts(store=store)))
    fails_once(store)
    with pytest.raises(StoreError):
        FIRST[first](peer)
    FIRST[first](peer)
    assert world.journal()[0] == ("Opened" if made == "new" else "Adopted")
    assert peer.run(approve_all).unwrap().text == "done"
    world.assert_once()
    assert_sound(store)


def test_a_copy_that_could_not_be_stored_is_stored_by_the_next_fork() -> None:
    """Nothing of the first one is left, not its id either."""
    world, store = make_failing_world("sync")
    handle = world.make().handle
    handle.update_params(temperature=1)
    store.calls.clear()
    fails_once(store)
    with pytest.raises(StoreError):
        handle.fork("copy")
    handle.fork("copy")
    assert world.journal("copy") == ["Adopted"]


# --- drift -----------------------------------------------------------------------------------------------------------


WHOLE = {"system": "Be good.", "temperature": 1}
DRIFTS = {
    "the system prompt is left out": (params(temperature=1), "parameter 'system' changed"),
    "a number of another kind": (params(**{**WHOLE, "temperature": 1.0}), "parameter 'temperature' changed"),
    "a number that is none": (params(**{**WHOLE, "temperature": True}), "parameter 'temperature' changed"),
    "a null that was not there": (params(**WHOLE, top_k=None), "parameter 'top_k' changed"),
}


@pytest.mark.parametrize(("given", "change"), DRIFTS.values(), ids=DRIFTS)
def test_what_would_be_sent_otherwise_is_named(given: dict[str, Any], change: str) -> None:
    """Parameters with a model are those of a whole request: what they lack is gone, and 1 is not 1.0."""
    world = World("sync", MemoryStore(), script=TWO)
    expect_yielded(world.open(params=params(**WHOLE)).run())
    with pytest.raises(Drift) as caught:
        world.open(params=given, on_drift="strict").run(approve_all)
    assert caught.value.changes == (change,)
    world.open(params={"extra_headers": {"x-mine": "1"}}, on_drift="strict").run()  # secrets alone are no drift


def test_tools_in_another_order_are_sent_in_the_order_they_had() -> None:
    """Other bytes would cost the prompt cache; the order in which a program lists its tools says nothing."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    expect_yielded(world.open().next_turn())
    world.tools = tuple(reversed(STORED_TOOLS))
    assert world.open().text() == "done"
    first, second = ([each["name"] for each in request["tools"]] for request in world.requests)
    assert first == second == [each.name for each in STORED_TOOLS]


def test_a_journal_under_another_name_is_refused() -> None:
    """A copy made by hand is not a loop of its own: commands to it would go into the first one."""
    world = World("sync", MemoryStore())
    expect_yielded(world.open().run())
    before = world.journal()
    world.store.create("copy", world.store.load("loop").entries, head=Head("needs_decision"))
    with pytest.raises(UnreadableSnapshot, match=r"'copy'.*'loop'"):
        world.open("copy")
    assert world.journal() == world.journal("copy") == before


def pair(world: World) -> tuple[AnyHandle, AnyHandle]:
    """Two handles, the first of which has driven to where a decision is needed."""
    first = world.open()
    expect_yielded(first.run())
    return first, world.open()


def test_the_same_decision_twice_is_one() -> None:
    """Two people click the same button."""
    world = World("sync", MemoryStore())
    first, second = pair(world)
    second.decide(t2=APPROVED)
    first.decide(t2=APPROVED)
    assert second.text() == "done"
    world.assert_once()
