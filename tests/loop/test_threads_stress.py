"""Many loops, many threads: no call runs twice, and none is lost."""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import threading
import time
from typing import Any

import anyio
import anyio.to_thread

from tests.effort import IS_DEEP
from tests.loop.concurrency import (
    DEADLINE,
    Background,
    Counted,
    async_loop,
    on_both_backends,
    result_texts,
    run_async,
    sync_loop,
)
from tests.loop.support import completed
from toolloop import Approve, AsyncToolLoopHandle, Continue, ToolContext, ToolLoopHandle, Yielded, tool
from toolloop.errors import IllegalCommand, ToolLoopError
from toolloop.testing import reply

LOOPS = 200 if IS_DEEP else 60
CALLS, DECIDERS, WORKERS = 5, 3, 10
Handle = ToolLoopHandle | AsyncToolLoopHandle


class Deciders:
    """Threads that all approve every call of every loop that waits, each in its own order, and all say go on."""

    def __init__(self) -> None:
        self._queues: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(DECIDERS)]
        self.won = [0] * DECIDERS
        self._threads = [Background(functools.partial(self._decide, turn)) for turn in range(DECIDERS)]

    def ask(self, handle: Handle, go: threading.Semaphore) -> None:
        for waiting in self._queues:
            waiting.put((handle, go))

    def close(self) -> None:
        for waiting in self._queues:
            waiting.put(None)
        for thread in self._threads:
            thread.result()

    def _decide(self, number: int) -> None:
        while (asked := self._queues[number].get(timeout=DEADLINE)) is not None:
            handle, go = asked
            pending = handle.pending
            for call in itertools.islice(itertools.cycle(pending), number, number + len(pending)):
                # Another may have been first, and the loop may be elsewhere by now.
                with contextlib.suppress(ToolLoopError):
                    handle.decide({call: Approve(by="all of us")})
            try:
                handle.resume(Continue())
            except ToolLoopError:
                continue
            self.won[number] += 1
            go.release()


def make(kind: Any, number: int) -> tuple[Any, Counted]:
    counted = Counted()

    @tool(needs_approval=True)
    def asks(number: int, context: ToolContext) -> str:
        """Need approval."""
        counted.add(context)
        return f"asked {number}"

    @tool
    def free(number: int, context: ToolContext) -> str:
        """Need none."""
        counted.add(context)
        return f"free {number}"

    calls = [("asks" if (each + number) % 3 else "free", {"number": each}) for each in range(CALLS)]
    script = [reply(calls=calls), reply(calls=calls), reply("done")]
    return kind(script, [asks, free], max_parallel_tools=None if number % 2 else 2), counted


def check(handle: Handle, counted: Counted) -> None:
    """Every call ran once, and each result stands in its place."""
    ids = [block["id"] for message in handle.messages[1::2] for block in message["content"] if "id" in block]
    assert sorted(counted.ran) == sorted(ids)
    assert len(ids) == 2 * CALLS
    for message in handle.messages[2:5:2]:
        assert [text.split()[1] for text in result_texts(message)] == [str(number) for number in range(CALLS)]


def next_or_waiting(handle: ToolLoopHandle) -> Any:
    """The next turn, or the one that waits already."""
    try:
        return handle.next_turn()
    except IllegalCommand:
        return handle.pending_turn


def test_many_loops_in_threads() -> None:
    """Ten threads drive many loops, three decide all calls of all of them at once."""
    begun = time.process_time()
    deciders = Deciders()

    def drive(first: int) -> None:
        for number in range(first, LOOPS, WORKERS):
            handle, counted = make(sync_loop, number)
            go = threading.Semaphore(0)
            while (result := next_or_waiting(handle)) is None or isinstance(result, Yielded):
                deciders.ask(handle, go)
                assert go.acquire(timeout=DEADLINE)
            assert completed(result).text == "done"
            check(handle, counted)

    workers = [Background(functools.partial(drive, first)) for first in range(WORKERS)]
    for worker in workers:
        worker.result()
    deciders.close()
    assert all(deciders.won), "nobody competed"
    assert time.process_time() - begun < 10


@on_both_backends
def test_many_loops_in_tasks(backend: str) -> None:
    """The same in one event loop; the tools and those who decide are in threads."""
    deciders = Deciders()

    async def drive(first: int) -> None:
        for number in range(first, LOOPS, WORKERS):
            handle, counted = make(async_loop, number)
            go = threading.Semaphore(0)
            while True:
                try:
                    result = await handle.next_turn()
                except IllegalCommand:
                    result = handle.pending_turn
                if result is not None and not isinstance(result, Yielded):
                    break
                deciders.ask(handle, go)
                assert await anyio.to_thread.run_sync(go.acquire, True, DEADLINE)
            assert completed(result).text == "done"
            check(handle, counted)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for first in range(WORKERS):
                group.start_soon(drive, first)

    run_async(backend, main)
    deciders.close()
    assert all(deciders.won), "nobody competed"
