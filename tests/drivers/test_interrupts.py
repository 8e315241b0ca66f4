"""Ctrl-C at any call or return inside toolloop, a cancellation at any wait: the loop goes on to its end each time."""

from __future__ import annotations

import inspect
import itertools
import linecache
import signal
import socket
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import toolloop
from tests.kit.concurrency import DEADLINE, either_kind
from tests.kit.effort import stride
from tests.kit.fork_server import ForkServer, Line, start_program
from tests.kit.tools import params
from tests.kit.warm_python import warm
from toolloop import (
    AsyncToolLoopHandle,
    Completed,
    MemoryStore,
    SqliteStore,
    Texts,
    ToolContext,
    ToolLoopHandle,
    ToolRunner,
    Yielded,
    sub_loop,
    tool,
)
from toolloop._engine.engine import Engine
from toolloop._journal.shared_journal import SharedJournal
from toolloop.stores import Store
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply
from toolloop.testing.promises import check_promises

ROOT = Path(__file__).parents[2]
SOURCE = str(Path(toolloop.__file__).parent)
STORES = str(Path(SOURCE) / "stores")
SWEEP = 1009  # how far apart the sweeps strike in `make test`
CALLERS = 3  # how many callers make two places in one function different


def places(case: str) -> Iterator[int]:
    """Where a sweep strikes: `make test` begins elsewhere in each case, so that together they strike at many places."""
    step = stride(SWEEP)
    return count(1 + zlib.crc32(case.encode()) % step, step)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """What forks a program of its own for each interrupt."""
    with ForkServer(warm("tests.drivers.interrupted_program")) as server:
        yield server


def interrupt_program(server: ForkServer, kind: str, where: str) -> dict[str, Any]:
    """What a program of its own told that got a real SIGINT in the middle of a turn."""
    with start_program(server, "interrupted", kind=kind, where=where) as program:
        program.hear("ready")
        program.signal(signal.SIGINT)
        # Python may see a signal that comes just before the main thread waits only after the next one, so a person
        # presses twice. While threads run, the sync handle looks up by itself.
        looks_up = kind == "sync" and where == "threads"
        if not program.line.says_within(DEADLINE if looks_up else 20):
            assert not looks_up
            program.signal(signal.SIGINT)
        program.hear("struck")
        outcome: dict[str, Any] = program.end()
    assert outcome["interrupted"], "the interrupt was swallowed"
    return outcome


@either_kind
def test_ctrl_c_in_a_request_leaves_a_loop_as_if_none_was_made(kind: str, server: ForkServer) -> None:
    """The next turn makes it again, byte for byte."""
    assert interrupt_program(server, kind, "request") == {
        "interrupted": True,
        "iterations": 0,
        "statuses": [],
        "text": "done",
        "same": True,
        "requests": 2,
    }


@either_kind
def test_ctrl_c_in_a_tool_that_is_cut_off_by_it_settles_the_call(kind: str, server: ForkServer) -> None:
    """A repeatable tool in the caller's own thread, or in a task, is reported as cancelled, and not run again."""
    told = interrupt_program(server, kind, "here")
    assert told["statuses"] == ["settled"]
    assert told["results"] == [Texts().cancelled]
    assert (told["text"], told["ran"]) == ("done", ["here"])


@either_kind
def test_ctrl_c_while_threads_run_leaves_them_running(kind: str, server: ForkServer) -> None:
    """Their late ends are taken, and the loop goes on."""
    told = interrupt_program(server, kind, "threads")
    assert told["statuses"] == ["running", "running"]
    assert told["results"] == ["one", "two"]
    assert (told["text"], sorted(told["ran"])) == ("done", ["one", "two"])


