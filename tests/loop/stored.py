"""What the tests of stored loops share: a loop that anybody may open, by any kind of handle, and a store that fails."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import anyio.to_thread
import pytest
from attrs import define, field

from tests.loop.concurrency import Background, awaited, run_async
from tests.loop.support import params
from tests.postgres import database, in_postgres_deep
from toolloop import (
    Approve,
    AsyncToolLoopHandle,
    Completed,
    Error,
    LoopConfig,
    LoopContext,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop._interface.heads import head_of
from toolloop.errors import StoreError
from toolloop.machine import State
from toolloop.machine.values.calls import Decision
from toolloop.stores.codec import read_journal
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Entry, Lease, Store, StoredJournal, StoredLoop
from toolloop.stores.sqlite.store import SqliteStore
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply
from toolloop.tools.calls import ToolCall

T = TypeVar("T")
Handle = ToolLoopHandle | AsyncToolLoopHandle
ID = "loop"

each_store = pytest.mark.parametrize("where", ["memory", "sqlite", in_postgres_deep])


@tool
def pay(amount: int, context: ToolContext) -> str:
    """Pay, once."""
    return _did(context, "pay", amount)


@tool(needs_approval=True)
def send(to: str, context: ToolContext) -> str:
    """Send a letter, once, if somebody allows it."""
    return _did(context, "send", to)


@tool(effect="pure")
def look(path: str, context: ToolContext) -> str:
    """Look at something, as often as you like."""
    return _did(context, "look", path)


TOOLS = (pay, send, look)

PAY = call("pay", {"amount": 1}, id="t1")
SEND = call("send", {"to": "ana"}, id="t2")
LOOK = call("look", {"path": "a"}, id="t3")
# A round that needs nobody, one that needs a word, and the end.
STORY = (reply(calls=[PAY]), reply(calls=[SEND, LOOK]), reply("done"))


def store_at(where: str, folder: Path) -> Store:
    """A store of this sort."""
    if where == "postgres":
        from toolloop.stores.postgres.store import PostgresStore  # noqa: PLC0415 - not every test has psycopg

        return PostgresStore(database())
    return MemoryStore() if where == "memory" else SqliteStore(folder / "loops.db")


def _did(context: ToolContext, name: str, what: object) -> str:
    world = cast("World", context.state)
    with world.lock:
        world.ran.append(context.call_id)
    world.meet(context.call_id)
    return f"{name} {what}"


@define
class World:
    """A store with a loop in it, a model that goes by what it is shown, and what ran.

    Attributes:
        on: what else happens where a call of this id runs, or a request is made (`request`).

    """

    kind: str
    store: Store
    script: Sequence[Any] = STORY
    tools: Sequence[Any] = TOOLS
    config: dict[str, Any] = field(factory=dict)
    ran: list[str] = field(factory=list)
    requests: list[Any] = field(factory=list)
    on: dict[str, Callable[[], object]] = field(factory=dict)
    now: Callable[[], float] = time.time
    lock: threading.Lock = field(factory=threading.Lock)

    def meet(self, where: str) -> None:
        if where in self.on:
            self.on[where]()

    def answer(self, request: Any) -> Any:
        """What the model says is a matter of how often it has spoken; the last words it says again and again."""
        with self.lock:
            self.requests.append(request)
        self.meet("request")
        spoken = sum(message["role"] == "assistant" for message in request["messages"])
        return self.script[min(spoken, len(self.script) - 1)]

    def provider(self) -> Any:
        if self.kind == "sync":
            return ScriptedProvider(self.answer)

        async def answer(request: Any) -> Any:
            return await anyio.to_thread.run_sync(self.answer, request)

        return AsyncScriptedProvider(answer)

    def parts(self, **more: Any) -> dict[str, Any]:
        return {
            "tools": self.tools,
            "config": LoopConfig(**self.config) if self.config else None,
            "context": LoopContext(state=self),
            "clock": self.now,
            **more,
        }

    def open(self, loop_id: str = ID, **more: Any) -> AnyHandle:
        """One more handle on the loop, which it creates if it is not there."""
        parts = self.parts(**{"params": params(), **more})
        if self.kind == "sync":
            return AnyHandle(self.kind, ToolLoopHandle.open(self.store, loop_id, self.provider(), **parts))
        opening = AsyncToolLoopHandle.open(self.store, loop_id, self.provider(), **parts)
        return AnyHandle(self.kind, wait(self.kind, opening))

    def new(self, loop_id: str | None = ID, **more: Any) -> AnyHandle:
        """A handle made by the constructor."""
        parts = self.parts(**{"params": params(), "store": self.store, "loop_id": loop_id, **more})
        kind = ToolLoopHandle if self.kind == "sync" else AsyncToolLoopHandle
        return AnyHandle(self.kind, kind(self.provider(), **{**parts, "config": LoopConfig(**self.config)}))

    # --- what is stored ---

    def state(self, loop_id: str = ID) -> State:
        """The loop by its journal alone."""
        return read_journal(self.store.load(loop_id).entries)

    def journal(self, loop_id: str = ID) -> list[str]:
        """The names of the stored events."""
        return [entry.body.partition('"event":"')[2].partition('"')[0] for entry in self.store.load(loop_id).entries]

    def listed(self, loop_id: str = ID) -> StoredLoop:
        return self.store.head(loop_id)

    def status(self) -> str:
        return self.listed().status

    def assert_head(self) -> None:
        """The head says what the journal says."""
        head = self.listed().head
        handed = head.status == "needs_command"  # the journal does not say who drove
        parts: dict[str, Any] = {"is_handed_over": handed, "attempts": head.attempts, "earlier": head}
        assert head == head_of(self.state(), head.changed, **parts).behind(head)

    def is_running(self, call_id: str) -> bool:
        """Whether the last that the journal says of a call is that it was started."""
        told = [entry.body for entry in self.store.load(ID).entries if f'"call_id":"{call_id}"' in entry.body]
        return bool(told) and '"event":"Started"' in told[-1]

    def assert_once(self) -> None:
        assert sorted(self.ran) == sorted(set(self.ran)), "a call ran twice"


def wait(kind: str, value: Any) -> Any:
    """What a handle gave, awaited in an event loop of its own where that is to be done."""
    if kind == "sync":
        return value

    async def main() -> Any:
        return await cast("Awaitable[Any]", value)

    # In a context of its own: that of a tool's thread says that its event loop runs here.
    return Context().run(run_async, kind, main)


@define
class AnyHandle:
    """A handle of any kind, and how to talk to it as to a sync one. What is said to it is stored when it is said."""

    kind: str
    handle: Handle

    def next_turn(self) -> Yielded | Completed | Error:
        return cast("Yielded | Completed | Error", wait(self.kind, self.handle.next_turn()))

    def run(self, ask: Callable[[Yielded], object] | None = None) -> Yielded | Completed | Error:
        return cast("Yielded | Completed | Error", wait(self.kind, self.handle.run(ask)))

    def flush(self) -> None:
        wait(self.kind, self.handle.flush())

    def close(self) -> None:
        if isinstance(self.handle, ToolLoopHandle):
            self.handle.close()
        else:
            wait(self.kind, self.handle.aclose())

    def say(self, word: Callable[[], T]) -> T:
        """Say something, and have it stored."""
        said = word()
        self.flush()
        return said

    def decide(self, **decisions: Decision) -> None:
        by_id: dict[str | ToolCall, Decision] = dict(decisions.items())
        self.say(lambda: self.handle.decide(by_id))

    def turn(self) -> Yielded:
        """The `Yielded` that waits."""
        turn = self.handle.pending_turn
        assert turn is not None
        return turn

    def text(self) -> str | None:
        """The last words of the loop, which is driven to its end."""
        return self.run().unwrap().text


class Standing(Background[Any]):
    """A turn that stands in a call or a request until `go` is set."""

    go: threading.Event


@contextmanager
def held(world: World, where: str, peer: AnyHandle) -> Iterator[Standing]:
    """While the block runs, `peer` stands in this call or request. Afterwards `.result()` is what its turn gave."""
    arrived, go = threading.Event(), threading.Event()

    def stand() -> None:
        arrived.set()
        awaited(go)

    world.on[where] = stand
    turn = Standing(peer.next_turn)
    turn.go = go
    awaited(arrived)
    del world.on[where]  # whoever comes next goes through
    try:
        yield turn
    finally:
        go.set()


def approve_all(turn: Yielded) -> None:
    """What waits may run; what is uncertain is to run again."""
    for each in turn.pending:
        if each.why == "uncertain":
            turn.rerun(each, by="ben")
        else:
            turn.approve(each, by="ana")


APPROVED = Approve(by="ana")
Moment = Literal["before", "after"]


@define
class Faulty:
    """A store that fails at chosen calls: before it does what it was asked, or after it, so that nobody knows.

    Attributes:
        fails: when the call of this number, counted from 1, fails: before or after it did what it was asked, or never.
        error: what it raises.
        asked: the names of the calls so far.
        failed: how many of them failed.
        on_stored: is told the entries that were stored just now.

    """

    inner: Store
    fails: Callable[[int], Moment | None] = field(default=lambda _: None)
    error: Exception = field(factory=lambda: StoreError("the disk is gone"))
    asked: list[str] = field(factory=list)
    failed: int = 0
    on_stored: Callable[[Iterable[Entry]], object] = field(default=lambda _: None)
    _lock: threading.Lock = field(factory=threading.Lock)

    def _ask(self, name: str, work: Callable[[], T]) -> T:
        with self._lock:
            self.asked.append(name)
            fails = self.fails(len(self.asked))
            self.failed += fails is not None
        if fails == "before":
            raise self.error
        done = work()
        if fails == "after":
            raise self.error
        return done

    def create(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        rev = self._ask("create", lambda: self.inner.create(loop_id, entries, **more))
        self.on_stored(entries)
        return rev

    def append(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        rev = self._ask("append", lambda: self.inner.append(loop_id, entries, **more))
        self.on_stored(entries)
        return rev

    def load(self, loop_id: str, **more: Any) -> StoredJournal:
        return self._ask("load", lambda: self.inner.load(loop_id, **more))

    def secret(self) -> str:
        return self.inner.secret()

    def head(self, loop_id: str) -> StoredLoop:
        return self._ask("head", lambda: self.inner.head(loop_id))

    def list(self, status: Any = None, **more: Any) -> list[StoredLoop]:
        return self._ask("list", lambda: self.inner.list(status, **more))

    def delete(self, loop_id: str) -> None:
        self._ask("delete", lambda: self.inner.delete(loop_id))

    def lease(self, loop_id: str) -> Lease | None:
        return self._ask("lease", lambda: self.inner.lease(loop_id))

    def acquire(self, loop_id: str, owner: str, **more: Any) -> Lease:
        return self._ask("acquire", lambda: self.inner.acquire(loop_id, owner, **more))

    def renew(self, lease: Lease, *, until: float) -> Lease:
        return self._ask("renew", lambda: self.inner.renew(lease, until=until))

    def release(self, lease: Lease) -> None:
        self._ask("release", lambda: self.inner.release(lease))


ERRORS: dict[str, Callable[[], Exception]] = {
    "StoreError": lambda: StoreError("the disk is gone"),
    "sqlite3": lambda: sqlite3.OperationalError("disk I/O error"),
}
