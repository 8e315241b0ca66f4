"""One turn, in order: what `next_turn` looks at first, and what wins over what."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from tests.kit.each import each
from tests.kit.support import expect_refusal, results_in
from tests.kit.tools import assistant, user
from tests.kit.world import open_over_http
from toolloop import Ask, AsyncToolLoopHandle, Budget, Stop, Texts, ToolLoopHandle, tool
from toolloop.errors import MaxDepthExceeded, UndecidedCalls
from toolloop.events import (
    CallDecided,
    CallFinished,
    CallProposed,
    CallStarted,
    CallWaiting,
    LoopFinished,
    RequestAnswered,
    RequestStarted,
)
from toolloop.terminations import BudgetExceeded, MaxIterations, StopCondition, Timeout
from toolloop.testing import AsyncScriptedProvider, call, fault, reply

ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")


def test_1_a_terminal_result_comes_first() -> None:
    """Whatever was changed since: the same object, and no request."""
    with open_over_http([reply("end")]) as at:
        done = at.expect_done()
        at.handle.update_params(max_tokens=1)
        at.handle.messages_mut().append(user("not adopted by next_turn"))
        assert at.handle.next_turn() is done
        assert at.count == 1


def test_2_depth_goes_before_the_limits() -> None:
    """A loop too deep is an `Error`, though its timeout of nothing is met as well."""
    with open_over_http([], depth=1, max_depth=1, timeout=0, max_iterations=0) as at:
        assert isinstance(at.expect_failed().error, MaxDepthExceeded)


def test_2_depth_is_looked_at_on_the_first_call_alone() -> None:
    """A loop that has begun goes on."""
    with open_over_http([reply(calls=[ADD]), reply("end")], depth=1, max_depth=2) as at:
        assert at.handle.run().unwrap().text == "end"


@each("config", [{"timeout": 0}, {"max_iterations": 0}, {"budget": Budget(requests=0)}])
def test_3_stop_wins_over_every_limit(config: Any) -> None:
    """`StopCondition`, though a limit would have ended the loop."""
    with open_over_http([], **config) as at:
        at.handle.resume(Stop("mine"))
        assert at.expect_done().termination == StopCondition("mine")


def test_3_stop_wins_over_a_stop_of_before() -> None:
    """The first stop is the end: a second one after it does nothing."""
    with open_over_http([reply(calls=[ADD])]) as at:
        turn = at.turn()
        turn.stop("first")
        at.handle.resume(Stop("second"))
        assert at.expect_done().termination == StopCondition("first")


def test_4_an_open_round_goes_on_without_a_request() -> None:
    """What is decided runs; the limits on requests do not keep it from running."""
    with open_over_http([reply(calls=[WRITE])], max_iterations=1) as at:
        at.turn().approve_all()
        done = at.handle.run().unwrap()
        assert (at.count, len(at.did), done.termination) == (1, 1, MaxIterations(1))
        assert "is_error" not in results_in(at.handle.messages[-1])[0]


@each(
    ("config", "end"),
    [
        (
            {"timeout": 0, "budget": Budget(requests=0), "max_iterations": 0},
            Timeout(0),
        ),
        ({"budget": Budget(requests=0), "max_iterations": 0}, BudgetExceeded("requests", 0, 0)),
        ({"max_iterations": 0}, MaxIterations(0)),
    ],
)
def test_5_the_limits_are_checked_in_order(config: Any, end: Any) -> None:
    """Timeout, budget, iterations: where several are met, the first one is the end."""
    with open_over_http([], **config) as at:
        assert at.expect_done().termination == end


def test_6_a_failed_request_is_not_an_iteration() -> None:
    """The next one has the same number."""
    with open_over_http([fault(529), reply("end")]) as at:
        failed = at.expect_failed()
        at.handle.retry()
        done = at.expect_done()
        numbers = [event.iteration for event in (*failed.events, *done.events) if isinstance(event, RequestStarted)]
        assert (numbers, done.iterations) == ([1, 1], 1)


def test_8_one_waiting_call_keeps_the_whole_round_from_running() -> None:
    """Nothing has run, not even calls that need no approval."""
    with open_over_http([reply(calls=[ADD, WRITE, ADD | {"id": "toolu_b"}])]) as at:
        assert (at.turn().reason, at.did) == ("decision_required", [])


def test_9_a_start_is_recorded_before_the_tool_runs() -> None:
    """Inside the tool the loop already knows that the call was started."""
    seen: list[str] = []
    handles: list[ToolLoopHandle] = []

    @tool
    def look_at_itself() -> str:
        """Look at the state of its own call."""
        round_ = handles[0].state.root.round
        seen.extend(str(mine.status) for mine in (round_.calls if round_ else ()))
        return "ok"

    with open_over_http([reply(calls=[("look_at_itself", {})])], tools=[look_at_itself]) as at:
        handles.append(at.handle)
        at.turn()
        assert seen == ["running"]


def test_10_the_round_closes_into_one_user_message_of_results() -> None:
    """In the model's order, whatever became of each: ran, denied, answered, failed, unknown, invalid."""
    calls = [
        call("write", {"path": "a", "text": "b"}, id="toolu_1"),
        call("add", {"a": "x"}, id="toolu_2"),
        call("add", {"a": 1, "b": 1}, id="toolu_3"),
        call("broken", {}, id="toolu_4"),
        call("nothing", {}, id="toolu_5"),
        call("write", {"path": "c", "text": "d"}, id="toolu_6"),
    ]

    def policy(asked: Any, view: Any) -> Any:
        return Ask() if asked.name == "write" else None

    with open_over_http([reply(calls=calls), reply("end")], on_tool_call=policy) as at:
        turn = at.turn()
        turn.deny("toolu_6", "no")
        turn.answer("toolu_1", "mine")
        turn.continue_loop()
        executed = at.turn()
        assert executed.reason == "tools_executed"
        message = at.handle.messages[-1]
        assert [block["tool_use_id"] for block in message["content"]] == [f"toolu_{number}" for number in range(1, 7)]
        assert [block.get("is_error", False) for block in message["content"]] == [False, True, False, True, True, True]
        assert [result.content for result in executed.results if result] == [
            block["content"] for block in message["content"]
        ]
        assert message["content"][5]["content"] == Texts().denied.format(reason="no")
        executed.continue_loop()
        at.expect_done()
        assert at.list_sent() == list(at.handle.messages[:3])


