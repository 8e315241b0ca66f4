"""`ctx.report`: what a running tool says of itself is seen by those who watch, and by nobody else."""

from __future__ import annotations

from typing import Any

from tests.loop.concurrency import (
    Background,
    Gate,
    async_loop,
    awaited,
    either_kind,
    make,
    run_async,
    sync_loop,
    turn,
)
from tests.loop.support import yielded
from toolloop import ToolContext, tool
from toolloop.events import CallFinished, CallProgress, CallStarted
from toolloop.testing import reply


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
    executed = yielded(turn(kind, handle))
    call_id = executed.calls[0].id
    events = [event for event in seen if isinstance(event, CallStarted | CallProgress | CallFinished)]
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
    executed = yielded(run_async("asyncio", handle.next_turn))
    (event,) = (event for event in executed.events if isinstance(event, CallProgress))
    assert (event.message, event.progress, event.total) == (None, 0.5, None)


def test_a_report_after_the_end_is_not_heard() -> None:
    """A tool that was left behind may go on talking; nobody watches it any more."""
    kept: list[ToolContext] = []
    seen: list[Any] = []

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        kept.append(context)
        return "done"

    handle = sync_loop([reply(calls=[("work", {})])], [work], observers=[seen.append])
    yielded(handle.next_turn())
    before = len(seen)
    kept[0].report("hello?")
    assert len(seen) == before


def test_an_observer_that_looks_at_the_loop_while_a_tool_reports_sees_it_running() -> None:
    """Reports come from the tool's own thread, and lock nobody out."""
    gate = Gate()
    states: list[str] = []

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        context.report("half")
        gate.stand()
        return "done"

    def watch(event: Any) -> None:
        if isinstance(event, CallProgress):
            states.append(handle.view()["state"])

    handle = sync_loop([reply(calls=[("work", {})])], [work], observers=[watch])
    driving = Background(handle.next_turn)
    awaited(gate.arrived)
    assert (states, handle.view()["state"]) == (["Running"], "Running")
    gate.opened.set()
    yielded(driving.result())


def test_a_report_outside_a_loop_does_nothing() -> None:
    """A tool can be tested without a loop."""
    context = ToolContext(call_id="c", loop_id="l", iteration=1, depth=1, idempotency_key="k")
    context.report(object(), progress=1, total=2.5)
