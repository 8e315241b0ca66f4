"""toolloop: an async handle for each conversation, on one SQLite store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from attrs import define

from tests.measured.benchmarks import rounds, talk
from toolloop import AsyncToolLoopHandle, LoopConfig, SqliteStore, tool
from toolloop.stores import Store


@tool(name=rounds.TOOL, effect="pure")
async def look_up(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


@tool(name=talk.SEND, needs_approval=True)
async def send(to: str) -> str:
    """Send the ledger."""
    return talk.send(to)


@tool(name=talk.WAIT)
async def wait() -> str:
    """Wait."""
    return await talk.wait()


_TOOLS = (look_up, send, wait)


@define
class _Model:
    talk: talk.Talk

    async def send(self, _request: Any) -> dict[str, Any]:
        return await self.talk.answer()

    def stream(self, request: Any) -> Any:
        raise NotImplementedError(request)


@asynccontextmanager
async def opened(path: Path | None) -> AsyncIterator[Store | None]:
    with nullcontext() if path is None else SqliteStore(path) as store:
        if store is not None:
            store.list(limit=1)
        yield store


async def hold(store: Store | None, name: str, held: talk.Talk) -> None:
    config = LoopConfig(max_iterations=None)
    handle = AsyncToolLoopHandle(
        _Model(held), params=rounds.params(), tools=_TOOLS, config=config, store=store, loop_id=name
    )
    async with handle:
        await handle.run()


async def approve(store: Store | None, name: str, held: talk.Talk) -> None:
    assert store is not None
    async with await AsyncToolLoopHandle.open(store, name, _Model(held), tools=_TOOLS) as handle:
        await handle.run(lambda turn: turn.approve_all())