@either_kind
def test_a_hung_tool_does_not_hold_up_the_exit(kind: str) -> None:
    """A program whose tools never end is over when its main thread is."""
    mine, its = socket.socketpair()
    mine.settimeout(DEADLINE)
    command = [sys.executable, "-m", "tests.drivers.interrupted_program", str(its.fileno()), kind]
    with mine, its, subprocess.Popen(command, cwd=ROOT, pass_fds=[its.fileno()]) as program:
        line = Line(mine)
        try:
            assert line.hear() == {"ready": True}
            program.send_signal(signal.SIGINT)
            if not line.says_within(20):  # likewise
                program.send_signal(signal.SIGINT)
            assert line.hear() == {"struck": True}
            assert line.hear()["end"]["statuses"] == ["running", "running"]
            assert program.wait(DEADLINE) == 0
        finally:
            program.kill()
            line.close()


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

        self.tools, self.atools = [self.list_within(each) for each in ([pay, look, send], [pay, look, asend])]

    def list_within(self, tools: list[Any]) -> list[Any]:
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

    def check(self, text: str | None, store: Store | None) -> None:
        """Check that the loop came to its end, no call ran twice, and the journal keeps the promises."""
        assert text == "done"
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
    """Raises SIGINT at the n-th place inside toolloop; or at the n-th line of some functions.

    A place is a call or a return of a function, with the places of its nearest callers, and inside a store with the
    number of the write. It counts when it is reached for the first time: a loop reaches each of them several times,
    and a sweep over all times would take a day.

    As a context manager it takes the interrupt, and keeps it with its traceback, as a debugger does.

    Attributes:
        seen: how many places, or lines, there were so far.
        lines_of: the code of these functions.

    """

    def __init__(self, number: int, *functions: Any) -> None:
        self.number, self.seen = number, 0
        self._places: set[object] = set()
        self._writes = 0
        self.lines_of = {function.__code__ for function in functions}
        self.kept: BaseException | None = None
        self._begun: FrameType | None = None
        # It is kept, because Python 3.11 may call a profile function that was freed already.
        self._hook: Any = self.trace if functions else self.profile

    def __enter__(self) -> None:
        self._before = sys.gettrace(), sys.getprofile()
        if self.lines_of:
            sys.settrace(self._hook)
        else:
            sys.setprofile(self._hook)

    def __exit__(self, _kind: object, error: BaseException | None, _: object) -> bool:
        sys.settrace(self._before[0])
        sys.setprofile(self._before[1])
        self.kept = error
        return isinstance(error, KeyboardInterrupt)

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        # No signal can come where a generator yields, or is resumed to pass a value on. An exception of a profile
        # function there skips what the generator has to close.
        is_generator = frame.f_code.co_flags & inspect.CO_GENERATOR
        # Nor can one come where `__enter__` returns: CPython looks for signals again in the block.
        is_entered = event == "return" and frame.f_code.co_name == "__enter__"
        if (
            event in ("call", "return")
            and not is_generator
            and not is_entered
            and frame.f_code.co_filename.startswith(SOURCE)
            and self._is_new(event, frame)
        ):
            self.strike()

    def _is_new(self, event: str, frame: FrameType) -> bool:
        """Whether this place is reached for the first time."""
        is_stored = frame.f_code.co_filename.startswith(STORES)
        self._writes += is_stored and event == "call" and frame.f_code.co_name == "append"
        place = event, frame.f_code, self._writes if is_stored else 0, *callers_of(frame)
        is_new = place not in self._places
        self._places.add(place)
        return is_new

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code not in self.lines_of:
            return None
        if event == "line":
            # The first line has done nothing yet when it is reached. No signal can come between the events of `with` or
            # `try` and what they do, and an exception of a trace function there releases no lock.
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if self._begun is frame and not line.startswith(("with ", "try:")):
                self.strike()
            self._begun = frame
        return self.trace

    def strike(self) -> None:
        self.seen += 1
        if self.seen == self.number:
            sys.setprofile(None)
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)


def callers_of(frame: FrameType) -> Iterator[tuple[CodeType, int]]:
    """Where the nearest callers inside toolloop are."""
    found, caller = 0, frame.f_back
    while caller is not None and found < CALLERS:
        if caller.f_code.co_filename.startswith(SOURCE):
            found += 1
            yield caller.f_code, caller.f_lasti
        caller = caller.f_back


