"""Traces across sleep and wake: one trace, whoever drives; and every span ends, however a loop is left."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased

from tests.handle.concurrency import async_loop, each_kind, make, run_async, sync_loop, turn
from tests.handle.family import Family, kid, parallel
from tests.handle.support import MODEL, TOOLS, completed, params, yielded
from tests.handle.traced import Traces, events
from toolloop import Approve, LoopConfig, MemoryStore, SqliteStore, ToolLoopHandle
from toolloop.testing import ScriptedProvider, call, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="t1")
STORY = [reply(calls=[WRITE]), reply("done")]


def opened(store: Any, traces: Traces, script: Any, **more: Any) -> ToolLoopHandle:
    config = LoopConfig(observers=[traces.observer])
    return ToolLoopHandle.open(store, "loop", ScriptedProvider(script), tools=TOOLS, config=config, **more)


def assert_one_trace(first: Traces, second: Traces) -> None:
    """What two processes did is one trace: a loop's span of each, and nothing twice."""
    assert first.names == [f"chat {MODEL}", "invoke_agent"]
    assert second.names == ["execute_tool write", f"chat {MODEL}", "invoke_agent"]
    spans = [*first.spans, *second.spans]
    assert len({span.context.trace_id for span in spans}) == 1
    assert len({span.context.span_id for span in spans}) == len(spans)
    before, after = first.one("invoke_agent"), second.one("invoke_agent")
    assert before.parent is not None
    assert before.parent == after.parent
    assert before.parent.is_remote
    assert (events(before), events(after)) == (["call_waiting"], ["call_decided"])


@each_kind
def test_a_loop_from_a_snapshot_goes_on_in_its_trace(kind: str) -> None:
    """In another process, with a tracer that knows nothing of the first."""
    first, second = Traces(), Traces()
    handle = make(kind, STORY, TOOLS, observers=[first.observer])
    yielded(turn(kind, handle))
    snapshot = handle.snapshot()
    close(kind, handle)
    other = type(handle).restore(
        snapshot,
        handle._provider,
        tools=TOOLS,
        config=LoopConfig(observers=[second.observer]),
    )
    waiting = other.pending_turn
    assert waiting is not None
    waiting.approve("t1")
    waiting.continue_loop()
    yielded(turn(kind, other)).continue_loop()
    completed(turn(kind, other))
    assert_one_trace(first, second)


def close(kind: str, handle: Any) -> None:
    if kind == "sync":
        handle.close()
    else:
        run_async(kind, handle.close)


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_a_stored_loop_goes_on_in_its_trace(where: str, tmp_path: Path) -> None:
    """Opened by a second handle, after the first one's `with` is over."""
    first, second = Traces(), Traces()
    store = MemoryStore() if where == "memory" else SqliteStore(tmp_path / "loops.db")
    with opened(store, first, STORY[:1], params=params()) as handle:
        yielded(handle.next_turn())
        assert first.names == [f"chat {MODEL}"]
    with opened(store, second, STORY[1:]) as handle:
        handle.decide({"t1": Approve()})
        completed(handle.run())
    assert_one_trace(first, second)


@each_kind
def test_a_tree_that_wakes_up_is_in_its_trace_too(kind: str) -> None:
    """The spans of the calls with loops inside begin anew, with their names."""
    first, second = Traces(), Traces()
    said = {"go": parallel("one"), "one": [reply(calls=[WRITE]), reply("wrote it")]}
    family = Family(kind, said, [kid(TOOLS)])
    family.config = {"observers": [first.observer]}
    handle = family.loop()
    yielded(turn(kind, handle))
    snapshot = handle.snapshot()
    close(kind, handle)
    assert first.names == [f"chat {MODEL}", f"chat {MODEL}", "execute_tool kid", "invoke_agent", "invoke_agent kid"]
    family.config = {"observers": [second.observer]}
    other = family.restored(snapshot)
    waiting = other.pending_turn
    assert waiting is not None
    waiting.approve(waiting.pending[0])
    waiting.continue_loop()
    yielded(turn(kind, other)).continue_loop()
    completed(turn(kind, other))
    assert (events(second.one("invoke_agent")), events(second.one("invoke_agent kid"))) == ([], ["call_decided"])
    assert second.above(second.one("execute_tool write")) == ["invoke_agent kid", "execute_tool kid", "invoke_agent"]
    assert len({span.context.trace_id for span in [*first.spans, *second.spans]}) == 1


