"""A batch against an API with a rate limit: a worker, and hand-written loops with the retries of the SDK."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
from attrs import define, field

from toolloop import SqliteStore, ToolLoopHandle, Worker, tool
from toolloop.testing import FakeMessagesAPI, call, fault, reply

PER_SECOND = 8
PARAMS: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Look"}],
}


@define
class Limit:
    """A model that takes so many requests in each second, and refuses the others with `retry-after: 1`."""

    begun: float = 0.0
    accepted: int = 0
    refused: int = 0
    _second: int = -1
    _taken: int = 0
    _lock: threading.Lock = field(factory=threading.Lock)

    def answer(self, body: dict[str, Any]) -> Any:
        """Answer a request: with a call first, and then with a text."""
        with self._lock:
            now = time.monotonic()
            self.begun = self.begun or now
            if (second := int(now - self.begun)) != self._second:
                self._second, self._taken = second, 0
            if self._taken == PER_SECOND:
                self.refused += 1
                return fault(429, retry_after=1)
            self._taken += 1
            self.accepted += 1
        is_first = body["messages"][-1]["role"] == "user" and len(body["messages"]) == 1
        return reply(calls=[call("look", {}, id="c1")]) if is_first else reply("Seen.")


@tool
def look() -> str:
    """Look."""
    return "a door"


def by_worker(url: str, folder: Path, loops: int, retries: int) -> int:
    """Drive the loops with a worker, all at a time; return how many ended."""
    opened = anthropic.Anthropic(base_url=url, api_key="none", max_retries=retries)
    with SqliteStore(folder / f"batch-{retries}.db") as store, opened as client:
        for number in range(loops):
            ToolLoopHandle.open(store, f"{number}", client, tools=[look], params=PARAMS).close()
        Worker(store, client, [look], concurrency=loops).run_until_idle()
        return len(store.list("ended", limit=loops))


def by_sdk(url: str, loops: int, retries: int) -> int:
    """Drive hand-written loops in threads; return how many ended."""
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=retries) as client:
        tools: Any = [{"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}]

        def drive(_: int) -> bool:
            messages = list(PARAMS["messages"])
            try:
                answer = client.messages.create(**{**PARAMS, "messages": messages, "tools": tools})
                result = {"type": "tool_result", "tool_use_id": "c1", "content": "a door"}
                messages += [
                    {"role": "assistant", "content": [block.to_dict() for block in answer.content]},
                    {"role": "user", "content": [result]},
                ]
                client.messages.create(**{**PARAMS, "messages": messages, "tools": tools})
            except anthropic.APIStatusError:
                return False
            return True

        with ThreadPoolExecutor(loops) as pool:
            return sum(pool.map(drive, range(loops)))


def measure(folder: Path, loops: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for the worker, and for each number of retries of the SDK."""
    contestants: dict[str, Callable[[str], int]] = {
        "a worker, `max_retries=0`": lambda url: by_worker(url, folder, loops, 0),
        "a worker, `max_retries=2`": lambda url: by_worker(url, folder, loops, 2),
        "the SDK, `max_retries=2`": lambda url: by_sdk(url, loops, 2),
        "the SDK, `max_retries=20`": lambda url: by_sdk(url, loops, 20),
    }
    for name, drive in contestants.items():
        limit = Limit()
        with FakeMessagesAPI(limit.answer) as api:
            begun = time.monotonic()
            ended = drive(api.url)
            seconds = time.monotonic() - begun
        share = limit.accepted / (seconds * PER_SECOND)
        yield name, f"{ended} of {loops}", f"{share:.0%}", f"{limit.accepted + limit.refused:,}", f"{seconds:.1f}"