def make_store(kind: str, folder: Path, number: int) -> Store | None:
    """Return a new store of a kind; None for a loop without a store."""
    if kind == "sqlite":
        return SqliteStore(folder / f"{number}.db")
    return None if kind == "none" else MemoryStore()


def drive(handle: ToolLoopHandle, way: str) -> Any:
    """Drive a loop to its end: by `run()`, or turn by turn, each of them read as a stream."""
    if way == "run":
        return handle.run(decide)
    while True:
        if (turn := handle.pending_turn) is not None:
            decide(turn)
            turn.continue_loop()
        with handle.stream_turn() as stream:
            for _ in stream:
                pass
        if not isinstance(stream.turn, Yielded):
            return stream.turn


def release(handle: ToolLoopHandle, store: Store | None) -> None:
    """Close a handle, and check that it gives the lease back."""
    handle.close()
    assert store is None or store.head("loop").lease is None


def goes_on(run: Run, number: int, handle: ToolLoopHandle, way: str, store: Store | None) -> Any:
    """Let the loop go on: every other time through another handle, which opens it once the first one is closed."""
    if store is not None and number // stride(SWEEP) % 2:
        release(handle, store)
        provider = ScriptedProvider(run.answer)
        handle = ToolLoopHandle.open(store, "loop", provider, tools=run.tools, params=PARAMS)
    result = drive(handle, way)
    release(handle, store)
    return result


# A real Ctrl-C may also come out as `RuntimeError("release unlocked lock")`, with the `KeyboardInterrupt` as its
# context: `threading.Condition.wait` is interrupted before it has its lock back, inside a `with` that releases it. That
# is CPython's: https://github.com/python/cpython/issues/78667 (`Thread.start` waits so) and, without the GIL, 118433.
# Here a signal comes only at calls and returns of our own code, so it is not seen.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a finalizer may be struck, too
@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize("kind", ["none", "memory", "sqlite", "nested"])
def test_ctrl_c_anywhere_leaves_a_loop_that_goes_on_to_its_end(kind: str, way: str, tmp_path: Path) -> None:
    """No call runs twice, nothing is lost, nothing hangs, nothing but the interrupt is raised, and no lease is kept."""
    for number in places(f"{kind} {way}"):
        run, store = Run(nested=kind == "nested"), make_store(kind, tmp_path, number)
        provider = ScriptedProvider(run.answer)
        handle = ToolLoopHandle(provider, params=PARAMS, tools=run.tools, store=store, loop_id="loop")
        interrupt = Interrupt(number)
        with interrupt:
            drive(handle, way)
        run.check(goes_on(run, number, handle, way, store).unwrap().text, store)
        if interrupt.seen < number:
            return


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # likewise
@pytest.mark.parametrize("kind", ["none", "memory", "sqlite"])
def test_ctrl_c_while_something_is_said_leaves_no_old_answer(kind: str, tmp_path: Path) -> None:
    """It was said or not: `run()` gives the answer to what the history holds, and it can be said again."""
    for number in count(1, stride(23)):
        store = make_store(kind, tmp_path, number)
        provider = ScriptedProvider(lambda request: reply(request["messages"][-1]["content"]))
        handle = ToolLoopHandle(provider, params=PARAMS, store=store, loop_id="loop")
        assert handle.run().text == "go"
        interrupt = Interrupt(number)
        with interrupt:
            handle.follow_up("more")
        result, was_said = handle.run(), len(handle.messages) > 2
        assert result.text == ("more" if was_said else "go")
        handle.follow_up("last")
        assert handle.run().unwrap().text == "last"
        release(handle, store)
        if interrupt.seen < number:
            return


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # likewise
@pytest.mark.parametrize("streams", [False, True])
def test_ctrl_c_anywhere_leaves_a_runner_that_goes_on_to_its_end(streams: bool) -> None:
    """Its next step is the one that was interrupted."""
    for number in places(f"runner {streams}"):
        run = Run()
        provider = ScriptedProvider(run.answer)
        runner = ToolRunner(provider, params=PARAMS, tools=run.tools, ask=decide, stream=streams)
        interrupt = Interrupt(number)
        with interrupt:
            runner.until_done()
        last = runner.until_done()
        assert last is not None
        run.check(last["content"][0]["text"], None)
        if interrupt.seen < number:
            return


