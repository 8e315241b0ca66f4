"""pydantic-ai: one agent, one tool, `run()` under asyncio; it runs in the peers' environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent, UsageLimits  # type: ignore[import-not-found]  # not in the project's environment
from pydantic_ai.models.anthropic import AnthropicModel  # type: ignore[import-not-found]  # likewise
from pydantic_ai.providers.anthropic import AnthropicProvider  # type: ignore[import-not-found]  # likewise

from tests.benchmarks import scenario
from tests.benchmarks.contestants import asyncio_client

if TYPE_CHECKING:
    from collections.abc import Callable

connect = asyncio_client.connect


async def add(a: int, b: int) -> str:
    """Add an entry to the running total."""
    return scenario.add(a, b)


def conversation(connected: Any, turns: int) -> Callable[[], str]:
    events, client = connected
    model = AnthropicModel(scenario.MODEL, provider=AnthropicProvider(anthropic_client=client))
    settings = {"max_tokens": scenario.MAX_TOKENS}
    agent = Agent(model, instructions=scenario.system(turns), tools=[add], model_settings=settings)

    async def talk() -> str:
        said: str = (await agent.run(scenario.QUESTION, usage_limits=UsageLimits(request_limit=None))).output
        return said

    return lambda: events.run(talk())
