"""Ends that come late, or in an odd moment: what was said of a run is true, and is said of that run alone."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests import inside
from tests.each import each
from tests.loop.concurrency import (
    DEADLINE,
    Gate,
    async_loop,
    awaited,
    cancelled_after,
    either_kind,
    make,
    run_async,
    sync_loop,
    told,
    turn,
)
from tests.loop.loop_trees import join
from tests.loop.support import completed, user, yielded
from toolloop import Stop, Texts, ToolContext, tool
from toolloop.events import CallFinished, CallProgress, LoopFinished, ResultFiltered
from toolloop.testing import reply

SOON = 0.01


def hide(_call: Any, content: Any) -> Any:
    return content.replace("hunter2", "***")


@tool
def secret() -> str:
    """Tell it."""
    return "hunter2"


def test_a_filter_that_is_cancelled_leaves_what_those_before_it_made() -> None:
    """Their events are told already, so they are true."""
    entered = threading.Event()

    async def forever(_call: Any, _content: Any) -> None:
        entered.set()
        await anyio.sleep_forever()

    handle = async_loop([reply(calls=[("secret", {})])], [secret], result_filters=[hide, forever])

    async def main() -> None:
        await cancelled_after(handle, entered)
        assert told(await handle.next_turn()) == ["***"]

    run_async("asyncio", main)


def test_a_filter_that_is_interrupted_leaves_what_those_before_it_made() -> None:
    """In the sync handle as well."""

    def interrupted(_call: Any, _content: Any) -> None:
        raise KeyboardInterrupt

    handle = sync_loop([reply(calls=[("secret", {})])], [secret], result_filters=[hide, interrupted])
    with pytest.raises(KeyboardInterrupt):
        handle.next_turn()
    assert told(handle.next_turn()) == ["***"]


def test_what_ends_after_an_interrupt_is_filtered_in_the_next_turn() -> None:
    """The model sees no result that its filters did not see."""
    gate = Gate()

    @tool
    def slow() -> str:
        """Stand at a gate."""
        gate.stand()
        return "hunter2"

    handle = sync_loop([reply(calls=[("slow", {}), ("secret", {})])], [slow, secret], result_filters=[hide])
    with inside.interrupted_wait(handle, gate.arrived), pytest.raises(KeyboardInterrupt):
        handle.next_turn()
    gate.opened.set()
    join()
    assert told(handle.next_turn()) == ["***", "***"]


@each("value", ["text", ["a", "list"], None])
def test_what_an_async_tool_returned_in_spite_of_a_cancelled_turn_is_kept(value: Any) -> None:
    """Whatever it is: the tool is back."""
    gate = Gate()

    @tool
    async def stubborn() -> Any:
        """Wait, and answer all the same."""
        try:
            await gate.wait()
        finally:
            return value  # noqa: B012 - a tool that will not be told

    handle = async_loop([reply(calls=[("stubborn", {})])], [stubborn])

    async def main() -> None:
        await cancelled_after(handle, gate.arrived)
        executed = yielded(handle.pending_turn or await handle.next_turn())
        assert [result is not None and result.is_error for result in executed.results] == [False]

    run_async("asyncio", main)


@either_kind
def test_a_tool_that_the_caller_stopped_is_not_filtered_when_it_ends(kind: str) -> None:
    """The loop has ended; nothing is told after that, and nothing in the next user turn."""
    gate, seen = Gate(), list[Any]()

    @tool
    def slow() -> str:
        """Stand at a gate."""
        gate.stand()
        return "late"

    @tool
    def stop() -> str:
        """Say stop."""
        awaited(gate.arrived)
        handle.resume(Stop("enough"))
        return "stopped"

    script = [reply(calls=[("slow", {}), ("stop", {})]), reply("fine")]
    handle = make(
        kind, script, [slow, stop], result_filters=[lambda _, content: f"{content}!"], observers=[seen.append]
    )
    completed(turn(kind, handle))
    threads = [each for each in threading.enumerate() if each.name.startswith("toolloop-")]
    assert threads
    gate.opened.set()
    for thread in threads:
        thread.join(DEADLINE)
    handle.follow_up([user("and now?")])
    assert completed(turn(kind, handle)).text == "fine"
    assert not any(isinstance(event, ResultFiltered) for event in seen[_where(seen, LoopFinished) :])


def _where(seen: list[Any], kind: type) -> int:
    return next(index for index, event in enumerate(seen) if isinstance(event, kind))


def test_a_context_belongs_to_its_own_run() -> None:
    """After a rerun the first run is still told that it is cancelled, and its reports are nobody's."""
    gate, contexts = Gate(), list[ToolContext]()

    @tool
    async def work(context: ToolContext) -> str:
        """Work, in vain the first time."""
        contexts.append(context)
        if len(contexts) == 1:
            await gate.wait()
        contexts[0].report("I am still here")
        return str(contexts[0].cancelled)

    handle = async_loop([reply(calls=[("work", {})])], [work])

    async def main() -> None:
        await cancelled_after(handle, gate.arrived)
        waiting = yielded(await handle.next_turn())
        waiting.rerun(waiting.pending[0])
        waiting.continue_loop()
        executed = yielded(await handle.next_turn())
        assert told(executed) == ["True"]
        assert not any(isinstance(event, CallProgress) for event in executed.events)

    run_async("asyncio", main)


