"""LangGraph: a graph of a model and its tools with its SQLite saver; it runs in the peers' environment.

The call that needs an approval is an `interrupt()` in the node before the tools. Checkpoints are written before the
next step begins (`durability="sync"`), as toolloop does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, HumanMessage  # type: ignore[import-not-found]  # not in the project's
from langchain_core.runnables import RunnableConfig  # type: ignore[import-not-found]  # likewise
from langchain_core.tools import tool  # type: ignore[import-not-found]  # likewise
from langgraph.channels import DeltaChannel  # type: ignore[import-not-found]  # likewise
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # type: ignore[import-not-found]  # likewise
from langgraph.graph import END, START, MessagesState, StateGraph  # type: ignore[import-not-found]  # likewise
from langgraph.graph.message import _messages_delta_reducer  # type: ignore[import-not-found]  # likewise
from langgraph.prebuilt import ToolNode  # type: ignore[import-not-found]  # likewise
from langgraph.types import Command, interrupt  # type: ignore[import-not-found]  # likewise
from typing_extensions import TypedDict

from tests.measured.benchmarks import rounds, talk


class DeltaState(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


@tool(rounds.TOOL)  # type: ignore[untyped-decorator]  # mypy does not see it here
async def look_up(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


@tool(talk.SEND)  # type: ignore[untyped-decorator]  # likewise
async def send(to: str) -> str:
    """Send the ledger."""
    return talk.send(to)


@tool(talk.WAIT)  # type: ignore[untyped-decorator]  # likewise
async def wait() -> str:
    """Wait."""
    return await talk.wait()


async def _model(_state: Any, config: RunnableConfig) -> Any:
    reply = await config["configurable"]["talk"].answer()
    text = "".join(block["text"] for block in reply["content"] if block["type"] == "text")
    calls = [
        {"name": block["name"], "args": block["input"], "id": block["id"]}
        for block in reply["content"]
        if block["type"] == "tool_use"
    ]
    return {"messages": [AIMessage(text, tool_calls=calls)]}


def _ask(_state: Any) -> Any:
    interrupt("approve?")
    return {}


def _next(state: Any) -> str:
    calls = state["messages"][-1].tool_calls
    if not calls:
        return END  # type: ignore[no-any-return]  # a string
    return "ask" if calls[0]["name"] == talk.SEND else "tools"


def _graph(saver: Any, state: Any = MessagesState) -> Any:
    graph = StateGraph(state)
    graph.add_node("model", _model)
    graph.add_node("ask", _ask)
    graph.add_node("tools", ToolNode([look_up, send, wait]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", _next, ["ask", "tools", END])
    graph.add_edge("ask", "tools")
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


@asynccontextmanager
async def opened(path: Path | None, state: Any = MessagesState) -> AsyncIterator[Any]:
    if path is None:
        yield _graph(None, state)
        return
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.setup()
        yield _graph(saver, state)


def _settings(graph: Any, name: str, held: talk.Talk) -> dict[str, Any]:
    config = {"configurable": {"thread_id": name, "talk": held}, "recursion_limit": 3 * held.turns + 9}
    return {"config": config} | ({"durability": "sync"} if graph.checkpointer else {})


async def hold(graph: Any, name: str, held: talk.Talk) -> None:
    await graph.ainvoke({"messages": [HumanMessage(rounds.QUESTION)]}, **_settings(graph, name, held))


async def approve(graph: Any, name: str, held: talk.Talk) -> None:
    await graph.ainvoke(Command(resume=True), **_settings(graph, name, held))
