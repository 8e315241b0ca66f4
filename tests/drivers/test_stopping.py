"""A stop reaches what runs, and no end lies: `ctx.cancelled`, cancelled tasks, cut requests, and ends that count.

`make test` runs all of it. Limits are in test_time_limits.py; stops of other processes are in tests/promises/processes.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.kit.concurrency import (
    DEADLINE,
    Background,
    Gate,
    async_wire,
    either_kind,
    list_contents,
    make,
    on_both_backends,
    result_texts,
    run_async,
    statuses,
    sync_wire,
    turn,
    wait_for,
    wait_in_loop_for,
)
from tests.kit.loop_trees import join
from tests.kit.support import expect_completed
from tests.kit.tools import params
from toolloop import (
    AsyncToolLoopHandle,
    Completed,
    Inbox,
    LoopConfig,
    MemoryStore,
    Stop,
    ToolContext,
    ToolRunner,
    tool,
)
from toolloop.errors import IllegalCommand
from toolloop.events import TextDelta
from toolloop.machine.values.setup import Texts
from toolloop.terminations import StopCondition, Timeout
from toolloop.testing import AsyncScriptedProvider, Delayed, ScriptedProvider, Streamed, delayed, reply

TWO = reply(calls=[("slow", {"name": "one"}), ("slow", {"name": "two"})])
STILL_RUNS = r"because slow \(\w+\), slow \(\w+\) still run"
LONG = "a long answer, word by word, for three minutes " * 20


class Refunds:
    """A tool that stands at a gate for each call, in a thread, and then returns."""

    def __init__(self) -> None:
        self.gates = {"one": Gate(), "two": Gate()}
        self.cancelled: list[bool] = []

    def tool(self) -> Any:
        @tool
        def slow(name: str, context: ToolContext) -> str:
            """Stand at a gate, then look whether a caller still waits."""
            self.gates[name].stand()
            self.cancelled.append(context.cancelled)
            return f"refunded {name}"

        return slow

    def stop(self, kind: str, **config: Any) -> tuple[Any, Completed]:
        """Stop a loop whose two calls run. Return it, and the end of its turn."""
        handle = make(kind, [TWO, reply("fine")], [self.tool()], **config)
        driver = Background(lambda: turn(kind, handle))
        for gate in self.gates.values():
            wait_for(gate.arrived)
        handle.resume(Stop("enough"))
        if "stop_grace" not in config:
            self.open()
        return handle, expect_completed(driver.result())

    def open(self) -> None:
        for gate in self.gates.values():
            gate.opened.set()


@either_kind
def test_what_tools_return_after_the_stop_is_their_result(kind: str) -> None:
    """They see that they were cancelled, and the turn ends with their ends."""
    refunds = Refunds()
    handle, ended = refunds.stop(kind)
    assert (ended.termination, ended.running) == (StopCondition("enough"), ())
    assert refunds.cancelled == [True, True]
    assert result_texts(handle.messages[-1]) == ["refunded one", "refunded two"]
    assert handle.view()["status"] == "ended"


@either_kind
def test_a_turn_ends_without_the_tools_that_take_long(kind: str) -> None:
    """It says what runs, and nothing says that it ended, until it has: its thread alone takes its result."""
    refunds = Refunds()
    handle, ended = refunds.stop(kind, stop_grace=0.0)
    assert ended.termination == StopCondition("enough")
    assert [call.name for call in ended.running] == ["slow", "slow"]
    assert (handle.view()["status"], len(handle.messages)) == ("stopping", 1)
    assert [call.id for call in expect_completed(turn(kind, handle)).running] == [call.id for call in ended.running]
    with pytest.raises(IllegalCommand, match=STILL_RUNS):
        handle.follow_up("and now?")
    with pytest.raises(IllegalCommand, match=STILL_RUNS):
        handle.extend(timeout=1.0)
    refunds.open()
    join()
    last = expect_completed(turn(kind, handle))
    assert (last.termination, last.running) == (StopCondition("enough"), ())
    assert result_texts(handle.messages[-1]) == ["refunded one", "refunded two"]
    handle.follow_up("and now?")
    assert expect_completed(turn(kind, handle)).text == "fine"


@either_kind
def test_result_filters_see_what_ends_after_the_turn(kind: str) -> None:
    """The thread of the tool calls them, because no driver does."""
    refunds, threads = Refunds(), set[str]()

    def hide(_call: Any, content: Any) -> Any:
        threads.add(threading.current_thread().name.partition("-")[0])
        return str(content).upper()

    async def hide_later(call: Any, content: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return hide(call, content)

    hides = hide if kind == "sync" else hide_later
    handle, _ = refunds.stop(kind, stop_grace=0.0, result_filters=[hides])
    refunds.open()
    join()
    assert handle.view()["status"] == "ended"
    assert result_texts(handle.messages[-1]) == ["REFUNDED ONE", "REFUNDED TWO"]
    assert threads == {"toolloop"}


def test_a_runner_waits_for_a_tool_that_its_limit_cancels() -> None:
    """It has no turn that could end before, so it does not count the seconds of the grace."""
    gate = Gate()

    @tool
    def slow(context: ToolContext) -> str:
        """Stand at a gate, until the test has seen that the runner waits."""
        while not context.cancelled:
            gate.arrived.wait(0.01)
        threading.Timer(0.2, gate.opened.set).start()
        gate.stand()
        return "late, but seen"

    script = [reply(calls=[("slow", {}), ("slow", {})])]
    config = LoopConfig(timeout=0.05, stop_grace=0.0)
    runner = ToolRunner(ScriptedProvider(script), params=params(), tools=[slow], config=config)
    before = time.process_time()
    assert len(list(runner)) == 1
    assert time.process_time() - before < 0.15, "it waited without a rest"
    assert result_texts(runner.params["messages"][-1]) == ["late, but seen"] * 2


def test_a_second_stop_has_its_own_grace() -> None:
    """A limit that was extended has used none of it."""
    refunds = Refunds()
    handle = make("sync", [TWO, reply("fine")], [refunds.tool()], timeout=0.05, stop_grace=0.3)
    assert len(expect_completed(turn("sync", handle)).running) == 2
    handle.extend(timeout=DEADLINE)
    driver = Background(lambda: turn("sync", handle))
    handle.resume(Stop("enough"))
    refunds.open()
    assert expect_completed(driver.result()).running == ()


def test_a_copy_of_a_loop_that_is_to_end_does_not_know_the_end_of_its_call() -> None:
    refunds = Refunds()
    handle, _ = refunds.stop("sync", stop_grace=0.0)
    uncertain = Texts().uncertain.format(reason="the loop stopped")
    assert result_texts(handle.fork("copy").messages[-1]) == [uncertain] * 2
    refunds.open()
    join()


@on_both_backends
def test_async_tools_are_cancelled_by_a_stop(backend: str) -> None:
    """The return value of a cancelled tool is its result; without one, the call is reported as cancelled."""
    begun = [threading.Event(), threading.Event()]

    @tool(effect="pure")
    async def tidy() -> str:
        """Wait, and tidy up."""
        begun[0].set()
        with anyio.CancelScope() as scope:
            try:
                await anyio.sleep_forever()
            except BaseException:  # noqa: BLE001 - a cancellation of either event loop
                scope.cancel()
                return "refunded 902"
        return "it was not stopped"

    @tool(effect="pure")
    async def wait() -> None:
        """Wait."""
        begun[1].set()
        await anyio.sleep_forever()

    async def main() -> None:
        handle = make(backend, [reply(calls=[("tidy", {}), ("wait", {})])], [tidy, wait])
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                for event in begun:
                    await wait_in_loop_for(event)
                handle.resume(Stop("enough"))

            group.start_soon(stop)
            ended = expect_completed(await handle.next_turn())  # type: ignore[misc]  # of an async handle
        assert (ended.termination, ended.running) == (StopCondition("enough"), ())
        assert result_texts(handle.messages[-1]) == ["refunded 902", Texts().cancelled]

    run_async(backend, main)


@on_both_backends
def test_a_lone_async_tool_is_cancelled_by_a_stop_from_another_thread(backend: str) -> None:
    """In a callback of the event loop, where no task runs."""
    begun = threading.Event()

    @tool(effect="pure")
    async def wait() -> None:
        """Wait."""
        begun.set()
        await anyio.sleep_forever()

    handle = make(backend, [reply(calls=[("wait", {})])], [wait])
    driver = Background(lambda: turn(backend, handle))
    wait_for(begun)
    handle.resume(Stop("enough"))
    assert expect_completed(driver.result()).running == ()
    assert result_texts(handle.messages[-1]) == [Texts().cancelled]


@on_both_backends
def test_a_stop_that_the_driver_reads_when_it_stores_is_noticed(backend: str) -> None:
    """This store tells of no change, and nothing else happens in the loop after that."""
    store, begun = MemoryStore(), threading.Event()

    @tool
    def stop() -> str:
        """Stop the loop, as another process does."""
        wait_for(begun)
        Inbox(store).stop("loop", "enough", by="ana")
        return "stopped it"

    @tool(effect="pure")
    async def wait() -> None:
        """Wait."""
        begun.set()
        await anyio.sleep_forever()

    async def main() -> Completed:
        provider = AsyncScriptedProvider([reply(calls=[("stop", {}), ("wait", {})])])
        given: dict[str, Any] = {"tools": [stop, wait], "params": params()}
        async with AsyncToolLoopHandle.open(store, "loop", provider, **given) as handle:
            return expect_completed(await handle.run())

    assert run_async(backend, main).termination == StopCondition("enough")


# --- Ctrl-C --------------------------------------------------------------------------------------------------


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Ctrl-C raises in the main thread, also in a process that was started to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
def test_ctrl_c_tells_a_tool_in_a_thread_and_waits_for_it() -> None:
    """Its last words are its result, and the loop goes on with them."""

    @tool(timeout=DEADLINE)
    def careful(context: ToolContext) -> str:
        """Press Ctrl-C, and tidy up."""
        signal.raise_signal(signal.SIGINT)
        while not context.cancelled:
            threading.Event().wait(0.01)
        return "put back"

    handle = make("sync", [reply(calls=[("careful", {})]), reply("fine")], [careful])
    with pytest.raises(KeyboardInterrupt):
        turn("sync", handle)
    assert [call.status for call in handle.state.root.round.calls] == ["settled"]  # type: ignore[union-attr]  # it is open
    assert list_contents(turn("sync", handle)) == ["put back"]


@pytest.mark.usefixtures("_ctrl_c")
def test_a_second_ctrl_c_does_not_wait() -> None:
    """The call stays running, and its end counts."""
    gate = Gate()

    @tool(timeout=DEADLINE)
    def stubborn(context: ToolContext) -> str:
        """Press Ctrl-C twice."""
        signal.raise_signal(signal.SIGINT)
        while not context.cancelled:
            threading.Event().wait(0.01)
        signal.raise_signal(signal.SIGINT)
        gate.stand()
        return "done"

    handle = make("sync", [reply(calls=[("stubborn", {})]), reply("fine")], [stubborn], stop_grace=DEADLINE)
    with pytest.raises(KeyboardInterrupt):
        turn("sync", handle)
    assert statuses(handle) == ["running"]
    assert handle.view()["status"] == "running"
    gate.opened.set()
    assert list_contents(turn("sync", handle)) == ["done"]


# --- requests ------------------------------------------------------------------------------------------------


def test_a_stream_is_cut_by_a_stop() -> None:
    """At its next event; its usage counts as far as it is known, and nothing of it joins the history."""
    held = Streamed(reply(LONG, usage={"input_tokens": 7, "output_tokens": 900}), hold=5)
    with sync_wire([held]) as (handle, _):
        with handle.stream_turn() as stream:
            for event in stream:
                if isinstance(event, TextDelta):
                    handle.resume(Stop("enough"))
                    held.release()
        ended = expect_completed(stream.turn)
    check_cut(ended, LONG)
    assert len(handle.messages) == 1


@on_both_backends
def test_an_async_stream_is_cut_while_nothing_arrives(backend: str) -> None:
    held = Streamed(reply(LONG, usage={"input_tokens": 7, "output_tokens": 900}), hold=5)

    async def main() -> None:
        async with async_wire([held]) as (handle, _):
            async with handle.stream_turn() as stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        handle.resume(Stop("enough"))
            check_cut(expect_completed(stream.turn), LONG)

    run_async(backend, main)


def check_cut(ended: Completed, text: str) -> None:
    assert ended.termination == StopCondition("enough")
    assert [(each.is_partial, each.usage.input_tokens) for each in ended.usage_log] == [(True, 7)]
    assert ended.usage_log[0].usage.output_tokens < 900
    assert ended.text
    assert text.startswith(ended.text)
    assert len(ended.text) < len(text)


@on_both_backends
def test_a_request_that_is_not_streamed_is_given_up_after_the_grace(backend: str) -> None:
    """It costs at least what is known: nothing."""
    held = delayed(DEADLINE, reply("too late"))

    async def main() -> None:
        async with async_wire([held], stop_grace=0.1) as (handle, _):
            async with anyio.create_task_group() as group:
                group.start_soon(stop_once_arrived, handle, held)
                ended = expect_completed(await handle.next_turn())
            assert (ended.termination, ended.response) == (StopCondition("enough"), None)
            assert [each.is_partial for each in ended.usage_log] == [True]

    run_async(backend, main)


@on_both_backends
def test_a_reply_that_comes_within_the_grace_is_taken(backend: str) -> None:
    """It is paid for."""
    held = delayed(DEADLINE, reply("just in time", calls=[("slow", {"name": "one"})]))

    async def main() -> None:
        async with async_wire([held], [Refunds().tool()]) as (handle, _):
            async with anyio.create_task_group() as group:

                async def stop() -> None:
                    await stop_once_arrived(handle, held)
                    held.release()

                group.start_soon(stop)
                ended = expect_completed(await handle.next_turn())
            assert (ended.termination, ended.text) == (StopCondition("enough"), "just in time")
            assert [each.is_partial for each in ended.usage_log] == [False]

    run_async(backend, main)


async def stop_once_arrived(handle: Any, held: Delayed) -> None:
    await wait_in_loop_for(held.arrived)
    handle.resume(Stop("enough"))


def test_a_stream_is_cut_by_a_timeout() -> None:
    """As by a stop: its usage counts as far as it is known."""
    held = Streamed(reply(LONG, usage={"input_tokens": 7, "output_tokens": 900}), hold=5)
    with sync_wire([held], timeout=0.2) as (handle, _):
        with handle.stream_turn() as stream:
            list(stream)
        ended = expect_completed(stream.turn)
        held.release()
    assert ended.termination == Timeout(0.2)
    assert [(each.is_partial, each.usage.input_tokens) for each in ended.usage_log] == [(True, 7)]
