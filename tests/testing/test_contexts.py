"""`tool_context`: the context of a call, for a tool that is called without a loop."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs

from tests.kit.support import expect_completed
from toolloop import LoopContext, ToolContext, ToolLoopHandle, tool
from toolloop.testing import ScriptedProvider, reply, tool_context


@tool
def scan(pages: int, context: ToolContext[list[str]]) -> int:
    """Scan pages."""
    for page in range(pages):
        if context.cancelled:
            return page
        context.state.append(f"page {page}")
        context.report(f"page {page}", progress=page, total=pages)
    return pages


def test_a_tool_is_called_with_a_state_alone() -> None:
    """Directly, or as a loop does: with an input that is validated."""
    seen: list[str] = []
    assert scan(2, tool_context(seen)) == 2
    assert scan.run(scan.prepare({"pages": 1}), tool_context(seen)) == 1
    assert seen == ["page 0", "page 1", "page 0"]


def test_reports_and_a_cancellation_are_observed() -> None:
    """`cancelled` may become true while the tool runs."""
    reports: list[Any] = []
    state: list[str] = []
    context = tool_context(state, report=lambda *report: reports.append(report), cancelled=lambda: len(reports) == 2)
    assert scan(5, context) == 2
    assert reports == [("page 0", 0, 5), ("page 1", 1, 5)]
    assert scan(5, tool_context([], cancelled=True)) == 0


def test_without_arguments_it_is_the_context_of_a_first_call() -> None:
    """As a loop with one call gives it, but for the ids. Each attribute can be set."""
    found: list[Any] = []

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        found.append((context.iteration, context.depth, context.state, context.cancelled, context.lease_ends_at))
        return "seen"

    params: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Look."}]}
    provider = ScriptedProvider([reply(calls=[("look", {})]), reply("done")])
    expect_completed(ToolLoopHandle(provider, params=params, tools=[look], context=LoopContext(state=None)).run())
    look(tool_context())
    assert found[0] == found[1]
    names = [each.name for each in attrs.fields(ToolContext) if each.name[0] != "_"]
    until = datetime(2026, 1, 1, tzinfo=UTC)
    given = {"state": 5, "call_id": "c", "loop_id": "l", "iteration": 2, "depth": 3, "idempotency_key": "k"}
    assert given.keys() == {*names}
    other = tool_context(**given, lease_ends_at=until)  # type: ignore[arg-type]  # a mapping of several types
    assert {name: getattr(other, name) for name in names} == given
    assert other.lease_ends_at == until
