"""Ctrl-C, wherever it strikes, leaves a loop that can go on: no call runs twice, none is lost, nothing hangs."""

from __future__ import annotations

import itertools
import json
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.each import each
from tests.effort import IS_DEEP
from tests.loop.concurrency import DEADLINE, Background, Counted, either_kind, sync_loop
from tests.loop.support import completed
from toolloop import Texts, ToolContext, ToolLoopHandle, Yielded, tool
from toolloop.testing import reply

ROOT = Path(__file__).parents[2]


class Strike:
    """Raises KeyboardInterrupt where a thread enters a function of the handles for the n-th time."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> None:
        # A signal is handled where a function is entered, so that is where it may strike.
        # (Not in a generator expression: what is raised while one is thrown away is raised nowhere.)
        code = frame.f_code
        if event == "call" and "toolloop/loop" in code.co_filename and code.co_name != "<genexpr>":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt


def struck(handle: ToolLoopHandle, at: int) -> int:
    """Run a loop and strike once, then let it go on to its end. Returns how many places there were."""
    strike = Strike(at)

    def work() -> None:
        before = sys.gettrace()
        sys.settrace(strike.trace)
        try:
            handle.run(ask)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        completed(handle.run(ask))

    Background(work).result()
    return strike.count


def ask(turn: Yielded) -> None:
    """Approve what waits for it, and answer what nobody saw the end of."""
    for call in turn.pending:
        if call.why == "uncertain":
            turn.answer(call, "I looked: it is done")
        else:
            turn.approve(call)


def everywhere(calls: int, every: int) -> tuple[int, int]:
    """Strike at every place of a loop in turn, or at every second one, or so; how many strikes, and uncertain calls."""
    uncertain = 0
    for number, at in enumerate(itertools.count(1, every)):
        counted = Counted()
        wanted: list[tuple[str, dict[str, Any]]] = [("work", {}) for _ in range(calls)]
        script = [reply(calls=wanted), reply(calls=wanted), *[reply("that is all")] * 3]
        # A request that was struck after it was answered is made again, so the script answers by what it is asked.
        handle = sync_loop(lambda body, script=script: script[len(body["messages"]) // 2], [counted_tool(counted)])
        reached = struck(handle, at) == at
        counted.assert_once()
        results = [block for message in handle.messages for block in results_of(message)]
        ids = [block["tool_use_id"] for block in results]
        assert sorted(ids) == sorted(set(ids)), f"place {at}: a call has two results"
        assert len(ids) == 2 * calls, f"place {at}: a call was lost"
        by_hand = {block["tool_use_id"] for block in results if block["content"] != "done"}
        assert set(ids) - by_hand <= set(counted.ran), f"place {at}: a result of a call that never ran"
        uncertain += bool(by_hand)
        if not reached:
            return number, uncertain
    raise AssertionError


def counted_tool(counted: Counted) -> Any:
    @tool
    def work(context: ToolContext) -> str:
        """Do something that must not be done twice."""
        counted.add(context)
        return "done"

    return work


def results_of(message: Any) -> list[Any]:
    content = message["content"] if message["role"] == "user" else []
    return [block for block in content if isinstance(block, dict) and block["type"] == "tool_result"]


@each(("calls", "every"), [(1, 1), (2, 1)] if IS_DEEP else [(1, 5), (2, 7)])
def test_an_interrupt_at_every_place_of_a_loop_leaves_one_that_goes_on(calls: int, every: int) -> None:
    """One call runs in the caller's thread, two in threads of their own."""
    places, uncertain = everywhere(calls, every)
    assert places * every > 200
    assert uncertain < places // 2
    assert uncertain or calls > 1


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
            if not select.select([program.stdout], [], [], DEADLINE if looks_up else 2)[0]:
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
