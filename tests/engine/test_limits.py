"""Limits and depth: exactly the boundary, one below, one above; `extend` goes on where a limit stopped."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from attrs import frozen

from tests.kit import inside
from tests.kit.concurrency import either_kind, run_async
from tests.kit.each import each
from tests.kit.support import expect_error, results_in
from tests.kit.tools import HUNDRED, TOOLS, params, user
from tests.kit.world import open_over_http
from toolloop import (
    Ask,
    AsyncToolLoopHandle,
    Budget,
    Deny,
    Error,
    LoopConfig,
    LoopContext,
    Texts,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import IllegalCommand, MaxDepthExceeded, ProtocolError
from toolloop.terminations import BudgetExceeded, MaxIterations, NaturalEnd, Timeout
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, fault, reply

ADD = reply("adding", calls=[("add", {"a": 1, "b": 2})], usage=HUNDRED)
END = reply("end", usage=HUNDRED)


@each("ends", ["at a limit", "by the caller", "by itself"])
def test_a_snapshot_after_the_end_holds_the_history_once(ends: str) -> None:
    """Also if a limit ended the loop, so that it can be resumed."""
    long = "word " * 2_000
    with open_over_http(
        [END if ends == "by itself" else ADD, END], asked=params(messages=[user(long)]), max_iterations=1
    ) as at:
        turn = at.handle.next_turn()
        if ends == "by the caller":
            at.handle.stop()
        elif isinstance(turn, Yielded):
            turn.continue_loop()
        at.expect_done()
        assert json.dumps(at.handle.snapshot()).count(long) == 1
        if ends == "at a limit":
            restored = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS)
            restored.extend(max_iterations=2)
            assert restored.run().text == "end"
            assert restored.messages[: len(at.handle.messages)] == at.handle.messages


@each(("limit", "asked"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (None, 3)])
def test_exactly_limit_requests_are_answered(limit: int | None, asked: int) -> None:
    """A loop of three requests under each limit; the end reports the iterations that really happened."""
    with open_over_http([ADD, ADD, END], max_iterations=limit) as at:
        done = at.handle.run().unwrap()
        assert (at.count, done.iterations) == (asked, asked)
        assert done.termination == (MaxIterations(limit) if limit is not None and limit < 3 else NaturalEnd())


@each("stop_reason", ["tool_use", "pause_turn", "end_turn"])
@each(("limit", "runs"), [(2, False), (3, True), (None, True)])
def test_a_reply_with_too_many_calls_is_an_error_and_none_of_them_runs(
    limit: int | None, runs: bool, stop_reason: str
) -> None:
    """It counts in usage and iterations; another reply can be asked for."""
    calls = [("add", {"a": 1, "b": number}) for number in range(3)]
    many = reply("adding", calls=calls, stop_reason=stop_reason, usage=HUNDRED)
    with open_over_http([many, END, END], max_calls_per_reply=limit) as at:
        turn = at.handle.run()
        if not runs:
            error = expect_error(turn)
            assert isinstance(error.error, ProtocolError)
            assert "3 calls, and the limit is 2" in str(error.error)
            assert (error.iterations, error.total_usage.input_tokens, at.did) == (1, 100, [])
            assert at.handle.messages == (user(),)
            at.handle.retry()
        assert at.handle.run().unwrap().text == ("adding" if runs and stop_reason == "end_turn" else "end")
        assert len(at.did) == (3 if runs and stop_reason != "end_turn" else 0)


def test_the_limit_of_calls_in_a_reply_is_stored() -> None:
    """A loop that wakes up has the limit that it was given."""
    with open_over_http([], max_calls_per_reply=1) as at:
        both = reply(calls=[("add", {"a": 1, "b": 2}), ("add", {"a": 1, "b": 3})])
        copy = ToolLoopHandle.restore(at.handle.snapshot(), ScriptedProvider([both]), tools=TOOLS)
        assert isinstance(expect_error(copy.run()).error, ProtocolError)


def test_iterations_count_per_user_turn_and_the_budget_counts_the_whole_loop() -> None:
    """`follow_up` restarts the count of iterations and the time, but not the budget."""
    with open_over_http([ADD, END, ADD, END], max_iterations=2, budget=Budget(requests=3)) as at:
        assert at.handle.run().unwrap().termination == NaturalEnd()
        at.handle.follow_up([user("again")])
        done = at.handle.run().unwrap()
        assert (done.termination, done.iterations) == (BudgetExceeded("requests", 3, 3), 3)


def test_extend_goes_on_where_the_limit_stopped() -> None:
    """The last round is closed and its results go out; nothing runs twice."""
    with open_over_http([ADD, ADD, END], max_iterations=1) as at:
        for limit in (1, 2):
            assert at.handle.run().unwrap().termination == MaxIterations(limit)
            at.handle.extend(max_iterations=limit + 1)
            assert not at.handle.is_finished
        assert at.handle.run().unwrap().text == "end"
        assert (at.did, at.count) == ([("add", 1, 2)] * 2, 3)


def test_a_timeout_bounds_the_execution_and_extend_lets_the_rest_run() -> None:
    """A call that comes after the time is up is not run; after `extend` it runs, the finished one does not again."""
    ran: list[str] = []

    @tool
    def slow(name: str) -> str:
        """Take much time."""
        inside.active_time_passes(at.handle, 100)
        ran.append(name)
        return name

    calls = [call("slow", {"name": "one"}), call("slow", {"name": "two"})]
    with open_over_http([reply(calls=calls), END], tools=[slow], max_parallel_tools=1, timeout=60) as at:
        done = at.handle.run().unwrap()
        assert (done.termination, ran) == (Timeout(60), ["one"])
        results = results_in(at.handle.messages[-1])
        assert results[-1]["content"] == Texts().not_run
        at.handle.extend(timeout=600)
        assert at.handle.run().unwrap().text == "end"
        assert ran == ["one", "two"]
        assert [block["content"] for block in results_in(at.list_sent()[-1])] == ["one", "two"]


def test_extend_before_a_limit_is_met_changes_the_limits_alone() -> None:
    """It is possible in every state but that of a loop that may not run, and spends no turn."""
    with open_over_http([ADD, END], max_iterations=1) as at:
        turn = at.turn()
        at.handle.extend(max_iterations=2, max_pauses=3, timeout=60, budget=Budget(requests=9))
        assert at.handle.view()["left"]["iterations"] == 1
        turn.continue_loop()
        assert at.expect_done().text == "end"


def test_extend_after_another_end_does_not_go_on() -> None:
    """What was stopped, refused or complete stays so: the same result again."""
    with open_over_http([END]) as at:
        at.expect_done()
        at.handle.extend(max_iterations=99)
        assert at.handle.is_finished
        assert at.expect_done().termination == NaturalEnd()


@each(
    "change", [{"max_iterations": -1}, {"max_pauses": 1.5}, {"timeout": -1}, {"timeout": float("inf")}, {"budget": 5}]
)
def test_a_bad_limit_is_refused(change: Any) -> None:
    """It names the limit, and changes nothing."""
    with open_over_http([ADD]) as at:
        before = at.handle.snapshot()
        with pytest.raises(ValueError, match=next(iter(change))):
            at.handle.extend(**change)
        assert at.handle.snapshot() == before


def test_a_failed_request_counts_for_no_limit() -> None:
    """The iteration did not happen."""
    with open_over_http([fault(529), END], max_iterations=1, budget=Budget(requests=1)) as at:
        assert at.expect_failed().iterations == 0
        at.handle.retry()
        assert at.expect_done().text == "end"


@each("opinion", [Ask(), Deny("no")])
def test_the_time_of_a_policy_is_active_time(opinion: Any) -> None:
    """Whether the turn ends in a question or goes on: only waiting for the caller is free."""

    def slow(*_: Any) -> Any:
        inside.active_time_passes(at.handle, 60.0)
        return opinion

    with open_over_http([reply(calls=[("add", {"a": 1, "b": 2})])], on_tool_call=slow, timeout=60.0) as at:
        turn = at.turn()
        if turn.pending:
            turn.answer(turn.pending[0], "3")
        turn.continue_loop()
        assert at.handle.run().unwrap().termination == Timeout(60.0)
        assert at.count == 1


DOWN = reply(calls=[("deeper", {})])


@frozen
class Misleading:
    """An object of the caller that looks as if it knew how deep it is."""

    depth: int = 0
    state: Any = None


STATES: dict[str, Any] = {
    "none": None,
    "a number": 7,
    "a mapping": {"depth": 0},
    "an object with a depth": Misleading(),
    "a context": LoopContext(state="x", depth=0),
    "a tool's context": ToolContext(call_id="c", loop_id="l", iteration=1, depth=0, idempotency_key="k"),
}


def call_once(request: dict[str, Any]) -> Any:
    """The model calls the tool, and then is content."""
    return DOWN if len(request["messages"]) == 1 else reply("up")


@each("state", STATES.values())
def test_each_handle_in_a_tool_is_one_deeper(state: Any) -> None:
    """Depths are 0, 1, 2 down to the limit, and the caller's object is handed down as it is."""
    provider = ScriptedProvider(call_once)
    seen: list[tuple[int, bool]] = []
    ends: list[Any] = []

    @tool
    def deeper(context: ToolContext) -> str:
        """Ask another loop."""
        inner = ToolLoopHandle(provider, params=params(), tools=[deeper], context=context)
        seen.append((inner.depth, context.state is state))
        ends.append(inner.run())
        return "back"

    outer = ToolLoopHandle(provider, params=params(), tools=[deeper], context=LoopContext(state=state))
    assert outer.run().unwrap().text == "up"
    assert seen == [(1, True), (2, True), (3, True)]
    deepest, *others = ends
    error = expect_error(deepest).error
    assert isinstance(error, MaxDepthExceeded)
    assert (error.current, error.limit) == (3, 3)
    assert [end.text for end in others] == ["up", "up"]
    assert len(provider.requests) == 6  # two of each of the three that ran


