"""openai-agents: its `SQLiteSession` keeps the items, and the program the run's state while a call waits.

It runs in the peers' environment.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from agents import (  # type: ignore[import-not-found]  # not in the project's environment
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    Usage,
    function_tool,
)
from openai.types.responses import (  # type: ignore[import-not-found]  # likewise
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from tests.measured.benchmarks import rounds, talk


@function_tool(name_override=rounds.TOOL)  # type: ignore[untyped-decorator]  # mypy does not see it here
async def look_up(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


@function_tool(name_override=talk.SEND, needs_approval=True)  # type: ignore[untyped-decorator]  # likewise
async def send(to: str) -> str:
    """Send the ledger."""
    return talk.send(to)


@function_tool(name_override=talk.WAIT)  # type: ignore[untyped-decorator]  # likewise
async def wait() -> str:
    """Wait."""
    return await talk.wait()


_AGENT = Agent(name="ledger", instructions=rounds.SYSTEM, tools=[look_up, send, wait])


class _Model(Model):  # type: ignore[misc]  # mypy does not see its class here
    def __init__(self, held: talk.Talk) -> None:
        self.talk = held

    async def get_response(self, *_given: Any, **_more: Any) -> Any:
        reply = await self.talk.answer()
        return ModelResponse([_item(reply["id"], block) for block in reply["content"]], Usage(), reply["id"])

    def stream_response(self, *_given: Any, **_more: Any) -> Any:
        raise NotImplementedError


def _item(id_: str, block: dict[str, Any]) -> Any:
    if block["type"] == "text":
        text = ResponseOutputText(text=block["text"], type="output_text", annotations=[])
        return ResponseOutputMessage(id=id_, role="assistant", status="completed", type="message", content=[text])
    arguments = json.dumps(block["input"])
    return ResponseFunctionToolCall(arguments=arguments, call_id=block["id"], name=block["name"], type="function_call")


@asynccontextmanager
async def opened(path: Path | None) -> AsyncIterator[tuple[Path, sqlite3.Connection] | None]:
    if path is None:
        yield None
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE IF NOT EXISTS waits (name TEXT PRIMARY KEY, state TEXT)")
        yield path, db


async def _run(kept: Any, name: str, held: talk.Talk, given: Any) -> None:
    session = None if kept is None else SQLiteSession(name, kept[0])
    settings = RunConfig(model=_Model(held), tracing_disabled=True)
    result = await Runner.run(_AGENT, given, max_turns=held.turns + 9, run_config=settings, session=session)
    if result.interruptions and kept is not None:
        kept[1].execute("INSERT OR REPLACE INTO waits VALUES (?, ?)", (name, result.to_state().to_string()))
    if session is not None:
        session.close()


async def hold(kept: Any, name: str, held: talk.Talk) -> None:
    await _run(kept, name, held, rounds.QUESTION)


async def approve(kept: Any, name: str, held: talk.Talk) -> None:
    (text,) = kept[1].execute("SELECT state FROM waits WHERE name = ?", (name,)).fetchone()
    state = await RunState.from_string(_AGENT, text)
    for each in state.get_interruptions():
        state.approve(each)
    await _run(kept, name, held, state)
