"""A generator around a streamed turn, as web frameworks use it, may be closed by another task than its reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from toolloop import AsyncToolLoopHandle, Completed, MemoryStore
from toolloop.testing import AsyncScriptedProvider, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]}


async def events_of(handle: AsyncToolLoopHandle) -> AsyncGenerator[Any, None]:
    """Yield the events of a turn, as a web handler does."""
    async with handle.stream_turn() as stream:
        async for event in stream:
            yield event


def test_another_task_closes_the_generator_and_the_lease_is_returned() -> None:
    """The turn is given up at whatever event was read last, and the loop goes on from before it."""

    async def main(reads: int) -> None:
        store = MemoryStore()
        provider = AsyncScriptedProvider([reply("a long answer")] * 2)
        handle = AsyncToolLoopHandle(provider, params=PARAMS, store=store, loop_id="loop")
        events = events_of(handle)
        for _ in range(reads):
            await asyncio.gather(anext(events))  # each event is read by a task of its own
        await asyncio.gather(events.aclose())
        assert [stored.lease for stored in store.list()] in ([], [None])
        assert isinstance(await handle.run(), Completed)

    for reads in range(4):
        asyncio.run(main(reads))


def test_a_task_that_is_cancelled_while_it_reads_closes_the_stream() -> None:
    """Also if asyncio cancels the task that reads, between two events."""

    async def main() -> None:
        store = MemoryStore()
        provider = AsyncScriptedProvider([reply("a long answer")] * 2)
        handle = AsyncToolLoopHandle(provider, params=PARAMS, store=store, loop_id="loop")
        first = asyncio.Event()

        async def read() -> None:
            async with aclosing(events_of(handle)) as events:
                async for _ in events:
                    first.set()
                    await asyncio.sleep(3600)

        task = asyncio.create_task(read())
        await first.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert isinstance(await handle.run(), Completed)
        assert [stored.lease for stored in store.list()] == [None]

    asyncio.run(main())
