"""Stop, cancellation, Ctrl-C: all of them reach down a tree of loops, and leave one that can go on."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.concurrency import (
    Background,
    Gate,
    cancel_after,
    either_kind,
    list_contents,
    on_both_backends,
    run_async,
    turn,
    wait_for,
)
from tests.kit.loop_trees import ask_in_parallel, join, kid, tree_of
from tests.kit.support import expect_completed
from tests.kit.tools import add
from toolloop import AsyncToolLoopHandle, Stop, ToolContext, tool
from toolloop.machine.record.loop import Ready
from toolloop.terminations import StopCondition
from toolloop.testing import call, reply

ADD = call("add", {"a": 1, "b": 2}, id="sum")
COUNTS = [reply(calls=[ADD]), reply("it is 3")]
STANDS = [reply(calls=[call("stand", {}, id="s")]), reply("went on")]


def make_standing(gate: Gate, seen: list[bool]) -> Any:
    @tool
    def stand(context: ToolContext) -> str:
        """Stand at a gate."""
        gate.stand()
        seen.append(context.cancelled)
        return "went through"

    return stand


@either_kind
def test_a_stop_reaches_down(kind: str) -> None:
    """Whatever the children are about: a request, or a tool, which sees that it is cancelled."""
    gate, asked, seen = Gate(), Gate(), list[bool]()
    loop_tree = tree_of(
        kind,
        {"go": ask_in_parallel("one", "two"), "one": STANDS, "two": COUNTS},
        [kid([make_standing(gate, seen), add])],
        config={"stop_grace": 0},
    )
    loop_tree.on["two"] = asked.stand
    handle = loop_tree.loop()
    driving = Background(lambda: turn(kind, handle))
    wait_for(gate.arrived)
    wait_for(asked.arrived)
    handle.resume(Stop("enough"))
    assert expect_completed(driving.result()).termination == StopCondition("enough")
    asked.opened.set()
    gate.opened.set()
    join()
    assert seen == [True]
    assert sorted(loop_tree.asked) == ["go", "one", "two"]


@on_both_backends
def test_a_cancelled_turn_leaves_children_that_go_on(backend: str) -> None:
    """A request is made again, byte for byte; a tool in a thread is waited for."""
    gate, asked, seen = Gate(), Gate(), list[bool]()
    loop_tree = tree_of(
        backend,
        {"go": ask_in_parallel("one", "two"), "one": STANDS, "two": COUNTS},
        [kid([make_standing(gate, seen), add])],
    )
    loop_tree.on["two"] = asked.stand
    handle = loop_tree.loop()
    assert isinstance(handle, AsyncToolLoopHandle)

    async def main() -> Any:
        await cancel_after(handle, gate.arrived, asked.arrived)
        assert isinstance(handle.state.loops[("two",)].phase, Ready)
        asked.opened.set()
        del loop_tree.on["two"]
        gate.opened.set()
        return await handle.next_turn()

    assert list_contents(run_async(backend, main)) == ["went on", "it is 3"]
    assert seen == [False]
    again = [body for body in loop_tree.bodies if json.loads(body)["messages"][0]["content"] == "two"]
    assert again[0] == again[1] != again[2]
