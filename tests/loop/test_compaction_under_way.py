"""While a summary is under way: time runs out, somebody speaks, somebody looks, or whoever waits is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.each import each
from tests.loop.compaction_stories import USED, WORDS, Reader, Reading, asks_for_summary, reading
from tests.loop.concurrency import Background, awaited, heard, run_async
from tests.loop.support import completed, user, yielded
from tests.loop.talking import either_driver, play
from toolloop import (
    Approve,
    AsyncToolLoopHandle,
    Completed,
    Error,
    InjectMessages,
    Stop,
    ToolLoopHandle,
    Usage,
    Yielded,
)
from toolloop.compaction import Summarize
from toolloop.errors import IllegalCommand, UnknownCall
from toolloop.machine.loop import Ready
from toolloop.terminations import StopCondition, Timeout
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
        (await at.turn()).continue_loop()


def summarize() -> Summarize:
    return Summarize(keep_last=2, at_tokens=4000)


async def meanwhile(at: Reading, slow: Slow, act: Callable[[], object]) -> Yielded | Completed | Error:
    """The result of a turn during whose request for a summary this was done."""
    handle = at.handle
    if isinstance(handle, ToolLoopHandle):
        turn = Background(handle.next_turn)
        awaited(slow.arrived)
        try:
            act()
        finally:
            slow.go.set()
        return turn.result()
    results: list[Any] = []
    tasks: AsyncToolLoopHandle = handle

    async def drive() -> None:
        results.append(await tasks.next_turn())

    async with anyio.create_task_group() as group:
        group.start_soon(drive)
        await heard(slow.arrived)
        try:
            act()
        finally:
            slow.go.set()
    return results[0]  # type: ignore[no-any-return]  # what the turn gave


async def out_of_time(at: Reading, arrived: threading.Event, seconds: float) -> None:
    """Let the time of a loop run out after its summary was asked for, however slow the machine is."""
    while not arrived.is_set():
        limit = at.handle.state.root.active + seconds
        at.handle.extend(timeout=limit)
        assert (await at.done()).termination == Timeout(limit)


@either_driver
def test_time_bounds_it(driver: str) -> None:
    """A summary that hangs is given up, and the loop ends with its history as it was; `extend` goes on."""

    async def story() -> None:
        slow = Slow()
        async with reading(driver, slow.reader, summarize(), timeout=LONG) as at:
            await up_to_it(at)
            before = at.handle.messages
            await out_of_time(at, slow.arrived, 0.3)
            assert asks_for_summary(at.bodies()[-1])
            assert at.handle.messages == before
            assert at.compactions == []
            assert {entry.kind for entry in at.handle.usage_log} == {"reply"}
            slow.go.set()
            at.handle.extend(timeout=LONG)
            assert (await at.to_the_end()).text == "done"
            assert at.problems[0] is None
            assert at.summaries[0] == at.summaries[1]

    play(driver, story)


def test_its_time_counts() -> None:
    """Active seconds pass while a summary is written."""

    async def story() -> None:
        slow = Slow()
        async with reading("sync", slow.reader, summarize()) as at:
            await up_to_it(at)
            before = at.handle.state.root.active
            done = threading.Event()
            await meanwhile(at, slow, lambda: done.wait(0.05))
            assert at.handle.state.root.active >= before + 0.05

    play("sync", story)


def test_stop_ends_the_loop_at_once() -> None:
    """What the summary used is counted; the history is as it was, and no further request goes out."""

    async def story() -> None:
        slow = Slow()
        async with reading("sync", slow.reader, summarize()) as at:
            await up_to_it(at)
            before = at.handle.messages
            done = completed(await meanwhile(at, slow, lambda: at.handle.resume(Stop("enough"))))
            assert done.termination == StopCondition("enough")
            assert asks_for_summary(at.bodies()[-1])
            assert at.compactions == []
            assert at.handle.usage_log[-1].kind == "summary"
            assert at.handle.usage_log[-1].usage == Usage(900, 30)
            assert at.handle.messages == before

    play("sync", story)


def test_what_is_injected_meanwhile_goes_out_with_the_next_request() -> None:
    async def story() -> None:
        slow = Slow()
        async with reading("sync", slow.reader, summarize()) as at:
            await up_to_it(at)
            yielded(await meanwhile(at, slow, lambda: at.handle.resume(InjectMessages([user("Hurry.")]))))
            assert at.requests[-1]["messages"][-1] == user("Hurry.")
            assert at.problems == [None]
            assert user("Hurry.") not in at.summaries[0]["messages"]

    play("sync", story)


def test_what_is_not_allowed_meanwhile() -> None:
    """Nobody edits or decides; and the summary comes all the same."""

    async def story() -> None:
        slow = Slow()
        async with reading("sync", slow.reader, summarize()) as at:
            await up_to_it(at)

            def act() -> None:
                with pytest.raises(IllegalCommand):
                    at.handle.messages_mut()
                with pytest.raises(UnknownCall):
                    at.handle.decide({"page-4": Approve()})

            yielded(await meanwhile(at, slow, act))
            assert at.problems == [None]
            assert len(at.compactions) == 1

    play("sync", story)


def test_what_can_be_seen_of_it() -> None:
    """The loop is ready for its next request, and a snapshot wakes up there."""

    async def story() -> None:
        slow = Slow()
        seen: list[Any] = []
        async with reading("sync", slow.reader, summarize()) as at:
            await up_to_it(at)

            def look() -> None:
                seen.extend((at.handle.state, at.handle.view(), at.handle.snapshot(), at.handle.messages))

            yielded(await meanwhile(at, slow, look))
            state, view, snapshot, messages = seen
            assert isinstance(state.root.phase, Ready)
            assert view["state"] == "Ready"
            assert view["iterations"] == 4
            assert len(messages) == 9
            woken = at.restored_with(snapshot, summarize())
            yielded(await woken.next())
            assert at.summaries[0] == at.summaries[1]
            assert at.requests[-1] == at.requests[-2]

    play("sync", story)


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
                        await heard(slow.arrived)
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
    """It comes through to whoever drives; the loop goes on with the summary asked for again."""
    asked: list[int] = []

    def write(messages: list[Any]) -> str:
        asked.append(len(messages))
        if len(asked) == 1:
            raise interrupt
        return WORDS

    async def story() -> None:
        async with reading("sync", Reader(5), Summarize(write, keep_last=2, at_tokens=4000), timeout=timeout) as at:
            with pytest.raises(interrupt):
                await at.to_the_end()
            assert isinstance(at.handle.state.root.phase, Ready)
            assert (await at.to_the_end()).text == "done"
            assert asked == [5, 5]
            assert at.problems == [None]

    play("sync", story)


def test_a_hung_function_is_left_behind() -> None:
    """Its thread may go on; what it says then is nobody's business."""
    arrived, go = threading.Event(), threading.Event()

    def write(_messages: list[Any]) -> str:
        arrived.set()
        awaited(go)
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
