"""A hundred loops on one event loop, all in one file: nothing that they do holds the event loop up."""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from attrs import define, field

from tests.loop.concurrency import run_async
from tests.loop.heartbeat import Heart, OtherProcess, Steps, Witness, other_process, run_counted
from tests.loop.stored import STORY, TOOLS
from tests.loop.support import params
from toolloop import AsyncToolLoopHandle, Completed, LoopConfig, SqliteStore, Yielded
from toolloop.testing import AsyncScriptedProvider, reply

LOOPS = 100
TURNS = 4  # of the story: a request and a tool; a request; two tools; a request
STUCK = 20  # beats


async def model(request: Mapping[str, Any]) -> Any:
    """The story, at the place where this loop is in it; over a network it would not come at once."""
    await anyio.lowlevel.checkpoint()
    return STORY[sum(message["role"] == "assistant" for message in request["messages"])]


@define(eq=False)
class Crowd:
    """Loops in a file, the event loop that they share, and somebody else who locks the file.

    Attributes:
        handles: of the loops that were opened so far.
        ended: how many of them are over.
        locks: how many times the file was locked until every loop that wanted to store something was stuck.

    """

    steps: Steps
    store: Witness
    other: OtherProcess
    heart: Heart = field(factory=Heart)
    provider: Any = field(factory=lambda: AsyncScriptedProvider(model))
    handles: list[AsyncToolLoopHandle] = field(factory=list)
    ended: int = 0
    locks: int = 0

    async def live(self, name: str) -> None:
        """A whole loop: opened, driven, decided, driven to its end, closed."""

        async def ask(turn: Yielded) -> None:
            turn.approve_all(by="ana")

        store: Any = self.store
        async with AsyncToolLoopHandle.open(store, name, self.provider, tools=TOOLS, params=params()) as handle:
            self.handles.append(handle)
            done = await handle.run(ask)
            assert isinstance(done, Completed)
            assert done.text == "done"
        self.ended += 1

    async def work_of_one_turn(self) -> float:
        """How long a loop takes for a turn, if there is nothing else."""
        await self.live("warm")  # what is loaded at first use is no part of it
        await anyio.lowlevel.checkpoint()
        before = self.steps.total
        await self.live("alone")
        return (self.steps.total - before) / TURNS

    async def look(self) -> None:
        """Somebody shows the loops meanwhile, one at each beat."""
        while True:
            await self.heart.next()
            if self.handles:
                handle = self.handles[self.heart.beats % len(self.handles)]
                handle.view()
                handle.pending  # noqa: B018 - it is looked at

    async def lock(self) -> None:
        """Lock the file until all are stuck and the heart still beats; let them go on for a while; and again."""
        while self.goes_on():
            await anyio.to_thread.run_sync(self.other.lock)
            last, since = self.store.done, self.heart.beats
            while self.goes_on() and self.heart.beats < since + STUCK:
                await self.heart.next()
                if self.store.done > last or not self.store.waiting:
                    last, since = self.store.done, self.heart.beats
            await anyio.to_thread.run_sync(self.other.unlock)
            self.locks += self.goes_on()
            while self.goes_on() and self.store.done < last + LOOPS:
                await self.heart.next()

    def goes_on(self) -> bool:
        """Whether a loop is not at its end yet."""
        return self.ended < LOOPS + 2

    async def live_all(self) -> None:
        """All loops at once, while others look at them and lock their file."""
        async with anyio.create_task_group() as lookers:
            lookers.start_soon(self.heart.beat)
            lookers.start_soon(self.look)
            async with anyio.create_task_group() as others:
                others.start_soon(self.lock)
                async with anyio.create_task_group() as loops:
                    for number in range(LOOPS):
                        loops.start_soon(self.live, f"loop {number}")
                        await anyio.lowlevel.checkpoint()
            lookers.cancel_scope.cancel()


def test_no_step_of_the_event_loop_is_longer_than_the_work_of_one_turn(tmp_path: Path) -> None:
    """A heart beats beside a hundred loops, also while another process has their file locked, and nothing gets on.

    The lock is given back only by the beats of the heart, so a loop that waited for it in the event loop would wait
    until its store gives up. And nothing that the loops do in one step is more than a turn of one of them.
    """
    path = tmp_path / "loops.db"
    store = SqliteStore(path, busy_timeout=20)
    steps = Steps()
    with other_process(path) as other, store:
        crowd = Crowd(steps, Witness(store), other)

        async def main() -> None:
            with steps.counting():
                steps.limit = await crowd.work_of_one_turn()
                await crowd.live_all()

        gc.disable()  # it would do its work in whichever step comes by
        try:
            run_counted("asyncio", steps, main)
        finally:
            gc.enable()
    assert steps.stalls == []
    assert threading.get_ident() not in crowd.store.threads
    assert len(crowd.handles) == LOOPS + 2
    assert crowd.locks >= 3


def test_each_turn_lets_everything_else_go_on_though_nothing_is_waited_for() -> None:
    """A provider that has its answers at hand suspends nothing, and still each turn is at least one step by itself."""
    script = [reply("Wait.", stop_reason="pause_turn")] * STUCK
    config = LoopConfig(max_iterations=None, max_pauses=None)
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            await anyio.lowlevel.checkpoint()
            steps += 1

    async def main() -> None:
        handle = AsyncToolLoopHandle(AsyncScriptedProvider([*script, reply("done")]), params=params(), config=config)
        async with anyio.create_task_group() as others:
            others.start_soon(count)
            while not steps:
                await anyio.lowlevel.checkpoint()
            before = steps
            done = await handle.run()
            assert done.unwrap().iterations == STUCK + 1
            assert steps - before >= STUCK
            others.cancel_scope.cancel()

    run_async("asyncio", main)
