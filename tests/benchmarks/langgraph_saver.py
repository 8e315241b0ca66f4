"""The same conversation in LangGraph, kept by its SQLite checkpointer; it runs in the peers' environment.

`python -m tests.benchmarks.langgraph_saver default|delta ROUNDS TURNS RUNS FILE`. With `delta` the messages are in a
`DeltaChannel` (beta in 1.2): each checkpoint keeps what is new, and every hundredth the whole. Checkpoints are
written before the next step begins (`sync`), as toolloop does; what comes unless asked for writes them while it runs,
and the same bytes. Its rounds end with one more reply, which has no call.

The file, the bytes and the waking are those of `ROUNDS`; the time of a turn is that of `TURNS` from the first one on,
the median of `RUNS`, as toolloop's is.
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


class DeltaState(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


@tool  # type: ignore[untyped-decorator]  # mypy does not see it here
def look_up(line: int, words: str) -> str:
    """Look up a line of the ledger."""
    return rounds.look_up(line)


def hold(kind: str, turns: int, path: str) -> tuple[float, list[int]]:
    """Seconds of CPU of so many rounds in a new file, and the bytes written before each and at the end."""
    written: list[int] = []

    def model(_state: Any) -> Any:
        written.append(written_bytes())
        turn = len(written)
        call = {"name": rounds.TOOL, "args": rounds.arguments(turn), "id": rounds.call_id(turn)}
        return {"messages": [AIMessage(rounds.words(turn), tool_calls=[call] if turn <= turns else [])]}

    graph = _graph(kind, model)
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        app = graph.compile(checkpointer=SqliteSaver(connection))
        start = time.process_time()
        app.invoke({"messages": [HumanMessage(rounds.QUESTION)]}, _settings(turns), durability="sync")
        return time.process_time() - start, written


def measure(kind: str, wanted: int, turns: int, runs: int, path: str) -> dict[str, Any]:
    def per_turn_of(turns: int) -> float:
        short = f"{path}-short"
        seconds, _ = hold(kind, turns, short)
        Path(short).unlink()
        return seconds / turns

    per_turn_of(1)  # what is imported at its first use is no part of a turn
    cpu = median(per_turn_of(turns) for _ in range(runs))
    _, written = hold(kind, wanted, path)
    graph = _graph(kind, lambda state: state)

    def opening() -> float:
        with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
            app = graph.compile(checkpointer=SqliteSaver(connection))
            start = time.process_time()
            messages = app.get_state(_settings(wanted)).values["messages"]
            taken = time.process_time() - start
        if len(messages) != 2 * wanted + 2:
            raise ValueError(f"the thread woke up with {len(messages)} messages")
        return taken

    return {
        "file": checkpointed_size(Path(path)),
        "written": per_turn(written) if written[-1] else {},
        "waking": median(opening() for _ in range(rounds.OPENINGS)),
        "cpu": cpu,
    }


def _graph(kind: str, model: Any) -> Any:
    graph = StateGraph({"default": MessagesState, "delta": DeltaState}[kind])
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([look_up]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    return graph


def _settings(turns: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": "loop"}, "recursion_limit": 2 * turns + 2}


def main(kind: str, wanted: str, turns: str, runs: str, path: str) -> None:
    """Print what was measured as JSON."""
    sys.stdout.write(json.dumps(measure(kind, int(wanted), int(turns), int(runs), path)))


if __name__ == "__main__":
    main(*sys.argv[1:])
