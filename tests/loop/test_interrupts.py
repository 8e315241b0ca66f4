"""Ctrl-C at any call or return inside toolloop, a cancellation at any wait: the loop goes on to its end each time."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.effort import stride
from tests.loop.concurrency import DEADLINE, either_kind
from toolloop import (
    AsyncToolLoopHandle,
    MemoryStore,
    SqliteStore,
    Texts,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    sub_loop,
    tool,
)
from toolloop.stores import Store
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply
from toolloop.testing.promises import check_promises

ROOT = Path(__file__).parents[2]


def interrupted(kind: str, where: str) -> dict[str, Any]:
    """What a program of its own told that got a real SIGINT in the middle of a turn."""
    command = [sys.executable, "-m", "tests.loop.interrupted_program", kind, where]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as program:
        assert program.stdout is not None
        try:
            first = program.stdout.readline()
            program.send_signal(signal.SIGINT)
            # Python may see a signal that comes just before the main thread waits only after the next one, so a person
            # presses twice. While threads run, the sync handle looks up by itself.
            looks_up = kind == "sync" and where in ("threads", "hung")
            if not select.select([program.stdout], [], [], DEADLINE if looks_up else 20)[0]:
                assert not looks_up
                program.send_signal(signal.SIGINT)
            second = program.stdout.readline()
            told, errors = program.communicate(timeout=DEADLINE)
        finally:
            program.kill()
    assert (program.returncode, first, second) == (0, b"ready\n", b"struck\n"), errors
    outcome: dict[str, Any] = json.loads(told)
    assert outcome["interrupted"], "the interrupt was swallowed"
    return outcome


@either_kind
def test_ctrl_c_in_a_request_leaves_a_loop_as_if_none_was_made(kind: str) -> None:
    """The next turn makes it again, byte for byte."""
    assert interrupted(kind, "request") == {
        "interrupted": True,
        "iterations": 0,
        "statuses": [],
        "text": "done",
        "same": True,
        "requests": 2,
    }


@either_kind
def test_ctrl_c_in_a_tool_that_is_cut_off_by_it_settles_the_call(kind: str) -> None:
    """A repeatable tool in the caller's own thread, or in a task, is told as cancelled, and not run again."""
    told = interrupted(kind, "here")
    assert told["statuses"] == ["settled"]
    assert told["results"] == [Texts().cancelled]
    assert (told["text"], told["ran"]) == ("done", ["here"])


@either_kind
def test_ctrl_c_while_threads_run_leaves_them_running(kind: str) -> None:
    """Their late ends are taken, and the loop goes on."""
    told = interrupted(kind, "threads")
    assert told["statuses"] == ["running", "running"]
    assert told["results"] == ["one", "two"]
    assert (told["text"], sorted(told["ran"])) == ("done", ["one", "two"])


@either_kind
def test_a_hung_tool_does_not_hold_up_the_exit(kind: str) -> None:
    """A program whose tools never end is over when its main thread is."""
    assert interrupted(kind, "hung")["statuses"] == ["running", "running"]


PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]}


