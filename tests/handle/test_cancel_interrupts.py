"""Ctrl-C, wherever it strikes, leaves a loop that can go on: no call runs twice, none is lost, nothing hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType
from typing import Any

import pytest

from tests.handle.concurrency import DEADLINE, Background, Counted, sync_loop
from tests.handle.support import completed
from toolloop import LoopConfig, ToolContext, ToolLoopHandle, Yielded, tool
from toolloop.testing import reply

READY = "ready"


class Strike:
    """Raises KeyboardInterrupt where a thread enters a function of the handles for the n-th time."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> None:
        # A signal is handled where a function is entered, so that is where it may strike.
        if event == "call" and "toolloop/handle" in frame.f_code.co_filename:
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt


def struck(handle: ToolLoopHandle, at: int) -> int:
    """Run a loop and strike once, then let it go on to its end. Returns how many places there were."""
    strike = Strike(at)

    def work() -> None:
        before = sys.gettrace()
        sys.settrace(strike.trace)
        try:
            handle.run(ask)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        completed(handle.run(ask))

    Background(work).result()
    return strike.count


def ask(turn: Yielded) -> None:
    """Approve what waits for it, and answer what nobody saw the end of."""
    for call in turn.pending:
        if call.why == "uncertain":
            turn.answer(call, "I looked: it is done")
        else:
            turn.approve(call)


def everywhere(calls: int) -> tuple[int, int]:
    """Strike at every place of a loop in turn; returns the places, and how many strikes lost sight of a call."""
    at, places, uncertain = 0, 1, 0
    while at < places:
        at += 1
        counted = Counted()

        @tool
        def work(context: ToolContext, counted: Counted = counted) -> str:
            """Do something that must not be done twice."""
            counted.add(context)
            return "done"

        wanted = [("work", {}) for _ in range(calls)]
        script = [reply(calls=wanted), reply(calls=wanted), reply("that is all")] + [reply("again")] * 3
        handle = sync_loop(script, [counted_tool(counted)])
        places = max(places if at > 1 else 0, struck(handle, at))
        counted.assert_once()
        results = [block for message in handle.messages for block in results_of(message)]
        ids = [block["tool_use_id"] for block in results]
        assert sorted(ids) == sorted(set(ids)), f"place {at}: a call has two results"
        assert len(ids) == 2 * calls, f"place {at}: a call was lost"
        by_hand = [block["tool_use_id"] for block in results if block["content"] != "done"]
        assert set(ids) - set(by_hand) <= set(counted.ran), f"place {at}: a result of a call that never ran"
        uncertain += bool(by_hand)
    return places, uncertain


def counted_tool(counted: Counted) -> Any:
    @tool
    def work(context: ToolContext) -> str:
        """Do something that must not be done twice."""
        counted.add(context)
        return "done"

    return work


def results_of(message: Any) -> list[Any]:
    content = message["content"] if message["role"] == "user" else []
    return [block for block in content if isinstance(block, dict) and block["type"] == "tool_result"]


@pytest.mark.parametrize("calls", [1, 2])
def test_an_interrupt_at_every_place_of_a_loop_leaves_one_that_goes_on(calls: int) -> None:
    """One call runs in the caller's thread, two in threads of their own. Every place is struck once."""
    places, uncertain = everywhere(calls)
    assert places > 100
    assert 0 < uncertain < places // 2
