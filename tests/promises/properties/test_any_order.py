"""Tools that run side by side may end in any order: the history, and what goes out next, is the same.

The loops are stored: an observer gets an end once that is in the store.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import pytest
from attrs import frozen
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.promises.properties.drawn_programs import timeless
from toolloop import (
    AsyncToolLoopHandle,
    Completed,
    LoopConfig,
    LoopContext,
    MemoryStore,
    ToolContext,
    ToolError,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.events import CallFinished
from toolloop.testing import FakeMessagesAPI, call, reply

PARAMS: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Look everywhere."}],
}
PATIENCE = 20.0  # seconds; only a broken test waits so long


class Turns:
    """Lets the calls of a round end in one order, each once the one before it is in the state of the loop."""

    def __init__(self, order: tuple[int, ...]) -> None:
        """Set a gate for each call; the first of the order is open."""
        self._order = [f"toolu_{number}" for number in order]
        self._gates = {call_id: threading.Event() for call_id in self._order}
        self._gates[self._order[0]].set()
        self.ended: list[str] = []

    def wait(self, call_id: str) -> None:
        """Wait for this call's turn."""
        assert self._gates[call_id].wait(PATIENCE)

    async def wait_async(self, call_id: str) -> None:
        """Wait in the event loop for this call's turn."""
        with anyio.fail_after(PATIENCE):
            while not self._gates[call_id].is_set():
                await anyio.lowlevel.checkpoint()

    def hear(self, event: Any) -> None:
        """An observer: when one call has ended, the next may."""
        if isinstance(event, CallFinished):
            self.ended.append(event.call_id)
            for call_id in self._order[len(self.ended) : len(self.ended) + 1]:
                self._gates[call_id].set()

    @property
    def was_kept(self) -> bool:
        """Whether the calls ended in this order."""
        return self.ended == self._order


def _result(number: int) -> Any:
    if number % 3 == 2:
        raise ToolError(f"nothing at {number}")
    return {"found": number} if number % 3 else f"seen {number}"


@tool
def look(ctx: ToolContext, number: int) -> Any:
    """Look."""
    ctx.state.wait(ctx.call_id)
    return _result(number)


@tool(name="look")
async def look_async(ctx: ToolContext, number: int) -> Any:
    """Look."""
    await ctx.state.wait_async(ctx.call_id)
    return _result(number)


def script(many: int) -> list[Any]:
    calls = [call("look", {"number": number}, id=f"toolu_{number}") for number in range(many)]
    return [reply("Let me look.", calls=calls), reply("Seen.")]


@frozen
class Ended:
    """What came of a loop."""

    requests: list[bytes]
    messages: Any
    results: Any
    journal: Any


ORDERS = st.integers(2, 5).flatmap(lambda many: st.permutations(range(many)).map(tuple))


def in_sync(order: tuple[int, ...]) -> Ended:
    turns, store = Turns(order), MemoryStore()
    with FakeMessagesAPI(script(len(order))) as api:
        handle = ToolLoopHandle(
            api.client(),
            params=PARAMS,
            tools=[look],
            config=LoopConfig(observers=[turns.hear]),
            context=LoopContext(turns),
            store=store,
            loop_id="one",
        )
        turn = handle.next_turn()
        assert isinstance(turn, Yielded)
        turn.continue_loop()
        assert isinstance(handle.next_turn(), Completed)
        assert turns.was_kept
        return Ended(
            [request.body for request in api.requests], handle.messages, turn.results, journal_of(store, order)
        )


async def in_async(order: tuple[int, ...], used: Any) -> Ended:
    turns, store = Turns(order), MemoryStore()
    with FakeMessagesAPI(script(len(order))) as api:
        async with api.async_client() as client:
            handle = AsyncToolLoopHandle(
                client,
                params=PARAMS,
                tools=[used],
                config=LoopConfig(observers=[turns.hear]),
                context=LoopContext(turns),
                store=store,
                loop_id="one",
            )
            turn = await handle.next_turn()
            assert isinstance(turn, Yielded)
            turn.continue_loop()
            assert isinstance(await handle.next_turn(), Completed)
            assert turns.was_kept
            return Ended(
                [request.body for request in api.requests], handle.messages, turn.results, journal_of(store, order)
            )


def journal_of(store: MemoryStore, order: tuple[int, ...]) -> list[Any]:
    """The stored events but for their times, each end in its order, and then in no order."""
    events = [timeless(json.loads(entry.body)) for entry in store.load("one").entries]
    ended = [event["call_id"] for event in events if event["event"] == "Ended"]
    assert ended == [f"toolu_{number}" for number in order]
    return sorted(events, key=json.dumps)


@examples(8)
@given(ORDERS)
def test_threads_may_end_in_any_order(order: tuple[int, ...]) -> None:
    """Under the sync handle, no request, history or result tells which tool ended first; the journal does."""
    assert in_sync(order) == in_sync(tuple(sorted(order)))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("used", [look_async, look], ids=["tasks", "threads"])
def test_tasks_may_end_in_any_order(backend: str, used: Any) -> None:
    """Nor do they under the async handle, be its tools async or in threads; and it does what the sync one does."""

    @examples(4)
    @given(ORDERS)
    def same(order: tuple[int, ...]) -> None:
        ended = anyio.run(in_async, order, used, backend=backend)
        told = in_sync(tuple(sorted(order)))
        assert (ended.messages, ended.journal) == (told.messages, told.journal)
        assert ended == anyio.run(in_async, tuple(sorted(order)), used, backend=backend)

    same()
