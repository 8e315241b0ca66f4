"""What most people write first: `messages.create` with a list that grows, and the tools run by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks import scenario
from tests.benchmarks.contestants import client_post, floor

if TYPE_CHECKING:
    from collections.abc import Callable

    from anthropic import Anthropic

connect = client_post.connect


def conversation(client: Anthropic, turns: int) -> Callable[[], str]:
    def converse() -> str:
        params = {**scenario.params(turns), "tools": [scenario.ADD]}
        messages = params["messages"]
        while True:
            message = client.messages.create(**params)
            messages.append({"role": "assistant", "content": message.content})
            if message.stop_reason != "tool_use":
                return "".join(block.text for block in message.content if block.type == "text")
            calls = [block for block in message.content if block.type == "tool_use"]
            results = [floor.run({"id": call.id, "name": call.name, "input": call.input}) for call in calls]
            messages.append({"role": "user", "content": results})

    return converse
