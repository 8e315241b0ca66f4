"""A bare loop over the SDK client's own `post` with ready bytes: what toolloop's turn is measured against."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx2
from anthropic import Anthropic

from tests.measured.benchmarks import scenario
from tests.measured.benchmarks.scenario import encode

if TYPE_CHECKING:
    from collections.abc import Callable


def connect(url: str) -> Anthropic:
    return Anthropic(base_url=url, api_key="key")


def conversation(client: Anthropic, turns: int) -> Callable[[], str]:
    def converse() -> str:
        head = scenario.head(turns)
        messages = [encode(message) for message in scenario.params(turns)["messages"]]
        while True:
            response = client.post(
                "/v1/messages",
                cast_to=httpx2.Response,
                content=head + b",".join(messages) + b"]}",
                options={"timeout": client.timeout},  # just what toolloop gives; the client says itself that it is JSON
            )
            reply = json.loads(response.content)
            messages.append(encode({"role": "assistant", "content": reply["content"]}))
            if reply["stop_reason"] != "tool_use":
                return "".join(block["text"] for block in reply["content"] if block["type"] == "text")
            results = [_run(block) for block in reply["content"] if block["type"] == "tool_use"]
            messages.append(encode({"role": "user", "content": results}))

    return converse


def _run(call: scenario.JSON) -> scenario.JSON:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": scenario.add(**call["input"])}
