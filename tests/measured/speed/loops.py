"""Loops that go on for ever, one round at a time, in every face: what work is counted over."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field

from tests.kit import inside
from toolloop import AsyncToolLoopHandle, AsyncToolRunner, LoopConfig, ToolLoopHandle, ToolRunner, Yielded, tool
from toolloop.compaction import MaskResults
from toolloop.providers.protocol import Request
from toolloop.providers.scripted import events_of
from toolloop.stores import MemoryStore, SqliteStore

WORDS = "The line before this one is settled — so the running total stands. " * 4
PARAMS: dict[str, Any] = {
    "model": "claude-opus-4-8",
    "max_tokens": 256,
    "messages": [{"role": "user", "content": "Add up the figures of the ledger."}],
}


def after(rounds: int) -> dict[str, Any]:
    """The parameters of a conversation that has had so many rounds."""
    messages = list(PARAMS["messages"])
    for number in range(rounds):
        asked = {"type": "tool_use", "id": f"before_{number}", "name": "add", "input": {"a": number, "b": 1}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": WORDS}, asked]})
        result = {"type": "tool_result", "tool_use_id": f"before_{number}", "content": "added"}
        messages.append({"role": "user", "content": [result]})
    return {**PARAMS, "messages": messages}


@tool
def add(a: int, b: int) -> str:
    """Add an entry."""
    return f"{a} + {b} = {a + b} — and nothing else."


@tool
async def wait_and_add(a: int, b: int) -> str:
    """Add an entry."""
    return f"{a} + {b} = {a + b} — and nothing else."


@define
class Rote:
    """A model that asks for the next call. It looks at nothing of what it is sent, so that only the loop works."""

    name: str = "add"
    number: int = 0

    def send(self, request: Request) -> Any:
        self.number += 1
        asked = {
            "type": "tool_use",
            "id": f"toolu_{self.number}",
            "name": self.name,
            "input": {"a": self.number, "b": 1},
        }
        return {
            "id": f"msg_{self.number}",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-4-8",
            "content": [{"type": "text", "text": f"Entry {self.number}. {WORDS}"}, asked],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def stream(self, request: Request) -> Iterator[Any]:
        yield from events_of(self.send(request))


@define
class AsyncRote:
    _rote: Rote = field(factory=lambda: Rote("wait_and_add"))

    async def send(self, request: Request) -> Any:
        return self._rote.send(request)

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        for event in self._rote.stream(request):
            yield event


@define
class Face:
    """A loop that is under way.

    Attributes:
        turn: holds one round.
        loop: the handle, or the one under a runner.

    """

    turn: Callable[[], object]
    loop: Any

    def __attrs_post_init__(self) -> None:
        """Let the clock advance at every look: an event in the same millisecond as the last one costs less."""
        inside.set_clock(self.loop, itertools.count(2e9).__next__)

    def go_to(self, rounds: int) -> None:
        """Hold rounds until there are as many."""
        while self.loop.iterations < rounds:
            self.turn()


def config(**more: Any) -> LoopConfig:
    return LoopConfig(max_iterations=None, **more)


@define
class Told:
    """An observer, a policy and a stop condition that do not look at the history."""

    events: int = field(default=0)

    def hear(self, event: object) -> None:
        self.events += 1

    def judge(self, call: Any, view: Any) -> None:
        assert call.name == "add"

    def stops(self, view: Any) -> bool:
        return bool(view.iteration == 0)


def go_on(turn: Any) -> None:
    assert isinstance(turn, Yielded), turn
    turn.continue_loop()


@contextmanager
def sync(provider: Any = None, **parts: Any) -> Iterator[Face]:
    parts = {"params": PARAMS, "tools": [add], "config": config(), **parts}
    handle = ToolLoopHandle(provider or Rote(), **parts)
    yield Face(lambda: go_on(handle.next_turn()), handle)


@contextmanager
def with_callbacks() -> Iterator[Face]:
    told = Told()
    with sync(config=config(stop_when=told.stops, on_tool_call=told.judge, observers=[told.hear])) as face:
        yield face
    assert told.events > 0


@contextmanager
def compacting() -> Iterator[Face]:
    """It looks for what it may mask, and finds little."""
    with sync(config=config(compaction=MaskResults(keep_rounds=4, at_tokens=10_000_000))) as face:
        yield face


@define
class Holding(Rote):
    """A model that holds the conversation, and is sent what is new."""

    takes_threads: bool = True

    def send(self, request: Request) -> Any:
        assert self.number == 0 or len(request.messages) == 1
        return super().send(request)


@contextmanager
def in_a_thread() -> Iterator[Face]:
    with sync(Holding(), config=config(threads=True)) as face:
        yield face


@contextmanager
def in_memory() -> Iterator[Face]:
    with sync(store=MemoryStore()) as face:
        yield face


@contextmanager
def in_sqlite() -> Iterator[Face]:
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "loops.db") as store:
        with sync(store=store) as face:
            yield face
        face.loop.close()


@contextmanager
def streaming() -> Iterator[Face]:
    handle = ToolLoopHandle(Rote(), params=PARAMS, tools=[add], config=config())

    def turn() -> None:
        with handle.stream_turn() as stream:
            for _ in stream:
                pass
        go_on(stream.turn)

    yield Face(turn, handle)


@contextmanager
def asynchronous() -> Iterator[Face]:
    handle = AsyncToolLoopHandle(AsyncRote(), params=PARAMS, tools=[wait_and_add], config=config())

    async def turn() -> None:
        go_on(await handle.next_turn())

    with asyncio.Runner() as runner:
        yield Face(lambda: runner.run(turn()), handle)


@contextmanager
def running() -> Iterator[Face]:
    runner = ToolRunner(Rote(), params=PARAMS, tools=[add], config=config())
    yield Face(lambda: next(runner), inside.loop_of(runner))


@contextmanager
def running_streams() -> Iterator[Face]:
    runner = ToolRunner(Rote(), params=PARAMS, tools=[add], config=config(), stream=True)
    yield Face(lambda: next(runner).get_final_message(), inside.loop_of(runner))


@contextmanager
def running_async() -> Iterator[Face]:
    tools = [wait_and_add]
    iterator = AsyncToolRunner(AsyncRote(), params=PARAMS, tools=tools, config=config())

    async def turn() -> None:
        await anext(iterator)

    with asyncio.Runner() as runner:
        yield Face(lambda: runner.run(turn()), inside.loop_of(iterator))


FACES: dict[str, Any] = {
    "sync": sync,
    "with callbacks": with_callbacks,
    "compacting": compacting,
    "in memory": in_memory,
    "in sqlite": in_sqlite,
    "streaming": streaming,
    "async": asynchronous,
    "runner": running,
    "runner, streams": running_streams,
    "async runner": running_async,
}
