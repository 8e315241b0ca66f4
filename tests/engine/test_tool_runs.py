"""Runs of tools that take too long, end late, or cannot begin: the model gets the truth about each."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.kit import inside
from tests.kit.concurrency import (
    DEADLINE,
    Gate,
    async_loop,
    cancel_after,
    either_kind,
    list_contents,
    make,
    run_async,
    sync_loop,
    turn,
    wait_for,
)
from tests.kit.each import each
from tests.kit.support import expect_completed, expect_yielded
from toolloop import LoopConfig, Texts, ToolContext, tool
from toolloop.events import CallFinished, CallProgress
from toolloop.testing import reply

SOON = 0.01


@either_kind
def test_a_sync_tool_is_left_behind_and_the_model_gets_an_error(kind: str) -> None:
    """The turn ends without it. Its late end is logged and counts for nothing, and `cancelled` told it to stop."""
    gate, left = Gate(), threading.Event()
    seen: list[bool] = []

    @tool(timeout=SOON)
    def slow(context: ToolContext) -> str:
        """Stand at a gate."""
        gate.stand()
        seen.append(context.cancelled)
        left.set()
        return "too late"

    handle = make(kind, [reply(calls=[("slow", {})]), reply("fine")], [slow])
    executed = expect_yielded(turn(kind, handle))
    (text,) = list_contents(executed)
    assert text == Texts().left_behind.format(seconds="0.01")
    assert [result and result.is_error for result in executed.results] == [True]
    assert [event.outcome for event in executed.events if isinstance(event, CallFinished)] == ["timed_out"]
    gate.opened.set()
    wait_for(left)
    executed.continue_loop()
    assert expect_completed(turn(kind, handle)).text == "fine"
    assert seen == [True]
    assert "too late" not in str(handle.messages)


def test_an_async_tool_is_cancelled() -> None:
    """It can clean up, and the model gets a result that says it was cancelled."""
    gate, cleaned = Gate(), []

    @tool(timeout=SOON)
    async def slow() -> str:
        """Wait for ever."""
        try:
            await gate.wait()
        finally:
            cleaned.append("up")
        return "never"

    executed = expect_yielded(turn("asyncio", async_loop([reply(calls=[("slow", {})])], [slow])))
    assert list_contents(executed) == [Texts().timed_out.format(seconds="0.01")]
    assert cleaned == ["up"]


def test_an_async_tool_that_answers_in_spite_of_its_cancellation_has_answered() -> None:
    """What it returned is there, so it is taken."""

    @tool(timeout=SOON)
    async def slow() -> str:
        """Wait for ever, nearly."""
        with anyio.CancelScope() as scope:
            try:
                await anyio.sleep_forever()
            except BaseException:  # noqa: BLE001 - a tool that will not be told
                scope.cancel()
        return "after all"

    executed = expect_yielded(turn("asyncio", async_loop([reply(calls=[("slow", {})])], [slow])))
    assert list_contents(executed) == ["after all"]


@either_kind
def test_the_limit_of_the_loop_is_for_tools_without_their_own(kind: str) -> None:
    """A tool's own limit comes first, and one that is in time is not touched."""
    gate = Gate()

    @tool
    def slow() -> str:
        """Stand at a gate."""
        gate.stand()
        return "too late"

    @tool(timeout=DEADLINE)
    def patient() -> str:
        """Stand at a gate until the other is given up."""
        wait_for(given_up)
        return "in time"

    given_up = threading.Event()

    def watch(event: Any) -> None:
        if isinstance(event, CallFinished) and event.name == "slow":
            given_up.set()

    script = [reply(calls=[("slow", {}), ("patient", {})])]
    handle = make(kind, script, [slow, patient], tool_timeout=SOON, observers=[watch])
    executed = expect_yielded(turn(kind, handle))
    assert list_contents(executed) == [Texts().left_behind.format(seconds="0.01"), "in time"]
    gate.opened.set()


@each("limit", [0, -1, float("inf"), float("nan"), 10**400, True, "1"])
def test_a_limit_that_makes_no_sense_is_refused(limit: Any) -> None:
    """For the loop as for a tool; the error names it."""
    with pytest.raises(ValueError, match="tool_timeout"):
        LoopConfig(tool_timeout=limit)


