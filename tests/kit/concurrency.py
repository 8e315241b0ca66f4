"""What the tests of threads, tasks and cancellation share. Nothing sleeps: events with deadlines say when."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar

import anyio
import anyio.to_thread
import pytest
from attrs import define, field

from tests.kit import inside
from tests.kit.each import each
from tests.kit.support import expect_yielded
from tests.kit.tools import params
from toolloop import (
    AsyncToolLoopHandle,
    Completed,
    Error,
    LoopConfig,
    LoopContext,
    ToolContext,
    ToolLoopHandle,
    Yielded,
)
from toolloop.testing import AsyncScriptedProvider, FakeMessagesAPI, ScriptedProvider

DEADLINE = 120.0  # a busy machine takes its time
BACKENDS = ("asyncio", "trio")
P = ParamSpec("P")
T = TypeVar("T")

on_both_backends = each("backend", BACKENDS)
# Where the kinds differ only in how they wait: asyncio and trio share one driver.
either_kind = each("kind", ["sync", "asyncio"])
either_driver = each("driver", ["sync", "asyncio"])


def run_async(backend: str, main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function in an event loop of its own, for at most the deadline."""

    async def run_bounded() -> T:
        with anyio.fail_after(DEADLINE):
            return await main()

    return anyio.run(run_bounded, backend=backend)


def wait_for(event: threading.Event) -> None:
    """Wait for something that must happen."""
    assert event.wait(DEADLINE), "what was waited for did not happen"


async def wait_in_loop_for(event: threading.Event) -> None:
    """The same in an event loop, without holding it up."""
    assert await anyio.to_thread.run_sync(event.wait, DEADLINE), "what was waited for did not happen"


def cross(barrier: threading.Barrier) -> None:
    """Meet the others, or fail: no thread gets through a barrier alone."""
    barrier.wait(DEADLINE)


class Background(Generic[T]):
    """A function that runs in a thread of its own. `result()` returns what it returned, or raises what it raised."""

    def __init__(self, function: Callable[[], T], held: Held | None = None) -> None:
        self._function = function
        self._held = held
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        before = sys.gettrace()
        try:
            if self._held is not None:
                sys.settrace(self._held.trace)
            self._value.append(self._function())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error
        finally:
            sys.settrace(before)

    def result(self) -> T:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "it never ended"
        if self._error is not None:
            raise self._error
        return self._value[0]


class Held:
    """Holds a thread where it enters one of toolloop's functions for the first time, until it is let go.

    So an interleaving that needs a thread to be interrupted just there is no matter of luck.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        self._reached = threading.Event()
        self._go = threading.Event()

    def trace(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == self.function and "toolloop" in code.co_filename:
            self._reached.set()
            self._go.wait(DEADLINE)

    def wait(self) -> None:
        """Wait until the thread stands there."""
        wait_for(self._reached)

    def let_go(self) -> None:
        """Let the thread go on."""
        self._go.set()

    def act_meanwhile(self, handle: ToolLoopHandle | AsyncToolLoopHandle, act: Callable[[], object]) -> None:
        """Act while the thread stands there. If it holds the loop's own lock, act as soon as it lets go of that."""
        self.wait()
        lock = inside.lock_of(handle)
        if lock.acquire(blocking=False):
            lock.release()
            try:
                act()
            finally:
                self.let_go()
            return
        actor = Background(act)
        self.let_go()
        actor.result()


@define
class Gate:
    """A tool that stands at a gate tells that it has arrived, and waits until it is opened."""

    arrived: threading.Event = field(factory=threading.Event)
    opened: threading.Event = field(factory=threading.Event)

    def stand(self) -> None:
        """Wait in a thread."""
        self.arrived.set()
        wait_for(self.opened)

    async def wait(self) -> None:
        """Wait in a task, which can be cancelled."""
        self.arrived.set()
        await anyio.sleep_forever()


