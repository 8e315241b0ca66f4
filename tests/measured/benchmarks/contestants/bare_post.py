"""No loop at all: the bodies of the whole conversation, made before the clock starts, posted with httpx2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.measured.benchmarks import scenario
from tests.measured.benchmarks.contestants import floor
from tests.measured.benchmarks.scenario import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

connect = floor.connect


def conversation(client: httpx2.Client, turns: int) -> Callable[[], str]:
    bodies = _bodies(turns)

    def converse() -> str:
        for body in bodies:
            content = client.post("/v1/messages", content=body).content
        # Nobody read a reply: that the last one is the last word is all there is to say.
        return scenario.last_word(turns) if scenario.last_word(turns).encode() in content else ""

    return converse


def _bodies(turns: int) -> list[bytes]:
    head = scenario.head(turns)
    messages = [encode(message) for message in scenario.params(turns)["messages"]]
    bodies = []
    for turn in range(1, turns + 1):
        bodies.append(head + b",".join(messages) + b"]}")
        content = scenario.reply(turn, turns)["content"]
        results = [floor.run(block) for block in content if block["type"] == "tool_use"]
        messages += [encode({"role": "assistant", "content": content}), encode({"role": "user", "content": results})]
    return bodies