def test_the_trace_of_a_loop_is_the_same_in_every_process_and_version() -> None:
    """So this never changes."""
    traces = Traces()
    completed(turn("sync", make("sync", [reply("done")], observers=[traces.observer])))
    parent = traces.one("invoke_agent").parent
    assert parent is not None
    assert (parent.trace_id, parent.span_id) == (0xE133AEBE517FA174EF36F584274E68D5, 0xE6116ABD81DE49EA)


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("wrap", [lambda sampler: sampler, ParentBased], ids=["bare", "parent based"])
def test_a_loop_is_sampled_as_often_as_any_trace(ratio: float, wrap: Any) -> None:
    """That its trace is made of its id is no parent to believe. And all who drive it draw the same lot."""
    kept = {}
    for attempt in range(2):
        traces = Traces(sampler=wrap(TraceIdRatioBased(ratio)))
        for number in range(60):
            handle = ToolLoopHandle(
                ScriptedProvider([reply("done")]),
                params=params(),
                config=LoopConfig(observers=[traces.observer]),
                loop_id=f"loop {number}",
            )
            completed(handle.next_turn())
        kept[attempt] = {span.context.trace_id for span in traces.spans}
    assert kept[0] == kept[1]
    assert {0.0: 0, 1.0: 60}.get(ratio, len(kept[0])) == len(kept[0])
    assert ratio != 0.5 or 10 < len(kept[0]) < 50


def test_a_loop_that_is_not_sampled_is_counted_all_the_same() -> None:
    """And costs no conversion of contents."""
    traces = Traces(sampler=ALWAYS_OFF, contents=True)
    completed(turn("sync", make("sync", [reply("done")], observers=[traces.observer])))
    assert traces.names == []
    assert [count for _, count, _ in traces.counted("gen_ai.invoke_agent.duration")] == [1]


def test_a_further_user_turn_is_a_span_that_links_to_the_one_before() -> None:
    """A follow-up is a new invocation of the same conversation."""
    traces = Traces()
    handle = sync_loop([reply("one"), reply("two")], observers=[traces.observer])
    completed(handle.next_turn())
    handle.follow_up([{"role": "user", "content": "more"}])
    completed(handle.next_turn())
    first, second = traces.all("invoke_agent")
    assert [link.context for link in second.links] == [first.context]


# --- every span ends -------------------------------------------------------------------------------------------------


@each_kind
def test_the_span_of_a_loop_that_is_dropped_ends_when_something_last_happened(kind: str) -> None:
    """As soon as it is noticed, and anything happens to any loop."""
    traces = Traces()
    handle = make(kind, STORY, TOOLS, observers=[traces.observer])
    yielded(turn(kind, handle))
    (chat,) = traces.spans
    del handle
    gc.collect()
    assert traces.names == [f"chat {MODEL}"]
    other = async_loop if kind != "sync" else sync_loop
    completed(turn(kind, other([reply("done")], observers=[Traces().observer])))
    loop = traces.one("invoke_agent")
    assert (loop.end_time or 0) - (chat.end_time or 0) < 10**9


@each_kind
def test_leaving_with_an_exception_ends_the_spans(kind: str) -> None:
    """So that a program that fails shows what it did."""
    traces = Traces()

    async def leave() -> None:
        async with async_loop(STORY, TOOLS, observers=[traces.observer]) as handle:
            await handle.next_turn()
            raise LookupError

    def leave_sync() -> None:
        with sync_loop(STORY, TOOLS, observers=[traces.observer]) as handle:
            handle.next_turn()
            raise LookupError

    with pytest.raises(LookupError):
        leave_sync() if kind == "sync" else run_async(kind, leave)
    assert traces.names == [f"chat {MODEL}", "invoke_agent"]


PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from toolloop import Approve, LoopConfig, ToolLoopHandle, tool
from toolloop.otel import OpenTelemetry
from toolloop.testing import ScriptedProvider, reply

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.name + "\\n")))
trace.set_tracer_provider(provider)


@tool(needs_approval=True)
def write() -> str:
    "Write."
    return ""


handle = ToolLoopHandle(
    ScriptedProvider([reply(calls=[("write", {})])]),
    params={"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]},
    tools=[write],
    config=LoopConfig(observers=[OpenTelemetry()]),
)
handle.next_turn()
if sys.argv[1] == "raise":
    raise SystemExit(3)
"""


@pytest.mark.parametrize("end", ["return", "raise"])
def test_the_end_of_the_process_ends_the_spans(end: str) -> None:
    """Before the exporter of the global provider goes."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, end], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.stdout.split("\n") == ["chat m", "invoke_agent", ""], done.stderr
    assert (done.returncode, done.stderr) == (3 if end == "raise" else 0, "")


def test_a_sampler_that_is_asked_sees_the_loop() -> None:
    """What it needs to know is there when the span begins."""
    asked: list[Any] = []

    class Asked(Sampler):
        def should_sample(self, parent_context: Any, trace_id: int, name: str, *rest: Any, **more: Any) -> Any:
            asked.append((name, rest[1]["gen_ai.request.model"] if rest[1] else None))
            return TraceIdRatioBased(1.0).should_sample(parent_context, trace_id, name)

        def get_description(self) -> str:
            return "asked"

    completed(turn("sync", make("sync", [reply("done")], observers=[Traces(sampler=Asked()).observer])))
    assert asked == [("invoke_agent", MODEL), ("invoke_agent", MODEL), (f"chat {MODEL}", MODEL)]
