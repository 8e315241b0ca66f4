"""A cancelled turn of the async handle: whatever cancels it, the loop can go on, and nothing runs twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
import trio.testing

from tests.kit.concurrency import (
    DEADLINE,
    Counted,
    Gate,
    async_loop,
    async_wire,
    cancel_after,
    on_both_backends,
    result_texts,
    run_async,
    statuses,
    wait_in_loop_for,
)
from tests.kit.each import each
from tests.kit.support import expect_completed, expect_yielded
from toolloop import Texts, ToolCall, ToolContext, tool
from toolloop.testing import delayed, reply


@on_both_backends
def test_before_the_reply_it_is_as_if_no_request_was_made(backend: str) -> None:
    """Iterations, usage and history are as before, and the next turn sends the same bytes."""

    async def main() -> None:
        held = delayed(DEADLINE, reply("never seen"))
        async with async_wire([held, reply("done")]) as (handle, api):
            before = handle.view(), handle.messages
            await cancel_after(handle, held.arrived)
            assert (handle.view(), handle.messages) == before
            assert expect_completed(await handle.next_turn()).text == "done"
            assert api.requests[0].body == api.requests[1].body

    run_async(backend, main)


@on_both_backends
def test_during_an_async_policy_nothing_has_run_and_it_is_asked_again(backend: str) -> None:
    """The round is judged again in the next turn."""
    gate, counted, asked = Gate(), Counted(), []

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        counted.add(context)
        return "done"

    async def policy(call: ToolCall, view: Any) -> None:
        asked.append(call.name)
        if len(asked) == 1:
            await gate.wait()

    async def main() -> None:
        handle = async_loop([reply(calls=[("work", {})]), reply("done")], [work], on_tool_call=policy)
        await cancel_after(handle, gate.arrived)
        assert (counted.ran, handle.pending) == ([], ())
        assert expect_completed(await handle.run()).text == "done"
        assert (len(counted.ran), asked) == (1, ["work", "work"])

    run_async(backend, main)


@on_both_backends
@each("effect", ["pure", "keyed", "once"])
def test_an_async_tool_that_was_cut_off_is_cancelled_or_uncertain(backend: str, effect: Any) -> None:
    """A repeatable call is settled as cancelled; the end of another call is unknown, and the caller is asked."""
    gate, counted = Gate(), Counted()

    @tool(effect=effect)
    async def slow(context: ToolContext) -> str:
        """Wait."""
        counted.add(context)
        await gate.wait()
        return "never"

    async def main() -> None:
        handle = async_loop([reply(calls=[("slow", {})]), reply("done")], [slow])
        await cancel_after(handle, gate.arrived)
        if effect == "once":
            (call,) = handle.pending
            assert call.why == "uncertain"
            waiting = expect_yielded(await handle.run())
            assert waiting.pending == handle.pending
            waiting.answer(call, "it was done")
        else:
            assert (statuses(handle), handle.pending) == (["settled"], ())
        assert expect_completed(await handle.run()).text == "done"
        told = "it was done" if effect == "once" else Texts().cancelled
        assert result_texts(handle.messages[2]) == [told]
        assert len(counted.ran) == 1

    run_async(backend, main)


@on_both_backends
def test_finished_results_are_kept_and_a_left_behind_thread_may_still_end(backend: str) -> None:
    """Of three calls one has ended, one is cut off, one runs on in its thread: each has its own fate."""
    quick, cut, thread, counted = threading.Event(), Gate(), Gate(), Counted()

    @tool
    async def first(context: ToolContext) -> str:
        """End at once."""
        counted.add(context)
        quick.set()
        return "first"

    @tool(effect="pure")
    async def second(context: ToolContext) -> str:
        """Be cut off."""
        counted.add(context)
        await cut.wait()
        return "never"

    @tool
    def third(context: ToolContext) -> str:
        """Run on."""
        counted.add(context)
        thread.stand()
        return "third" if not context.cancelled else "told to stop"

    async def main() -> None:
        calls: list[Any] = [("first", {}), ("second", {}), ("third", {})]
        handle = async_loop([reply(calls=calls), reply("done")], [first, second, third])
        await cancel_after(handle, quick, cut.arrived, thread.arrived)
        assert statuses(handle) == ["settled", "settled", "running"]
        assert handle.pending == ()
        again = handle.snapshot()
        thread.opened.set()
        turn = expect_yielded(await handle.next_turn())
        assert turn.reason == "tools_executed"
        assert again != handle.snapshot()
        assert [result.content for result in turn.results if result] == ["first", Texts().cancelled, "third"]
        assert expect_completed(await handle.run()).text == "done"
        assert len(counted.ran) == 3

    run_async(backend, main)


@on_both_backends
def test_a_tool_that_raises_the_cancellation_itself_ends_only_itself(backend: str) -> None:
    """The turn was not cancelled, so it goes on, and the caller is asked how the call ended."""

    @tool
    async def odd() -> str:
        """Raise what a cancelled task raises."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await anyio.lowlevel.checkpoint()
            except BaseException as error:
                caught.append(error)
                raise
        raise caught[0]

    caught: list[BaseException] = []

    async def main() -> None:
        handle = async_loop([reply(calls=[("odd", {})])], [odd])
        assert [call.why for call in expect_yielded(await handle.next_turn()).pending] == ["uncertain"]

    run_async(backend, main)


