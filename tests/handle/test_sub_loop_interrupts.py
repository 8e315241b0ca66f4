"""Stop, cancellation, Ctrl-C, sleep: all of them reach down a tree of loops, and leave one that can go on."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest

from tests.handle.concurrency import (
    DEADLINE,
    Background,
    Counted,
    Gate,
    awaited,
    cancelled_after,
    each_kind,
    on_both_backends,
    run_async,
    told,
    turn,
)
from tests.handle.family import Family, join, kid, parallel
from tests.handle.support import add, completed
from tests.handle.test_cancel_interrupts import Strike, ask, results_of
from toolloop import AsyncToolLoopHandle, Stop, ToolContext, ToolLoopHandle, tool
from toolloop.core.states import Ready, Running
from toolloop.core.tree import loop_at
from toolloop.handle.bell import Bell
from toolloop.terminations import StopCondition
from toolloop.testing import call, reply

ADD = call("add", {"a": 1, "b": 2}, id="sum")
COUNTS = [reply(calls=[ADD]), reply("it is 3")]
STANDS = [reply(calls=[call("stand", {}, id="s")]), reply("went on")]


def standing(gate: Gate, seen: list[bool]) -> Any:
    @tool
    def stand(context: ToolContext) -> str:
        """Stand at a gate."""
        gate.stand()
        seen.append(context.cancelled)
        return "went through"

    return stand


@each_kind
def test_a_stop_reaches_down(kind: str) -> None:
    """Whatever the children are about: a request, or a tool, which sees that it is cancelled."""
    gate, asked, seen = Gate(), Gate(), list[bool]()
    family = Family(
        kind, {"go": parallel("one", "two"), "one": STANDS, "two": COUNTS}, [kid([standing(gate, seen), add])]
    )
    family.on["two"] = asked.stand
    handle = family.loop()
    driving = Background(lambda: turn(kind, handle))
    awaited(gate.arrived)
    awaited(asked.arrived)
    handle.resume(Stop("enough"))
    assert completed(driving.result()).termination == StopCondition("enough")
    asked.opened.set()
    gate.opened.set()
    join()
    assert seen == [True]
    assert sorted(family.asked) == ["go", "one", "two"]


@on_both_backends
def test_a_cancelled_turn_leaves_children_that_go_on(backend: str) -> None:
    """A request is made again, byte for byte; a tool in a thread is waited for."""
    gate, asked, seen = Gate(), Gate(), list[bool]()
    family = Family(
        backend, {"go": parallel("one", "two"), "one": STANDS, "two": COUNTS}, [kid([standing(gate, seen), add])]
    )
    family.on["two"] = asked.stand
    handle = family.loop()
    assert isinstance(handle, AsyncToolLoopHandle)

    async def main() -> Any:
        await cancelled_after(handle, gate.arrived, asked.arrived)
        assert isinstance(loop_at(handle.state, ("two",)), Ready)
        asked.opened.set()
        del family.on["two"]
        gate.opened.set()
        return await handle.next_turn()

    assert told(run_async(backend, main)) == ["went on", "it is 3"]
    assert seen == [False]
    again = [body for who, body in zip(family.asked, family.bodies, strict=True) if who == "two"]
    assert again[0] == again[1] != again[2]


def test_ctrl_c_while_children_are_at_work_leaves_a_tree_that_goes_on() -> None:
    """Their requests are given up, and are made again; their tools run on."""
    gate, asked, seen = Gate(), Gate(), list[bool]()
    family = Family(
        "sync", {"go": parallel("one", "two"), "one": STANDS, "two": COUNTS}, [kid([standing(gate, seen), add])]
    )
    family.on["two"] = asked.stand
    handle = family.loop()
    assert isinstance(handle, ToolLoopHandle)

    class Interrupting(Bell):
        """What a Ctrl-C does to a wait."""

        def wait(self, seconds: float) -> None:
            awaited(gate.arrived)
            awaited(asked.arrived)
            raise KeyboardInterrupt

    patched, handle._bell = handle._bell, Interrupting()
    with pytest.raises(KeyboardInterrupt):
        handle.next_turn()
    handle._bell = patched
    assert isinstance(loop_at(handle.state, ("two",)), Ready)
    assert handle._flights == {}
    del family.on["two"]
    state = handle.state
    asked.opened.set()
    gate.opened.set()
    join()
    assert handle.state is not state
    assert told(handle.next_turn()) == ["went on", "it is 3"]
    assert seen == [False]
    assert family.asked.count("two") == 3


def struck(at: int, counted: Counted) -> tuple[ToolLoopHandle, bool]:
    """Drive a tree to its end, struck once at a place; and whether there was such a place."""

    @tool
    def work(context: ToolContext) -> str:
        """Do something that must not be done twice."""
        counted.add(context)
        return "done"

    def calls(*names: str) -> list[Any]:
        return [reply(calls=[call("work", {}, id=name) for name in names]), reply("that is all")]

    said = {"go": parallel("one", "two"), "one": calls("a"), "two": [reply("nothing to do")]}
    handle = Family("sync", said, [kid([work])]).loop()
    assert isinstance(handle, ToolLoopHandle)
    strike = Strike(at)

    def drive() -> None:
        before = sys.gettrace()
        sys.settrace(strike.trace)
        try:
            handle.run(ask)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert completed(handle.run(ask)).text == "all done"

    Background(drive).result()
    return handle, strike.count == at


def test_an_interrupt_anywhere_in_a_tree_leaves_one_that_goes_on() -> None:
    """No call runs twice, none is lost, nothing hangs: tried at every third place."""
    for at in itertools.count(1, 3):
        counted = Counted()
        handle, reached = struck(at, counted)
        counted.assert_once()
        results = [block for message in handle.messages for block in results_of(message)]
        assert [block["tool_use_id"] for block in results] == ["one", "two"], f"place {at}"
        if not reached:
            break
    assert at > 300


def test_time_that_is_over_reaches_down() -> None:
    """The outermost loop ends; what was left behind in a child is taken when it goes on."""
    gate, seen = Gate(), list[bool]()
    family = Family("sync", {"go": parallel("one"), "one": STANDS}, [kid([standing(gate, seen)])])
    family.config = {"timeout": DEADLINE}
    handle = family.loop()
    assert isinstance(handle, ToolLoopHandle)
    driving = Background(handle.next_turn)
    awaited(gate.arrived)
    with handle._recorder.lock:
        handle._watch._last -= 2 * DEADLINE
    handle._ring()
    assert completed(driving.result()).termination.kind == "timeout"
    gate.opened.set()
    join()
    handle.extend(timeout=10 * DEADLINE)
    assert isinstance(handle.state, Running)
    assert told(handle.next_turn()) == ["went on"]
    assert seen == [True]
