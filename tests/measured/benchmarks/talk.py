"""One conversation of a library in a seat: what its model answers, and the moments that are measured.

It needs the standard library only, because the peers run in an environment of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tests.measured.benchmarks import rounds

SEND, WAIT = "send", "wait"
PARALLEL, TOOL_SECONDS = 20, 0.01

starts: list[float] = []  # the moment of each start of `send`


class Talk:
    """The model of one conversation: a call a turn, and a text or another end in the last one.

    Attributes:
        turns: how many replies there are.
        seconds: how long the model takes for each.
        end: what the last reply holds: `text`, or `send`: a call that needs an approval.
        gaps: seconds from the end of each reply to the next request: what the library and the tools take.
        note: called with the number of each request.

    """

    def __init__(
        self, turns: int, seconds: float = 0.0, end: str = "text", note: Callable[[int], object] = lambda _turn: None
    ) -> None:
        self.turns, self.seconds, self.end, self.note = turns, seconds, end, note
        self.turn, self.gaps = 0, list[float]()
        self._answered = 0.0

    async def answer(self) -> dict[str, Any]:
        """Answer a request with the next reply, as the API sends it."""
        if self._answered:
            self.gaps.append(time.perf_counter() - self._answered)
        self.turn += 1
        self.note(self.turn)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        self._answered = time.perf_counter()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        reply = rounds.reply(self.turn)
        text, call = reply["content"]
        if self.turn > self.turns or (self.turn == self.turns and self.end == "text"):
            return {**reply, "content": [text], "stop_reason": "end_turn"}
        if self.turn == self.turns:
            return {**reply, "content": [text, {**call, "name": SEND, "input": {"to": "ana"}}]}
        return reply


class ManyCalls(Talk):
    """The first reply holds twenty calls of `wait`, the second one a text."""

    def _reply(self) -> dict[str, Any]:
        reply = super()._reply()
        if self.turn > 1:
            return reply
        calls = [{"type": "tool_use", "id": f"toolu_w{n:019d}", "name": WAIT, "input": {}} for n in range(PARALLEL)]
        return {**reply, "content": calls, "stop_reason": "tool_use"}


def send(to: str) -> str:
    """Note the start of the tool that was approved."""
    starts.append(time.perf_counter())
    return f"sent to {to}"


async def wait() -> str:
    """Take ten milliseconds, as a request to another service does."""
    await asyncio.sleep(TOOL_SECONDS)
    return "done"
