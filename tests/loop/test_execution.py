"""Running calls: barrier and ready, side by side and one after the other, results in the model's order."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.each import each
from tests.loop.support import refused, results_in, scene
from toolloop import Approve, Budget, Continue, ToolLoopHandle, tool
from toolloop.errors import IllegalCommand, UndecidedCalls
from toolloop.terminations import BudgetExceeded
from toolloop.testing import call, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
OTHER = call("write", {"path": "c", "text": "d"}, id="toolu_o")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")


def test_under_barrier_nothing_runs_while_a_call_waits() -> None:
    """Continuing is refused, and what was decided has not run."""
    with scene([reply(calls=[ADD, WRITE, OTHER])]) as at:
        turn = at.turn()
        turn.approve("toolu_w")
        with refused(at.handle, UndecidedCalls, "toolu_o", "ready"):
            turn.continue_loop()
        assert at.ran == []


def test_under_ready_what_is_decided_runs_and_the_rest_is_yielded_again() -> None:
    """The first turn ran nothing; each command to go on runs what is decided; the message is built once."""
    with scene([reply(calls=[WRITE, ADD, OTHER]), reply("fine")], execution="ready") as at:
        at.turn().continue_loop()
        turn = at.turn()
        assert at.ran == [("add", 1, 2)]
        assert [result and result.content for result in turn.results] == [None, "3", None]
        turn.approve("toolu_o")
        turn.continue_loop()
        turn = at.turn()
        assert (turn.reason, [call.id for call in turn.pending]) == ("decision_required", ["toolu_w"])
        assert at.ran[1:] == [("write", "c", "d")]
        assert len(at.handle.messages) == 1
        turn.deny("toolu_w", "no")
        turn.continue_loop()
        executed = at.turn()
        assert executed.reason == "tools_executed"
        executed.continue_loop()
        at.done()
        assert [block["tool_use_id"] for block in results_in(at.sent()[-1])] == ["toolu_w", "toolu_a", "toolu_o"]
        assert at.count == 2


def test_under_ready_continuing_without_a_decision_yields_again() -> None:
    """Nothing new to run: the same calls wait, and no request goes out."""
    with scene([reply(calls=[WRITE])], execution="ready") as at:
        at.turn().continue_loop()
        turn = at.turn()
        assert [call.id for call in turn.pending] == ["toolu_w"]
        assert (at.count, at.ran) == (1, [])


def test_calls_run_side_by_side_and_results_keep_the_models_order() -> None:
    """Two calls that wait for each other can only both end if they run at once; the second ends first."""
    both = threading.Barrier(2, timeout=10)
    second_done = threading.Event()

    @tool
    def meet(name: str) -> str:
        """Meet."""
        both.wait()
        if name == "first":
            assert second_done.wait(10)
        else:
            second_done.set()
        return name

    calls = [call("meet", {"name": "first"}), call("meet", {"name": "second"})]
    with scene([reply(calls=calls), reply("fine")], tools=[meet]) as at:
        turn = at.turn()
        assert [result.content for result in turn.results if result] == ["first", "second"]
        turn.continue_loop()
        at.done()
        assert [block["content"] for block in results_in(at.sent()[-1])] == ["first", "second"]


@each("most", [1, 2, 3, None])
def test_at_most_so_many_tools_run_at_once(most: int | None) -> None:
    """`max_parallel_tools` is kept, and used; 1 is one after the other, in the caller's own thread."""
    now, peak, lock = [0], [0], threading.Lock()
    threads: set[int] = set()
    full = threading.Event()

    @tool
    def work() -> str:
        """Work."""
        with lock:
            threads.add(threading.get_ident())
            now[0] += 1
            peak[0] = max(peak[0], now[0])
            if peak[0] == (most or 4):
                full.set()
        assert full.wait(10)
        with lock:
            now[0] -= 1
        return "ok"

    with scene([reply(calls=[("work", {})] * 4), reply("fine")], tools=[work], max_parallel_tools=most) as at:
        at.turn()
        assert peak[0] == (most or 4)
        if most == 1:
            assert threads == {threading.get_ident()}


