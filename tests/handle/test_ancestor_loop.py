"""The ancestor's checklist, "tool_loop", "Approval", "Stop conditions", "Terminations", "Timeout", "Depth", events."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.handle.support import HUNDRED, params, results_in, scene, user
from toolloop import Approve, Deny, LoopConfig, LoopContext, ToolContext, ToolLoopHandle, View, Yielded, tool
from toolloop.events import CallFinished, CallStarted, RequestStarted
from toolloop.terminations import (
    LoopDetected,
    MaxIterations,
    NaturalEnd,
    StopCondition,
    Timeout,
)
from toolloop.testing import FakeMessagesAPI, ScriptedProvider, reply

ADD = reply(calls=[("add", {"a": 2, "b": 3})], usage=HUNDRED)
TWO = reply(calls=[("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})])


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_tool_loop_iterations(rounds: int) -> None:
    """`tool_loop_no_tool_calls`, `_one_iteration`, `_multiple_iterations`: one answered request more than rounds."""
    with scene([ADD] * rounds + [reply("end", usage=HUNDRED)]) as at:
        done = at.handle.run().unwrap()
        assert (done.iterations, done.total_usage.input_tokens) == (rounds + 1, 100 * (rounds + 1))


def test_tool_loop_max_iterations_exceeded() -> None:
    """A limit that is met is a result, not an exception."""
    with scene([ADD] * 3, max_iterations=3) as at:
        done = at.handle.run().unwrap()
        assert (done.termination, done.iterations, at.count) == (MaxIterations(3), 3, 3)


def test_tool_loop_parallel_execution() -> None:
    """Both results are in the second request; PY: as two blocks of one user message, in the model's order."""
    with scene([TWO, reply("end")]) as at:
        at.handle.run()
        assert [block["content"] for block in results_in(at.sent()[-1])] == ["3", "7"]
        assert len(at.sent()) == 3


def test_tool_loop_unknown_tool_sends_error_result() -> None:
    """A tool that is not there is an error result, and the loop goes on."""
    with scene([reply(calls=[("nothing", {})]), reply("end")]) as at:
        assert at.handle.run().unwrap().iterations == 2
        (result,) = results_in(at.sent()[-1])
        assert result["is_error"] is True
        assert "'nothing'" in result["content"]


def test_tool_loop_usage_accumulation() -> None:
    """Two answers of 100 and 50 tokens are 200 and 100."""
    with scene([ADD, reply("end", usage=HUNDRED)]) as at:
        usage = at.handle.run().unwrap().total_usage
        assert (usage.input_tokens, usage.output_tokens) == (200, 100)


def test_tool_loop_returns_termination_reason_complete() -> None:
    """A loop that nobody stopped ends naturally."""
    with scene([reply("end")]) as at:
        assert at.handle.run().unwrap().termination == NaturalEnd()


def test_tool_loop_returns_termination_reason_stop_condition() -> None:
    """`stop_when` wins over a natural end, on a reply of plain text too."""
    with scene([reply("end")], stop_when=lambda view: "manual stop") as at:
        assert at.handle.run().unwrap().termination == StopCondition("manual stop")


def test_tool_loop_approval_deny() -> None:
    """A denied call still has its result in the next request; PY: it is marked as an error and gives the reason."""
    with scene([ADD, reply("end")], on_tool_call=lambda call, view: Deny("not today")) as at:
        at.handle.run()
        (result,) = results_in(at.sent()[-1])
        assert (result["is_error"], "not today" in result["content"], at.ran) == (True, True, [])


def test_tool_loop_approval_modify() -> None:
    """A policy that changes the input has the tool run with it; PY: the model is told."""
    with scene([ADD, reply("end")], on_tool_call=lambda call, view: Approve(input={"a": 100, "b": 200})) as at:
        at.handle.run()
        (result,) = results_in(at.sent()[-1])
        assert (at.ran, result["content"][0]["text"]) == ([("add", 100, 200)], "300")
        assert '{"a":100,"b":200}' in result["content"][1]["text"]


def test_stop_decision_equality_and_debug() -> None:
    """Terminations and configurations are values."""
    assert StopCondition("a") == StopCondition("a") != StopCondition("b")
    assert repr(StopCondition("a")) == "StopCondition(reason='a')"


def test_stop_context_debug() -> None:
    """What `stop_when` sees has a repr without contents."""
    seen: list[str] = []
    with scene([reply("secret")], stop_when=lambda view: seen.append(repr(view))) as at:
        at.handle.run()
        assert seen == ["<View of iteration 1>"]


def test_tool_loop_config_debug() -> None:
    """The repr of a configuration shows that a callable is set, not which."""
    assert "stop_when=None" in repr(LoopConfig())
    assert "stop_when=set" in repr(LoopConfig(stop_when=lambda view: False))
    assert "observers=1 set" in repr(LoopConfig(observers=[list[object]().append]))


def test_tool_loop_stop_on_first_response() -> None:
    """Stopped at the first reply, the response still holds the calls, which did not run."""
    with scene([ADD], stop_when=lambda view: True) as at:
        done = at.handle.run().unwrap()
        assert done.response is not None
        assert (done.iterations, done.response["content"][0]["name"], at.ran) == (1, "add", [])


def test_tool_loop_stop_after_tool_call_limit() -> None:
    """`stop_when` can count the calls that ran."""
    with scene([ADD, ADD], stop_when=lambda view: len(view.calls) >= 1) as at:
        assert at.handle.run().unwrap().iterations == 2
        assert at.ran == [("add", 2, 3)]


