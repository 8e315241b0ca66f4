"""What a handle that a tool drives tells its context: each answered request, once."""

from __future__ import annotations

from typing import Any

from tests.loop.concurrency import either_kind, run_async
from tests.loop.stored import ID, World
from tests.loop.support import HUNDRED, add, failed, params, yielded
from toolloop import AsyncToolLoopHandle, IterationUsage, ToolContext, ToolLoopHandle
from toolloop.errors import ModelError
from toolloop.stores.memory import MemoryStore
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, reply

ADD = reply(calls=[("add", {"a": 1, "b": 2})], usage=HUNDRED)
END = reply("fine", usage=HUNDRED)


def counting(into: list[IterationUsage], state: Any = None) -> ToolContext:
    """The context of a tool, of which somebody counts what it spends."""
    return ToolContext(
        call_id="c", loop_id="above", iteration=1, depth=1, idempotency_key="k", state=state, spent=into.append
    )


@either_kind
def test_each_answered_request_is_told_once(kind: str) -> None:
    """As it stands in the usage log of the loop, when it is answered."""
    told: list[IterationUsage] = []
    parts: dict[str, Any] = {"params": params(), "tools": [add], "context": counting(told)}
    if kind == "sync":
        handle: Any = ToolLoopHandle(ScriptedProvider([ADD, END]), **parts)
        yielded(handle.next_turn())
        assert len(told) == 1
        handle.run()
    else:
        handle = AsyncToolLoopHandle(AsyncScriptedProvider([ADD, END]), **parts)
        run_async(kind, handle.run)
    assert told == list(handle.usage_log)
    assert [(each.iteration, each.usage.input_tokens) for each in told] == [(1, 100), (2, 100)]


def test_a_request_that_failed_is_not_told() -> None:
    """Nothing was consumed; the one that is answered after it counts."""
    told: list[IterationUsage] = []
    handle = ToolLoopHandle(ScriptedProvider([ModelError("overloaded"), END]), params=params(), context=counting(told))
    failed(handle.next_turn())
    assert told == []
    handle.retry()
    handle.run()
    assert [each.iteration for each in told] == [1]


def test_a_loop_that_wakes_up_tells_what_is_new() -> None:
    """What it had used when it fell asleep was told then."""
    before: list[IterationUsage] = []
    handle = ToolLoopHandle(ScriptedProvider([ADD]), params=params(), tools=[add], context=counting(before))
    yielded(handle.next_turn()).continue_loop()
    told: list[IterationUsage] = []
    woken = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([END]), tools=[add], context=counting(told))
    woken.run()
    assert ([each.iteration for each in before], [each.iteration for each in told]) == ([1], [2])
    assert len(woken.usage_log) == 2


def test_what_others_did_with_a_stored_loop_is_not_told() -> None:
    """Two handles on one stored loop: each tells what it asked itself."""
    world = World("sync", MemoryStore(), script=[ADD, ADD, END], tools=[add])
    told: list[IterationUsage] = []
    mine = world.open(context=counting(told))
    yielded(mine.next_turn()).continue_loop()
    assert [each.iteration for each in told] == [1]
    other = world.open()
    yielded(other.next_turn()).continue_loop()
    mine.run()
    assert len(mine.handle.usage_log) == 3
    assert [each.iteration for each in told] == [1, 3]
    assert world.state(ID).root.iterations == 3


def test_nobody_need_count() -> None:
    """A context that nobody made for counting takes it and does nothing."""
    context = ToolContext(call_id="c", loop_id="l", iteration=1, depth=1, idempotency_key="k")
    assert ToolLoopHandle(ScriptedProvider([END]), params=params(), context=context).run().unwrap().text == "fine"
