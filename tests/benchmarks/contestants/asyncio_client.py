"""The SDK's async client and an event loop to use it in: no contestant, but what the async ones share."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anthropic import AsyncAnthropic

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def connect(url: str) -> Iterator[tuple[asyncio.Runner, AsyncAnthropic]]:
    """One event loop for all conversations, so that the connection stays open between them."""
    with asyncio.Runner() as runner:
        client = AsyncAnthropic(base_url=url, api_key="key")
        yield runner, client
        runner.run(client.close())