class Run:
    """One loop with three calls, one of which a person approves. It counts how often each tool ran.

    Attributes:
        nested: whether the calls are those of a loop inside a call.

    """

    def __init__(self, *, nested: bool = False) -> None:
        self.ran = Counter[str]()
        self.nested = nested

        @tool
        def pay(amount: int, context: ToolContext) -> str:
            """Pay."""
            self.ran[context.call_id] += 1
            return f"paid {amount}"

        @tool(effect="pure")
        def look(path: str) -> str:
            """Look."""
            return f"seen {path}"

        @tool(needs_approval=True)
        async def asend(to: str, context: ToolContext) -> str:
            """Send."""
            await anyio.lowlevel.checkpoint()
            self.ran[context.call_id] += 1
            await anyio.lowlevel.checkpoint()
            return f"sent {to}"

        @tool(needs_approval=True)
        def send(to: str, context: ToolContext) -> str:
            """Send."""
            self.ran[context.call_id] += 1
            return f"sent {to}"

        self.tools, self.atools = [self.within(each) for each in ([pay, look, send], [pay, look, asend])]

    def within(self, tools: list[Any]) -> list[Any]:
        """Return the tools of the outermost loop."""
        bare = {name: value for name, value in PARAMS.items() if name != "messages"}
        return [sub_loop("part", "Do a part of it.", params=bare, tools=tools)] if self.nested else tools

    def answer(self, request: Any) -> Any:
        """Return what the model says next, by how much it has said."""
        spoken = sum(message["role"] == "assistant" for message in request["messages"])
        if request["tools"][0]["name"] == "part":
            return [reply(calls=[call("part", {"prompt": "a part"}, id="p1")]), reply("done")][min(spoken, 1)]
        send = "send" if any(definition["name"] == "send" for definition in request["tools"]) else "asend"
        return [
            reply(calls=[call("pay", {"amount": 1}, id="t1")]),
            reply(calls=[call(send, {"to": "x"}, id="t2"), call("look", {"path": "c"}, id="t3")]),
            reply("done"),
        ][min(spoken, 2)]

    async def aanswer(self, request: Any) -> Any:
        """Return the same, after a while."""
        await anyio.lowlevel.checkpoint()
        return self.answer(request)

    def check(self, result: Any, store: Store | None) -> None:
        """Check that the loop came to its end, no call ran twice, and the journal keeps the promises."""
        assert result.unwrap().text == "done"
        assert all(times == 1 for times in self.ran.values()), self.ran
        if store is not None:
            assert not check_promises(store.load("loop").entries).broken


def decide(turn: Yielded) -> None:
    """Approve what waits for approval. What was interrupted is not run again: the person knows how it ended."""
    for each in turn.pending:
        if each.why == "uncertain":
            turn.answer(each, "it was done")
        else:
            turn.approve(each)


class Interrupt:
    """A profile hook that raises SIGINT at the n-th call or return inside toolloop."""

    def __init__(self, number: int) -> None:
        self.number, self.seen = number, 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if "toolloop" in frame.f_code.co_filename and event in ("call", "return"):
            self.seen += 1
            if self.seen == self.number:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)


def made_store(kind: str, folder: Path, number: int) -> Store | None:
    """Return a new store of a kind; None for a loop that nobody keeps."""
    if kind == "sqlite":
        return SqliteStore(folder / f"{number}.db")
    return None if kind == "none" else MemoryStore()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a finalizer may be struck, too
@pytest.mark.parametrize("kind", ["none", "memory", "sqlite", "nested"])
def test_ctrl_c_anywhere_leaves_a_loop_that_goes_on_to_its_end(kind: str, tmp_path: Path) -> None:
    """No call runs twice, nothing is lost, nothing hangs, and nothing but the interrupt is raised."""
    for number in count(1, stride(197)):
        run, store = Run(nested=kind == "nested"), made_store(kind, tmp_path, number)
        provider = ScriptedProvider(run.answer)
        handle = ToolLoopHandle(provider, params=PARAMS, tools=run.tools, store=store, loop_id="loop")
        hook, before = Interrupt(number), sys.getprofile()
        sys.setprofile(hook)
        try:
            handle.run(decide)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(before)
        run.check(handle.run(decide), store)
        if hook.seen < number:
            return


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["none", "memory", "nested"])
def test_a_cancellation_at_any_wait_leaves_a_loop_that_goes_on_to_its_end(
    kind: str, backend: str, tmp_path: Path
) -> None:
    """The same for a task that is cancelled after any number of steps of the event loop."""

    async def main(steps: int) -> bool:
        run, store = Run(nested=kind == "nested"), made_store(kind, tmp_path, steps)
        provider = AsyncScriptedProvider(run.aanswer)
        handle = AsyncToolLoopHandle(provider, params=PARAMS, tools=run.atools, store=store, loop_id="loop")
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    for _ in range(steps):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                group.start_soon(cancel)
                await handle.run(decide)
                group.cancel_scope.cancel()
        run.check(await handle.run(decide), store)
        await handle.close()
        return scope.cancelled_caught

    for steps in count(0, stride(3)):
        if not anyio.run(main, steps, backend=backend):
            return
