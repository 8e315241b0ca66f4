"""Spans of a loop that sleeps and wakes, and the end of spans when a handle is closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.concurrency import either_kind, run_async, turn
from tests.kit.loop_trees import ask_in_parallel, kid, tree_of
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import MODEL, TOOLS, params
from tests.otel.traced import Traces, attributes
from toolloop import Approve, LoopConfig, SqliteStore, ToolLoopHandle
from toolloop.testing import ScriptedProvider, call, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="t1")
SCRIPT = [reply(calls=[WRITE]), reply("done")]


def opened(store: Any, traces: Traces, script: Any, **more: Any) -> ToolLoopHandle:
    config = LoopConfig(observers=[traces.observer])
    return ToolLoopHandle.open(store, "loop", ScriptedProvider(script), tools=TOOLS, config=config, **more)


def test_each_handle_of_a_stored_loop_makes_spans_of_its_own_work(tmp_path: Path) -> None:
    """The conversation id joins them."""
    first, second = Traces(), Traces()
    store = SqliteStore(tmp_path / "loops.db")
    with opened(store, first, SCRIPT[:1], params=params()) as handle:
        expect_yielded(handle.next_turn())
        assert first.names == [f"chat {MODEL}"]
    with opened(store, second, SCRIPT[1:]) as handle:
        handle.decide({"t1": Approve()})
        expect_completed(handle.run())
    assert first.names == [f"chat {MODEL}", "invoke_agent"]
    assert second.names == ["execute_tool write", f"chat {MODEL}", "invoke_agent"]
    spans = [*first.spans, *second.spans]
    assert {attributes(span)["gen_ai.conversation.id"] for span in spans} == {"loop"}


@either_kind
def test_a_restored_tree_begins_new_spans_for_its_loops(kind: str) -> None:
    """The spans of calls with loops inside keep their names."""
    first, second = Traces(), Traces()
    said = {"go": ask_in_parallel("one"), "one": [reply(calls=[WRITE]), reply("wrote it")]}
    loop_tree = tree_of(kind, said, [kid(TOOLS)])
    loop_tree.config = {"observers": [first.observer]}
    handle = loop_tree.loop()
    expect_yielded(turn(kind, handle))
    snapshot = handle.snapshot()
    close: Any = getattr(handle, "close" if kind == "sync" else "aclose")
    close() if kind == "sync" else run_async(kind, close)
    assert first.names == [f"chat {MODEL}", f"chat {MODEL}", "execute_tool kid", "invoke_agent kid", "invoke_agent"]
    loop_tree.config = {"observers": [second.observer]}
    other = loop_tree.restore(snapshot)
    waiting = other.pending_turn
    assert waiting is not None
    waiting.approve(waiting.pending[0])
    waiting.continue_loop()
    expect_yielded(turn(kind, other)).continue_loop()
    expect_completed(turn(kind, other))
    assert second.above(second.one("execute_tool write")) == ["invoke_agent kid", "execute_tool kid", "invoke_agent"]
