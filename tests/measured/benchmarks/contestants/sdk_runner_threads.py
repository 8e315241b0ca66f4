"""The SDK's own tool runner with threads, as it comes: the API keeps the history, and a request has what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.measured.benchmarks import scenario
from tests.measured.benchmarks.contestants import client_post, sdk_runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from anthropic import Anthropic

connect = client_post.connect


def conversation(client: Anthropic, turns: int) -> Callable[[], str]:
    def converse() -> str:
        runner = client.beta.messages.tool_runner(**scenario.params(turns), tools=[sdk_runner.add])
        return "".join(block.text for block in runner.until_done().content if block.type == "text")

    return converse
