"""Each limit: exactly its boundary, one below, one above; `extend` goes on where a limit stopped."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests import inside
from tests.each import each
from tests.loop.support import HUNDRED, TOOLS, params, refused, results_in, scene, user, yielded
from toolloop import Ask, Budget, Deny, LoopConfig, Texts, ToolLoopHandle, tool
from toolloop.errors import IllegalCommand, MaxDepthExceeded
from toolloop.terminations import BudgetExceeded, MaxIterations, NaturalEnd, Timeout
from toolloop.testing import ScriptedProvider, call, fault, reply

ADD = reply("adding", calls=[("add", {"a": 1, "b": 2})], usage=HUNDRED)
END = reply("end", usage=HUNDRED)


@each(("limit", "asked"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (None, 3)])
def test_exactly_limit_requests_are_answered(limit: int | None, asked: int) -> None:
    """A loop of three requests under each limit; the end reports the iterations that really happened."""
    with scene([ADD, ADD, END], max_iterations=limit) as at:
        done = at.handle.run().unwrap()
        assert (at.count, done.iterations) == (asked, asked)
        assert done.termination == (MaxIterations(limit) if limit is not None and limit < 3 else NaturalEnd())


@each(
    ("budget", "asked", "end"),
    [
        (Budget(requests=0), 0, BudgetExceeded("requests", 0, 0)),
        (Budget(requests=2), 2, BudgetExceeded("requests", 2, 2)),
        (Budget(requests=3), 3, NaturalEnd()),
        (Budget(input_tokens=199), 2, BudgetExceeded("input_tokens", 199, 200)),
        (Budget(input_tokens=200), 2, BudgetExceeded("input_tokens", 200, 200)),
        (Budget(input_tokens=201), 3, NaturalEnd()),
        (Budget(output_tokens=99), 2, BudgetExceeded("output_tokens", 99, 100)),
        (Budget(output_tokens=100), 2, BudgetExceeded("output_tokens", 100, 100)),
        (Budget(output_tokens=101), 3, NaturalEnd()),
        (Budget(total_tokens=299), 2, BudgetExceeded("total_tokens", 299, 300)),
        (Budget(total_tokens=300), 2, BudgetExceeded("total_tokens", 300, 300)),
        (Budget(total_tokens=301), 3, NaturalEnd()),
        (Budget(), 3, NaturalEnd()),
    ],
)
def test_a_budget_is_checked_before_each_request(budget: Budget, asked: int, end: Any) -> None:
    """Below, at, and above: what a request will use is not known before, so the last one may go over."""
    with scene([ADD, ADD, END], budget=budget) as at:
        done = at.handle.run().unwrap()
        assert (at.count, done.termination) == (asked, end)


def test_iterations_count_per_user_turn_and_the_budget_counts_the_whole_loop() -> None:
    """`follow_up` starts iterations and time anew, not the budget."""
    with scene([ADD, END, ADD, END], max_iterations=2, budget=Budget(requests=3)) as at:
        assert at.handle.run().unwrap().termination == NaturalEnd()
        at.handle.follow_up([user("again")])
        done = at.handle.run().unwrap()
        assert (done.termination, done.iterations) == (BudgetExceeded("requests", 3, 3), 3)


def test_extend_goes_on_where_the_limit_stopped() -> None:
    """The last round is closed and its results go out; nothing runs twice."""
    with scene([ADD, ADD, END], max_iterations=1) as at:
        for limit in (1, 2):
            assert at.handle.run().unwrap().termination == MaxIterations(limit)
            at.handle.extend(max_iterations=limit + 1)
            assert not at.handle.is_finished
        assert at.handle.run().unwrap().text == "end"
        assert (at.ran, at.count) == ([("add", 1, 2)] * 2, 3)


@each(
    ("config", "change", "end"),
    [
        ({"max_iterations": 1}, {"max_iterations": 1}, MaxIterations(1)),
        ({"max_iterations": 1}, {"timeout": 60}, MaxIterations(1)),
        ({"timeout": 0}, {"timeout": 60.0}, None),
        (
            {"budget": Budget(requests=1)},
            {"budget": Budget(requests=1, total_tokens=9)},
            BudgetExceeded("requests", 1, 1),
        ),
        ({"budget": Budget(requests=1)}, {"budget": Budget(requests=9)}, None),
    ],
)
def test_extend_that_is_not_enough_ends_again(config: Any, change: Any, end: Any) -> None:
    """The other limits stay; one that is still met ends the loop at once, without a request."""
    with scene([ADD, END], **config) as at:
        first = at.handle.run().unwrap()
        count = at.count
        at.handle.extend(**change)
        done = at.handle.run().unwrap()
        assert done is not first
        assert (done.termination == end, at.count == count) if end else (done.text == "end")


def test_a_timeout_bounds_the_execution_and_extend_lets_the_rest_run() -> None:
    """A call that comes after the time is up is not run; after `extend` it runs, the finished one does not again."""
    ran: list[str] = []

    @tool
    def slow(name: str) -> str:
        """Take some time."""
        begun = time.monotonic()
        while time.monotonic() - begun < 0.06:
            pass
        ran.append(name)
        return name

    calls = [call("slow", {"name": "one"}), call("slow", {"name": "two"})]
    with scene([reply(calls=calls), END], tools=[slow], max_parallel_tools=1, timeout=0.05) as at:
        done = at.handle.run().unwrap()
        assert (done.termination, ran) in (((Timeout(0.05)), ["one"]), (Timeout(0.05), []))
        results = results_in(at.handle.messages[-1])
        assert results[-1]["content"] == Texts().not_run
        finished = list(ran)
        at.handle.extend(timeout=600)
        assert at.handle.run().unwrap().text == "end"
        assert ran == ["one", "two"]
        assert ran[: len(finished)] == finished
        assert [block["content"] for block in results_in(at.sent()[-1])] == ["one", "two"]


def test_waiting_for_the_caller_takes_no_time() -> None:
    """Only active seconds count: a clock that leaps while the caller thinks changes nothing."""
    now = [1000.0]
    provider = ScriptedProvider([reply(calls=[("write", {"path": "a", "text": "b"})]), END])

    handle = ToolLoopHandle(provider, params=params(), tools=TOOLS, config=LoopConfig(timeout=60), clock=lambda: now[0])
    turn = yielded(handle.next_turn())
    now[0] += 10_000
    turn.approve_all()
    assert handle.run().unwrap().text == "end"
    left = handle.view()["left"]["seconds"]
    assert 50 < left < 60


def test_a_limit_with_open_calls_settles_them_and_extend_opens_them_again() -> None:
    """A budget of tools that ends in the middle of a round: not run, then run, each once."""
    calls = [call("add", {"a": number, "b": 0}) for number in range(3)]
    with scene([reply(calls=calls), END], budget=Budget(tool_calls=2)) as at:
        done = at.handle.run().unwrap()
        assert done.termination == BudgetExceeded("tool_calls", 2, 2)
        assert [block.get("is_error") for block in results_in(at.handle.messages[-1])] == [None, None, True]
        at.handle.extend(budget=Budget(tool_calls=4))
        assert at.handle.run().unwrap().text == "end"
        assert [item[1] for item in at.ran] == [0, 1, 2]
        assert [block["content"] for block in results_in(at.sent()[-1])] == ["0", "1", "2"]


def test_extend_before_a_limit_is_met_changes_the_limits_alone() -> None:
    """It is possible in every state but that of a loop that may not run, and spends no turn."""
    with scene([ADD, END], max_iterations=1) as at:
        turn = at.turn()
        at.handle.extend(max_iterations=2, max_pauses=3, timeout=60, budget=Budget(requests=9))
        assert at.handle.view()["left"]["iterations"] == 1
        turn.continue_loop()
        assert at.done().text == "end"


def test_extend_after_another_end_does_not_go_on() -> None:
    """What was stopped, refused or complete stays so: the same result again."""
    with scene([END]) as at:
        at.done()
        at.handle.extend(max_iterations=99)
        assert at.handle.is_finished
        assert at.done().termination == NaturalEnd()


@each(
    "change", [{"max_iterations": -1}, {"max_pauses": 1.5}, {"timeout": -1}, {"timeout": float("inf")}, {"budget": 5}]
)
def test_a_bad_limit_is_refused(change: Any) -> None:
    """It names the limit, and changes nothing."""
    with scene([ADD]) as at:
        before = at.handle.snapshot()
        with pytest.raises(ValueError, match=next(iter(change))):
            at.handle.extend(**change)
        assert at.handle.snapshot() == before


@each(("depth", "limit"), [(0, 0), (1, 1), (3, 3), (4, 3)])
def test_a_loop_too_deep_fails_without_a_request_for_good(depth: int, limit: int) -> None:
    """No request, no iterations; the same error again, which survives pickling; nothing can mend it."""
    with scene([], depth=depth, max_depth=limit) as at:
        failed = at.failed()
        assert isinstance(failed.error, MaxDepthExceeded)
        assert (failed.error.current, failed.error.limit) == (depth, limit)
        assert (failed.iterations, failed.retryable, failed.retry_after, at.count) == (0, False, None, 0)
        assert at.handle.next_turn() is failed
        with refused(at.handle, IllegalCommand, "retry()"):
            at.handle.retry()
        assert [word for word in ("max_depth", str(depth), str(limit)) if word not in str(failed.error)] == []


@each(("depth", "limit"), [(0, 1), (2, 3), (99, None)])
def test_a_loop_below_its_depth_runs(depth: int, limit: int | None) -> None:
    """One below the limit runs; None is no limit."""
    with scene([END], depth=depth, max_depth=limit) as at:
        assert at.done().text == "end"


def test_a_failed_request_counts_for_no_limit() -> None:
    """The iteration did not happen."""
    with scene([fault(529), END], max_iterations=1, budget=Budget(requests=1)) as at:
        assert at.failed().iterations == 0
        at.handle.retry()
        assert at.done().text == "end"


@each("opinion", [Ask(), Deny("no")])
def test_the_time_of_a_policy_is_active_time(opinion: Any) -> None:
    """Whether the turn ends in a question or goes on: only waiting for the caller is free."""

    def slow(*_: Any) -> Any:
        inside.active_time_passes(at.handle, 60.0)
        return opinion

    with scene([reply(calls=[("add", {"a": 1, "b": 2})])], on_tool_call=slow, timeout=60.0) as at:
        turn = at.turn()
        if turn.pending:
            turn.answer(turn.pending[0], "3")
        turn.continue_loop()
        assert at.handle.run().unwrap().termination == Timeout(60.0)
        assert at.count == 1
