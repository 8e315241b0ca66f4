"""Functions of the caller that are slow: policies, `stop_when`, result filters; and a loop that ends meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from tests.kit.concurrency import async_loop, on_both_backends, run_async, sync_loop
from tests.kit.each import each
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import params
from toolloop import Approve, AsyncToolLoopHandle, LoopConfig, Stop, ToolCall, sub_loop, tool
from toolloop.terminations import StopCondition, Timeout
from toolloop.testing import AsyncScriptedProvider, call, reply

TWO = reply(calls=[call("say", id="a"), call("say", id="b")])


@tool
def say() -> str:
    """Say something."""
    return "said"


@each("ends", ["policy", "filter"])
@each("kind", ["sync", "async"])
def test_after_a_stop_nothing_more_is_asked(kind: str, ends: str) -> None:
    """The stop comes while the first of several functions is asked: no other policy is. The filters of a result are."""
    asked: list[str] = []

    def policy(shown: Any, _view: Any) -> Approve:
        asked.append(f"policy {shown.id}")
        if ends == "policy":
            handle.resume(Stop("enough"))
        return Approve()

    def first(shown: Any, _content: Any) -> str:
        asked.append(f"first {shown.id}")
        handle.resume(Stop("enough"))
        return "filtered"

    def second(shown: Any, _content: Any) -> None:
        asked.append(f"second {shown.id}")

    calls = TWO if ends == "policy" else reply(calls=[call("say", id="a")])
    options = {"on_tool_call": policy, "result_filters": [first, second]}
    handle: Any
    if kind == "sync":
        handle = sync_loop([calls], [say], **options)
        turn = handle.next_turn()
    else:
        handle = async_loop([calls], [say], **options)
        turn = run_async("asyncio", handle.next_turn)
    assert expect_completed(turn).termination == StopCondition("enough")
    assert asked == (["policy a"] if ends == "policy" else ["policy a", "first a", "second a"])


async def _wait_for_ever(*_: object) -> None:
    await anyio.sleep_forever()


@each("option", ["on_tool_call", "stop_when", "result_filters"])
@on_both_backends
def test_a_stop_does_not_wait_for_a_slow_function(backend: str, option: str) -> None:
    """An async function is cancelled once the loop no longer waits for what it says."""
    begun: list[anyio.Event] = []

    async def slow(*_: object) -> None:
        begun[0].set()
        await anyio.sleep_forever()

    async def main() -> Any:
        begun.append(anyio.Event())
        handle = async_loop([TWO], [say], stop_grace=0.1, **{option: [slow] if option == "result_filters" else slow})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_after, begun[0], handle)
            return await handle.next_turn()

    assert expect_completed(run_async(backend, main)).termination == StopCondition("enough")


async def _stop_after(begun: anyio.Event, handle: AsyncToolLoopHandle) -> None:
    await begun.wait()
    handle.resume(Stop("enough"))


@on_both_backends
def test_a_time_limit_does_not_wait_for_a_slow_filter(backend: str) -> None:
    """A filter belongs to the run of the call, which the limit bounds."""
    handle = async_loop([TWO], [say], timeout=0.05, stop_grace=0.1, result_filters=[_wait_for_ever])
    assert expect_completed(run_async(backend, handle.next_turn)).termination == Timeout(0.05)


@on_both_backends
def test_what_a_policy_says_of_an_old_call_does_not_count_for_a_new_one(backend: str) -> None:
    """It is still asked, in a thread, when the loop was stopped and a call with the same id came up."""
    ran: list[int] = []
    asked: list[str] = []
    gate = threading.Event()

    @tool(needs_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        ran.append(n)
        return "paid"

    async def policy(shown: ToolCall, _view: Any) -> Approve | None:
        asked.append(shown.name)
        if len(asked) == 1:
            await anyio.to_thread.run_sync(gate.wait)
        elif len(asked) == 2:
            await anyio.sleep_forever()
        return Approve() if shown.name == "say" else None

    turns = {"outer": 0}

    async def answer(request: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if request["messages"][0]["content"] == "go":
            turns["outer"] += 1
            if turns["outer"] == 2:
                gate.set()
            return reply(calls=[call("part", {"prompt": at}, id=f"part_{at}") for at in "ab"])
        return reply(calls=[call("say", id="c") if turns["outer"] == 1 else call("pay", {"n": 1}, id="c")])

    async def main() -> Any:
        config = LoopConfig(on_tool_call=policy)
        part = sub_loop("part", "Do a part.", params={"model": "m", "max_tokens": 9}, tools=[say, pay], config=config)
        asks = params(messages=[{"role": "user", "content": "go"}])
        handle = AsyncToolLoopHandle(AsyncScriptedProvider(answer), params=asks, tools=[part])

        async def other() -> None:
            while len(asked) < 2:  # then no tool runs, and the stop is the end
                await anyio.lowlevel.checkpoint()
            handle.stop("enough")
            handle.follow_up("again")  # before the driver looks: it would return at the end

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            return await handle.run()

    waiting = expect_yielded(run_async(backend, main)).pending
    assert {each.name for each in waiting} == {"pay"}
    assert ran == []
