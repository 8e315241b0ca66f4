"""What is done to a result before it is recorded, and what a running tool reports of itself."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.kit.concurrency import (
    DEADLINE,
    async_loop,
    cancel_after,
    cross,
    either_kind,
    make,
    on_both_backends,
    run_async,
    sync_loop,
    turn,
)
from tests.kit.each import each
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import PAY
from tests.kit.world import ID, World
from toolloop import Continue, LoopConfig, MemoryStore, ToolCall, ToolContext, ToolError, ToolLoopHandle, tool
from toolloop.errors import Conflict, Drift
from toolloop.events import CallFinished, CallProgress, CallStarted, DriftAdopted, ResultFiltered
from toolloop.stores import decode_event
from toolloop.testing import ScriptedProvider, call, reply

SAYS = reply(calls=[("say", {})])


@tool
def say() -> str:
    """Say something."""
    return "one two three"


@tool
def fail() -> str:
    """Fail."""
    raise ToolError("it broke")


def list_told(executed: Any) -> list[Any]:
    return [result and (result.content, result.is_error) for result in expect_yielded(executed).results]


def upper(_call: ToolCall, content: Any) -> Any:
    return content.upper()


@either_kind
def test_filters_run_in_order_and_each_is_reported(kind: str) -> None:
    """Each sees what the one before it left; the events say its name, and the sizes before and after."""

    def shorten(shown: ToolCall, content: Any) -> Any:
        assert (shown.name, shown.status) == ("say", "running")
        return content[:3]

    handle = make(kind, [SAYS, reply("fine")], [say], result_filters=[shorten, upper])
    executed = expect_yielded(turn(kind, handle))
    assert list_told(executed) == [("ONE", False)]
    call_id = executed.calls[0].id
    assert [event for event in executed.events if isinstance(event, ResultFiltered)] == [
        ResultFiltered(1, call_id, "say", "shorten", len('"one two three"'), len('"one"')),
        ResultFiltered(1, call_id, "say", "upper", 5, 5),
    ]
    assert "two" not in str(handle.snapshot())
    handle.resume(Continue())
    assert expect_completed(turn(kind, handle)).text == "fine"


@on_both_backends
def test_an_async_filter_is_awaited_also_for_a_tool_that_runs_in_a_thread(backend: str) -> None:
    """It runs in the event loop, whatever the tool is."""
    threads: list[threading.Thread] = []

    async def mark(shown: ToolCall, content: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        threads.append(threading.current_thread())
        return f"{shown.name}: {content}"

    @tool
    async def sing() -> str:
        """Sing."""
        return "la"

    handle = async_loop([reply(calls=[("say", {}), ("sing", {})])], [say, sing], result_filters=[mark])
    assert list_told(run_async(backend, handle.next_turn)) == [("say: one two three", False), ("sing: la", False)]
    assert set(threads) == {threading.current_thread()}


def test_none_leaves_a_result_as_it_was() -> None:
    """And so does the same content; neither is reported."""
    filters = [lambda _call, _content: None, lambda _call, content: content]
    executed = expect_yielded(turn("sync", sync_loop([SAYS], [say], result_filters=filters)))
    assert list_told(executed) == [("one two three", False)]
    assert not any(isinstance(event, ResultFiltered) for event in executed.events)


def test_errors_answers_and_denials_are_not_filtered() -> None:
    """Only what a tool returned."""

    @tool(needs_approval=True)
    def ask() -> str:
        """Ask."""
        return "never"

    asked: list[str] = []

    def note(shown: ToolCall, content: Any) -> Any:
        asked.append(shown.id)
        return f"filtered {content}"

    calls: list[Any] = [("fail", {}), call("ask", id="a"), call("ask", id="b"), ("gone", {}), call("say", id="said")]
    handle = sync_loop([reply(calls=calls)], [fail, ask, say], result_filters=[note])
    waiting = expect_yielded(handle.next_turn())
    waiting.answer("a", "an answer")
    waiting.deny("b", "no")
    waiting.continue_loop()
    results = list_told(handle.next_turn())
    assert results[:2] == [("it broke", True), ("an answer", False)]
    assert [failed for _, failed in results] == [True, False, True, True, False]
    assert (results[4], asked) == (("filtered one two three", False), ["said"])


def raises(_call: ToolCall, _content: Any) -> Any:
    raise KeyError("what is this?")


def misfits(_call: ToolCall, _content: Any) -> Any:
    return [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}]


def nonsense(_call: ToolCall, _content: Any) -> Any:
    return object()


async def later(_call: ToolCall, content: Any) -> Any:
    return content


class Sneaky:
    def __call__(self, call: ToolCall, content: Any) -> Any:
        return later(call, content)


@each("bad", [raises, misfits, nonsense, Sneaky()])
def test_a_filter_that_fails_leaves_the_result_as_it_was(bad: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged by name, without the content, and the others still run."""
    handle = sync_loop([SAYS], [say], result_filters=[bad, upper])
    with caplog.at_level(logging.ERROR, "toolloop.tools"):
        assert list_told(handle.next_turn()) == [("ONE TWO THREE", False)]
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert getattr(bad, "__name__", type(bad).__name__) in record.getMessage()
    assert "one two" not in caplog.text


