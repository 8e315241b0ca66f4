"""toolloop: one async handle, one async tool, `run()`, under asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks import scenario
from tests.benchmarks.contestants import asyncio_client
from toolloop import AsyncToolLoopHandle, Completed, LoopConfig, tool

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from anthropic import AsyncAnthropic

connect = asyncio_client.connect


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