def test_an_error_that_a_task_group_mixes_with_the_cancellation_still_took_too_long() -> None:
    """The model is told the cause."""

    async def fail_late() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise OSError("the line broke")

    @tool(timeout=SOON)
    async def slow() -> None:
        """Wait in a group."""
        async with anyio.create_task_group() as group:
            group.start_soon(fail_late)
            await anyio.sleep_forever()

    executed = yielded(run_async("asyncio", async_loop([reply(calls=[("slow", {})])], [slow]).next_turn))
    assert told(executed) == [Texts().timed_out.format(seconds="0.01")]


@either_kind
def test_the_seconds_of_a_call_are_those_of_its_tool(kind: str) -> None:
    """How long a filter takes is not among them."""
    entered, seconds = list[float](), list[float]()
    began = time.monotonic()

    def patient(_call: Any, _content: Any) -> None:
        entered.append(time.monotonic() - began)
        threading.Event().wait(entered[0])

    def watch(event: Any) -> None:
        if isinstance(event, CallFinished):
            seconds.append(event.seconds)

    yielded(
        turn(kind, make(kind, [reply(calls=[("secret", {})])], [secret], result_filters=[patient], observers=[watch]))
    )
    assert seconds[0] <= entered[0]


@either_kind
def test_a_cancellation_inside_a_sync_tool_is_its_own(kind: str) -> None:
    """A sync tool may run an event loop of its own; that one's cancellation cancels nobody else."""

    @tool
    def inner() -> str:
        """Run a loop."""

        async def main() -> str:
            raise asyncio.CancelledError

        return asyncio.run(main())

    handle = make(kind, [reply(calls=[("inner", {}), ("secret", {})]), reply("fine")], [inner, secret])
    executed = yielded(turn(kind, handle))
    assert told(executed) == ["CancelledError", "hunter2"]


def test_a_thread_that_cannot_be_had_leaves_the_call_to_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised; the call did not run, so nothing is uncertain."""
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith("toolloop-"):
            raise RuntimeError("can't start new thread")
        start(self)

    handle = sync_loop([reply(calls=[("secret", {})])], [secret], tool_timeout=DEADLINE)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        handle.next_turn()
    monkeypatch.undo()
    assert told(handle.next_turn()) == ["hunter2"]


@either_kind
def test_a_clock_that_fails_loses_nothing(kind: str) -> None:
    """The time of a record is for the record only."""
    handle = make(kind, [reply(calls=[("secret", {}), ("secret", {})]), reply("fine")], [secret])

    def broken() -> float:
        raise OSError("no clock")

    inside.set_clock(handle, broken)
    executed = yielded(turn(kind, handle))
    assert told(executed) == ["hunter2", "hunter2"]
    executed.continue_loop()
    assert completed(turn(kind, handle)).text == "fine"


def logged(function: Any) -> Any:
    """An ordinary decorator, which knows nothing of async functions."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@either_kind
def test_an_async_tool_under_an_ordinary_decorator(kind: str) -> None:
    """The decorated function is not declared async: its result is an error that says so."""

    @tool
    @logged
    async def wait() -> str:
        """Wait a little."""
        raise AssertionError("nobody awaits it")

    (waited,) = told(turn(kind, make(kind, [reply(calls=[("wait", {})])], [wait])))
    assert "the tool 'wait' returned an awaitable" in waited
    assert "Declare it with `async def`" in waited


@each("where", ["on_tool_call", "stop_when", "result_filters"])
@either_kind
def test_an_awaitable_out_of_a_plain_callable_is_an_error(
    kind: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A policy asks, `stop_when` raises through, a filter is logged and leaves the result as it was."""

    async def later(*_: Any) -> None:
        raise AssertionError("nobody awaits it")

    def plain(*arguments: Any) -> Any:
        return later(*arguments)

    @tool
    def add() -> str:
        """Add."""
        return "3"

    config = {where: (plain,) if where == "result_filters" else plain}
    handle = make(kind, [reply(calls=[("add", {})])], [add], **config)
    if where == "stop_when":
        with pytest.raises(TypeError, match="plain returned an awaitable"):
            turn(kind, handle)
    elif where == "on_tool_call":
        assert yielded(turn(kind, handle)).pending
    else:
        assert told(turn(kind, handle)) == ["3"]
        assert "returned an awaitable" in caplog.text