async def time_out(turn: Callable[[], Awaitable[object]], gate: Gate) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            await _act_when(gate, lambda: limit.reschedule(0), turn)


async def cancel_task(turn: Callable[[], Awaitable[object]], gate: Gate) -> None:
    async def run() -> None:
        await turn()

    task = asyncio.create_task(run())
    await wait_in_loop_for(gate.arrived)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def fail_group(turn: Callable[[], Awaitable[object]], gate: Gate) -> None:
    async def run() -> None:
        await turn()

    async def fail() -> None:
        await wait_in_loop_for(gate.arrived)
        raise LookupError

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run())
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await both()
    assert [type(error) for error in caught.value.exceptions] == [LookupError]


async def move_on(turn: Callable[[], Awaitable[object]], gate: Gate) -> None:
    with trio.move_on_after(DEADLINE) as scope:
        await _act_when(gate, lambda: setattr(scope, "deadline", trio.current_time()), turn)
    assert scope.cancelled_caught


async def _act_when(gate: Gate, act: Callable[[], object], turn: Callable[[], Awaitable[object]]) -> None:
    async def soon() -> None:
        await wait_in_loop_for(gate.arrived)
        act()

    async with anyio.create_task_group() as group:
        group.start_soon(soon)
        await turn()


@each(
    ("backend", "cancel"),
    [("asyncio", time_out), ("asyncio", cancel_task), ("asyncio", fail_group), ("trio", move_on)],
)
def test_each_way_of_cancelling_goes_through_and_leaves_the_loop(backend: str, cancel: Any) -> None:
    """The native ways of both libraries: none is swallowed, none arrives as something else."""
    gate = Gate()

    @tool(effect="pure")
    async def slow() -> str:
        """Wait."""
        await gate.wait()
        return "never"

    async def main() -> None:
        handle = async_loop([reply(calls=[("slow", {})]), reply("done")], [slow])
        await cancel(handle.next_turn, gate)
        assert statuses(handle) == ["settled"]
        assert expect_completed(await handle.run()).text == "done"

    run_async(backend, main)


def test_a_wait_of_an_event_loop_that_crashed_ends_when_it_is_collected() -> None:
    """It waited for an event that no longer comes, with no scope that it could leave."""
    from toolloop._drivers.event_loops import wait_shielded  # noqa: PLC0415 - a crash of trio strikes it at random

    left: list[Any] = []

    async def main() -> None:
        left.append(wait_shielded(anyio.Event()))
        left[0].send(None)

    trio.run(main)
    with pytest.raises(RuntimeError, match="async context"):
        left[0].close()