@pytest.mark.parametrize("way", ["run", "stream"])
def test_ctrl_c_at_any_line_where_a_call_starts_ends_or_is_stored_loses_no_result(way: str, tmp_path: Path) -> None:
    """A call that has run has its own result, and no question is asked about its end."""
    for number in count(1, stride(31)):
        run, store = Run(), make_store("sqlite", tmp_path, number)
        handle = ToolLoopHandle(
            ScriptedProvider(run.answer), params=PARAMS, tools=run.tools, store=store, loop_id="loop"
        )
        interrupt = Interrupt(number, Engine.launch, Engine.complete, SharedJournal.commit)
        with interrupt:
            drive(handle, way)
        run.check(drive(handle, way).unwrap().text, store)
        release(handle, store)
        results = {each["tool_use_id"]: each["content"] for each in handle.messages[2]["content"]}
        assert results == {"t1": "paid 1" if run.ran["t1"] else "it was done"}
        if interrupt.seen < number:
            return


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["none", "memory", "nested"])
def test_a_cancellation_at_any_wait_leaves_a_loop_that_goes_on_to_its_end(
    kind: str, backend: str, tmp_path: Path
) -> None:
    """The same for a task that is cancelled after any number of steps of the event loop."""

    async def main(steps: int) -> bool:
        run, store = Run(nested=kind == "nested"), make_store(kind, tmp_path, steps)
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
        run.check((await handle.run(decide)).unwrap().text, store)
        await handle.aclose()
        return scope.cancelled_caught

    for steps in count(0, stride(41)):
        if not anyio.run(main, steps, backend=backend):
            return


@pytest.mark.parametrize("kept", ["", "memory", "sqlite"])
def test_a_signal_handler_may_say_something_at_any_moment(kept: str, tmp_path: Path) -> None:
    """What it says in the middle of something is done right after that; nothing is lost or damaged."""
    total = 0
    for at in itertools.count(0, stride(197)):
        if at and at >= total:
            break
        store: Store | None = MemoryStore() if kept == "memory" else None
        if kept == "sqlite":
            store = SqliteStore(tmp_path / "loops.db")
        loop_id, ran, struck = f"loop {at}", list[int](), list[int]()

        @tool
        def pay(n: int) -> str:
            """Pay."""
            ran.append(n)  # noqa: B023 - each loop has a tool of its own
            return "paid"

        script = [reply(calls=[call("pay", {"n": 1})]), reply(calls=[call("pay", {"n": 2})]), reply("done")]
        handle = ToolLoopHandle(ScriptedProvider(script), params=params(), tools=[pay], store=store, loop_id=loop_id)

        def strike(frame: Any, event: str, _argument: Any) -> None:
            if event not in {"call", "return"} or not any(
                f"/src/toolloop/{room}/" in frame.f_code.co_filename
                for room in ("_journal", "_engine", "_drivers", "_handles")
            ):
                return
            struck.append(1)  # noqa: B023 - likewise
            if len(struck) == at + 1:  # noqa: B023 - likewise
                sys.setprofile(None)
                handle.stop("signal")  # noqa: B023 - likewise
                sys.setprofile(strike)

        sys.setprofile(strike)
        try:
            turn = handle.run()
        finally:
            sys.setprofile(None)
        total = max(total, len(struck))
        assert isinstance(turn, Completed)
        assert len(ran) == len(set(ran))
        if store is not None:
            again = ToolLoopHandle.open(store, loop_id, ScriptedProvider([]), tools=[pay])
            assert again.into_result().termination == turn.termination
            again.close()
    assert total > 80
