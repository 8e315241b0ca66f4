"""The floor: a hand-written loop of httpx2 and the standard `json` that keeps encoded messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from tests.measured.benchmarks import scenario
from tests.measured.benchmarks.scenario import JSON, encode

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS = {"add": scenario.add}


def connect(url: str) -> httpx2.Client:
    headers = {"x-api-key": "key", "anthropic-version": "2026-10-21", "content-type": "application/json"}
    return httpx2.Client(base_url=url, headers=headers, timeout=600)


def conversation(client: httpx2.Client, turns: int) -> Callable[[], str]:
    def converse() -> str:
        head = scenario.head(turns)
        messages = [encode(message) for message in scenario.params(turns)["messages"]]
        while True:
            response = client.post("/v1/messages", content=head + b",".join(messages) + b"]}")
            response.raise_for_status()
            reply = response.json()
            messages.append(encode({"role": "assistant", "content": reply["content"]}))
            if reply["stop_reason"] != "tool_use":
                return "".join(block["text"] for block in reply["content"] if block["type"] == "text")
            results = [run(block) for block in reply["content"] if block["type"] == "tool_use"]
            messages.append(encode({"role": "user", "content": results}))

    return converse


def run(call: JSON) -> JSON:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": TOOLS[call["name"]](**call["input"])}
