"""What the tests of limits share: a story with every kind of step, and loops that may fall asleep anywhere."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
from attrs import define, field

from tests.each import each
from tests.loop.stored import ID, AnyHandle, Handle, store_at, wait
from tests.loop.support import HUNDRED, completed, params
from toolloop import AsyncToolLoopHandle, Budget, Completed, LoopConfig, LoopContext, ToolContext, ToolLoopHandle, tool
from toolloop.machine.events import Changed
from toolloop.providers.protocol import Request
from toolloop.stores.codec import decode_event
from toolloop.stores.protocol import Store
from toolloop.testing import FakeMessagesAPI, call, reply
from toolloop.testing.promises import check_promises

PARTS = ("requests", "tool_calls", "input_tokens", "output_tokens", "total_tokens")
# How a loop sleeps, and whose handle it is.
SLEEPS = (("sync", "snapshot"), ("sync", "sqlite"), ("asyncio", "memory"))
some_sleeps = each(("kind", "sleep"), [("sync", "sqlite"), ("asyncio", "snapshot")])


@tool
def walk(name: str, context: ToolContext) -> str:
    """Take a step, once."""
    context.state.did(name)
    return f"{name} is done"


def step(name: str) -> Any:
    return call("walk", {"name": name}, id=name)


# Four requests and three calls: two in one round, a pause, one, and the end.
STORY = (
    reply("two", calls=[step("t1"), step("t2")], usage=HUNDRED),
    reply("wait", stop_reason="pause_turn", usage=HUNDRED),
    reply("one", calls=[step("t3")], usage=HUNDRED),
    reply("end", usage=HUNDRED),
)


def story(request: Any) -> Any:
    """What the model says is a matter of how far it sees that it has come."""
    text = json.dumps(request["messages"])
    if '"go on"' in text:
        return reply("fine", usage=HUNDRED)
    return next(
        (said for mark, said in (("t3", STORY[3]), ("wait", STORY[2]), ("t1", STORY[1])) if mark in text), STORY[0]
    )


def config_of(limits: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `LoopConfig`, or of `extend`, for limits some of which are parts of the budget."""
    parts = {name: value for name, value in limits.items() if name in PARTS}
    rest = {name: value for name, value in limits.items() if name not in PARTS}
    return rest | ({"budget": Budget(**parts)} if parts else {})


@define
class Wire:
    """A provider that posts each request as it comes: as many at a time as there are."""

    ask: Callable[[Request], Any]

    def send(self, request: Request) -> Any:
        return self.ask(request)


@define
class AsyncWire:
    """The same for tasks."""

    ask: Callable[[Request], Any]

    async def send(self, request: Request) -> Any:
        return await anyio.to_thread.run_sync(self.ask, request)


@define
class Trial:
    """A loop with limits, the API it talks to over real HTTP, and what ran of it, whoever drives it.

    Attributes:
        sleep: how it sleeps between two handles; None: it does not, and there is one handle.
        ran: the tools that ran, in this order.
        before: is told of each request before it goes out.

    """

    kind: str
    sleep: str | None
    api: FakeMessagesAPI
    folder: Path
    tools: Sequence[Any] = (walk,)
    ran: list[str] = field(factory=list)
    store: Store | None = None
    before: Callable[[Any], object] = field(default=lambda _: None)
    peer: AnyHandle = field(init=False)
    _lock: threading.Lock = field(factory=threading.Lock)

    def did(self, name: str) -> None:
        with self._lock:
            self.ran.append(name)

    def _ask(self, request: Request) -> Any:
        self.before(request)
        headers = {"x-api-key": "test-key", "content-type": "application/json"}
        asked = urllib.request.Request(f"{self.api.url}/v1/messages", request.body(), headers)
        with urllib.request.urlopen(asked) as answer:
            return json.load(answer)

    def _provider(self) -> Any:
        return Wire(self._ask) if self.kind == "sync" else AsyncWire(self._ask)

    def begin(self, limits: dict[str, Any], **config: Any) -> Trial:
        """A new loop with these limits."""
        if self.sleep in ("memory", "sqlite"):
            self.store = store_at(self.sleep, self.folder)
        given = LoopConfig(**config_of(limits), **config)
        parts = {"params": params(), "tools": self.tools, "config": given, "context": LoopContext(state=self)}
        kind: Any = ToolLoopHandle if self.kind == "sync" else AsyncToolLoopHandle
        self.peer = AnyHandle(self.kind, kind(self._provider(), loop_id=ID, store=self.store, **parts))
        return self

    def slept(self, config: LoopConfig | None = None) -> None:
        """The loop slept, and another handle wakes it up: with the limits it had, unless a config is given."""
        parts: dict[str, Any] = {"tools": self.tools, "context": LoopContext(state=self), "config": config}
        kind: Any = ToolLoopHandle if self.kind == "sync" else AsyncToolLoopHandle
        if self.sleep == "snapshot":
            asleep = json.loads(json.dumps(self.handle.snapshot()))
            self.peer = AnyHandle(self.kind, kind.restore(asleep, self._provider(), **parts))
        elif self.sleep is not None:
            self.peer.flush()
            self.peer.close()
            opening = kind.open(self.store, ID, self._provider(), **parts)
            self.peer = AnyHandle(self.kind, wait(self.kind, opening))

    @property
    def handle(self) -> Handle:
        return self.peer.handle

    def run(self) -> Completed:
        """Drive to the next end."""
        return completed(self.peer.run())

    def extend(self, limits: dict[str, Any]) -> None:
        self.peer.say(lambda: self.handle.extend(**config_of(limits)))

    def so_far(self) -> tuple[int, int]:
        """How many requests came in, and how many tools ran."""
        return len(self.api.requests), len(self.ran)

    def left(self, name: str) -> Any:
        """What is left of a limit, as a page would show it."""
        name = {"timeout": "seconds"}.get(name, name.removeprefix("max_"))
        return self.handle.view()["left"][name]

    def assert_recorded(self, extensions: int) -> None:
        """The journal has each extension, and keeps the promises."""
        if self.store is not None:
            self.peer.flush()
            entries = self.store.load(ID).entries
            assert check_promises(entries).broken == ()
            assert [type(decode_event(entry)) for entry in entries].count(Changed) == extensions


@contextmanager
def trial(
    kind: str, sleep: str | None, folder: Path, script: Callable[[Any], Any] = story, **more: Any
) -> Iterator[Trial]:
    """A trial of which the API refuses no request, and in which nothing runs twice."""
    with FakeMessagesAPI(script) as api:
        at = Trial(kind, sleep, api, folder, **more)
        yield at
        assert [request.refusal for request in api.refused] == []
        assert sorted(at.ran) == sorted(set(at.ran)), "a call ran twice"
