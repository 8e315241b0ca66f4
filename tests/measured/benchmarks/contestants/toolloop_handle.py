"""toolloop: one handle, one tool, `run()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.measured.benchmarks import scenario
from tests.measured.benchmarks.contestants import client_post
from toolloop import Completed, LoopConfig, ToolLoopHandle, tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from anthropic import Anthropic

connect = client_post.connect


@tool
def add(a: int, b: int) -> str:
    """Add an entry to the running total."""
    return scenario.add(a, b)


def conversation(client: Anthropic, turns: int, *, threads: bool = False) -> Callable[[], str]:
    def converse() -> str:
        config = LoopConfig(max_iterations=None, threads=threads)
        match ToolLoopHandle(client, params=scenario.params(turns), tools=[add], config=config).run():
            case Completed() as done:
                return done.text or ""
            case other:
                raise TypeError(f"the conversation did not complete: {other!r}")

    return converse
