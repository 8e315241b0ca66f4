"""Runs of async tools as a driver sees them: what ends one, and which results are made in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio

from tests.each import each
from toolloop import tool
from toolloop.loop.tool_calls import CallRun, prepare_run
from toolloop.machine.setup import Setup
from toolloop.machine.values import Call, Outcome, Result
from toolloop.tools import ToolRegistry

on_both_backends = each("backend", ["asyncio", "trio"])


def run_of(function: Any, **options: Any) -> CallRun:
    """A run of a tool made of this function."""
    made = tool(name="work", description="Work.", **options)(function)
    return prepare_run(ToolRegistry([made]), Setup("loop", "{}"), 1, Call("a", "work", "{}"), known=lambda: None)


async def forever() -> None:
    await anyio.sleep_forever()


async def raises_when_cancelled() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise ValueError("while cleaning up")


async def answers_when_cancelled() -> str:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(0.02)
    return "after all"


@on_both_backends
@each(
    ("function", "outcome"),
    [
        (forever, Outcome.TIMED_OUT),
        (raises_when_cancelled, Outcome.TIMED_OUT),
        (answers_when_cancelled, Outcome.RETURNED),
    ],
)
def test_a_limit_of_time_cancels_an_async_tool(backend: str, function: Any, outcome: Outcome) -> None:
    """It timed out, unless it answers all the same."""
    result = anyio.run(run_of(function, timeout=0.01).perform_async, backend=backend)
    assert isinstance(result, Result)
    assert result.outcome is outcome


@on_both_backends
@each("value", ["text", None, [1, {"a": [2.5, True]}]])
def test_the_result_of_a_plain_value_is_there_at_once(backend: str, value: Any) -> None:
    async def work() -> Any:
        return value

    assert isinstance(anyio.run(run_of(work).perform_async, backend=backend), Result)


@on_both_backends
def test_the_result_of_a_lazy_value_is_made_when_it_is_asked_for(backend: str) -> None:
    """Reading it may run code of the caller's, or take time."""
    read: list[int] = []

    def count() -> Iterator[int]:
        read.append(1)
        yield 1

    async def work() -> Any:
        return count()

    later = anyio.run(run_of(work).perform_async, backend=backend)
    assert read == []
    assert callable(later)
    assert later() == Result('"[1]"')
    assert read == [1]
