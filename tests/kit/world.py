"""The one world of the tests: a model, tools, a store with loops in it, a clock, and what works on the loops.

A world is of a kind: `sync`, or the event loop of its async handles. Its model is a function in this process, or the
fake API over HTTP (`open_over_http`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio.to_thread
import pytest
from attrs import define, evolve, field

from tests.kit.concurrency import Background, run_async, wait_for
from tests.kit.failing import FailingStore, event_names
from tests.kit.postgres import database, in_postgres_deep
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import STORED_TOOLS, STORY, TOOLS, params
from toolloop import (
    Approve,
    AsyncToolLoopHandle,
    AsyncWorker,
    Completed,
    Error,
    Inbox,
    LoopConfig,
    LoopContext,
    ToolContext,
    ToolLoopHandle,
    Worker,
    Yielded,
)
from toolloop._interface.heads import head_of
from toolloop.inbox import InboxCall
from toolloop.machine import State
from toolloop.machine.values.calls import Decision
from toolloop.stores.codec import read_journal
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import StoredLoop
from toolloop.stores.sqlite.store import SqliteStore
from toolloop.testing import AsyncScriptedProvider, FakeMessagesAPI, ScriptedProvider
from toolloop.testing.promises import check_promises
from toolloop.tools.calls import ToolCall

T = TypeVar("T")
Handle = ToolLoopHandle | AsyncToolLoopHandle
ID = "loop"
START = 1_800_000_000.0

each_store = pytest.mark.parametrize("where", ["memory", "sqlite", in_postgres_deep])


def store_at(where: str, folder: Path) -> Any:
    """A store of this sort."""
    if where == "postgres":
        from toolloop.stores.postgres.store import PostgresStore  # noqa: PLC0415 - not every test has psycopg

        return PostgresStore(database())
    return MemoryStore() if where == "memory" else SqliteStore(folder / "loops.db")


@define(eq=False)
class Clock:
    """A clock that stands still until a test changes `now`."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@define(eq=False)
