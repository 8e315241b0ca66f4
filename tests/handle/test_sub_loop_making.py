"""What a handle looks at in the loops inside its calls before it takes them: async parts, and what is to be opened."""

from __future__ import annotations

from typing import Any

import pytest

from tests.handle.concurrency import async_loop, run_async, sync_loop
from tests.handle.support import MODEL, add, completed, refused, write
from tests.handle.test_opening import AsyncResource, Resource
from toolloop import Approve, LoopConfig, ToolLoopHandle, sub_loop, tool
from toolloop.errors import BadTool, Drift, IllegalCommand
from toolloop.handle.sub_loops import SubLoop
from toolloop.testing import ScriptedProvider, reply


def within(*tools: Any, **config: Any) -> SubLoop:
    """A loop inside a loop inside a call."""
    params = {"model": MODEL, "max_tokens": 64}
    inner = sub_loop("inner", "Ask the inner.", params=params, tools=tools, config=LoopConfig(**config))
    return sub_loop("outer", "Ask the outer.", params=params, tools=[inner])


@tool
async def fetch(page: str) -> str:
    """Fetch a page."""
    return page


async def judge(*_: Any) -> bool:
    return True


async def policy(*_: Any) -> Approve:
    return Approve()


ASYNC: dict[str, tuple[SubLoop, str]] = {
    "a tool": (within(add, fetch), "the tool 'fetch' is async"),
    "a predicate": (within(tool(add.function, needs_approval=judge)), "needs_approval of the tool 'add' is async"),
    "what a tool opens": (
        within(tool(Resource([]).browse, opens=AsyncResource([]))),
        "what the tool 'browse' opens is an async context manager",
    ),
    "a policy": (within(on_tool_call=policy), "a callable in the config of the sub_loop 'inner' is async"),
    "a predicate of its own": (
        sub_loop("ask", "", params={"model": MODEL, "max_tokens": 64}, needs_approval=judge),
        "needs_approval of the tool 'ask' is async",
    ),
}


@pytest.mark.parametrize(("outer", "words"), ASYNC.values(), ids=ASYNC)
def test_what_is_async_needs_the_async_handle_at_any_depth(outer: SubLoop, words: str) -> None:
    """The sync handle refuses it at once, by name; the async one takes it."""
    with pytest.raises(BadTool) as caught:
        sync_loop([], [outer])
    assert words in str(caught.value)
    assert "AsyncToolLoopHandle" in str(caught.value)
    assert outer.name in async_loop([], [outer])._tools


def test_what_inner_tools_open_is_opened_with_the_loop() -> None:
    """Each thing once, in the order of the tools, whoever shares it; and closed in reverse."""
    log: list[str] = []
    shared, own = Resource(log, "shared"), Resource(log, "own")
    inner = within(tool(own.browse, opens=own), tool(shared.close_tab, opens=shared))
    handle = sync_loop([reply("fine")], [tool(shared.browse, opens=shared), inner])
    with refused(handle, IllegalCommand, "'browse'", "with handle"):
        handle.next_turn()
    with handle:
        assert log == ["shared opens", "own opens"]
        completed(handle.next_turn())
    assert log == ["shared opens", "own opens", "own closes", "shared closes"]


def test_a_loop_is_not_driven_while_something_deep_inside_is_closed() -> None:
    """Also where no tool of its own opens anything; sync or async."""
    log: list[str] = []
    outer = within(tool(Resource(log).browse, opens=Resource(log)))
    handle = sync_loop([reply("fine")], [outer])
    with refused(handle, IllegalCommand, "'browse'", "with handle"):
        handle.next_turn()

    async def main() -> None:
        other = async_loop([reply("fine")], [within(tool(Resource(log).browse, opens=AsyncResource(log)))])
        with pytest.raises(IllegalCommand, match="'browse'"):
            await other.next_turn()
        async with other:
            assert log == ["it opens"]
            completed(await other.next_turn())

    run_async("asyncio", main)


def test_another_tool_deep_inside_is_drift() -> None:
    """A loop that wakes up is compared with all that its calls may begin."""
    asleep = sync_loop([], [within(add)]).snapshot()
    provider = ScriptedProvider([])
    assert "outer" in ToolLoopHandle.restore(asleep, provider, tools=[within(add)])._tools
    with pytest.raises(Drift) as caught:
        ToolLoopHandle.restore(asleep, provider, tools=[within(write)])
    assert caught.value.changes == ("the inner tools of the tool 'outer' changed",)
    assert "outer" in ToolLoopHandle.restore(asleep, provider, tools=[within(write)], on_drift="accept")._tools
