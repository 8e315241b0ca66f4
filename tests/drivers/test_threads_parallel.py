"""Calls of one round run side by side: how many, in what order their results stand, what an exit in one does."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import queue
import threading
import time
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.kit.concurrency import (
    BACKENDS,
    DEADLINE,
    Background,
    Counted,
    async_loop,
    cross,
    either_kind,
    list_contents,
    make,
    result_texts,
    run_async,
    sync_loop,
    turn,
    wait_for,
)
from tests.kit.each import each
from tests.kit.effort import IS_DEEP
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import params
from toolloop import Approve, AsyncToolLoopHandle, Continue, MemoryStore, ToolContext, ToolLoopHandle, Yielded, tool
from toolloop.errors import Conflict, IllegalCommand, ToolLoopError
from toolloop.testing import ScriptedProvider, reply

USER: contextvars.ContextVar[str] = contextvars.ContextVar("USER", default="nobody")


def contents(result: object) -> list[Any]:
    return [slot.content for slot in expect_yielded(result).results if slot is not None]


@either_kind
def test_sync_tools_run_at_the_same_time(kind: str) -> None:
    """Each waits for all the others: one after the other none would end."""
    barrier = threading.Barrier(5)

    @tool
    def meet(name: str) -> str:
        """Meet the others."""
        cross(barrier)
        return name

    names = ["e", "d", "c", "b", "a"]
    handle = make(kind, [reply(calls=[("meet", {"name": name}) for name in names])], [meet])
    assert contents(turn(kind, handle)) == names


@each("backend", BACKENDS)
def test_async_and_sync_tools_run_at_the_same_time(backend: str) -> None:
    """Tasks and threads of one round overlap."""
    from_thread, from_task = threading.Event(), threading.Event()

    @tool
    def in_thread() -> str:
        """Wait for the task."""
        from_thread.set()
        wait_for(from_task)
        return "thread"

    @tool
    async def in_task() -> str:
        """Wait for the thread."""
        from_task.set()
        await anyio.to_thread.run_sync(wait_for, from_thread)
        return "task"

    handle = async_loop([reply(calls=[("in_task", {}), ("in_thread", {})])], [in_thread, in_task])
    assert contents(run_async(backend, handle.next_turn)) == ["task", "thread"]


@either_kind
@each("limit", [1, 2, None])
def test_no_more_run_at_once_than_are_allowed(kind: str, limit: int | None) -> None:
    """With a limit there are never more; and as many as are allowed do run at once."""
    lock, now, most = threading.Lock(), [0], [0]
    together = threading.Barrier(limit or 6)

    @tool
    def work(number: int) -> int:
        """Count who is here."""
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        cross(together)
        with lock:
            now[0] -= 1
        return number

    calls = [("work", {"number": number}) for number in range(6)]
    handle = make(kind, [reply(calls=calls)], [work], max_parallel_tools=limit)
    assert contents(turn(kind, handle)) == [str(number) for number in range(6)]
    assert most[0] == (limit or 6)


@either_kind
@each("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_results_stand_in_the_models_order_whatever_order_they_end_in(kind: str, order: tuple[int, ...]) -> None:
    """Each call ends only after the one before it in this order."""
    ended = [threading.Event() for _ in order]
    finished: list[int] = []

    @tool
    def work(number: int) -> int:
        """End when it is this one's turn."""
        if place := order.index(number):
            wait_for(ended[order[place - 1]])
        finished.append(number)
        ended[number].set()
        return number

    handle = make(kind, [reply(calls=[("work", {"number": number}) for number in range(3)])], [work])
    assert contents(turn(kind, handle)) == ["0", "1", "2"]
    assert finished == list(order)


@either_kind
@each("count", [1, 3])
def test_context_variables_reach_the_tools(kind: str, count: int) -> None:
    """Whether a tool runs in the caller's thread, in another, or in a task."""

    @tool
    def who() -> str:
        """Tell who the user is."""
        return USER.get()

    async def who_async() -> str:
        """Tell who the user is."""
        return USER.get()

    calls: list[Any] = [("who", {})] * count + ([] if kind == "sync" else [("who_async", {})])
    tools = [who] if kind == "sync" else [who, tool(who_async)]
    handle = make(kind, [reply(calls=calls)], tools)
    token = USER.set("ana")
    try:
        result = turn(kind, handle)
    finally:
        USER.reset(token)
    assert contents(result) == ["ana"] * len(calls)


EXITS = [KeyboardInterrupt("stop"), SystemExit(3)]


