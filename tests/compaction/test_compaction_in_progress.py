"""While a summary is being written: time runs out, a message arrives, or the driver is interrupted."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from tests.compaction.compaction_stories import USED, WORDS, Reader, Reading, asks_for_summary, reading
from tests.kit.concurrency import either_driver, play, run_async, wait_for, wait_in_loop_for
from tests.kit.each import each
from toolloop import (
    AsyncToolLoopHandle,
)
from toolloop.compaction import Summarize
from toolloop.machine.record.loop import Ready
from toolloop.terminations import Timeout
from toolloop.testing import delayed, reply

LONG = 1000.0
ANSWER = reply(WORDS, usage=USED)


class Slow:
    """A model whose summary comes only when it is let go; the further ones come at once."""

    def __init__(self, pages: int = 6) -> None:
        self.arrived, self.go = threading.Event(), threading.Event()
        summaries = [delayed(self.go, ANSWER), ANSWER]
        self.reader = Reader(pages, summaries=summaries, on_summary=self.arrived.set)


async def up_to_it(at: Reading) -> None:
    """Four turns; the next one asks for a summary first."""
    for _ in range(4):
        (await at.aturn()).continue_loop()


def summarize() -> Summarize:
    return Summarize(keep_last=2, at_tokens=4000)


async def out_of_time(at: Reading, arrived: threading.Event, seconds: float) -> None:
    """Let the time of a loop run out after its summary was asked for, however slow the machine is."""
    while not arrived.is_set():
        limit = at.handle.state.root.active + seconds
        at.handle.extend(timeout=limit)
        assert (await at.aexpect_done()).termination == Timeout(limit)


@either_driver
def test_time_bounds_it(driver: str) -> None:
    """A summary that hangs is given up, and the loop ends with its history as it was; `extend` goes on."""

    async def story() -> None:
        slow = Slow()
        async with reading(driver, slow.reader, summarize(), timeout=LONG) as at:
            await up_to_it(at)
            before = at.handle.messages
            await out_of_time(at, slow.arrived, 0.3)
            assert asks_for_summary(at.sent_bodies[-1])
            assert at.handle.messages == before
            assert at.compactions == []
            assert {entry.kind for entry in at.handle.usage_log} == {"reply"}
            slow.go.set()
            at.handle.extend(timeout=LONG)
            assert (await at.to_the_end()).text == "done"
            assert at.problems[0] is None
            assert at.summaries[0] == at.summaries[1]

    play(driver, story)


def test_a_cancelled_task_leaves_the_loop_before_it() -> None:
    """As if it had not been asked for; the next turn asks again."""

    async def story() -> None:
        slow = Slow()
        async with reading("asyncio", slow.reader, summarize()) as at:
            await up_to_it(at)
            before = at.handle.state
            handle = at.handle
            assert isinstance(handle, AsyncToolLoopHandle)
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def cancel() -> None:
                        await wait_in_loop_for(slow.arrived)
                        scope.cancel()

                    group.start_soon(cancel)
                    await handle.next_turn()
            assert scope.cancelled_caught
            assert isinstance(handle.state.root.phase, Ready)
            assert handle.state.root.messages == before.root.messages
            slow.go.set()
            assert (await at.to_the_end()).text == "done"
            assert at.summaries[0] == at.summaries[1]
            kinds = [entry.kind for entry in handle.usage_log]
            assert kinds.count("summary") == len(at.summaries) - 1

    run_async("asyncio", story)


@each("interrupt", [KeyboardInterrupt, SystemExit])
@each("timeout", [None, LONG])
def test_ctrl_c_leaves_the_loop_before_it(interrupt: type[BaseException], timeout: float | None) -> None:
    """The exception reaches the driver; the loop goes on, and asks for the summary again."""
    asked: list[int] = []

    def write(messages: list[Any]) -> str:
        asked.append(len(messages))
        if len(asked) == 1:
            raise interrupt
        return WORDS

    async def story() -> None:
        strategy = Summarize(write, keep_last=2, at_tokens=4000, to_tokens=3200)
        async with reading("sync", Reader(5), strategy, timeout=timeout) as at:
            with pytest.raises(interrupt):
                await at.to_the_end()
            assert isinstance(at.handle.state.root.phase, Ready)
            assert (await at.to_the_end()).text == "done"
            assert asked == [5, 5]
            assert at.problems == [None]

    play("sync", story)


def test_a_hung_function_is_left_behind() -> None:
    """Its thread may go on; its later reports are ignored."""
    arrived, go = threading.Event(), threading.Event()

    def write(_messages: list[Any]) -> str:
        arrived.set()
        wait_for(go)
        return "too late"

    for driver in ("sync", "asyncio", "trio"):

        async def story(driver: str = driver) -> None:
            given = Summarize(write, keep_last=2, at_tokens=4000)
            async with reading(driver, Reader(5), given, timeout=LONG) as at:
                await up_to_it(at)
                await out_of_time(at, arrived, 0.05)
                go.set()
                at.handle.extend(timeout=LONG)
                assert (await at.to_the_end()).text == "done"
                assert at.problems == [None]

        arrived.clear()
        go.clear()
        play(driver, story)