class World:
    """A model, tools, a store with loops in it, and what happened.

    Attributes:
        kind: `sync`, or the event loop of its handles and workers.
        script: what the model says to a loop, by how often it has spoken there; the last of it again and again. A
            mapping has a script for each loop of a tree, by the first message of that loop. An exception is raised,
            and a function is called.
        on: what else happens in the call of this id, in each request (`request`), and in the requests of a loop of a
            tree, by its first message. Any number of them may at once.
        ran: the calls that ran, by their ids.
        did: the same calls, each as a tuple of the tool's name and its arguments.
        tool_state: what tools find as `context.state`; by default, the world itself.
        requests: what the model was asked, and `bodies`, the bytes of these requests.
        asked: the first messages of the loops that made requests, in order.
        notified: the calls that a worker notified of.
        handle: the handle that `turn`, `expect_done` and `expect_failed` drive; of a world over HTTP.
        api: the fake API of a world over HTTP.
        client: what its handles use instead of the model in this process: the client of that API, or a provider.

    """

    kind: str = "sync"
    store: Any = None
    script: Any = STORY
    tools: Sequence[Any] = STORED_TOOLS
    config: dict[str, Any] = field(factory=dict)
    ran: list[Any] = field(factory=list)
    requests: list[Any] = field(factory=list)
    bodies: list[bytes] = field(factory=list, kw_only=True)
    on: dict[str, Callable[[], object]] = field(factory=dict)
    clock: Callable[[], float] = time.time
    params: Mapping[str, Any] = field(factory=params)
    tool_state: Any = None
    lock: threading.Lock = field(factory=threading.Lock)
    did: list[Any] = field(factory=list)
    asked: list[str] = field(factory=list)
    notified: list[InboxCall] = field(factory=list)
    handle: Any = None
    api: Any = None
    client: Any = None

    # --- time ---

    @property
    def now(self) -> float:
        return self.clock()

    @now.setter
    def now(self, seconds: float) -> None:
        assert isinstance(self.clock, Clock)
        self.clock.now = seconds

    # --- the model and the tools ---

    def note(self, context: ToolContext, what: Any) -> None:
        """A tool runs."""
        with self.lock:
            self.ran.append(context.call_id)
            self.did.append(what)
        self.meet(context.call_id)

    def meet(self, where: str) -> None:
        if where in self.on:
            self.on[where]()

    def answer(self, request: Any) -> Any:
        """Answer a request, in the thread that makes it."""
        messages = request["messages"]
        first = messages[0]["content"]
        with self.lock:
            self.requests.append(request)
            self.asked.append(first)
        self.meet("request")
        script = self.script
        if isinstance(script, Mapping):
            self.meet(first)
            script = script[first]
        spoken = sum(message["role"] == "assistant" for message in messages)
        answer = script[min(spoken, len(script) - 1)]
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    def provider(self) -> Any:
        async def answer(request: Any) -> Any:
            return await anyio.to_thread.run_sync(self.answer, request, abandon_on_cancel=True)

        provider = ScriptedProvider(self.answer) if self.kind == "sync" else AsyncScriptedProvider(answer)
        provider.bodies = self.bodies
        return provider

    # --- handles ---

    def parts(self, **more: Any) -> dict[str, Any]:
        return {
            "tools": self.tools,
            "config": LoopConfig(**self.config) if self.config else None,
            "context": LoopContext(state=self if self.tool_state is None else self.tool_state),
            "clock": self.clock,
            **more,
        }

    def open(self, loop_id: str = ID, **more: Any) -> AnyHandle:
        """One more handle on the loop, which it creates if it is not there."""
        parts = self.parts(**{"params": self.params, **more})
        if self.kind == "sync":
            return AnyHandle(self.kind, ToolLoopHandle.open(self.store, loop_id, self.provider(), **parts))
        opening = AsyncToolLoopHandle.open(self.store, loop_id, self.provider(), **parts)
        return AnyHandle(self.kind, wait(self.kind, opening))

    def make(self, loop_id: str | None = ID, **more: Any) -> AnyHandle:
        """A handle made by the constructor."""
        return AnyHandle(self.kind, self.loop(loop_id, **more))

    def loop(self, loop_id: str | None = ID, **more: Any) -> Handle:
        """The same, as it is."""
        parts = self.parts(**{"params": self.params, "store": self.store, "loop_id": loop_id, **more})
        kind = ToolLoopHandle if self.kind == "sync" else AsyncToolLoopHandle
        return kind(self.client or self.provider(), **{**parts, "config": parts["config"] or LoopConfig()})

    def restore(self, snapshot: Any, **more: Any) -> Handle:
        """The loop of a snapshot, as another process restores it."""
        made = ToolLoopHandle if self.kind == "sync" else AsyncToolLoopHandle
        return made.restore(snapshot, self.client or self.provider(), **self.parts(**more))

    def bypass(self) -> World:
        """The same loop for another process, whose calls do not go through the failing store. Both note what ran."""
        return evolve(self, store=self.store.inner)

    def take_over(self, **more: Any) -> AnyHandle:
        """Let another process take the loop over."""
        return self.bypass().open(take_over=True, context=LoopContext(state=self), **more)

    # --- over HTTP ---

    @property
    def count(self) -> int:
        """How many requests came in."""
        return len(self.api.requests)

    def list_sent(self, number: int = -1) -> list[dict[str, Any]]:
        """The messages of a request, the last one by default."""
        return cast("list[dict[str, Any]]", self.api.requests[number].json["messages"])

    @property
    def sent_bodies(self) -> list[dict[str, Any]]:
        """The JSON of each request that came in."""
        return [request.json for request in self.api.requests]

    def wake(self, snapshot: dict[str, Any], **parts: Any) -> World:
        """The same loop in a further handle, restored from its snapshot."""
        return evolve(self, handle=type(self.handle).restore(snapshot, self.client, tools=TOOLS, **parts))

    def turn(self) -> Yielded:
        return expect_yielded(self.handle.next_turn())

    def expect_done(self) -> Completed:
        return expect_completed(self.handle.next_turn())

    def expect_failed(self) -> Error:
        return expect_error(self.handle.next_turn())

    async def anext(self) -> Yielded | Completed | Error:
        """The result of the next turn, in a story that both kinds of handles play."""
        result = self.handle.next_turn()
        return cast("Yielded | Completed | Error", result if self.kind == "sync" else await result)

    async def aturn(self) -> Yielded:
        return expect_yielded(await self.anext())

    async def aexpect_done(self) -> Completed:
        return expect_completed(await self.anext())

    # --- workers and persons ---

    def create(self, *loop_ids: str, **more: Any) -> None:
        """Create loops that no process drives."""
        for loop_id in loop_ids or (ID,):
            parts: dict[str, Any] = {"params": self.params, "tools": self.tools, "clock": self.clock, **more}
            ToolLoopHandle.open(self.store, loop_id, ScriptedProvider(self.answer), **parts).close()

    def drive(self, loop_id: str = ID, **more: Any) -> Yielded | Completed | Error:
        """Open a loop, drive it until it needs a person or ends, and close it."""
        with self.open(loop_id, **more) as handle:
            return cast("Yielded | Completed | Error", wait(self.kind, handle.run()))

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
            return self.notified.append

        async def notify(call: InboxCall) -> None:
            await anyio.lowlevel.checkpoint()
            self.notified.append(call)

        return notify

    @property
    def inbox(self) -> Inbox:
        """A new one each time: it keeps nothing."""
        return Inbox(self.store, clock=self.clock)

    def approve_all(self) -> None:
        """Approve every call that waits."""
        for each in self.inbox.pending():
            self.inbox.decide(each.loop_id, {each: Approve(by="ana")})

    # --- what is stored ---

    def state(self, loop_id: str = ID) -> State:
        """The loop by its journal alone."""
        return read_journal(self.store.load(loop_id).entries)

    def journal(self, loop_id: str = ID) -> list[str]:
        """The names of the stored events."""
        return list(event_names(self.store.load(loop_id).entries))

    def row(self, loop_id: str = ID) -> StoredLoop:
        return cast("StoredLoop", self.store.head(loop_id))

    def status(self, loop_id: str = ID) -> str:
        return self.row(loop_id).status

    def assert_head(self) -> None:
        """The head says what the journal says."""
        head = self.row().head
        handed = head.status == "needs_command"  # the journal does not say who drove
        parts: dict[str, Any] = {"is_handed_over": handed, "attempts": head.attempts, "earlier": head}
        assert head == head_of(self.state(), head.changed, **parts).behind(head)

    def is_running(self, call_id: str) -> bool:
        """Whether the last that the journal says of a call is that it was started."""
        told = [entry.body for entry in self.store.load(ID).entries if f'"call_id":"{call_id}"' in entry.body]
        return bool(told) and '"event":"Started"' in told[-1]

    def assert_once(self) -> None:
        assert sorted(self.ran) == sorted(set(self.ran)), "a call ran twice"


