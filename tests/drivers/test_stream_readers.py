"""Readers and providers of streams that misbehave: each failure is reported, and harms nothing else."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.kit import inside
from tests.kit.concurrency import either_driver, play
from tests.kit.failing import FailingStore
from tests.kit.journals import names
from tests.kit.streams import read, read_turn, text_in
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import params
from tests.kit.world import open_over_http_of
from toolloop import (
    AsyncToolLoopHandle,
    LoopConfig,
    MemoryStore,
    SqliteStore,
    ToolContext,
    ToolLoopHandle,
    ToolRunner,
    tool,
)
from toolloop.errors import IllegalCommand
from toolloop.events import CallProgress, CallStarted, TextDelta
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply
from toolloop.types import ReplyStream

LONG = "some words that come in several pieces"


@either_driver
def test_a_stream_that_was_left_says_so(driver: str) -> None:
    """It gives nothing any more, at once and every time, and tells what to do instead."""

    async def story() -> None:
        async with open_over_http_of(driver, [reply(LONG), reply(LONG)], params()) as talk:
            async with read_turn(talk.handle) as unread:
                pass
            async with read_turn(talk.handle) as left:
                await left.read_until(TextDelta)
            for reader in (unread, left):
                for _ in range(2):
                    assert await reader.next() is None
                    with pytest.raises(IllegalCommand, match="was closed or failed"):
                        await reader.finish()
            assert expect_completed((await read(talk.handle))[1]).text == LONG

    play(driver, story)


@either_driver
def test_an_exit_of_a_tool_ends_the_stream(driver: str) -> None:
    """It is raised to the reader, and then there is no turn."""

    @tool
    def leave() -> str:
        """Leave."""
        raise SystemExit("tool")

    async def story() -> None:
        async with open_over_http_of(driver, [reply(calls=[call("leave", {})])], params()) as talk:
            handle = type(talk.handle)(talk.client, params=params(), tools=[leave])
            async with read_turn(handle) as reader:
                await reader.read_until(CallStarted)
                with pytest.raises(SystemExit, match="tool"):
                    await reader.rest()
                with pytest.raises(IllegalCommand, match="was closed or failed"):
                    _ = reader.turn
            assert [each.why for each in handle.pending] == ["uncertain"]

    play(driver, story)


def test_a_second_reader_is_refused_and_the_first_goes_on() -> None:
    """One thread reads; another thread that tries to read gets an error."""
    running, told = threading.Event(), threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        running.set()
        told.wait(30)
        return "waited"

    handle = ToolLoopHandle(
        ScriptedProvider([reply(calls=[call("wait", {}, id="toolu_1")])]), params=params(), tools=[wait]
    )
    errors: list[BaseException] = []
    with handle.stream_turn() as stream:

        def intrude() -> None:
            running.wait(30)
            try:
                next(stream)
            except BaseException as error:  # noqa: BLE001 - whatever it was, it is looked at
                errors.append(error)
            told.set()

        thread = threading.Thread(target=intrude)
        thread.start()
        assert expect_yielded(stream.finish()).reason == "tools_executed"
        thread.join()
    (error,) = errors
    assert isinstance(error, IllegalCommand)
    assert "another thread is reading it" in str(error)


@either_driver
def test_the_time_of_the_reader_is_not_the_loops(driver: str) -> None:
    """A limit of active seconds does not count while the turn waits to be read."""

    async def story() -> None:
        async with open_over_http_of(driver, [reply(LONG)], params()) as talk:
            handle: Any = type(talk.handle)(talk.client, params=params(), config=LoopConfig(timeout=5.0))
            async with read_turn(handle) as reader:
                await reader.read_until(TextDelta)
                # As if the reader had taken ten seconds over it: nobody need wait for them here.
                inside.paused_time_passes(handle, 10.0)
                turn = await reader.finish()
            assert expect_completed(turn).text == LONG
            assert handle.state.root.active < 5.0

    play(driver, story)


def test_who_leaves_while_another_thread_reads() -> None:
    """What the body raised comes out, and the turn is given up where the other one is; no result is lost."""
    running, left = threading.Event(), threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        running.set()
        left.wait(30)
        return "waited"

    handle = ToolLoopHandle(
        ScriptedProvider([reply(calls=[call("wait", {}, id="toolu_1")]), reply("done")]), params=params(), tools=[wait]
    )
    threads: list[threading.Thread] = []

    def read_elsewhere_and_raise() -> None:
        with handle.stream_turn() as stream:
            threads.append(threading.Thread(target=lambda: list(stream)))
            threads[0].start()
            assert running.wait(30)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        read_elsewhere_and_raise()
    left.set()
    (thread,) = threads
    thread.join(30)
    assert not thread.is_alive()
    assert expect_yielded(handle.pending_turn or handle.next_turn()).results[0] is not None


@either_driver
def test_a_provider_that_says_it_has_no_stream(driver: str) -> None:
    """`stream = None` is none; then the reply comes as a whole."""

    class Plain(ScriptedProvider):
        stream = None  # type: ignore[assignment]  # that is the point

    class AsyncPlain(AsyncScriptedProvider):
        stream = None  # type: ignore[assignment]  # likewise

    async def story() -> None:
        either: Any = (ToolLoopHandle, Plain) if driver == "sync" else (AsyncToolLoopHandle, AsyncPlain)
        kind, provider = either
        handle: Any = kind(provider([reply(LONG)]), params=params())
        seen, turn = await read(handle)
        assert (expect_completed(turn).text, text_in(seen)) == (LONG, "")

    play(driver, story)


class Unclosing:
    """A provider whose streams cannot be closed."""

    def send(self, request: Any) -> Any:
        raise AssertionError(request)

    def stream(self, request: Any) -> Iterator[Any]:
        return _Stream(ScriptedProvider([reply(LONG)]).stream(request))


class AsyncUnclosing:
    async def send(self, request: Any) -> Any:
        raise AssertionError(request)

    def stream(self, request: Any) -> AsyncIterator[Any]:
        return _AsyncStream(ScriptedProvider([reply(LONG)]).stream(request))


class _Stream:
    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._events)

    def close(self) -> None:
        raise OSError("it cannot be closed")


class _AsyncStream:
    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self._events)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        raise OSError("it cannot be closed")


@either_driver
def test_a_stream_that_cannot_be_closed(driver: str, caplog: pytest.LogCaptureFixture) -> None:
    """What was read was read, and who leaves has left; the log has the rest."""

    async def story() -> None:
        either: Any = (ToolLoopHandle, Unclosing) if driver == "sync" else (AsyncToolLoopHandle, AsyncUnclosing)
        kind, provider = either
        handle: Any = kind(provider(), params=params())
        async with read_turn(handle) as reader:
            await reader.read_until(TextDelta)
        assert handle.messages == (params()["messages"][0],)
        seen, turn = await read(handle)
        assert expect_completed(turn).text == text_in(seen) == LONG
        assert caplog.text.count("could not close the stream") == 2

    play(driver, story)


# --- readers who are gone, and readers who do not go on ---------------------------------------------------------------


def pieces(of: ToolLoopHandle | ToolRunner[ReplyStream]) -> Iterator[Any]:
    """Yield the events of a stream, out of its `with` statement."""
    with of.stream_turn() if isinstance(of, ToolLoopHandle) else next(of) as stream:
        yield from stream


@pytest.mark.parametrize("events", [1, 3])
def test_a_stream_that_is_collected_waits_for_no_lock_and_asks_no_store(events: int) -> None:
    """It is collected in any thread, between any two bytecodes. The next turn and the renewal of leases clean up."""
    store = FailingStore(MemoryStore())
    script = [reply(LONG), reply(LONG)]
    handle = ToolLoopHandle(ScriptedProvider(script), params=params(), store=store, loop_id="loop")
    runner = ToolRunner(ScriptedProvider(script), params=params(), stream=True)
    for driven in (handle, runner):
        reader = pieces(driven)
        for _ in range(events):
            next(reader)
        asking, free, locked = set[str](), threading.Event(), threading.Event()
        store.fails = lambda _, asking=asking: asking.add(threading.current_thread().name)  # type: ignore[misc]  # fails never
        lock = inside.lock_of(driven if driven is handle else inside.loop_of(runner))

        def hold(lock: Any = lock, locked: Any = locked, free: Any = free) -> None:
            with lock:
                locked.set()
                free.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        assert locked.wait(30)
        del reader
        gc.collect()
        is_held = thread.is_alive()
        free.set()
        thread.join()
        assert is_held
        assert asking <= {"leases-of-toolloop"}
    inside.renew_leases()
    assert store.inner.head("loop").lease is None
    assert expect_completed(handle.next_turn()).text == LONG
    runner.close()
    last = runner.until_done()
    assert last is not None
    assert last["content"][0]["text"] == LONG


@pytest.mark.parametrize("kind", ["sync", "thread", "task"])
def test_what_ends_while_the_reader_is_busy_is_stored(kind: str, tmp_path: Path) -> None:
    """A process that is killed then loses no end of a call that happened."""
    store, go = SqliteStore(tmp_path / "loops.db"), threading.Event()

    @tool
    def plain(context: ToolContext) -> str:
        """Say something, wait, and end."""
        context.report("on the way")
        assert go.wait(30)
        return "done"

    @tool
    async def task(context: ToolContext) -> str:
        """The same in a task."""
        context.report("on the way")
        while not go.is_set():
            await anyio.lowlevel.checkpoint()
        return "done"

    each = task if kind == "task" else plain
    calls = [call(each.name, {}, id="t1"), call(each.name, {}, id="t2")]
    parts: Any = {"params": params(), "tools": [each], "store": store, "loop_id": "loop"}

    def are_stored() -> bool:
        return names(store).count("Ended") == 2

    async def story() -> None:
        handle: Any = (
            ToolLoopHandle(ScriptedProvider([reply(calls=calls)]), **parts)
            if kind == "sync"
            else AsyncToolLoopHandle(AsyncScriptedProvider([reply(calls=calls)]), **parts)
        )
        async with read_turn(handle) as reader:
            await reader.read_until(CallProgress)
            go.set()
            with anyio.fail_after(30):
                while not are_stored():
                    await anyio.lowlevel.checkpoint()
            assert expect_yielded(await reader.finish()).results[0] is not None

    anyio.run(story)


def test_the_end_of_a_call_is_stored_before_its_progress_is_read(tmp_path: Path) -> None:
    """A tool that is alone runs in the thread of the reader, who may not go on after that."""
    store = SqliteStore(tmp_path / "loops.db")

    @tool
    def plain(context: ToolContext) -> str:
        """Say something, and end."""
        context.report("on the way")
        return "done"

    script = [reply(calls=[call("plain", {}, id="t1")])]
    handle = ToolLoopHandle(ScriptedProvider(script), params=params(), tools=[plain], store=store, loop_id="loop")
    with handle.stream_turn() as stream:
        assert any(isinstance(event, CallProgress) for event in stream)
        assert names(store).count("Ended") == 1
