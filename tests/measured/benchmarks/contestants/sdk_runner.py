"""The SDK's own tool runner without threads: the whole history goes out in every request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anthropic import Anthropic, beta_tool

from tests.measured.benchmarks import scenario
from tests.measured.benchmarks.contestants import client_post

if TYPE_CHECKING:
    from collections.abc import Callable

connect = client_post.connect


@beta_tool
def add(a: int, b: int) -> str:
    """Add an entry to the running total."""
    return scenario.add(a, b)


def conversation(client: Anthropic, turns: int) -> Callable[[], str]:
    def converse() -> str:
        runner = client.beta.messages.tool_runner(**scenario.params(turns), tools=[add], thread=False)
        return "".join(block.text for block in runner.until_done().content if block.type == "text")

    return converse
