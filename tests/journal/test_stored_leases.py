"""The lease of a stored loop: held while a driver works, and free once that is over, however it ended."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from tests.kit import inside
from tests.kit.concurrency import (
    DEADLINE,
    Background,
    either_kind,
    run_async,
    wait_in_loop_for,
)
from tests.kit.failing import Asked
from tests.kit.tools import PAY, SEND, params
from tests.kit.warm_python import run
from tests.kit.world import AnyHandle, World, approve_all, assert_sound, make_failing_world
from toolloop import AsyncToolLoopHandle, Completed, InjectMessages
from toolloop.errors import Conflict
from toolloop.stores.memory import MemoryStore
from toolloop.testing import AsyncScriptedProvider, reply

ONE = (reply(calls=[PAY]), reply("done"))
SCRIPT = (reply(calls=[PAY, SEND]), reply(calls=[{**PAY, "id": "t9"}]), reply("done"))
MOST = 100


# --- a turn that is cancelled ----------------------------------------------------------------------------------------


async def cancel_by(
    backend: str, how: str, work: Callable[[], Any], give: Callable[[Callable[[], None]], None]
) -> None:
    """Await something, and let `give` have what cancels it from any thread."""
    if how == "scope":
        with anyio.CancelScope() as scope:
            if backend == "trio":
                import trio  # noqa: PLC0415 - only under this backend

                token = trio.lowlevel.current_trio_token()
                give(lambda: trio.from_thread.run_sync(scope.cancel, trio_token=token))
            else:
                loop = asyncio.get_running_loop()
                give(lambda: asyncio.run_coroutine_threadsafe(_call(scope.cancel), loop).result(DEADLINE))
            await work()
        return
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work())
    give(lambda: asyncio.run_coroutine_threadsafe(_call(task.cancel), loop).result(DEADLINE))
    with pytest.raises(asyncio.CancelledError):
        await task


async def _call(cancel: Callable[[], object]) -> None:
    cancel()


@pytest.mark.parametrize(("backend", "how"), [("asyncio", "cancel()"), ("trio", "scope")])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_turn_that_is_cancelled_at_the_store_leaves_no_lease_and_nothing_uncertain(
    backend: str, how: str, moment: str
) -> None:
    """At whichever of its calls, and by whatever kind of cancellation: once it is over, any process may drive."""
    for number in range(1, MOST):
        world, store = make_failing_world(backend, script=SCRIPT)
        struck: list[Any] = []
        cancel: list[Callable[[], None]] = []

        over = threading.Event()

        def strike(asked: Asked, at: Any = (struck, cancel, store, number, over)) -> None:
            struck, cancel, store, number, over = at
            if len(store.calls) == number:
                struck.append(asked)
                cancel[0]()
                if over.wait(0.02):
                    struck.append("the store was not awaited")

        handle = world.make().handle
        assert isinstance(handle, AsyncToolLoopHandle)
        setattr(store, moment, strike)

        async def main(handle: Any = handle, cancel: Any = cancel, over: threading.Event = over) -> None:
            try:
                await cancel_by(backend, how, lambda: handle.run(approve_all), cancel.append)
            finally:
                over.set()

        try:
            run_async(backend, main)
        except pytest.fail.Exception:
            assert not struck or struck[0].name == "release"  # there was nothing left to cancel
        here = (number, struck)
        assert len(struck) < 2, here
        if store.inner.list():
            until = time.monotonic() + DEADLINE
            while store.inner.head("loop").lease is not None and time.monotonic() < until:
                pass  # a tool in a thread of its own may just be storing its end; it gives the lease back then
            assert (here, store.inner.head("loop").lease) == (here, None)
        uncertain: list[str] = []

        def ask(turn: Any, uncertain: Any = uncertain) -> None:
            uncertain += [call.id for call in turn.pending if call.why == "uncertain"]
            approve_all(turn)

        assert isinstance(AnyHandle(backend, handle).run(ask), Completed)
        assert (here, uncertain, sorted(world.ran)) == (here, [], ["t1", "t2", "t9"])
        assert_sound(store)
        if not struck:
            assert number > 10
            return
    raise AssertionError("it was cancelled to the last")


# --- a driver that is gone -------------------------------------------------------------------------------------------


def test_a_driver_whose_event_loop_was_closed_holds_nothing() -> None:
    """Nothing of it can be awaited any more; the next one drives at once, and the store is updated in time."""
    store, begun = MemoryStore(), threading.Event()
    world = World("sync", store, script=ONE)

    async def never(_: Any) -> Any:
        begun.set()
        await asyncio.sleep(1000)

    async def main() -> asyncio.Task[Any]:
        handle = AsyncToolLoopHandle(
            AsyncScriptedProvider(never), tools=world.tools, params=params(), store=store, loop_id="loop"
        )
        task = asyncio.ensure_future(handle.run())
        await wait_in_loop_for(begun)
        return task

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it would log that a task was destroyed
    task = loop.run_until_complete(main())
    loop.close()
    gone = weakref.ref(task)
    del task
    until = time.monotonic() + DEADLINE
    while gone() is not None and time.monotonic() < until:
        gc.collect()  # a thread that has just stored something may still be about to let go of it
    inside.renew_leases()
    assert store.head("loop").lease is None
    assert world.open().text() == "done"


@either_kind
def test_run_gives_the_lease_back_while_it_asks(kind: str) -> None:
    """A person may take days; meanwhile any process may drive."""
    world, store = make_failing_world(kind, script=(reply(calls=[SEND]), reply("done")))
    told: list[Any] = []

    def drive() -> None:
        other = world.bypass().open(context=world.parts()["context"])
        other.say(other.turn().approve_all)
        told.append(other.text())

    def ask(turn: Any) -> None:
        assert store.inner.head("loop").lease is None
        Background(drive).result()

    assert world.open().run(ask).unwrap().text == "done"  # it looks at what happened while it asked
    assert told == ["done"]
    world.assert_once()
    assert_sound(store)


# --- fork ------------------------------------------------------------------------------------------------------------


FORKING = """
import os, sys, warnings
from toolloop import LoopConfig, SqliteStore, ToolLoopHandle, tool
from toolloop.errors import IllegalCommand
from toolloop.testing import ScriptedProvider, call, reply

