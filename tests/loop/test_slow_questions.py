"""Functions of the caller that are slow: policies, `stop_when`, result filters; and a loop that ends meanwhile."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel

from tests.each import each
from tests.loop.concurrency import async_loop, on_both_backends, run_async, sync_loop
from tests.loop.support import completed
from toolloop import Approve, AsyncToolLoopHandle, Stop, tool
from toolloop.terminations import StopCondition, Timeout
from toolloop.testing import call, reply

TWO = reply(calls=[call("say", id="a"), call("say", id="b")])


@tool
def say() -> str:
    """Say something."""
    return "said"


@each("ends", ["policy", "filter"])
@each("kind", ["sync", "async"])
def test_after_a_stop_nothing_more_is_asked(kind: str, ends: str) -> None:
    """The stop comes while the first of several functions is asked: the others are not."""
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
    assert completed(turn).termination == StopCondition("enough")
    assert asked == (["policy a"] if ends == "policy" else ["policy a", "first a"])


async def _for_ever(*_: object) -> None:
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
        handle = async_loop([TWO], [say], **{option: [slow] if option == "result_filters" else slow})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_after, begun[0], handle)
            return await handle.next_turn()

    assert completed(run_async(backend, main)).termination == StopCondition("enough")


async def _stop_after(begun: anyio.Event, handle: AsyncToolLoopHandle) -> None:
    await begun.wait()
    handle.resume(Stop("enough"))


@on_both_backends
def test_a_time_limit_does_not_wait_for_a_slow_filter(backend: str) -> None:
    """A filter belongs to the run of the call, which the limit bounds."""
    handle = async_loop([TWO], [say], timeout=0.05, result_filters=[_for_ever])
    assert completed(run_async(backend, handle.next_turn)).termination == Timeout(0.05)
