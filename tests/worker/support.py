"""What the tests of workers share: a store with loops in it, a model that goes by what it is shown, and a clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
from attrs import define, field

from tests.loop.stored import store_at, wait
from toolloop import (
    Approve,
    AsyncWorker,
    Inbox,
    LoopConfig,
    LoopContext,
    ToolContext,
    ToolLoopHandle,
    Worker,
    tool,
)
from toolloop.inbox import InboxCall
from toolloop.stores import MemoryStore, Store, StoredLoop
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Pay"}]}
PAY = call("pay", {"to": "ana"}, id="c1")
LOOK = call("look", {"at": "x"}, id="c2")
STORY = (reply(calls=[PAY]), reply("Paid."))


@tool(needs_approval=True)
def pay(to: str, context: ToolContext) -> str:
    """Pay, once."""
    return ran(context, f"paid {to}")


@tool
def look(at: str, context: ToolContext) -> str:
    """Look, once."""
    return ran(context, f"looked at {at}")


def ran(context: ToolContext, what: str) -> str:
    place = cast("Workplace", context.state)
    place.ran.append(what)
    place.meet(context.call_id)
    return what


TOOLS = (pay, look)


@define
class Workplace:
    """A store, and who works on it.

    Attributes:
        kind: `sync`, or the event loop of the workers.
        script: what the model says in a loop, by how often it has spoken there. An exception is raised.
        on: what else happens in the call of this id, or in a request (`request`).

    """

    kind: str = "sync"
    store: Store = field(factory=MemoryStore)
    script: Sequence[Any] = STORY
    tools: Sequence[Any] = TOOLS
    now: float = 1_800_000_000.0
    ran: list[str] = field(factory=list)
    requests: list[Any] = field(factory=list)
    told: list[InboxCall] = field(factory=list)
    on: dict[str, Callable[[], object]] = field(factory=dict)
    lock: threading.Lock = field(factory=threading.Lock)

    def clock(self) -> float:
        return self.now

    def meet(self, where: str) -> None:
        if where in self.on:
            self.on[where]()

    def answer(self, request: Any) -> Any:
        with self.lock:
            self.requests.append(request)
        self.meet("request")
        spoken = sum(message["role"] == "assistant" for message in request["messages"])
        said = self.script[min(spoken, len(self.script) - 1)]
        if isinstance(said, Exception):
            raise said
        return said

    def provider(self) -> Any:
        if self.kind == "sync":
            return ScriptedProvider(self.answer)

        async def answer(request: Any) -> Any:
            return await anyio.to_thread.run_sync(self.answer, request)

        return AsyncScriptedProvider(answer)

    def create(self, *loop_ids: str, **more: Any) -> None:
        """Create loops that nobody drives."""
        for loop_id in loop_ids or ("loop",):
            parts: dict[str, Any] = {"params": PARAMS, "tools": self.tools, "clock": self.clock, **more}
            ToolLoopHandle.open(self.store, loop_id, ScriptedProvider(self.answer), **parts).close()

    def worker(self, **more: Any) -> Worker | AsyncWorker:
        parts: dict[str, Any] = {"context": LoopContext(state=self), "clock": self.clock, **more}
        kind = Worker if self.kind == "sync" else AsyncWorker
        return kind(self.store, self.provider(), parts.pop("tools", self.tools), **parts)

    def work(self, worker: Worker | AsyncWorker | None = None, **more: Any) -> int:
        """Let a worker do what is due, and return how many loops that were."""
        worker = worker or self.worker(**more)
        return int(wait(self.kind, worker.run_once()))

    def notifier(self) -> Callable[[InboxCall], object]:
        """A function that notifies: it remembers the call."""
        if self.kind == "sync":
            return self.told.append

        async def notify(call: InboxCall) -> None:
            await anyio.lowlevel.checkpoint()
            self.told.append(call)

        return notify

    def row(self, loop_id: str = "loop") -> StoredLoop:
        return self.store.head(loop_id)

    def status(self, loop_id: str = "loop") -> str:
        return self.row(loop_id).status

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.store, clock=self.clock)

    def approve_all(self) -> None:
        """Say yes to whatever waits."""
        for each in self.inbox.pending():
            self.inbox.decide(each.loop_id, {each: Approve(by="ana")})


def workplace(kind: str, where: str, folder: Path, **more: Any) -> Workplace:
    return Workplace(kind, store_at(where, folder), **more)


__all__ = ["LOOK", "PARAMS", "PAY", "STORY", "TOOLS", "LoopConfig", "Mapping", "Workplace", "look", "pay", "workplace"]
