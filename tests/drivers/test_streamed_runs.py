"""`stream()`: one stream over as many turns as go by themselves."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

import anyio

from tests.kit.concurrency import async_loop, run_async, sync_loop
from tests.kit.each import each
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import TOOLS
from toolloop import AsyncToolLoopHandle, SqliteStore, ToolContext, Yielded, tool
from toolloop.errors import ModelError
from toolloop.events import (
    CallFinished,
    CallProgress,
    CallStarted,
    CallWaiting,
    LoopFinished,
    RequestAnswered,
    TextDelta,
)
from toolloop.testing import AsyncScriptedProvider, call, reply

ADD = call("add", {"a": 1, "b": 2})
WRITE = call("write", {"path": "a", "text": "b"}, id="w")


def kinds(events: list[Any], *wanted: type) -> list[str]:
    return [type(event).__name__ for event in events if isinstance(event, wanted)]


def read(kind: str, handle: Any, ask: Any = None) -> tuple[list[Any], Any]:
    """All events of a stream, and what it came to."""
    if kind == "sync":
        with handle.stream(ask) as stream:
            return list(stream), stream.turn

    async def main() -> tuple[list[Any], Any]:
        async with handle.stream(ask) as stream:
            return [event async for event in stream], stream.turn

    return run_async(kind, main)


@each("kind", ["sync", "asyncio", "trio"])
def test_the_reader_gets_the_progress_of_a_lone_sync_tool_while_it_runs(kind: str) -> None:
    """The tool goes on only when the reader has its first report."""
    was_read = threading.Event()

    @tool
    def draw(context: ToolContext) -> str:
        """Draw."""
        context.report("images", progress=1, total=2)
        return "read in time" if was_read.wait(30) else "read late"

    handle: Any = (sync_loop if kind == "sync" else async_loop)(
        [reply(calls=[call("draw", {})]), reply("done")], [draw]
    )
    seen: list[Any] = []

    def note(event: Any) -> None:
        seen.append(event)
        if isinstance(event, CallProgress):
            was_read.set()

    async def main() -> None:
        async with handle.stream() as stream:
            async for event in stream:
                note(event)

    if kind == "sync":
        with handle.stream() as stream:
            for event in stream:
                note(event)
    else:
        run_async(kind, main)
    assert kinds(seen, CallStarted, CallProgress, CallFinished) == ["CallStarted", "CallProgress", "CallFinished"]
    assert handle.messages[2]["content"][0]["content"] == "read in time"


@each("kind", ["sync", "asyncio", "trio"])
def test_a_stream_goes_on_over_turns_to_where_a_decision_is_needed(kind: str) -> None:
    """Pieces of each reply, calls and ends in one order; then what `run()` would have returned."""
    script = [reply("Adding.", calls=[ADD]), reply("Writing.", calls=[WRITE]), reply("done")]
    handle: Any = (sync_loop if kind == "sync" else async_loop)(script, TOOLS)
    seen, turn = read(kind, handle)
    wanted = (RequestAnswered, CallFinished, CallWaiting, LoopFinished)
    assert kinds(seen, *wanted) == ["RequestAnswered", "CallFinished", "RequestAnswered", "CallWaiting"]
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "Adding.Writing."
    assert handle.pending_turn is expect_yielded(turn)
    turn.approve_all()
    turn.continue_loop()
    seen, turn = read(kind, handle)
    assert kinds(seen, *wanted) == ["CallFinished", "RequestAnswered", "LoopFinished"]
    assert expect_completed(turn).text == "done"
    assert handle.is_finished


@each("kind", ["sync", "asyncio"])
def test_ask_decides_within_the_stream(kind: str) -> None:
    """As in `run()`; what it decides is in the stream."""

    def ask(turn: Yielded) -> None:
        turn.approve_all(by="ana")

    script = [reply(calls=[WRITE]), reply(calls=[WRITE | {"id": "w2"}]), reply("done")]
    handle: Any = (sync_loop if kind == "sync" else async_loop)(script, TOOLS)
    seen, turn = read(kind, handle, ask)
    assert expect_completed(turn).text == "done"
    assert kinds(seen, CallWaiting, CallFinished) == ["CallWaiting", "CallFinished"] * 2
    assert [type(event).__name__ for event in seen].count("CallDecided") == 2


@each("kind", ["sync", "asyncio"])
def test_an_error_is_the_turn_of_the_stream(kind: str) -> None:
    """And what happened before it was read."""
    script = [reply("Adding.", calls=[ADD]), ModelError("not now")]
    handle: Any = (sync_loop if kind == "sync" else async_loop)(script, TOOLS)
    seen, turn = read(kind, handle)
    assert type(turn.error) is ModelError
    assert kinds(seen, CallFinished) == ["CallFinished"]


def test_who_leaves_gives_up_the_turn_in_progress_and_keeps_what_was_done() -> None:
    """The usual form in a web framework: a generator around the stream, which is closed."""
    ran: list[str] = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    script = [reply(calls=[call("pay", id="p")]), reply("long text"), reply("done")]
    handle = sync_loop(script, [pay])

    def events() -> Generator[Any, None, None]:
        with handle.stream() as stream:
            yield from stream

    generator = events()
    for event in generator:
        if isinstance(event, TextDelta):
            break
    generator.close()
    assert expect_completed(handle.run()).text == "done"
    assert ran == ["pay"]


def test_another_task_may_close_the_generator_around_a_stream(tmp_path: Any) -> None:
    """Under asyncio: the turn is given up, the lease given back, and nothing is raised."""
    store = SqliteStore(tmp_path / "loops.db")
    script = [reply(calls=[ADD]), reply("long text"), reply("done")]

    async def main() -> None:
        parts: Any = {"params": {"model": "claude-opus-5-5", "max_tokens": 9, "messages": []}, "tools": TOOLS}
        async with AsyncToolLoopHandle.open(store, "x", AsyncScriptedProvider(script), **parts) as handle:
            handle.follow_up("add")

            async def events() -> AsyncGenerator[Any, None]:
                async with handle.stream() as stream:
                    async for event in stream:
                        yield event

            generator = events()
            async for event in generator:
                if isinstance(event, TextDelta):
                    break
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(generator.aclose)
            assert store.head("x").lease is None
            assert expect_completed(await handle.run()).text == "done"

    run_async("asyncio", main)
