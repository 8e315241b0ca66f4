"""The same stored conversation in LangGraph with its SQLite checkpointer; it runs in the peers' environment.

`python -m tests.measured.benchmarks.langgraph_saver default|delta ROUNDS FILE`. With `delta` the messages are in a
`DeltaChannel` (beta in 1.2): each checkpoint keeps what is new, and every hundredth the whole. Checkpoints are
written before the next step begins (`sync`), as toolloop does.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, HumanMessage  # type: ignore[import-not-found]  # not in the project's
from langchain_core.tools import tool  # type: ignore[import-not-found]  # likewise
from langgraph.channels import DeltaChannel  # type: ignore[import-not-found]  # likewise
from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]  # likewise
from langgraph.graph import END, START, MessagesState, StateGraph  # type: ignore[import-not-found]  # likewise
from langgraph.graph.message import _messages_delta_reducer  # type: ignore[import-not-found]  # likewise
from langgraph.prebuilt import ToolNode  # type: ignore[import-not-found]  # likewise
from typing_extensions import TypedDict

from tests.measured.benchmarks import rounds


class DeltaState(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


@tool  # type: ignore[untyped-decorator]  # mypy does not see it here
def look_up(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


def hold(kind: str, turns: int, path: str) -> list[int]:
    """Hold the conversation in a new file. Return the bytes written before each round and at the end."""
    written: list[int] = []

    def model(_state: Any) -> Any:
        written.append(rounds.written_bytes())
        turn = len(written)
        call = {"name": rounds.TOOL, "args": rounds.arguments(turn), "id": rounds.call_id(turn)}
        return {"messages": [AIMessage(rounds.words(turn), tool_calls=[call] if turn <= turns else [])]}

    graph = StateGraph({"default": MessagesState, "delta": DeltaState}[kind])
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([look_up]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    settings = {"configurable": {"thread_id": "loop"}, "recursion_limit": 2 * turns + 2}
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        app = graph.compile(checkpointer=SqliteSaver(connection))
        app.invoke({"messages": [HumanMessage(rounds.QUESTION)]}, settings, durability="sync")
    return written


if __name__ == "__main__":
    written = hold(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    sys.stdout.write(json.dumps([rounds.checkpointed_size(Path(sys.argv[3])), rounds.per_turn(written)]))