warnings.simplefilter("ignore")  # that a process with threads forks

@tool(effect="pure")
def fork() -> str:
    "Go on in two processes; the child is first."
    child = os.fork()
    if child:
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return "x"

@tool
def pay() -> str:
    "Pay."
    print("paid", flush=True)
    return "paid"

script = ScriptedProvider([reply(calls=[call("fork", {}, id="t1"), call("pay", {}, id="t2")]), reply("done")])
params = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
me, store, config = os.getpid(), SqliteStore(sys.argv[1]), LoopConfig(max_parallel_tools=1)
handle = ToolLoopHandle(script, params=params, tools=[fork, pay], config=config, store=store, loop_id="loop")
try:
    print(handle.run().unwrap().text)
except IllegalCommand:
    os._exit(7 if os.getpid() != me else 8)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() on this system")
def test_a_child_of_a_fork_does_not_drive_under_the_lease_of_its_parent(tmp_path: Path) -> None:
    """It can record nothing; the parent goes on, and does not wait for what the child began."""
    (program := tmp_path / "program.py").write_text(FORKING)
    done = run([str(program), str(tmp_path / "loops.db")])
    assert (done.stdout.split("\n"), done.stderr) == (["child 7", "paid", "done", ""], "")


ROUNDS = (*(reply(calls=[{**PAY, "id": f"p{number}"}]) for number in range(3)), reply("done"))


@either_kind
def test_run_goes_on_though_another_caller_injects_and_wants_to_drive(kind: str) -> None:
    """The error names the driver. Between two turns of `run` there is no moment at which it waits for a command."""
    world, store = make_failing_world(kind, script=ROUNDS)
    peer = world.open()
    refused: list[Any] = []

    def other(asked: Asked) -> None:
        assert asked.events[-1:] != ("TurnEnded",)
        if "Replied" in asked.events and "Started" in asked.events:
            peer = world.bypass().open()
            peer.say(lambda: peer.handle.resume(InjectMessages([{"role": "user", "content": "also"}])))
            with pytest.raises(Conflict) as caught:
                peer.next_turn()
            refused.append(caught.value.owner)

    store.after = other
    assert peer.text() == "done"
    assert len(refused) == 3
    assert None not in refused
    world.assert_once()
    assert_sound(store)