@either_kind
@each("error", EXITS)
@each("others", [0, 2])
@each("is_async", [False, True])
def test_an_exit_in_a_tool_arrives_as_itself(kind: str, error: BaseException, others: int, is_async: bool) -> None:
    """Never as a result, never in a group; the loop is left in a state from which it goes on."""
    if is_async and kind == "sync":
        return
    counted, together = Counted(), threading.Barrier(1 + others)

    def leave_now(context: ToolContext) -> str:
        """Leave the program, once the others run."""
        counted.add(context)
        cross(together)
        raise error

    async def leave_later(context: ToolContext) -> str:
        """Leave the program, once the others run."""
        counted.add(context)
        await anyio.to_thread.run_sync(cross, together)
        raise error

    @tool
    def stay(context: ToolContext) -> str:
        """Do something."""
        counted.add(context)
        cross(together)
        return "stayed"

    leave = tool(leave_later if is_async else leave_now, name="leave", description="Leave.")
    calls: list[Any] = [("leave", {}), *[("stay", {})] * others]
    handle = make(kind, [reply(calls=calls), reply("done")], [leave, stay])
    with pytest.raises(type(error)) as caught:
        turn(kind, handle)
    assert caught.value is error
    waiting = expect_yielded(turn(kind, handle))
    assert [(call.name, call.why) for call in waiting.pending] == [("leave", "uncertain")]
    waiting.answer(waiting.pending[0], "it left")
    waiting.continue_loop()
    while not handle.is_finished:
        result = turn(kind, handle)
        if isinstance(result, Yielded):
            result.continue_loop()
    assert expect_completed(turn(kind, handle)).text == "done"
    counted.assert_once()
    assert len(counted.ran) == 1 + others


@either_kind
def test_a_loop_may_be_driven_by_another_thread_each_turn(kind: str) -> None:
    """A handle belongs to no thread, and to no event loop."""
    caller: list[int] = []

    @tool
    def where() -> str:
        """Remember the thread."""
        caller.append(threading.get_ident())
        return "here"

    script = [reply(calls=[("where", {})] * size) for size in (1, 2, 1)] + [reply("done")]
    handle = make(kind, script, [where])
    for _ in range(3):
        expect_yielded(Background(lambda: turn(kind, handle)).result()).continue_loop()
    assert expect_completed(Background(lambda: turn(kind, handle)).result()).text == "done"
    assert len(caller) == 4


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


def make_loop(kind: Any, number: int) -> tuple[Any, Counted]:
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


def take_next_or_waiting(handle: ToolLoopHandle) -> Any:
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
            handle, counted = make_loop(sync_loop, number)
            go = threading.Semaphore(0)
            while (result := take_next_or_waiting(handle)) is None or isinstance(result, Yielded):
                deciders.ask(handle, go)
                assert go.acquire(timeout=DEADLINE)
            assert expect_completed(result).text == "done"
            check(handle, counted)

    workers = [Background(functools.partial(drive, first)) for first in range(WORKERS)]
    for worker in workers:
        worker.result()
    deciders.close()
    assert all(deciders.won), "no two threads competed"
    assert time.process_time() - begun < 10


def test_a_call_is_started_only_when_its_thread_has_a_place() -> None:
    """Of 32 sync calls 8 run at once. If their process is gone, these are uncertain, and the other 24 run."""
    ran, lock, gate = list[int](), threading.Lock(), threading.Event()
    eight = threading.Event()

    @tool
    def work(number: int) -> int:
        """Wait for the others."""
        with lock:
            ran.append(number)
            if len(ran) == 8:
                eight.set()
        wait_for(gate)
        return number

    store, script = MemoryStore(), [reply(calls=[("work", {"number": number}) for number in range(32)])]
    first = ToolLoopHandle.open(store, "loop", provider=ScriptedProvider(script), tools=[work], params=params())
    driver = Background(first.next_turn)
    wait_for(eight)
    assert len(first.state.root.started) == 8
    handle = ToolLoopHandle.open(store, "loop", provider=ScriptedProvider([]), tools=[work], take_over=True)
    waits = expect_yielded(handle.next_turn())
    assert [call.why for call in waits.pending] == ["uncertain"] * 8
    for call in waits.pending:
        waits.answer(call, "seen", by="ana")
    gate.set()
    with pytest.raises(Conflict):
        driver.result()
    waits.continue_loop()
    assert sum(text == "seen" for text in list_contents(handle.next_turn())) == 8
    assert sorted(ran) == list(range(32))
