"""One story for all handles: sync, and async under both backends, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from attrs import define

from tests.each import each
from tests.loop.concurrency import run_async
from tests.loop.support import TOOLS, completed, yielded
from toolloop import AsyncToolLoopHandle, Completed, Error, LoopConfig, ToolLoopHandle, Yielded
from toolloop.testing import FakeMessagesAPI

Handle = ToolLoopHandle | AsyncToolLoopHandle
Params = Mapping[str, Any]

# Where the drivers differ only in how they wait: asyncio and trio share one driver.
either_driver = each("driver", ["sync", "asyncio"])


@define
class Talk:
    """A loop, the API it talks to, and a client for further handles."""

    handle: Handle
    api: FakeMessagesAPI
    client: Any

    async def next(self) -> Yielded | Completed | Error:
        """What the next turn gives."""
        if isinstance(self.handle, ToolLoopHandle):
            return self.handle.next_turn()
        return await self.handle.next_turn()

    async def turn(self) -> Yielded:
        return yielded(await self.next())

    async def done(self) -> Completed:
        return completed(await self.next())

    def restored(self, snapshot: dict[str, Any], **parts: Any) -> Talk:
        """The same loop in a further handle, woken up from its snapshot."""
        woken = type(self.handle).restore(snapshot, self.client, tools=TOOLS, **parts)
        return Talk(woken, self.api, self.client)

    def bodies(self) -> list[dict[str, Any]]:
        """The JSON of each request."""
        return [request.json for request in self.api.requests]

    def sent(self) -> list[dict[str, Any]]:
        """The messages of the last request."""
        return cast("list[dict[str, Any]]", self.bodies()[-1]["messages"])


@asynccontextmanager
async def talking(driver: str, script: Any, asked: Params, **config: Any) -> AsyncIterator[Talk]:
    """A loop over real HTTP, none of whose requests the API refuses."""
    with FakeMessagesAPI(script) as api:
        parts: dict[str, Any] = {"params": asked, "tools": TOOLS, "config": LoopConfig(**config), "loop_id": "loop"}
        if driver == "sync":
            client = api.client()
            yield Talk(ToolLoopHandle(client, **parts), api, client)
        else:
            async with api.async_client() as tasks:
                yield Talk(AsyncToolLoopHandle(tasks, **parts), api, tasks)
        assert [request.refusal for request in api.refused] == []


def play(driver: str, story: Callable[[], Awaitable[None]]) -> None:
    """Play a story to its end; with a sync handle there is nothing in it to wait for."""
    if driver != "sync":
        run_async(driver, story)
        return
    with pytest.raises(StopIteration):
        story().__await__().__next__()
