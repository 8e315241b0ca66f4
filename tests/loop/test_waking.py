"""Waking up in the middle of a round among other tools and policies: nothing runs unasked, and nothing is stuck."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.loop.concurrency import cross
from tests.loop.support import Scene, look, params, results_in, scene, write, yielded
from toolloop import Answer, Approve, Ask, Deny, LoopConfig, LoopContext, ToolLoopHandle, tool
from toolloop.machine import Judging
from toolloop.testing import FakeMessagesAPI, call, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
LOOK = call("look", {"path": "a"}, id="toolu_l")
EXTERNAL = {"name": "write", "input_schema": {"type": "object"}}


def woken(at: Scene, *tools: Any, **parts: Any) -> ToolLoopHandle:
    """The same loop in another process, among these tools."""
    context = LoopContext(state=at.ran)
    return ToolLoopHandle.restore(
        at.handle.snapshot(), at.api.client(), tools=tools, context=context, on_drift="accept", **parts
    )


def sent_results(at: Scene) -> list[str]:
    return [str(block["content"]) for block in results_in(at.sent()[-1])]


def half_way(api: FakeMessagesAPI) -> tuple[dict[str, Any], tuple[Any, ...], list[str]]:
    """A snapshot taken while a call of effect once and one of effect pure run; the tools, and what ran."""
    handles: list[ToolLoopHandle] = []
    snapshots: list[dict[str, Any]] = []
    ran: list[str] = []
    both = threading.Barrier(2)

    @tool
    def careful() -> str:
        """Run once."""
        ran.append("careful")
        if not snapshots:
            cross(both)
            snapshots.append(handles[0].snapshot())
            cross(both)
        return "careful"

    @tool(effect="pure")
    def harmless() -> str:
        """Run as often as you like."""
        ran.append("harmless")
        if not snapshots:
            cross(both)
            cross(both)
        return "harmless"

    tools = (careful, harmless)
    handles.append(ToolLoopHandle(api.client(), params=params(), tools=tools, loop_id="loop"))
    yielded(handles[0].next_turn())
    ran.clear()
    return snapshots[0], tools, ran


SCRIPT = [reply(calls=[call("careful", id="toolu_c"), call("harmless", id="toolu_h")]), reply("fine")]


def test_what_waits_can_be_seen_and_decided_right_after_waking_up() -> None:
    """A call that a kill left uncertain waits at once, though the policies are still to judge the other."""
    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, tools, ran = half_way(api)
        copy = ToolLoopHandle.restore(snapshot, api.client(), tools=tools)
        assert [(each.id, each.why) for each in copy.pending] == [("toolu_c", "uncertain")]
        assert [each["id"] for each in copy.view()["pending"]] == ["toolu_c"]
        copy.decide({"toolu_c": Answer("it had ended")})
        assert copy.pending == ()
        assert copy.run().unwrap().text == "fine"
        assert ran == ["harmless"]
        told = [block["content"] for block in results_in(api.requests[-1].json["messages"][-1])]
        assert (told, api.refused) == (["it had ended", "harmless"], [])


def test_calls_can_be_decided_while_the_policies_judge() -> None:
    """A decision that is made while another call is judged joins this very turn."""
    handles: list[ToolLoopHandle] = []

    def policy(asked: Any, view: Any) -> None:
        if isinstance(handles[-1].state.root.phase, Judging) and handles[-1].pending:
            handles[-1].decide({"toolu_c": Answer("it had ended")})

    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, tools, ran = half_way(api)
        config = LoopConfig(on_tool_call=policy)
        handles.append(ToolLoopHandle.restore(snapshot, api.client(), tools=tools, config=config, on_drift="accept"))
        assert handles[0].run().unwrap().text == "fine"
        assert (ran, api.refused) == (["harmless"], [])


def test_a_rerun_of_a_tool_that_is_gone_settles_the_call() -> None:
    """Nobody can run it again: the model is told so, and that the first run may have had effects."""
    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, tools, _ = half_way(api)
        copy = ToolLoopHandle.restore(snapshot, api.client(), tools=tools[1:], on_drift="accept")
        turn = yielded(copy.next_turn())
        turn.rerun("toolu_c", by="ana")
        assert copy.run().unwrap().text == "fine"
        first, second = results_in(api.requests[-1].json["messages"][-1])
        assert (first["is_error"], second["content"]) == (True, "harmless")
        assert "may have had effects" in first["content"]
        assert "did not run" not in first["content"]
        assert api.refused == []


def test_under_ready_a_waiting_call_whose_tool_is_gone_does_not_stop_the_others() -> None:
    """The rest runs; the approval of what cannot run any more is overtaken by the truth."""
    with scene([reply(calls=[WRITE, LOOK]), reply("fine")], execution="ready", on_tool_call=lambda c, v: Ask()) as at:
        at.turn()
        copy = woken(at, look)
        turn = yielded(copy.run())
        assert turn.reason == "decision_required"
        for each in turn.pending:
            turn.approve(each)
        assert copy.run().unwrap().text == "fine"
        gone, looked = sent_results(at)
        assert "'write' is no longer there" in gone
        assert (looked, at.ran) == ("text of a", [("look", "a")])


def test_a_call_whose_tool_became_external_waits_for_its_answer() -> None:
    """An approval is no answer: what the caller approved was a tool of this loop's."""
    with scene([reply(calls=[WRITE]), reply("fine")]) as at:
        at.turn().approve_all()
        copy = woken(at, look, params=params(tools=[EXTERNAL]))
        turn = yielded(copy.run())
        assert [(each.id, each.why) for each in turn.pending] == [("toolu_w", "external")]
        turn.answer("toolu_w", "written elsewhere")
        assert copy.run().unwrap().text == "fine"
        assert (sent_results(at), at.ran) == (["written elsewhere"], [])


