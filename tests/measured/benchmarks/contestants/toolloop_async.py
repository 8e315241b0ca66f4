"""toolloop: one async handle, one async tool, `run()`, under asyncio."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anthropic import AsyncAnthropic

from tests.measured.benchmarks import scenario
from toolloop import AsyncToolLoopHandle, Completed, LoopConfig, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def connect(url: str) -> Iterator[tuple[asyncio.Runner, AsyncAnthropic]]:
    """Use one event loop for all conversations, so that the connection stays open between them."""
    with asyncio.Runner() as runner:
        client = AsyncAnthropic(base_url=url, api_key="key")
        yield runner, client
        runner.run(client.close())


@tool
async def add(a: int, b: int) -> str:
    """Add an entry to the running total."""
    return scenario.add(a, b)


def conversation(connected: tuple[asyncio.Runner, AsyncAnthropic], turns: int) -> Callable[[], str]:
    events, client = connected

    async def talk() -> str:
        config = LoopConfig(max_iterations=None)
        match await AsyncToolLoopHandle(client, params=scenario.params(turns), tools=[add], config=config).run():
            case Completed() as done:
                return done.text or ""
            case other:
                raise TypeError(f"the conversation did not complete: {other!r}")

    return lambda: events.run(talk())
