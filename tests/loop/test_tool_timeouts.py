"""A tool that takes too long: an async one is cancelled, a sync one is left behind, and the model is told which."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests import inside
from tests.each import each
from tests.loop.concurrency import (
    DEADLINE,
    Background,
    Gate,
    async_loop,
    awaited,
    either_kind,
    make,
    sync_loop,
    told,
    turn,
)
from tests.loop.support import completed, yielded
from toolloop import AsyncToolLoopHandle, LoopConfig, ToolContext, ToolLoopHandle, tool
from toolloop.events import CallFinished, ResultFiltered
from toolloop.machine.setup import Texts
from toolloop.testing import ScriptedProvider, reply

SOON = 0.01
Any_ = ToolLoopHandle | AsyncToolLoopHandle


@either_kind
def test_a_sync_tool_is_left_behind_and_the_model_is_told(kind: str) -> None:
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
    executed = yielded(turn(kind, handle))
    (text,) = told(executed)
    assert text == Texts().left_behind.format(seconds="0.01")
    assert [result and result.is_error for result in executed.results] == [True]
    assert [event.outcome for event in executed.events if isinstance(event, CallFinished)] == ["timed_out"]
    gate.opened.set()
    awaited(left)
    executed.continue_loop()
    assert completed(turn(kind, handle)).text == "fine"
    assert seen == [True]
    assert "too late" not in str(handle.messages)


def test_an_async_tool_is_cancelled() -> None:
    """It can clean up, and the model is told that it was cancelled."""
    gate, cleaned = Gate(), []

    @tool(timeout=SOON)
    async def slow() -> str:
        """Wait for ever."""
        try:
            await gate.wait()
        finally:
            cleaned.append("up")
        return "never"

    executed = yielded(turn("asyncio", async_loop([reply(calls=[("slow", {})])], [slow])))
    assert told(executed) == [Texts().timed_out.format(seconds="0.01")]
    assert cleaned == ["up"]


def test_an_async_tool_that_makes_another_error_of_its_cancellation_still_took_too_long() -> None:
    """The model is told the cause."""

    @tool(timeout=SOON)
    async def slow() -> str:
        """Wait for ever."""
        try:
            await anyio.sleep_forever()
        finally:
            raise OSError("the line broke")

    executed = yielded(turn("asyncio", async_loop([reply(calls=[("slow", {})])], [slow])))
    assert told(executed) == [Texts().timed_out.format(seconds="0.01")]


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

    executed = yielded(turn("asyncio", async_loop([reply(calls=[("slow", {})])], [slow])))
    assert told(executed) == ["after all"]


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
        awaited(given_up)
        return "in time"

    given_up = threading.Event()

    def watch(event: Any) -> None:
        if isinstance(event, CallFinished) and event.name == "slow":
            given_up.set()

    script = [reply(calls=[("slow", {}), ("patient", {})])]
    handle = make(kind, script, [slow, patient], tool_timeout=SOON, observers=[watch])
    executed = yielded(turn(kind, handle))
    assert told(executed) == [Texts().left_behind.format(seconds="0.01"), "in time"]
    gate.opened.set()


def test_a_call_alone_with_a_limit_runs_in_a_thread_of_its_own() -> None:
    """Only so can it be left behind; without a limit it runs in the caller's thread."""
    threads: list[threading.Thread] = []

    @tool
    def where() -> str:
        """Tell the thread."""
        threads.append(threading.current_thread())
        return "here"

    for limit in (None, DEADLINE):
        handle = sync_loop([reply(calls=[("where", {})])], [where], tool_timeout=limit)
        assert told(yielded(handle.next_turn())) == ["here"]
    assert [thread is threading.current_thread() for thread in threads] == [True, False]


def test_a_tool_that_raises_a_timeout_of_its_own_failed() -> None:
    """It is an error like any other."""

    @tool(timeout=DEADLINE)
    def fetch() -> str:
        """Fail."""
        raise TimeoutError("the server is slow")

    handle = sync_loop([reply(calls=[("fetch", {})])], [fetch])
    assert told(yielded(handle.next_turn())) == ["TimeoutError: the server is slow"]