@define
class Counted:
    """What ran, from whatever thread."""

    ran: list[str] = field(factory=list)

    def add(self, context: ToolContext) -> None:
        self.ran.append(context.call_id)

    def assert_once(self) -> None:
        assert sorted(self.ran) == sorted(set(self.ran)), "a call ran twice"


def sync_loop(script: Any, tools: Iterable[Any] = (), *, state: Any = None, **config: Any) -> ToolLoopHandle:
    """A loop in the same process, with no wire between."""
    return ToolLoopHandle(
        ScriptedProvider(script),
        params=params(),
        tools=tools,
        config=LoopConfig(**config),
        context=LoopContext(state=state),
        loop_id="loop",
    )


def async_loop(script: Any, tools: Iterable[Any] = (), *, state: Any = None, **config: Any) -> AsyncToolLoopHandle:
    """The same for tasks."""
    return AsyncToolLoopHandle(
        AsyncScriptedProvider(script),
        params=params(),
        tools=tools,
        config=LoopConfig(**config),
        context=LoopContext(state=state),
        loop_id="loop",
    )


def make(kind: str, script: Any, tools: Iterable[Any] = (), **config: Any) -> ToolLoopHandle | AsyncToolLoopHandle:
    """One of them, by the kind of its driver."""
    return (sync_loop if kind == "sync" else async_loop)(script, tools, **config)


def turn(kind: str, handle: ToolLoopHandle | AsyncToolLoopHandle) -> Yielded | Completed | Error:
    """Its next turn, in an event loop where it needs one."""
    return handle.next_turn() if isinstance(handle, ToolLoopHandle) else run_async(kind, handle.next_turn)


async def cancel_after(handle: AsyncToolLoopHandle, *events: threading.Event) -> None:
    """Cancel a turn once these have happened, and see that the cancellation comes out."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                for event in events:
                    await wait_in_loop_for(event)
                scope.cancel()

            group.start_soon(cancel)
            await handle.next_turn()
    assert scope.cancelled_caught


def list_contents(result: object) -> list[Any]:
    """The contents of the results of a turn, `None` for a call that has none yet."""
    return [slot and slot.content for slot in expect_yielded(result).results]


@contextmanager
def sync_wire(
    script: Any, tools: Iterable[Any] = (), **config: Any
) -> Iterator[tuple[ToolLoopHandle, FakeMessagesAPI]]:
    """A loop over real HTTP; the API refuses nothing."""
    with FakeMessagesAPI(script) as api:
        handle = ToolLoopHandle(api.client(), params=params(), tools=tools, config=LoopConfig(**config), loop_id="loop")
        yield handle, api
        assert [request.refusal for request in api.refused] == []


@asynccontextmanager
async def async_wire(
    script: Any, tools: Iterable[Any] = (), **config: Any
) -> AsyncIterator[tuple[AsyncToolLoopHandle, FakeMessagesAPI]]:
    """The same for tasks."""
    with FakeMessagesAPI(script) as api:
        async with api.async_client() as client:
            yield (
                AsyncToolLoopHandle(client, params=params(), tools=tools, config=LoopConfig(**config), loop_id="loop"),
                api,
            )
        assert [request.refusal for request in api.refused] == []


def statuses(handle: ToolLoopHandle | AsyncToolLoopHandle) -> list[str]:
    """The statuses of the calls of the open round."""
    return [str(call.status) for call in handle.state.root.round.calls]  # type: ignore[union-attr] # an open round is expected


def result_texts(message: Any) -> list[str]:
    """The contents of the results in a message."""
    return [block["content"] for block in message["content"] if block["type"] == "tool_result"]


def play(driver: str, story: Callable[[], Awaitable[None]]) -> None:
    """Play a story to its end; with a sync handle there is nothing in it to wait for."""
    if driver != "sync":
        run_async(driver, story)
        return
    with pytest.raises(StopIteration):
        story().__await__().__next__()