def test_what_a_filter_does_to_the_content_in_place_is_its_own_affair() -> None:
    """It is given a copy; what it returns counts."""

    @tool
    def blocks() -> list[Any]:
        """Say it in a block."""
        return [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    def spoil(_call: ToolCall, content: Any) -> None:
        content.clear()

    handle = sync_loop([reply(calls=[("blocks", {})])], [blocks], result_filters=[spoil])
    assert list_told(handle.next_turn()) == [([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], False)]


@each("of_thread", [True, False])
def test_a_turn_cancelled_in_a_filter_keeps_what_the_tool_returned(of_thread: bool) -> None:
    """The tool was back, so its end is known; no filter runs a second time on it, and nothing runs again."""
    ran: list[str] = []
    inside = threading.Event()

    @tool(name="work")
    def in_thread() -> str:
        """Work."""
        ran.append("work")
        return "raw"

    @tool(name="work")
    async def in_task() -> str:
        """Work."""
        ran.append("work")
        return "raw"

    async def forever(_call: ToolCall, _content: Any) -> Any:
        inside.set()
        await anyio.sleep_forever()

    script = [reply(calls=[("work", {})]), reply("fine")]
    handle = async_loop(script, [in_thread if of_thread else in_task], result_filters=[forever])

    async def main() -> None:
        await cancel_after(handle, inside)
        assert list_told(await handle.next_turn()) == [("raw", False)]
        handle.resume(Continue())
        assert expect_completed(await handle.next_turn()).text == "fine"

    run_async("asyncio", main)
    assert ran == ["work"]


def test_an_interrupt_in_a_filter_keeps_what_the_tools_returned() -> None:
    """Ctrl-C comes out; the loop can go on. A filter that had not begun is called in the next turn."""
    ran: list[str] = []
    interrupted: list[str] = []
    threads: dict[str, threading.Thread] = {}
    both = threading.Barrier(2)

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        ran.append(context.call_id)
        threads[context.call_id] = threading.current_thread()
        cross(both)
        return "raw"

    def interrupted_once(shown: ToolCall, content: Any) -> Any:
        if interrupted:
            return f"{content} of {shown.id}"
        (other,) = threads.keys() - {shown.id}
        threads[other].join(DEADLINE)  # so that its end is known
        interrupted.append(shown.id)
        raise KeyboardInterrupt

    calls = [call("work", id="a"), call("work", id="b")]
    handle = sync_loop([reply(calls=calls), reply("fine")], [work], result_filters=[interrupted_once])
    with pytest.raises(KeyboardInterrupt):
        handle.next_turn()
    expected = [("raw" if name in interrupted else f"raw of {name}", False) for name in ("a", "b")]
    assert list_told(handle.next_turn()) == expected
    assert (sorted(ran), len(interrupted)) == (["a", "b"], 1)


def test_what_a_tool_returned_is_recorded_though_its_loop_ended_in_a_filter() -> None:
    """Another driver ended it. No other filter is called, and the journal has the result as far as it was filtered."""
    asked: list[str] = []

    def end_elsewhere(shown: ToolCall, _content: Any) -> str:
        asked.append(shown.id)
        other = world.open(take_over=True)
        expect_yielded(other.next_turn())
        other.handle.stop("enough")
        expect_completed(other.run())
        first.flush()
        return "not awaited"

    def too_late(shown: ToolCall, _content: Any) -> None:
        asked.append(f"too late: {shown.id}")

    script, filters = (reply(calls=[PAY]), reply("done")), [upper, end_elsewhere, too_late]
    world = World("sync", MemoryStore(), script, config={"result_filters": filters})
    first = world.open()
    with pytest.raises(Conflict):
        first.next_turn()
    last: Any = decode_event(world.store.load(ID).entries[-1])
    assert (type(last).__name__, last.call_id, last.result.content, asked) == ("Ended", "t1", '"PAY 1"', ["t1"])


def test_the_sync_handle_refuses_an_async_filter_at_once() -> None:
    """It would never be awaited."""
    with pytest.raises(TypeError, match="AsyncToolLoopHandle"):
        sync_loop([], [say], result_filters=[later])


def test_filters_that_are_missing_after_sleep_are_reported() -> None:
    """Results that were cut come back whole, so an event says so; under `strict` that is refused."""
    asleep = sync_loop([], [say], result_filters=[upper]).snapshot()
    change = "config.result_filters is missing"
    with pytest.raises(Drift, match=change):
        ToolLoopHandle.restore(asleep, ScriptedProvider([reply("end")]), tools=[say], on_drift="strict").run()
    done = ToolLoopHandle.restore(asleep, ScriptedProvider([reply("end")]), tools=[say]).run()
    assert [event.changes for event in done.events if isinstance(event, DriftAdopted)] == [(change,)]


@each("bad", [upper, [1], "upper"])
def test_a_bad_list_of_filters_is_refused(bad: Any) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match="result_filters"):
        LoopConfig(result_filters=bad)


