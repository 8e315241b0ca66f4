"""The SDK's own runner: it has no store and no approvals, so some measurements leave it out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from anthropic import AsyncAnthropic, beta_async_tool

from tests.measured.benchmarks import rounds, talk


@beta_async_tool(name=rounds.TOOL)
async def look_up(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


@beta_async_tool(name=talk.WAIT)
async def wait() -> str:
    """Wait."""
    return await talk.wait()


Opened = tuple[AsyncAnthropic, dict[str, talk.Talk]]


@asynccontextmanager
async def opened(path: Path | None) -> AsyncIterator[Opened]:
    if path is not None and not path.name.startswith("many"):
        raise NotImplementedError("no store")
    held: dict[str, talk.Talk] = {}

    async def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=await held[request.headers["x-talk"]].answer())

    transport = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    async with AsyncAnthropic(api_key="key", http_client=transport) as client:
        yield client, held


async def hold(kept: Opened, name: str, held: talk.Talk) -> None:
    client, talks = kept
    talks[name] = held
    params: dict[str, Any] = rounds.params()
    await client.beta.messages.tool_runner(
        **params, tools=[look_up, wait], thread=False, extra_headers={"x-talk": name}
    ).until_done()


async def approve(_kept: Opened, _name: str, _held: talk.Talk) -> None:
    raise NotImplementedError("no approvals")