def test_a_filter_has_no_limit() -> None:
    """The tool was in time; how long a filter takes is no affair of its limit."""
    gate = Gate()

    @tool(timeout=DEADLINE)
    def quick() -> str:
        """Be quick."""
        return "quick"

    def patient(_call: Any, content: Any) -> Any:
        gate.stand()
        return f"{content} and filtered"

    handle = sync_loop([reply(calls=[("quick", {})])], [quick], result_filters=[patient])
    driving = Background(handle.next_turn)
    awaited(gate.arrived)
    assert inside.tool_runs_of(handle) == {}
    gate.opened.set()
    executed = yielded(driving.result())
    assert told(executed) == ["quick and filtered"]
    assert [type(event) for event in executed.events].count(ResultFiltered) == 1


def test_the_limit_survives_sleep(caplog: pytest.LogCaptureFixture) -> None:
    """A loop that wakes up without a config keeps it; a tool that took too long is logged, without its input."""
    gate = Gate()

    @tool
    def slow(secret: str) -> str:
        """Stand at a gate."""
        gate.stand()
        return secret

    asleep = sync_loop([], [slow], tool_timeout=SOON).snapshot()
    script = ScriptedProvider([reply(calls=[("slow", {"secret": "hunter2"})])])
    handle = ToolLoopHandle.restore(asleep, script, tools=[slow])
    with caplog.at_level(logging.WARNING, "toolloop.tools"):
        yielded(handle.next_turn())
    (record,) = (record for record in caplog.records if record.name == "toolloop.tools")
    assert (vars(record)["tool"], "hunter2" in caplog.text) == ("slow", False)
    gate.opened.set()


@each("limit", [0, -1, float("inf"), float("nan"), 10**400, True, "1"])
def test_a_limit_that_makes_no_sense_is_refused(limit: Any) -> None:
    """For the loop as for a tool; the error names it."""
    with pytest.raises(ValueError, match="tool_timeout"):
        LoopConfig(tool_timeout=limit)


def test_the_words_are_the_callers_to_choose() -> None:
    """As all texts that the model sees."""
    gate = Gate()

    @tool
    def slow() -> str:
        """Stand at a gate."""
        gate.stand()
        return "too late"

    texts = Texts(left_behind="Gone after {seconds} s.")
    handle = sync_loop([reply(calls=[("slow", {})])], [slow], tool_timeout=SOON, texts=texts)
    assert told(yielded(handle.next_turn())) == ["Gone after 0.01 s."]
    gate.opened.set()


@either_kind
def test_many_at_once_each_by_its_own_clock(kind: str) -> None:
    """Those that stand are left behind, those that come back count, and every call has its result."""
    gate = Gate()

    def job(number: int) -> Callable[[], str]:
        def work() -> str:
            """Work."""
            if number % 2:
                gate.stand()
            return f"{number}"

        return work

    limits = (DEADLINE, SOON)
    tools = [tool(job(number), name=f"tool_{number}", timeout=limits[number % 2]) for number in range(6)]
    calls: list[Any] = [(f"tool_{number}", {}) for number in range(6)]
    handle = make(kind, [reply(calls=calls)], tools, max_parallel_tools=None)
    texts = told(yielded(turn(kind, handle)))
    gone = Texts().left_behind.format(seconds="0.01")
    assert texts == ["0", gone, "2", gone, "4", gone]
    gate.opened.set()


@either_kind
def test_an_exit_in_a_tool_that_was_left_behind_is_nobodys_any_more(kind: str) -> None:
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
    executed = yielded(turn(kind, handle))
    (thread,) = (each for each in threading.enumerate() if each.name == f"toolloop-{executed.calls[0].id}")
    gate.opened.set()
    thread.join(DEADLINE)
    assert gone.is_set()
    executed.continue_loop()
    assert completed(turn(kind, handle)).text == "fine"