def test_an_external_call_whose_tool_is_here_now_is_judged_as_any_other() -> None:
    """It has an approval of its own to wait for."""
    with scene([reply(calls=[WRITE]), reply("fine")], tools=[], asked=params(tools=[EXTERNAL])) as at:
        at.turn()
        copy = woken(at, write, params=params(tools=None))
        while copy.pending_turn is not None:
            assert [each.id for each in copy.pending] == ["toolu_w"]
            copy.decide({"toolu_w": Answer("by hand")})
            copy.run()
        assert sent_results(at) == ["by hand"]


@pytest.mark.parametrize("execution", ["barrier", "ready"])
def test_an_approval_by_a_policy_does_not_satisfy_the_ask_of_a_later_one(execution: str) -> None:
    """Only a person's word does: what no person saw waits, though the earlier policy had let it run."""

    def lenient(asked: Any, view: Any) -> Any:
        return Approve() if asked.id == "toolu_l" else Ask()

    script = [reply(calls=[LOOK, WRITE]), reply("fine")]
    with scene(script, on_tool_call=lenient, execution="barrier") as at:
        at.turn().approve("toolu_w", by="ana")
        strict = LoopConfig(on_tool_call=lambda asked, view: Ask("all"), execution=execution)  # type: ignore[arg-type]
        copy = woken(at, look, write, config=strict)
        turn = yielded(copy.run())
        assert [(each.id, each.reason) for each in turn.pending] == [("toolu_l", "all")]
        assert at.ran == []
        turn.deny("toolu_l", "not that")
        assert copy.run().unwrap().text == "fine"
        denied, wrote = sent_results(at)
        assert "not that" in denied
        assert (wrote, at.ran) == ("wrote a", [("write", "a", "b")])


def test_a_denial_of_a_later_policy_wins_over_a_persons_approval() -> None:
    """It judges once more when the loop wakes up; a denied call never starts."""
    with scene([reply(calls=[WRITE]), reply("fine")]) as at:
        at.turn().approve_all(by="ana")
        copy = woken(at, write, config=LoopConfig(on_tool_call=lambda asked, view: Deny("closed")))
        assert copy.run().unwrap().text == "fine"
        assert ("closed" in sent_results(at)[0], at.ran) == (True, [])
