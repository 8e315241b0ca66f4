"""LangGraph: a model and its tools over langchain-anthropic, and no checkpointer; it runs in the peers' environment."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langchain_anthropic import ChatAnthropic  # type: ignore[import-not-found]  # not in the project's environment
from langchain_core.messages import HumanMessage, SystemMessage  # type: ignore[import-not-found]  # likewise
from langchain_core.tools import tool  # type: ignore[import-not-found]  # likewise
from langgraph.graph import END, START, MessagesState, StateGraph  # type: ignore[import-not-found]  # likewise
from langgraph.prebuilt import ToolNode  # type: ignore[import-not-found]  # likewise

from tests.measured.benchmarks import scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@tool  # type: ignore[untyped-decorator]  # mypy does not see it here
def add(a: int, b: int) -> str:
    """Add an entry to the running total."""
    return scenario.add(a, b)


@contextmanager
def connect(url: str) -> Iterator[Any]:
    yield ChatAnthropic(model=scenario.MODEL, max_tokens=scenario.MAX_TOKENS, base_url=url, api_key="key")


def conversation(client: Any, turns: int) -> Callable[[], str]:
    asked = client.bind_tools([add])
    system = SystemMessage(scenario.system(turns))

    def model(state: Any) -> Any:
        return {"messages": [asked.invoke([system, *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    app = graph.compile()

    def converse() -> str:
        ended = app.invoke({"messages": [HumanMessage(scenario.QUESTION)]}, {"recursion_limit": 2 * turns + 2})
        said: str = ended["messages"][-1].text
        return said

    return converse