@either_kind
def test_an_exit_in_a_tool_that_was_left_behind_is_ignored(kind: str) -> None:
    """It ends its own thread; the loop goes on."""
    gate, gone = Gate(), threading.Event()

    @tool(timeout=SOON)
    def slow() -> str:
        """Stand at a gate, and leave."""
        gate.stand()
        try:
            raise SystemExit(3)
        finally:
            gone.set()

    handle = make(kind, [reply(calls=[("slow", {})]), reply("fine")], [slow])
    executed = expect_yielded(turn(kind, handle))
    (thread,) = (each for each in threading.enumerate() if each.name == f"toolloop-{executed.calls[0].id}")
    gate.opened.set()
    thread.join(DEADLINE)
    assert gone.is_set()
    executed.continue_loop()
    assert expect_completed(turn(kind, handle)).text == "fine"


def hide(_call: Any, content: Any) -> Any:
    return content.replace("hunter2", "***")


@tool
def secret() -> str:
    """Tell it."""
    return "hunter2"


def test_a_filter_that_is_cancelled_leaves_what_those_before_it_made() -> None:
    """Their events are already sent, so they are true."""
    entered = threading.Event()

    async def forever(_call: Any, _content: Any) -> None:
        entered.set()
        await anyio.sleep_forever()

    handle = async_loop([reply(calls=[("secret", {})])], [secret], result_filters=[hide, forever])

    async def main() -> None:
        await cancel_after(handle, entered)
        assert list_contents(await handle.next_turn()) == ["***"]

    run_async("asyncio", main)


@each("value", ["text", ["a", "list"], None])
def test_what_an_async_tool_returned_in_spite_of_a_cancelled_turn_is_kept(value: Any) -> None:
    """With any result: the tool is back."""
    gate = Gate()

    @tool
    async def stubborn() -> Any:
        """Wait, and still answer."""
        try:
            await gate.wait()
        finally:
            return value  # noqa: B012 - a tool that will not be told

    handle = async_loop([reply(calls=[("stubborn", {})])], [stubborn])

    async def main() -> None:
        await cancel_after(handle, gate.arrived)
        executed = expect_yielded(handle.pending_turn or await handle.next_turn())
        assert [result is not None and result.is_error for result in executed.results] == [False]

    run_async("asyncio", main)


def test_a_context_belongs_to_its_own_run() -> None:
    """After a rerun, the first run still gets its cancellation, and its reports are ignored."""
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
        await cancel_after(handle, gate.arrived)
        waiting = expect_yielded(await handle.next_turn())
        waiting.rerun(waiting.pending[0])
        waiting.continue_loop()
        executed = expect_yielded(await handle.next_turn())
        assert list_contents(executed) == ["True"]
        assert not any(isinstance(event, CallProgress) for event in executed.events)

    run_async("asyncio", main)


@either_kind
def test_a_cancellation_inside_a_sync_tool_is_its_own(kind: str) -> None:
    """A sync tool may run an event loop of its own; a cancellation there cancels nothing else."""

    @tool
    def inner() -> str:
        """Run a loop."""

        async def main() -> str:
            raise asyncio.CancelledError

        return asyncio.run(main())

    handle = make(kind, [reply(calls=[("inner", {}), ("secret", {})]), reply("fine")], [inner, secret])
    executed = expect_yielded(turn(kind, handle))
    assert list_contents(executed) == ["CancelledError", "hunter2"]


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
    assert list_contents(handle.next_turn()) == ["hunter2"]


@either_kind
def test_a_clock_that_fails_loses_nothing(kind: str) -> None:
    """The time of a record is for the record only."""
    handle = make(kind, [reply(calls=[("secret", {}), ("secret", {})]), reply("fine")], [secret])

    def fail_clock() -> float:
        raise OSError("no clock")

    inside.set_clock(handle, fail_clock)
    executed = expect_yielded(turn(kind, handle))
    assert list_contents(executed) == ["hunter2", "hunter2"]
    executed.continue_loop()
    assert expect_completed(turn(kind, handle)).text == "fine"


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
        raise AssertionError("it is never awaited")

    (waited,) = list_contents(turn(kind, make(kind, [reply(calls=[("wait", {})])], [wait])))
    assert "the tool 'wait' returned an awaitable" in waited
    assert "is not declared with `async def`" in waited


@each("where", ["on_tool_call", "stop_when", "result_filters"])
@either_kind
def test_an_awaitable_out_of_a_plain_callable_is_an_error(
    kind: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A policy asks, `stop_when` raises through, a filter is logged and leaves the result as it was."""

    async def later(*_: Any) -> None:
        raise AssertionError("it is never awaited")

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
        assert expect_yielded(turn(kind, handle)).pending
    else:
        assert list_contents(turn(kind, handle)) == ["3"]
        assert "returned an awaitable" in caplog.text