def turn(kind: str, depth: int, limit: int | None) -> tuple[Any, Any, Any]:
    """A handle at a depth, its first turn, and its provider."""
    parts: dict[str, Any] = {
        "params": params(),
        "context": LoopContext(depth=depth),
        "config": LoopConfig(max_depth=limit),
    }
    if kind == "sync":
        provider: Any = ScriptedProvider([reply("fine")])
        handle: Any = ToolLoopHandle(provider, **parts)
        return handle, handle.next_turn(), provider
    provider = AsyncScriptedProvider([reply("fine")])
    handle = AsyncToolLoopHandle(provider, **parts)
    return handle, run_async(kind, handle.next_turn), provider


@either_kind
@each(("depth", "limit"), [(0, 0), (1, 1), (3, 3), (5, 3)])
def test_at_the_limit_the_first_turn_is_an_error(kind: str, depth: int, limit: int) -> None:
    """No request, no iteration; the error pickles, stays the same, and no command brings the loop to life."""
    handle, result, provider = turn(kind, depth, limit)
    error = expect_error(result).error
    assert isinstance(error, MaxDepthExceeded)
    assert (error.current, error.limit, result.iterations, handle.iterations) == (depth, limit, 0, 0)
    assert (result.retryable, handle.is_finished, len(provider.requests)) == (False, True, 0)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.current, copy.limit) == (MaxDepthExceeded, str(error), depth, limit)
    before = handle.snapshot()
    for command in (
        handle.retry,
        lambda: handle.extend(max_iterations=5),
        lambda: handle.extend(budget=Budget(requests=5)),
        lambda: handle.follow_up([user("again")]),
        handle.messages_mut,
    ):
        with pytest.raises(IllegalCommand):
            command()
    assert handle.snapshot() == before
    again = handle.next_turn() if kind == "sync" else run_async(kind, handle.next_turn)
    assert again is result


@each(("depth", "limit"), [(0, 1), (2, 3), (99, None)])
def test_below_the_limit_a_loop_runs(depth: int, limit: int | None) -> None:
    """The limit is the first depth at which none does; None is not a limit."""
    handle, result, _ = turn("sync", depth, limit)
    assert result.unwrap().text == "fine"
    assert handle.depth == depth


def test_the_depth_survives_sleep_whatever_the_context_is_then() -> None:
    """A loop that was nested stays as deep as it was."""
    provider = ScriptedProvider([reply("fine")])
    asleep = ToolLoopHandle(provider, params=params(), context=LoopContext(depth=3)).snapshot()
    woken = ToolLoopHandle.restore(asleep, provider, context=LoopContext(depth=0))
    assert woken.depth == 3
    result: Yielded | Error | Any = woken.next_turn()
    assert isinstance(expect_error(result).error, MaxDepthExceeded)
