"""What a caller says at moments that only another thread, or a callback, can hit."""

from __future__ import annotations

from typing import Any

from tests.loop.support import add, completed, params, write, yielded
from toolloop import Approve, LoopConfig, Stop, ToolCall, ToolLoopHandle, View
from toolloop.terminations import StopCondition
from toolloop.testing import ScriptedProvider, call, reply


def test_a_call_that_waits_is_seen_and_decided_while_another_is_judged() -> None:
    """`pending` shows it and `decide` takes it, though a policy is just being asked about an edited call."""
    seen: list[tuple[str, ...]] = []
    edited = {"path": "b", "text": "x"}

    def policy(asked: ToolCall, _view: View) -> None:
        if asked.effective_input == edited:  # asked once more, about the edit
            seen.append(tuple(each.id for each in handle.pending))
            handle.decide({"toolu_2": Approve(by="ana")})

    calls = [call("write", {"path": each, "text": "x"}, id=f"toolu_{each}") for each in "12"]
    handle = ToolLoopHandle(
        ScriptedProvider([reply(calls=calls), reply("done")]),
        params=params(),
        tools=[write],
        config=LoopConfig(execution="ready", on_tool_call=policy),
    )
    turn = yielded(handle.next_turn())
    turn.approve("toolu_1", edited)
    turn.continue_loop()
    rest = yielded(handle.next_turn())
    assert seen == [("toolu_2",)]
    assert [each.status for each in rest.calls] == ["settled", "decided"]
    assert completed(handle.run()).text == "done"


def test_a_stop_during_a_request_holds_though_the_reply_makes_no_sense() -> None:
    """It wins over the error of a reply that stopped for tools and asked for none."""

    def answer(_request: Any) -> dict[str, Any]:
        handle.resume(Stop("enough"))
        return reply("no call", stop_reason="tool_use")

    handle = ToolLoopHandle(ScriptedProvider(answer), params=params(), tools=[add])
    assert completed(handle.next_turn()).termination == StopCondition("enough")
    assert handle.iterations == 1