def make_failing_world(kind: str, **more: Any) -> tuple[World, FailingStore]:
    """A world over a failing store. What others do in `world.bypass()` goes past it."""
    store = FailingStore(MemoryStore())
    return World(kind, store, **more), store


def assert_sound(store: Any, loop_id: str = ID) -> None:
    """What is stored is a journal in which nothing is wrong."""
    journal = (store.inner if isinstance(store, FailingStore) else store).load(loop_id)
    assert check_promises(journal.entries).broken == ()


# --- over HTTP -------------------------------------------------------------------------------------------------------


@contextmanager
def open_over_http(script: Any, *, refusals: int = 0, **parts: Any) -> Iterator[World]:
    """A world whose sync handle talks to the fake API over HTTP, which refuses none of its requests by default.

    Args:
        script: what the API answers.
        refusals: how many requests the API refuses.
        parts: `tools`, `asked` (the parameters), `depth`, `store`, `world` (its class), and the configuration.

    """
    with FakeMessagesAPI(script) as api:
        yield _add_handle("sync", api, api.client(), **parts)
        _assert_refused(api, refusals)


@asynccontextmanager
async def open_over_http_of(
    kind: str, script: Any, asked: Any = None, *, refusals: int = 0, **parts: Any
) -> AsyncIterator[Any]:
    """The same for a handle of any kind, in a story."""
    with FakeMessagesAPI(script) as api:
        if kind == "sync":
            yield _add_handle(kind, api, api.client(), asked=asked, **parts)
        else:
            async with api.async_client() as client:
                yield _add_handle(kind, api, client, asked=asked, **parts)
        _assert_refused(api, refusals)