@each("allowed", [1, 2, 3])
def test_a_budget_of_tool_calls_bounds_the_execution(allowed: int) -> None:
    """Exactly so many start; the rest are settled as not run, and the loop ends."""
    calls = [call("add", {"a": number, "b": 0}) for number in range(2)]
    with scene([reply(calls=calls), reply("fine")], budget=Budget(tool_calls=allowed)) as at:
        end: Any = at.handle.run()
        assert len(at.ran) == min(allowed, 2)
        if allowed < 2:
            assert end.termination == BudgetExceeded("tool_calls", allowed, allowed)
            results = results_in(at.handle.messages[-1])
            assert [block.get("is_error", False) for block in results] == [number >= allowed for number in range(2)]
        elif allowed == 2:
            assert end.termination == BudgetExceeded("tool_calls", 2, 2)
            assert at.count == 1
        else:
            assert end.text == "fine"


def test_a_budget_of_no_tool_calls_ends_before_the_first_request() -> None:
    """Each part of the budget is checked before a request too."""
    with scene([], budget=Budget(tool_calls=0)) as at:
        assert at.done().termination == BudgetExceeded("tool_calls", 0, 0)


def test_a_decision_of_another_thread_during_a_turn_joins_the_next() -> None:
    """While a tool runs under `ready`, a decision is taken at once, and its call runs with the next command."""
    handles: list[ToolLoopHandle] = []

    @tool
    def decider() -> str:
        """Approve the other call from a thread of its own."""
        (waiting,) = handles[0].pending
        thread = threading.Thread(target=handles[0].decide, args=({waiting: Approve(by="another thread")},))
        thread.start()
        thread.join()
        return "approved"

    @tool(needs_approval=True)
    def guarded() -> str:
        """Run only if approved."""
        return "ran"

    script = [reply(calls=[call("guarded", id="toolu_g"), call("decider")]), reply("fine")]
    with scene(script, tools=[guarded, decider], execution="ready") as at:
        handles.append(at.handle)
        at.turn().continue_loop()
        turn = at.turn()
        assert (turn.reason, len(turn.pending)) == ("decision_required", 0)
        assert [call.status for call in turn.calls] == ["decided", "settled"]
        at.handle.resume(Continue())
        turn = at.turn()
        assert [result.content for result in turn.results if result] == ["ran", "approved"]


def test_a_second_driver_is_told_so_at_once() -> None:
    """One caller drives: `next_turn` during one raises, and `messages_mut` too; reads are always possible."""
    handles: list[ToolLoopHandle] = []
    seen: list[Any] = []

    @tool
    def drive() -> str:
        """Drive the loop that this call is of."""
        handle = handles[0]
        for move in (handle.next_turn, handle.run, handle.messages_mut):
            with pytest.raises(IllegalCommand) as caught:
                move()
            seen.append(caught.value.state)
        seen.append((handle.pending, handle.view()["state"], len(handle.messages), bool(handle.snapshot())))
        return "ok"

    with scene([reply(calls=[("drive", {})]), reply("fine")], tools=[drive]) as at:
        handles.append(at.handle)
        assert [result.content for result in at.turn().results if result] == ["ok"]
        assert seen == ["Running", "Running", "Running", ((), "Running", 1, True)]


@each("most", [1, 8])
@each("kind", [GeneratorExit, SystemExit, KeyboardInterrupt])
def test_after_an_exit_in_one_call_the_others_wait_and_the_loop_goes_on(kind: type[BaseException], most: int) -> None:
    """Under barrier nothing starts beside an uncertain call; the exit comes out once, and nothing else does."""
    rude = [kind]
    ran: list[str] = []

    @tool
    def first() -> str:
        """Exit."""
        raise rude.pop()

    @tool
    def second() -> str:
        """Be quiet."""
        ran.append("second")
        return "quiet"

    calls = [call("first", id="toolu_1"), call("second", id="toolu_2")]
    with scene([reply(calls=calls), reply("fine")], tools=[first, second], max_parallel_tools=most) as at:
        with pytest.raises(kind):
            at.handle.next_turn()
        turn = at.turn()
        assert [(each.id, each.why) for each in turn.pending] == [("toolu_1", "uncertain")]
        if most == 1:
            assert ran == []
        turn.answer("toolu_1", "it did")
        assert at.handle.run().unwrap().text == "fine"
        assert ran == ["second"]
        assert [block["content"] for block in results_in(at.sent()[-1])] == ["it did", "quiet"]
