"""The same conversation in LangGraph, kept by its SQLite checkpointer; it runs in the peers' environment.

`python -m tests.benchmarks.langgraph_saver default|delta ROUNDS FILE`. With `delta` the messages are in a
`DeltaChannel` (beta in 1.2): each checkpoint keeps what is new, and every hundredth the whole. Checkpoints are
written before the next step begins (`sync`), as toolloop does; what comes unless asked for writes them while it runs,
and the same bytes.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from langchain_core.messages import AIMessage, HumanMessage  # type: ignore[import-not-found]  # not in the project's
from langchain_core.tools import tool  # type: ignore[import-not-found]  # likewise
from langgraph.channels import DeltaChannel  # type: ignore[import-not-found]  # likewise
from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]  # likewise
from langgraph.graph import END, START, MessagesState, StateGraph  # type: ignore[import-not-found]  # likewise
from langgraph.graph.message import _messages_delta_reducer  # type: ignore[import-not-found]  # likewise
from langgraph.prebuilt import ToolNode  # type: ignore[import-not-found]  # likewise
from typing_extensions import TypedDict

from tests.benchmarks import rounds
from tests.benchmarks.sizes import checkpointed_size, per_turn, written_bytes

_OPENINGS = 15


class DeltaState(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


@tool  # type: ignore[untyped-decorator]  # mypy does not see it here
def look_up(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


def measure(kind: str, wanted: int, path: str) -> dict[str, Any]:
    written: list[int] = []

    def model(_state: Any) -> Any:
        written.append(written_bytes())
        turn = len(written)
        call = {"name": rounds.TOOL, "args": rounds.arguments(turn), "id": rounds.call_id(turn)}
        return {"messages": [AIMessage(rounds.words(turn), tool_calls=[call] if turn <= wanted else [])]}

    graph = StateGraph({"default": MessagesState, "delta": DeltaState}[kind])
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([look_up]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    settings = {"configurable": {"thread_id": "loop"}, "recursion_limit": 2 * wanted + 2}

    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        app = graph.compile(checkpointer=SqliteSaver(connection))
        start = time.process_time()
        app.invoke({"messages": [HumanMessage(rounds.QUESTION)]}, settings, durability="sync")
        cpu = (time.process_time() - start) / wanted

    def opening() -> float:
        with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
            app = graph.compile(checkpointer=SqliteSaver(connection))
            start = time.process_time()
            messages = app.get_state(settings).values["messages"]
            taken = time.process_time() - start
        if len(messages) != 2 * wanted + 2:
            raise ValueError(f"the thread woke up with {len(messages)} messages")
        return taken

    return {
        "file": checkpointed_size(Path(path)),
        "written": per_turn(written) if written[-1] else {},
        "waking": median(opening() for _ in range(_OPENINGS)),
        "cpu": cpu,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