def test_tool_loop_stop_context_has_last_results() -> None:
    """It sees iteration, calls and results so far, and usage with this reply."""
    seen: list[Any] = []

    def look(view: View) -> None:
        results = [result.content for result in view.results]
        seen.append((view.iteration, len(view.calls), results, view.total_usage.input_tokens))

    with scene([ADD, reply("end", usage=HUNDRED)], stop_when=look) as at:
        at.handle.run()
        assert seen == [(1, 0, [], 100), (2, 1, ["5"], 200)]


def test_tool_loop_stop_on_specific_tool() -> None:
    """The pattern of a final answer: a call of a certain name ends the loop, and is there in the response."""
    final = reply(calls=[("final_answer", {"text": "42"})])

    def named(view: View) -> bool:
        return any(block.get("name") == "final_answer" for block in view.reply["content"])

    with scene([ADD, final], stop_when=named) as at:
        done = at.handle.run().unwrap()
        assert done.response is not None
        assert (done.iterations, done.response["content"][0]["input"]) == (2, {"text": "42"})


@pytest.mark.parametrize("word", [None, False])
def test_tool_loop_stop_continues_when_condition_not_met(word: object) -> None:
    """None and False are neutral."""
    with scene([ADD, reply("end")], stop_when=lambda view: word) as at:
        assert at.handle.run().unwrap().termination == NaturalEnd()


def test_tool_loop_stop_after_tool_execution() -> None:
    """Stopped after the second reply, the third is never asked for, and the end is told once."""
    seen: list[object] = []
    with scene([ADD, ADD], stop_when=lambda view: view.iteration == 2, observers=[seen.append]) as at:
        at.handle.run()
        assert (at.count, [type(event).__name__ for event in seen].count("LoopFinished")) == (2, 1)


@pytest.mark.parametrize(
    "reason", [NaturalEnd(), StopCondition(), StopCondition("why"), MaxIterations(3), LoopDetected("search", 3)]
)
def test_termination_reason_is_a_value(reason: Any) -> None:
    """`termination_reason_*`: equal to its copy, with a kind and a repr that names it."""
    assert copy.copy(reason) == reason
    assert reason.kind
    assert type(reason).__name__ in repr(reason)


def test_tool_loop_timeout_returns_immediately() -> None:
    """A limit of nothing: the end, at once."""
    with scene([], timeout=0) as at:
        done = at.handle.run().unwrap()
        assert (done.termination, done.iterations, done.response, done.text) == (Timeout(0), 0, None, None)


def test_tool_loop_no_timeout_completes_normally() -> None:
    """No limit: it ends naturally."""
    with scene([ADD, reply("end")], timeout=None) as at:
        assert at.handle.run().unwrap().termination == NaturalEnd()


def test_tool_loop_emits_events() -> None:
    """Two requests, one start, and one end with its outcome and a duration that is not negative."""
    seen: list[Any] = []
    with scene([ADD, reply("end")], observers=[seen.append]) as at:
        at.handle.run()
    assert [event.iteration for event in seen if isinstance(event, RequestStarted)] == [1, 2]
    (ended,) = [event for event in seen if isinstance(event, CallFinished)]
    assert (ended.name, ended.outcome, ended.is_error) == ("add", "returned", False)
    assert ended.seconds >= 0


def test_tool_loop_events_with_parallel_execution() -> None:
    """Two calls have two starts and two ends."""
    seen: list[Any] = []
    with scene([TWO, reply("end")], observers=[seen.append]) as at:
        at.handle.run()
    kinds = [type(event) for event in seen]
    assert (kinds.count(CallStarted), kinds.count(CallFinished)) == (2, 2)


def test_loop_depth_is_zero_without_a_context_and_with_one_that_holds_a_state_alone() -> None:
    """`unit_loop_depth`, `unit_with_depth_ignores_value`, `loop_context_new`, `_empty`."""
    provider = ScriptedProvider([])
    assert ToolLoopHandle(provider, params=params()).depth == 0
    assert ToolLoopHandle(provider, params=params(), context=LoopContext(state="mine")).depth == 0
    assert LoopContext() == LoopContext(state=None, depth=0)


def test_custom_context_depth() -> None:
    """`custom_context_depth`, `loop_context_with_depth_preserves_state`: depth and state are both kept."""
    context = LoopContext(state=[1], depth=2)
    handle = ToolLoopHandle(ScriptedProvider([]), params=params(), context=context)
    assert (handle.depth, context.state) == (2, [1])


def test_depth_increments() -> None:
    """`depth_increments`, `depth_chain`; PY: each loop started inside a tool is one deeper, whatever the state is."""
    with FakeMessagesAPI(lambda body: down if len(body["messages"]) == 1 else reply("up")) as api:
        depths: list[int] = []

        @tool
        def deeper(context: ToolContext) -> str:
            """Ask another loop."""
            depths.append(context.depth)
            inner = ToolLoopHandle(api.client(), params=params(), tools=[deeper], context=context)
            result = inner.run()
            assert not isinstance(result, Yielded)
            return type(result).__name__

        down = reply(calls=[("deeper", {})])
        handle = ToolLoopHandle(
            api.client(), params=params(messages=[user()]), tools=[deeper], config=LoopConfig(max_depth=3)
        )
        assert handle.run().unwrap().text == "up"
        assert depths == [1, 2, 3]
        assert api.refused == []
