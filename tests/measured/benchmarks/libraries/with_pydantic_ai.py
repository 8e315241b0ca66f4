"""pydantic-ai: it has no store, so the program keeps `all_messages_json()` in a row of SQLite after each round.

It runs in the peers' environment.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from pydantic_ai import (  # type: ignore[import-not-found]  # not in the project's environment
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UsageLimits,
)
from pydantic_ai.models.function import FunctionModel  # type: ignore[import-not-found]  # likewise

from tests.measured.benchmarks import rounds, talk

_AGENT = Agent(output_type=[str, DeferredToolRequests])
_LIMITS = UsageLimits(request_limit=None)


@_AGENT.tool_plain(name=rounds.TOOL)  # type: ignore[untyped-decorator]  # mypy does not see it here
async def look_up(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


@_AGENT.tool_plain(name=talk.SEND, requires_approval=True)  # type: ignore[untyped-decorator]  # likewise
async def send(to: str) -> str:
    """Send the ledger."""
    return talk.send(to)


@_AGENT.tool_plain(name=talk.WAIT)  # type: ignore[untyped-decorator]  # likewise
async def wait() -> str:
    """Wait."""
    return await talk.wait()


def _model(held: talk.Talk) -> Any:
    async def answer(_messages: Any, _info: Any) -> Any:
        reply = await held.answer()
        return ModelResponse(
            [
                TextPart(block["text"])
                if block["type"] == "text"
                else ToolCallPart(block["name"], block["input"], tool_call_id=block["id"])
                for block in reply["content"]
            ]
        )

    return FunctionModel(answer)


@asynccontextmanager
async def opened(path: Path | None) -> AsyncIterator[sqlite3.Connection | None]:
    if path is None:
        yield None
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE IF NOT EXISTS talks (name TEXT PRIMARY KEY, messages BLOB)")
        yield db


async def _run(db: sqlite3.Connection | None, name: str, held: talk.Talk, *given: Any, **more: Any) -> None:
    def keep() -> None:
        if db is not None:
            db.execute("INSERT OR REPLACE INTO talks VALUES (?, ?)", (name, run.all_messages_json()))

    async with _AGENT.iter(*given, model=_model(held), usage_limits=_LIMITS, **more) as run:
        async for node in run:
            if Agent.is_call_tools_node(node):
                keep()
    keep()


async def hold(db: sqlite3.Connection | None, name: str, held: talk.Talk) -> None:
    await _run(db, name, held, rounds.QUESTION)


async def approve(db: sqlite3.Connection | None, name: str, held: talk.Talk) -> None:
    assert db is not None
    (kept,) = db.execute("SELECT messages FROM talks WHERE name = ?", (name,)).fetchone()
    messages = ModelMessagesTypeAdapter.validate_json(kept)
    approved = DeferredToolResults(approvals={rounds.call_id(len(messages) // 2): True})
    await _run(db, name, held, message_history=messages, deferred_tool_results=approved)
