"""The spans of a loop, its requests and its tool runs, by the GenAI conventions."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from opentelemetry.trace import SpanKind

from tests.compaction.compaction_stories import Reader, reading
from tests.kit.concurrency import async_wire, either_driver, either_kind, make, play, run_async, sync_wire, turn
from tests.kit.loop_trees import ask_in_parallel, kid, task, tree_of
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import MODEL, TOOLS, add, params
from tests.otel.traced import Traces, attributes, status
from toolloop import LoopConfig, ToolLoopHandle
from toolloop.compaction import Summarize
from toolloop.testing import ScriptedProvider, call, reply

SECRET = "sesame"
CACHED = {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3}
ADD = call("add", {"a": 1, "b": 2}, id="t1")


def driven(kind: str, script: Any, tools: Any = TOOLS, **config: Any) -> Any:
    """Run a loop over real HTTP, and return its last turn."""
    if kind == "sync":
        with sync_wire(script, tools, **config) as (handle, _):
            return handle.run()

    async def main() -> Any:
        async with async_wire(script, tools, **config) as (handle, _):
            return await handle.run()

    return run_async(kind, main)


@either_kind
def test_a_loop_a_request_and_a_run_have_a_span_each(kind: str) -> None:
    """With the names, kinds and attributes of the conventions."""
    traces = Traces()
    script = [reply("let me see", calls=[ADD], usage=CACHED), reply("it is 3")]
    expect_completed(driven(kind, script, observers=[traces.observer]))
    assert traces.names == [f"chat {MODEL}", "execute_tool add", f"chat {MODEL}", "invoke_agent"]
    first, run, second, loop = traces.spans
    assert [traces.above(span) for span in (first, run, second, loop)] == [["invoke_agent"]] * 3 + [[]]
    assert [span.kind for span in (first, run, loop)] == [SpanKind.CLIENT, SpanKind.INTERNAL, SpanKind.INTERNAL]
    assert attributes(first) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.conversation.id": "loop",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.max_tokens": 256,
        "gen_ai.response.id": "msg_fake_000001",
        "gen_ai.response.model": MODEL,
        "gen_ai.response.finish_reasons": ("tool_use",),
        "gen_ai.usage.input_tokens": 110,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 7,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "toolloop.iteration": 1,
    }
    assert attributes(second)["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert attributes(run) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": "loop",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "t1",
        "toolloop.outcome": "returned",
    }
    assert attributes(loop) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.conversation.id": "loop",
        "gen_ai.request.model": MODEL,
        "gen_ai.usage.input_tokens": 110 + attributes(second)["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": 50 + attributes(second)["gen_ai.usage.output_tokens"],
        "gen_ai.usage.cache_read.input_tokens": 7,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "toolloop.iterations": 2,
        "toolloop.termination": "complete",
    }
    assert {status(span) for span in traces.spans} == {("UNSET", None)}
    times = [loop.start_time, first.start_time, first.end_time, run.start_time, run.end_time, loop.end_time]
    assert times == sorted(times, key=lambda time: time or 0)


def test_request_parameters_are_attributes() -> None:
    """Each parameter that the conventions name."""
    traces = Traces()
    asked = params(
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        stop_sequences=["END"],
        output_config={"format": {"type": "json_schema", "schema": {}}},
    )
    handle = ToolLoopHandle(
        ScriptedProvider([reply("{}")]), params=asked, config=LoopConfig(observers=[traces.observer])
    )
    expect_completed(handle.next_turn())
    said = attributes(traces.one(f"chat {MODEL}"))
    about = ("gen_ai.request.", "gen_ai.output.type")
    assert {name: value for name, value in said.items() if name.startswith(about)} == {
        "gen_ai.request.model": MODEL,
        "gen_ai.request.max_tokens": 256,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 4,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.output.type": "json",
    }


@either_driver
def test_a_request_for_a_summary_says_so(driver: str) -> None:
    """Its model comes from the reply, since another model may write the summary."""
    traces = Traces()

    async def story() -> None:
        strategy = Summarize(keep_last=2, at_tokens=4000)
        async with reading(driver, Reader(5), strategy, observers=[traces.observer]) as at:
            assert (await at.to_the_end()).text == "done"

    play(driver, story)
    (asked,) = (span for span in traces.all("chat"))
    said = attributes(asked)
    assert (said["toolloop.summary"], said["gen_ai.response.model"]) == (True, MODEL)
    assert not {"gen_ai.request.model", "gen_ai.response.id"} & said.keys()


# --- loops in loops, decisions ---------------------------------------------------------------------------------------


@either_kind
def test_a_loop_in_a_call_is_inside_of_its_span(kind: str) -> None:
    """It has the name of its tool. Its usage also counts in the outer loops."""
    traces = Traces()
    inner = kid([add], name="inner")
    said = {
        "go": ask_in_parallel("one"),
        "one": [reply(calls=[task("deep", "inner")]), reply("fine")],
        "deep": [reply(calls=[ADD]), reply("it is 3")],
    }
    loop_tree = tree_of(kind, said, [kid([inner], observers=[traces.observer])])
    loop_tree.config = {"observers": [traces.observer]}
    handle = loop_tree.loop()
    expect_yielded(turn(kind, handle)).continue_loop()
    expect_completed(turn(kind, handle))
    (run,) = traces.all("execute_tool add")
    assert traces.above(run) == [
        "invoke_agent inner",
        "execute_tool inner",
        "invoke_agent kid",
        "execute_tool kid",
        "invoke_agent",
    ]
    loops = [span for span in traces.spans if span.name.startswith("invoke_agent")]
    assert [span.name for span in loops] == ["invoke_agent inner", "invoke_agent kid", "invoke_agent"]
    used = [attributes(span)["gen_ai.usage.output_tokens"] for span in loops]
    assert [used[1] - used[0], used[2] - used[1]] == [used[0], used[0]]
    assert attributes(loops[0])["gen_ai.agent.name"] == "inner"
    assert len({span.context.trace_id for span in traces.spans}) == 1
    assert len(traces.all(f"chat {MODEL}")) == 6


@either_kind
def test_only_calls_that_run_have_spans(kind: str) -> None:
    """A waiting call has none, a denied one neither. No span holds inputs or reasons."""
    traces = Traces()
    calls = [call("write", {"path": "a", "text": SECRET}, id=name) for name in ("t1", "t2")]
    handle = make(kind, [reply(calls=calls), reply("done")], TOOLS, observers=[traces.observer])
    waiting = expect_yielded(turn(kind, handle))
    assert traces.names == [f"chat {MODEL}"]
    waiting.approve("t1", by="ana")
    waiting.deny("t2", SECRET, by="ben")
    waiting.continue_loop()
    expect_yielded(turn(kind, handle)).continue_loop()
    expect_completed(turn(kind, handle))
    assert traces.names == [f"chat {MODEL}", "execute_tool write", f"chat {MODEL}", "invoke_agent"]
    assert not [span for span in traces.spans if SECRET in span.to_json()]


# --- the extra -------------------------------------------------------------------------------------------------------


def test_without_the_extra_the_error_names_it() -> None:
    """The library itself does not need it."""
    code = """
import sys
sys.modules["opentelemetry"] = None
import toolloop
try:
    import toolloop.otel
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'toolloop[otel]'" in done.stdout