def test_what_a_filter_gives_is_judged_by_the_call() -> None:
    """A call made by code takes text only, and a reference must name a tool: else the result stays as it was."""

    def picture(_call: ToolCall, _content: Any) -> Any:
        return [{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]

    def refer(_call: ToolCall, _content: Any) -> Any:
        return [{"type": "tool_reference", "tool_name": "nothing"}]

    by_code = {**call("say", id="toolu_1"), "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}
    for asked, bad in ((by_code, picture), (call("say", id="toolu_1"), refer)):
        assert (
            list_told(sync_loop([reply(calls=[asked])], [say], result_filters=[bad]).next_turn())[0][0]
            == "one two three"
        )


@tool
def steps(count: int, context: ToolContext) -> str:
    """Report each step."""
    for step in range(count):
        context.report(f"step {step}", progress=step, total=count)
    context.report("done")
    return "all"


@either_kind
def test_progress_is_seen_between_start_and_end_in_its_order(kind: str) -> None:
    """By observers at once, and on the result of the turn."""
    seen: list[Any] = []
    handle = make(kind, [reply(calls=[("steps", {"count": 2})])], [steps], observers=[seen.append])
    executed = expect_yielded(turn(kind, handle))
    call_id = executed.calls[0].id
    events = [event for event in seen if isinstance(event, (CallStarted, CallProgress, CallFinished))]
    assert events == [
        CallStarted(1, call_id, "steps"),
        CallProgress(1, call_id, "steps", "step 0", 0, 2),
        CallProgress(1, call_id, "steps", "step 1", 1, 2),
        CallProgress(1, call_id, "steps", "done", None, None),
        events[-1],
    ]
    assert [event for event in executed.events if isinstance(event, CallProgress)] == events[1:4]
    (loop,) = handle.snapshot()["loops"]
    assert "step" not in str(loop["phase"]["closed"]).replace("steps", "")


def test_an_async_tool_reports_too() -> None:
    """The same method."""

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        context.report(progress=0.5)
        return "done"

    handle = async_loop([reply(calls=[("work", {})])], [work])
    executed = expect_yielded(run_async("asyncio", handle.next_turn))
    (event,) = (event for event in executed.events if isinstance(event, CallProgress))
    assert (event.message, event.progress, event.total) == (None, 0.5, None)


def test_a_report_after_the_end_is_not_heard() -> None:
    """A tool that was left behind may go on reporting; its reports are ignored."""
    kept: list[ToolContext] = []
    seen: list[Any] = []

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        kept.append(context)
        return "done"

    handle = sync_loop([reply(calls=[("work", {})])], [work], observers=[seen.append])
    expect_yielded(handle.next_turn())
    before = len(seen)
    kept[0].report("hello?")
    assert len(seen) == before


def test_a_report_outside_a_loop_does_nothing() -> None:
    """A tool can be tested without a loop."""
    context = ToolContext(call_id="c", loop_id="l", iteration=1, depth=1, idempotency_key="k")
    context.report(object(), progress=1, total=2.5)