def test_10_a_closed_message_never_changes() -> None:
    """What went out once goes out again, byte by byte, as the beginning of every later request."""
    with open_over_http([reply(calls=[ADD]), reply("hm", calls=[ADD]), reply("end")]) as at:
        at.turn().inject_and_continue([user("more")])
        at.handle.run()
        first, second, third = (request.body for request in at.api.requests)
        assert second.startswith(first[:-2])
        assert third.startswith(second[:-2])
        assert at.handle.messages[-1] == assistant([{"type": "text", "text": "end"}])


OTHER = call("write", {"path": "c", "text": "d"}, id="toolu_o")


def test_under_barrier_nothing_runs_while_a_call_waits() -> None:
    """Continuing is refused, and what was decided has not run."""
    with open_over_http([reply(calls=[ADD, WRITE, OTHER])]) as at:
        turn = at.turn()
        turn.approve("toolu_w")
        with expect_refusal(at.handle, UndecidedCalls, "toolu_o", "ready"):
            turn.continue_loop()
        assert at.did == []


def test_under_ready_what_is_decided_runs_and_the_rest_is_yielded_again() -> None:
    """The first turn ran nothing; each command to go on runs what is decided; the message is built once."""
    with open_over_http([reply(calls=[WRITE, ADD, OTHER]), reply("fine")], execution="ready") as at:
        at.turn().continue_loop()
        turn = at.turn()
        assert at.did == [("add", 1, 2)]
        assert [result and result.content for result in turn.results] == [None, "3", None]
        turn.approve("toolu_o")
        turn.continue_loop()
        turn = at.turn()
        assert (turn.reason, [call.id for call in turn.pending]) == ("decision_required", ["toolu_w"])
        assert at.did[1:] == [("write", "c", "d")]
        assert len(at.handle.messages) == 1
        turn.deny("toolu_w", "no")
        turn.continue_loop()
        executed = at.turn()
        assert executed.reason == "tools_executed"
        executed.continue_loop()
        at.expect_done()
        assert [block["tool_use_id"] for block in results_in(at.list_sent()[-1])] == ["toolu_w", "toolu_a", "toolu_o"]
        assert at.count == 2


def test_under_ready_continuing_without_a_decision_yields_again() -> None:
    """Nothing new to run: the same calls wait, and no request goes out."""
    with open_over_http([reply(calls=[WRITE])], execution="ready") as at:
        at.turn().continue_loop()
        turn = at.turn()
        assert [call.id for call in turn.pending] == ["toolu_w"]
        assert (at.count, at.did) == (1, [])


@each("allowed", [1, 2, 3])
def test_a_budget_of_tool_calls_bounds_the_execution(allowed: int) -> None:
    """Exactly so many start; the rest are settled as not run, and the loop ends."""
    calls = [call("add", {"a": number, "b": 0}) for number in range(2)]
    with open_over_http([reply(calls=calls), reply("fine")], budget=Budget(tool_calls=allowed)) as at:
        end: Any = at.handle.run()
        assert len(at.did) == min(allowed, 2)
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
    with open_over_http([], budget=Budget(tool_calls=0)) as at:
        assert at.expect_done().termination == BudgetExceeded("tool_calls", 0, 0)


def test_8_and_9_the_events_of_a_turn_come_in_order() -> None:
    """Request, answer, proposals, waiting, decisions; then each start before its end; the end of the loop last."""
    seen: list[Any] = []
    script = [reply(calls=[ADD, WRITE]), reply("end")]
    with open_over_http(script, observers=[seen.append], max_parallel_tools=1) as at:
        at.turn().approve_all(by="ana")
        at.handle.run()
    assert [type(event) for event in seen] == [
        RequestStarted,
        RequestAnswered,
        CallProposed,
        CallProposed,
        CallWaiting,
        CallDecided,
        CallStarted,
        CallFinished,
        CallStarted,
        CallFinished,
        RequestStarted,
        RequestAnswered,
        LoopFinished,
    ]
    assert [event.iteration for event in seen] == [1] * 10 + [2] * 3
    assert (seen[4].why, seen[5].kind, seen[5].by) == ("approval", "approve", "ana")


@each("kind", ["sync", "asyncio", "stream"])
def test_a_text_is_not_a_function_that_decides(kind: str) -> None:
    """`ask` is named, and where words go; nothing is sent."""
    words: Any = "What is the weather?"
    with open_over_http([reply("fine")]) as at:
        later = AsyncToolLoopHandle(AsyncScriptedProvider([]), params={"model": "m", "max_tokens": 9})
        ways: dict[str, Any] = {"sync": at.handle.run, "stream": at.handle.stream}
        ways["asyncio"] = partial(anyio.run, later.run)
        with pytest.raises(TypeError, match=r"ask: expected .* got a str.*follow_up\(\)"):
            ways[kind](words)
        assert at.count == 0