def _assert_refused(api: FakeMessagesAPI, count: int) -> None:
    assert len(api.refused) == count, [request.refusal for request in api.refused]


def _add_handle(
    kind: str,
    api: FakeMessagesAPI,
    client: Any,
    *,
    tools: Any = TOOLS,
    asked: Any = None,
    depth: int = 0,
    store: Any = None,
    world: Any = None,
    **config: Any,
) -> Any:
    made = (world or World)(kind, store, tools=tools, config=config, api=api, client=client)
    parts: dict[str, Any] = {"params": params() if asked is None else asked, "config": LoopConfig(**config)}
    parts |= {"tools": tools, "store": store, "context": LoopContext(state=made, depth=depth), "loop_id": ID}
    made.handle = (ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle)(client, **parts)
    return made


# --- handles of any kind ---------------------------------------------------------------------------------------------


def wait(kind: str, value: Any) -> Any:
    """What a handle returned, awaited in an event loop of its own where that is to be done."""
    if kind == "sync":
        return value

    async def main() -> Any:
        return await cast("Awaitable[Any]", value)

    # In a context of its own: that of a tool's thread says that its event loop runs here.
    return Context().run(run_async, kind, main)


@define
class AnyHandle:
    """A handle of any kind, used as a sync one. Each command is stored when it returns."""

    kind: str
    handle: Any

    def __enter__(self) -> Any:
        return self.handle

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def say(self, command: Callable[[], T]) -> T:
        """Give a command, and have it stored."""
        said = command()
        self.flush()
        return said

    def decide(self, **decisions: Decision) -> None:
        by_id: dict[str | ToolCall, Decision] = dict(decisions.items())
        self.say(lambda: self.handle.decide(by_id))

    def turn(self) -> Yielded:
        """The `Yielded` that waits."""
        turn = self.handle.pending_turn
        assert turn is not None
        return cast("Yielded", turn)

    def text(self) -> str | None:
        """The last text of the loop, which is driven to its end."""
        return self.run().unwrap().text


class Standing(Background[Any]):
    """A turn that stands in a call or a request until `go` is set."""

    go: threading.Event


@contextmanager
def hold_at(world: World, where: str, peer: AnyHandle) -> Iterator[Standing]:
    """While the block runs, `peer` stands in this call or request. Afterwards `.result()` returns the turn's result."""
    arrived, go = threading.Event(), threading.Event()

    def stand() -> None:
        arrived.set()
        wait_for(go)

    world.on[where] = stand
    turn = Standing(peer.next_turn)
    turn.go = go
    wait_for(arrived)
    del world.on[where]  # the next one goes through
    try:
        yield turn
    finally:
        go.set()


def approve_all(turn: Yielded) -> None:
    """Approve what waits, and run again what is uncertain."""
    for each in turn.pending:
        if each.why == "uncertain":
            turn.rerun(each, by="ben")
        else:
            turn.approve(each, by="ana")


APPROVED = Approve(by="ana")
