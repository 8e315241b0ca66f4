"""How deep loops are nested that tools drive themselves: `context=ctx` counts, whatever the caller's own object is."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from attrs import frozen

from tests.each import each
from tests.loop.concurrency import either_kind, run_async
from tests.loop.support import failed, params, user
from toolloop import (
    AsyncToolLoopHandle,
    Budget,
    Error,
    LoopConfig,
    LoopContext,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import IllegalCommand, MaxDepthExceeded
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, reply

DOWN = reply(calls=[("deeper", {})])


@frozen
class Misleading:
    """An object of the caller that looks as if it knew how deep it is."""

    depth: int = 0
    state: Any = None


STATES: dict[str, Any] = {
    "none": None,
    "a number": 7,
    "a mapping": {"depth": 0},
    "an object with a depth": Misleading(),
    "a context": LoopContext(state="x", depth=0),
    "a tool's context": ToolContext(call_id="c", loop_id="l", iteration=1, depth=0, idempotency_key="k"),
}


def once(request: dict[str, Any]) -> Any:
    """The model calls the tool, and then is content."""
    return DOWN if len(request["messages"]) == 1 else reply("up")


@each("state", STATES.values())
def test_each_handle_in_a_tool_is_one_deeper(state: Any) -> None:
    """Depths are 0, 1, 2 down to the limit, and the caller's object is handed down as it is."""
    provider = ScriptedProvider(once)
    seen: list[tuple[int, bool]] = []
    ends: list[Any] = []

    @tool
    def deeper(context: ToolContext) -> str:
        """Ask another loop."""
        inner = ToolLoopHandle(provider, params=params(), tools=[deeper], context=context)
        seen.append((inner.depth, context.state is state))
        ends.append(inner.run())
        return "back"

    outer = ToolLoopHandle(provider, params=params(), tools=[deeper], context=LoopContext(state=state))
    assert outer.run().unwrap().text == "up"
    assert seen == [(1, True), (2, True), (3, True)]
    deepest, *others = ends
    error = failed(deepest).error
    assert isinstance(error, MaxDepthExceeded)
    assert (error.current, error.limit) == (3, 3)
    assert [end.text for end in others] == ["up", "up"]
    assert len(provider.requests) == 6  # two of each of the three that ran


def test_the_same_for_async_tools() -> None:
    """An async handle inside an async tool counts as well."""

    async def main() -> None:
        provider = AsyncScriptedProvider(once)
        depths: list[int] = []
        ends: list[Any] = []

        @tool
        async def deeper(context: ToolContext) -> str:
            """Ask another loop."""
            inner = AsyncToolLoopHandle(provider, params=params(), tools=[deeper], context=context)
            depths.append(inner.depth)
            ends.append(await inner.run())
            return "back"

        outer = AsyncToolLoopHandle(
            provider, params=params(), tools=[deeper], context=LoopContext(state={"depth": 9}, depth=1)
        )
        assert (await outer.run()).unwrap().text == "up"
        assert depths == [2, 3]
        assert isinstance(failed(ends[0]).error, MaxDepthExceeded)

    run_async("asyncio", main)


def test_the_limit_is_that_of_the_handle_inside() -> None:
    """Each handle that a tool builds has a configuration of its own; what it does not say is the default."""
    provider = ScriptedProvider(once)
    ends: list[Any] = []

    @tool
    def deeper(context: ToolContext) -> str:
        """Ask another loop."""
        config = LoopConfig(max_depth=1)
        inner = ToolLoopHandle(provider, params=params(), tools=[deeper], context=context, config=config)
        ends.append(inner.run())
        return "back"

    outer = ToolLoopHandle(provider, params=params(), tools=[deeper], config=LoopConfig(max_depth=None))
    assert outer.run().unwrap().text == "up"
    (end,) = ends
    assert str(failed(end).error) == str(MaxDepthExceeded(1, 1))


def turn(kind: str, depth: int, limit: int | None) -> tuple[Any, Any, Any]:
    """A handle at a depth, its first turn, and its provider."""
    parts: dict[str, Any] = {
        "params": params(),
        "context": LoopContext(depth=depth),
        "config": LoopConfig(max_depth=limit),
    }
    if kind == "sync":
        provider: Any = ScriptedProvider([reply("fine")])
        handle: Any = ToolLoopHandle(provider, **parts)
        return handle, handle.next_turn(), provider
    provider = AsyncScriptedProvider([reply("fine")])
    handle = AsyncToolLoopHandle(provider, **parts)
    return handle, run_async(kind, handle.next_turn), provider


@either_kind
@each(("depth", "limit"), [(0, 0), (1, 1), (3, 3), (5, 3)])
def test_at_the_limit_the_first_turn_is_an_error(kind: str, depth: int, limit: int) -> None:
    """No request, no iteration; the error pickles, stays the same, and no command brings the loop to life."""
    handle, result, provider = turn(kind, depth, limit)
    error = failed(result).error
    assert isinstance(error, MaxDepthExceeded)
    assert (error.current, error.limit, result.iterations, handle.iterations) == (depth, limit, 0, 0)
    assert (result.retryable, handle.is_finished, len(provider.requests)) == (False, True, 0)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.current, copy.limit) == (MaxDepthExceeded, str(error), depth, limit)
    before = handle.snapshot()
    for command in (
        handle.retry,
        lambda: handle.extend(max_iterations=5),
        lambda: handle.extend(budget=Budget(requests=5)),
        lambda: handle.follow_up([user("again")]),
        handle.messages_mut,
    ):
        with pytest.raises(IllegalCommand):
            command()
    assert handle.snapshot() == before
    again = handle.next_turn() if kind == "sync" else run_async(kind, handle.next_turn)
    assert again is result


@each(("depth", "limit"), [(0, 1), (2, 3), (99, None)])
def test_below_the_limit_a_loop_runs(depth: int, limit: int | None) -> None:
    """The limit is the first depth at which none does; None is no limit."""
    handle, result, _ = turn("sync", depth, limit)
    assert result.unwrap().text == "fine"
    assert handle.depth == depth


def test_the_depth_survives_sleep_whatever_the_context_is_then() -> None:
    """A loop that was nested stays as deep as it was."""
    provider = ScriptedProvider([reply("fine")])
    asleep = ToolLoopHandle(provider, params=params(), context=LoopContext(depth=3)).snapshot()
    woken = ToolLoopHandle.restore(asleep, provider, context=LoopContext(depth=0))
    assert woken.depth == 3
    result: Yielded | Error | Any = woken.next_turn()
    assert isinstance(failed(result).error, MaxDepthExceeded)
