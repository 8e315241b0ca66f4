"""How much of a request the API reads from its cache, by the cache of the fake API."""

from __future__ import annotations

from typing import Any

from tests.kit.support import expect_yielded
from tests.kit.tools import params
from toolloop import Completed, LoopConfig, ToolLoopHandle, tool
from toolloop.testing import FakeMessagesAPI, call, reply

_LONG_TEXT = "a rule of the house. " * 400


@tool
def look(number: int) -> str:
    """Look at something."""
    return f"{number} words " * 20


def looks(count: int) -> dict[str, Any]:
    return reply(calls=[call("look", {"number": number}) for number in range(count)])


def share_read(cache: Any, *, calls: int = 1, wait: float = 0.0) -> float:
    """Which part of the tokens that the last two requests have in common the last one reads from the cache."""
    now = [0.0]
    with FakeMessagesAPI([looks(calls), looks(calls), reply("done")], clock=lambda: now[0]) as api:
        asked = params(system=_LONG_TEXT)
        handle = ToolLoopHandle(api.client(), params=asked, tools=[look], config=LoopConfig(cache=cache))
        expect_yielded(handle.next_turn()).continue_loop()
        expect_yielded(handle.next_turn()).continue_loop()
        now[0] += wait
        assert isinstance(handle.run(), Completed)
        assert api.refused == []
        *_, common, last = [entry.usage for entry in handle.usage_log]
    return last.cache_read_input_tokens / common.total_input_tokens
