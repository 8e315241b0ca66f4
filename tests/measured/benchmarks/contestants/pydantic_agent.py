"""pydantic-ai: an agent with one tool over the SDK's client; it runs in the peers' environment."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anthropic import AsyncAnthropic
from pydantic_ai import Agent, UsageLimits  # type: ignore[import-not-found]  # not in the project's environment
from pydantic_ai.models.anthropic import AnthropicModel  # type: ignore[import-not-found]  # likewise
from pydantic_ai.providers.anthropic import AnthropicProvider  # type: ignore[import-not-found]  # likewise

from tests.measured.benchmarks import scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def connect(url: str) -> Iterator[tuple[asyncio.Runner, Any]]:
    with asyncio.Runner() as runner:
        client = AsyncAnthropic(base_url=url, api_key="key")
        yield runner, AnthropicModel(scenario.MODEL, provider=AnthropicProvider(anthropic_client=client))
        runner.run(client.close())


async def add(a: int, b: int) -> str:
    """Add an entry to the running total."""
    return scenario.add(a, b)


def conversation(connected: tuple[asyncio.Runner, Any], turns: int) -> Callable[[], str]:
    events, model = connected
    settings = {"max_tokens": scenario.MAX_TOKENS}
    agent = Agent(model, system_prompt=scenario.system(turns), tools=[add], model_settings=settings)

    async def talk() -> str:
        ended = await agent.run(scenario.QUESTION, usage_limits=UsageLimits(request_limit=None))
        return str(ended.output)

    return lambda: events.run(talk())
