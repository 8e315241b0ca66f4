"""Interleavings at the worst place: one thread is held there while another acts."""

from __future__ import annotations

import itertools
import sys
import threading
from contextlib import suppress
from types import FrameType

import anyio
import pytest

from tests.kit import inside
from tests.kit.concurrency import (
    Background,
    Gate,
    Held,
    async_loop,
    either_kind,
    run_async,
    sync_loop,
    turn,
    wait_for,
)
from tests.kit.each import each
from tests.kit.support import expect_completed, expect_yielded
from tests.kit.tools import user
from toolloop import (
    AsyncToolLoopHandle,
    Completed,
    Continue,
    Error,
    InjectMessages,
    Stop,
    Texts,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import IllegalCommand
from toolloop.terminations import StopCondition
from toolloop.testing import call, reply


@tool
def look() -> str:
    """Look."""
    return "seen"


@tool(needs_approval=True)
def write(path: str) -> str:
    """Write."""
    return f"written {path}"


def loop(kind: str, script: list[object], **config: object) -> ToolLoopHandle | AsyncToolLoopHandle:
    return (sync_loop if kind == "sync" else async_loop)(script, [look, write], **config)


def end_of(
    kind: str, handle: ToolLoopHandle | AsyncToolLoopHandle, driver: Background[Yielded | Completed | Error]
) -> Completed:
    """How the loop ended; what is said just after a turn was handed out spends that turn."""
    result = driver.result()
    if isinstance(result, Yielded):
        assert result.is_spent
        result = turn(kind, handle)
    return expect_completed(result)


@either_kind
@each("place", ["_send", "begin", "launch", "send", "complete", "take_end"])
def test_stop_counts_at_every_moment_around_a_request(kind: str, place: str) -> None:
    """However close to a request it is said, a stop ends the loop as a stop."""
    handle = loop(kind, [reply(calls=[("look", {})])])
    held = Held(place)
    driver = Background(lambda: turn(kind, handle), held)
    held.act_meanwhile(handle, lambda: handle.resume(Stop("enough")))
    assert end_of(kind, handle, driver).termination == StopCondition("enough")


@either_kind
@each("place", ["judge", "_record_judgement", "_start", "take_error"])
def test_stop_counts_at_every_moment_of_a_turn(kind: str, place: str) -> None:
    """Between any two steps of a turn a stop ends the loop, and the call has its one result."""
    handle = loop(kind, [reply(calls=[("look", {})])], max_parallel_tools=1)
    held = Held(place)
    driver = Background(lambda: turn(kind, handle), held)
    held.act_meanwhile(handle, lambda: handle.resume(Stop("enough")))
    assert end_of(kind, handle, driver).termination == StopCondition("enough")
    assert [message["role"] for message in handle.messages] == ["user", "assistant", "user"]


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_a_stop_while_the_thread_of_a_tool_starts_says_that_it_runs(kind: str) -> None:
    """Nothing says yet whether the thread begins the call. It does not, and the loop ends then."""
    handle = loop(kind, [reply(calls=[("look", {})])], stop_grace=0)
    held = Held("_launch")
    threading.setprofile(held.trace)
    try:
        driver = Background(lambda: turn(kind, handle))
        held.wait()
        handle.resume(Stop("enough"))
        assert [each.name for each in expect_completed(driver.result()).running] == ["look"]
    finally:
        threading.setprofile(None)
        held.let_go()
    for thread in threading.enumerate():
        if thread.name.startswith("toolloop-"):
            thread.join()
    assert handle.status == "ended"
    assert handle.messages[-1]["content"][0]["content"] == Texts().not_run


@either_kind
def test_a_loop_that_is_continued_before_its_turn_is_handed_out_goes_on(kind: str) -> None:
    """Another thread may continue as soon as it sees that it can: the driver then goes round again."""
    handle = loop(kind, [reply(calls=[("look", {})]), reply("done")])
    held = Held("take_error")
    driver = Background(lambda: turn(kind, handle), held)
    held.act_meanwhile(handle, lambda: handle.resume(Continue()))
    ended = expect_completed(driver.result())
    assert ended.text == "done"
    assert turn(kind, handle) is ended


@either_kind
def test_a_decision_and_a_command_before_the_turn_is_handed_out_are_followed(kind: str) -> None:
    """An edited approval leads back to the policies, and from there on."""
    handle = loop(kind, [reply(calls=[("write", {"path": "this"})]), reply("done")])
    held = Held("take_error")
    driver = Background(lambda: turn(kind, handle), held)

    def say() -> None:
        waiting = handle.pending_turn
        assert waiting is not None
        waiting.approve(waiting.pending[0], {"path": "other"})
        waiting.continue_loop()

    held.act_meanwhile(handle, say)
    assert expect_yielded(driver.result()).reason == "tools_executed"


@either_kind
def test_an_injection_while_an_edit_is_adopted_is_not_lost(kind: str) -> None:
    """The edited history and what another thread says at this very moment are both in it."""
    handle = loop(kind, [reply(calls=[("look", {})]), *[reply("yes")] * 2])
    handle.messages_mut()[0]["content"] = "edited"
    held = Held("refuse_invalid")
    driver = Background(lambda: turn(kind, handle), held)
    held.act_meanwhile(handle, lambda: handle.resume(InjectMessages([user("and this")])))
    driver.result()
    while not handle.is_finished:
        if (waiting := handle.pending_turn) is not None:
            waiting.continue_loop()
        turn(kind, handle)
    contents = [message["content"] for message in handle.messages if message["role"] == "user"]
    assert [content for content in contents if isinstance(content, str)] == ["edited", "and this"]


@each("place", ["_drive_turn", "drive", "continue_turn", "go_on"])
def test_run_goes_on_with_every_caller_that_continues(place: str) -> None:
    """What another thread says between two steps of `run` never comes back to its caller as an error."""
    handle = sync_loop([reply(calls=[("look", {})]), reply(calls=[("look", {})]), reply("done")], [look])
    first = expect_yielded(handle.next_turn())
    held = Held(place)
    runner = Background(handle.run, held)

    def go_on() -> None:
        if (waiting := handle.pending_turn) is not None:
            with suppress(IllegalCommand):  # `run` may continue between these two lines, too
                waiting.continue_loop()

    held.act_meanwhile(handle, go_on)
    assert expect_completed(runner.result()).text == "done"
    assert first.is_spent


@either_kind
@each("place", ["wake", "having"])
def test_a_left_behind_tool_may_end_just_as_the_next_turn_begins(kind: str, place: str) -> None:
    """Its end is recorded once, and is not reported as cancelled."""
    gates = {"one": Gate(), "two": Gate()}

    @tool
    def slow(gate: str) -> str:
        """Stand at a gate."""
        gates[gate].stand()
        return "late but good"

    calls = [("slow", {"gate": name}) for name in gates]
    handle = (sync_loop if kind == "sync" else async_loop)([reply(calls=calls), reply("done")], [slow])
    _interrupt_while_tools_run(kind, handle, gates)
    ends = _ends_of(handle, 2)
    held = Held(place)
    driver = Background(lambda: turn(kind, handle), held)

    def end() -> None:
        for gate in gates.values():
            gate.opened.set()
        wait_for(ends)

    held.act_meanwhile(handle, end)
    turned = expect_yielded(driver.result())
    assert [result.content for result in turned.results if result] == ["late but good"] * 2


def _interrupt_while_tools_run(kind: str, handle: ToolLoopHandle | AsyncToolLoopHandle, gates: dict[str, Gate]) -> None:
    if isinstance(handle, AsyncToolLoopHandle):

        async def cancel() -> None:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def cancel() -> None:
                        for gate in gates.values():
                            await anyio.to_thread.run_sync(wait_for, gate.arrived)
                        scope.cancel()

                    group.start_soon(cancel)
                    await handle.next_turn()

        run_async(kind, cancel)
        return

    arrived = [gate.arrived for gate in gates.values()]
    with inside.interrupt_wait(handle, *arrived), pytest.raises(KeyboardInterrupt):
        handle.next_turn()


def _ends_of(handle: ToolLoopHandle | AsyncToolLoopHandle, count: int) -> threading.Event:
    """Set when so many calls of the loop have ended."""
    ended, rings = threading.Event(), itertools.count(1)

    def note() -> None:
        if next(rings) == count:
            ended.set()

    inside.call_before_each_notification(handle, note)
    return ended


def test_a_call_whose_thread_has_not_got_going_is_not_given_up() -> None:
    """Another call's exit ends the turn while its thread stands at the start: the next turn waits for it."""
    standing, go = threading.Event(), threading.Event()
    ran: list[str] = []

    @tool
    def exits() -> str:
        """Exit, as soon as the other thread is there."""
        wait_for(standing)
        raise SystemExit

    @tool
    def slow_to_start() -> str:
        """Run."""
        ran.append("ran")
        return "done"

    def hold(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_name == "launch" and threading.current_thread().name == "toolloop-toolu_2":
            standing.set()
            wait_for(go)

    def let_go(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_name == "poll":  # the turn has looked at what it woke up with
            go.set()

    calls = [call("exits", id="toolu_1"), call("slow_to_start", id="toolu_2")]
    handle = sync_loop([reply(calls=calls), reply("fine")], [exits, slow_to_start])
    before, before_threads = sys.gettrace(), threading.gettrace()
    try:
        threading.settrace(hold)
        with pytest.raises(SystemExit):
            handle.next_turn()
        threading.settrace(before_threads)
        assert ran == []
        sys.settrace(let_go)
        turn = expect_yielded(handle.next_turn())
    finally:
        sys.settrace(before)
        threading.settrace(before_threads)
        go.set()
    assert [(each.id, each.why) for each in turn.pending] == [("toolu_1", "uncertain")]
    assert ran == ["ran"]
    turn.answer("toolu_1", "it exited")
    assert expect_completed(handle.run()).text == "fine"
