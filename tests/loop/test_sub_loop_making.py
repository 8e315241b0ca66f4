"""What a handle looks at in the loops inside its calls before it takes them: async parts, and what is to be opened."""

from __future__ import annotations

from typing import Any

import pytest

from tests import inside
from tests.each import each
from tests.loop.concurrency import async_loop, sync_loop
from tests.loop.support import MODEL, add, write
from toolloop import Approve, LoopConfig, ToolLoopHandle, sub_loop, tool
from toolloop.errors import BadTool, Drift
from toolloop.loop.sub_loops import SubLoop
from toolloop.testing import ScriptedProvider


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
    "a policy": (within(on_tool_call=policy), "a callable in the config of the sub_loop 'inner' is async"),
    "a predicate of its own": (
        sub_loop("ask", "", params={"model": MODEL, "max_tokens": 64}, needs_approval=judge),
        "needs_approval of the tool 'ask' is async",
    ),
}


@each(("outer", "words"), ASYNC.values())
def test_what_is_async_needs_the_async_handle_at_any_depth(outer: SubLoop, words: str) -> None:
    """The sync handle refuses it at once, by name; the async one takes it."""
    with pytest.raises(BadTool) as caught:
        sync_loop([], [outer])
    assert words in str(caught.value)
    assert "AsyncToolLoopHandle" in str(caught.value)
    assert outer.name in inside.tools_of(async_loop([], [outer]))


def test_another_tool_deep_inside_is_drift() -> None:
    """A loop that wakes up is compared with all that its calls may begin."""
    asleep = sync_loop([], [within(add)]).snapshot()
    provider = ScriptedProvider([])
    assert "outer" in inside.tools_of(ToolLoopHandle.restore(asleep, provider, tools=[within(add)]))
    with pytest.raises(Drift) as caught:
        ToolLoopHandle.restore(asleep, provider, tools=[within(write)])
    assert caught.value.changes == ("the inner tools of the tool 'outer' changed",)
    accepted = ToolLoopHandle.restore(asleep, provider, tools=[within(write)], on_drift="accept")
    assert "outer" in inside.tools_of(accepted)
