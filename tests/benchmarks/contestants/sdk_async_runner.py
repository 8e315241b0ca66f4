"""The SDK's own async tool runner without threads, under asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anthropic import AsyncAnthropic, beta_async_tool

from tests.benchmarks import scenario
from tests.benchmarks.contestants import asyncio_client

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

connect = asyncio_client.connect


@beta_async_tool
async def add(a: int, b: int) -> str:
    """Add an entry to the running total."""
    return scenario.add(a, b)


def conversation(connected: tuple[asyncio.Runner, AsyncAnthropic], turns: int) -> Callable[[], str]:
    events, client = connected

    async def talk() -> str:
        runner = client.beta.messages.tool_runner(**scenario.params(turns), tools=[add], thread=False)
        return "".join(block.text for block in (await runner.until_done()).content if block.type == "text")

    return lambda: events.run(talk())
