"""A worker whose loop compacts its history, and a model that goes by what it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest
from attrs import define, field

from toolloop import AsyncToolLoopHandle, LoopConfig, MemoryStore, ToolLoopHandle, tool
from toolloop.compaction import SUMMARY_PROMPT, DropRounds, MaskResults, Summarize
from toolloop.stores import Store
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

PARAMS: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 256,
    "thinking": {"type": "adaptive"},
    "messages": [{"role": "user", "content": "Read the book."}],
}
PAGES = 4


@tool(effect="pure")
def page(number: int) -> str:
    """Read a page of about a thousand tokens."""
    return f"Page {number}. " + "It was a dark and stormy night. " * 120


def asks_for_summary(body: Mapping[str, Any]) -> bool:
    """Whether a request is one for a summary."""
    *_, last = body["messages"]
    return bool(last["content"][-1] == {"type": "text", "text": SUMMARY_PROMPT})


def model(body: Mapping[str, Any]) -> Any:
    """Reads page after page; what it says next is a matter of what it is shown."""
    if asks_for_summary(body):
        return reply(f"A summary of {len(body['messages'])} messages.", usage={"input_tokens": 900, "output_tokens": 9})
    asked = [block["id"] for message in body["messages"] for block in message["content"] if "id" in block]
    number = max([int(name.partition("-")[2]) for name in asked], default=0) + 1
    if number > PAGES:
        return reply("done")
    return reply(thinking=f"thought {number}", calls=[call("page", {"number": number}, id=f"page-{number}")])


STRATEGIES: dict[str, Callable[[], Any]] = {
    "mask": lambda: MaskResults(keep_rounds=1, at_tokens=2500),
    "drop": lambda: DropRounds(1, at_tokens=2500),
    "summarize": lambda: Summarize(keep_last=1, at_tokens=2500),
    "a function": lambda: Summarize(lambda messages: f"{len(messages)} messages", keep_last=1, at_tokens=2500),
    "together": lambda: [MaskResults(keep_rounds=1, at_tokens=1500), Summarize(keep_last=1, at_tokens=2000)],
}
each_strategy = pytest.mark.parametrize("name", STRATEGIES)


@define
class Worker:
    """A program that opens the loop, or creates it, and drives it to its end; and every request that it made."""

    name: str
    is_async: bool = False
    bodies: list[bytes] = field(factory=list)

    def parts(self) -> dict[str, Any]:
        config = LoopConfig(compaction=STRATEGIES[self.name](), max_iterations=20)
        return {"params": PARAMS, "tools": [page], "config": config}

    def program(self, store: Store) -> None:
        if not self.is_async:
            provider = ScriptedProvider(model)
            provider.bodies = self.bodies
            with ToolLoopHandle.open(store, "book", provider, **self.parts()) as handle:
                assert handle.run().unwrap().text == "done"
            return

        async def main() -> None:
            provider = AsyncScriptedProvider(model)
            provider.bodies = self.bodies
            async with AsyncToolLoopHandle.open(store, "book", provider, **self.parts()) as handle:
                assert (await handle.run()).unwrap().text == "done"

        anyio.run(main)

    def start_again(self, make_store: Callable[[], Any]) -> Callable[[], Any]:
        """Another store, and nothing asked yet."""

        def make() -> Any:
            self.bodies.clear()
            return make_store()

        return make

    def run_undisturbed(self) -> list[bytes]:
        """The requests of a worker that is not killed."""
        self.bodies.clear()
        self.program(MemoryStore())
        return list(self.bodies)
