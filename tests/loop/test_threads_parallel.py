"""Calls of one round run side by side: how many, in what order their results stand, what an exit in one does."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import anyio
import pytest

from tests.each import each
from tests.loop.concurrency import (
    BACKENDS,
    Background,
    Counted,
    async_loop,
    awaited,
    cross,
    either_kind,
    make,
    run_async,
    turn,
)
from tests.loop.support import completed, yielded
from toolloop import AsyncToolLoopHandle, ToolContext, ToolLoopHandle, Yielded, tool
from toolloop.testing import reply

Any_ = ToolLoopHandle | AsyncToolLoopHandle
USER: contextvars.ContextVar[str] = contextvars.ContextVar("USER", default="nobody")


def contents(result: object) -> list[Any]:
    return [slot.content for slot in yielded(result).results if slot is not None]


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
        awaited(from_task)
        return "thread"

    @tool
    async def in_task() -> str:
        """Wait for the thread."""
        from_task.set()
        await anyio.to_thread.run_sync(awaited, from_thread)
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
            awaited(ended[order[place - 1]])
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


@either_kind
def test_sync_tools_of_an_async_handle_leave_the_event_loop_alone(kind: str) -> None:
    """They run in threads of their own; a call that runs alone under the sync handle runs in the caller's."""

    @tool
    def where() -> bool:
        """Tell whether this is the caller's thread."""
        return threading.get_ident() == caller

    caller = threading.get_ident()
    handle = make(kind, [reply(calls=[("where", {})])], [where])
    assert contents(turn(kind, handle)) == ["true" if kind == "sync" else "false"]


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
    waiting = yielded(turn(kind, handle))
    assert [(call.name, call.why) for call in waiting.pending] == [("leave", "uncertain")]
    waiting.answer(waiting.pending[0], "it left")
    waiting.continue_loop()
    while not handle.is_finished:
        result = turn(kind, handle)
        if isinstance(result, Yielded):
            result.continue_loop()
    assert completed(turn(kind, handle)).text == "done"
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
        yielded(Background(lambda: turn(kind, handle)).result()).continue_loop()
    assert completed(Background(lambda: turn(kind, handle)).result()).text == "done"
    assert len(caller) == 4


def test_a_loop_may_be_driven_by_another_task_each_turn() -> None:
    """Turns in spawned tasks, one after the other."""

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    handle = async_loop([reply(calls=[("work", {})] * 2)] * 2 + [reply("done")], [work])
    turns: list[object] = []

    async def drive() -> None:
        turns.append(await handle.next_turn())

    async def main() -> None:
        for _ in range(3):
            async with anyio.create_task_group() as group:
                group.start_soon(drive)
            if isinstance(turns[-1], Yielded):
                turns[-1].continue_loop()

    run_async("asyncio", main)
    assert completed(turns[-1]).text == "done"
    assert len(turns) == 3
