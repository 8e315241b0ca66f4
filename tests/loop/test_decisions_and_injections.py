"""Edited decisions and injected messages at the times when they can be lost or refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.each import each
from tests.loop.support import add, completed, params, results_in, scene, write, yielded
from toolloop import Approve, Continue, InjectMessages, LoopConfig, Texts, ToolCall, ToolLoopHandle, View
from toolloop.errors import InvalidHistory
from toolloop.terminations import MaxIterations, NaturalEnd
from toolloop.testing import ScriptedProvider, call, reply

MARK = {"cache_control": {"type": "ephemeral"}}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_what_a_person_decided_to_run_is_what_runs() -> None:
    """A policy that judges an edit once more may deny it; it cannot put its own input in its place."""
    ran: list[Any] = []

    def policy(asked: ToolCall, _view: View) -> Approve | None:
        return Approve({"path": "policy", "text": "t"}) if asked.effective_input["path"] == "person" else None

    with scene(
        [reply(calls=[call("write", {"path": "model", "text": "t"}, id="toolu_1")]), reply("done")],
        tools=[write],
        on_tool_call=policy,
    ) as at:
        turn = at.turn()
        turn.approve("toolu_1", {"path": "person", "text": "t"}, by="ana")
        turn.continue_loop()
        done = at.turn()
        decision = done.calls[0].decision
        ran = [each[1] for each in at.ran]
        assert (ran, decision.by if decision else None) == (["person"], "ana")


def test_a_marked_injection_beside_a_pause_is_judged_like_any_other() -> None:
    """A cache mark does not hide what else is wrong with it."""
    with scene([reply("half", stop_reason="pause_turn"), reply("done"), reply("and on")]) as at:
        turn = at.turn()
        with pytest.raises(InvalidHistory):
            turn.inject_and_continue([user([{"type": "text", "text": " ", **MARK}])])
        turn.inject_and_continue([user([{"type": "text", "text": "go on", **MARK}])])
        assert at.done().termination == NaturalEnd()


def test_a_system_message_said_during_a_request_waits_for_the_next_user_turn() -> None:
    """After the model's last word there is no place for it; after the user's next one there is."""

    def answer(_request: Any) -> dict[str, Any]:
        if handle.iterations == 0:
            handle.resume(InjectMessages([{"role": "system", "content": "Be brief."}]))
        return reply("one")

    with scene(answer) as at:
        handle = at.handle
        assert at.done().termination == NaturalEnd()
        handle.follow_up([user("again")])
        assert at.done().text == "one"
        assert [message["role"] for message in at.sent()[-1:]] == ["system"]


def test_extend_judges_an_edited_history_by_what_it_sends() -> None:
    """No user message is made up for it."""
    with scene([reply(calls=[call("add", {"a": 1, "b": 2})]), reply("done")], tools=[add], max_iterations=1) as at:
        at.turn().continue_loop()
        assert at.done().termination == MaxIterations(1)
        at.handle.messages_mut()[:] = [user("hi"), {"role": "assistant", "content": "hello"}]
        with pytest.raises(InvalidHistory, match="prefill"):
            at.handle.extend(max_iterations=5)
        at.handle.messages_mut().append(user("go on"))
        at.handle.extend(max_iterations=5)
        assert at.done().text == "done"


@each("denied", ["{reason}", "{reason[3]}", "{reason.nope}"])
def test_a_text_that_comes_out_blank_or_broken_is_said_as_usual(denied: str) -> None:
    """The API takes no error without a text, so the model is never told nothing."""
    try:
        config = LoopConfig(texts=Texts(denied=denied))
    except ValueError:
        return  # refused at once is as good
    handle = ToolLoopHandle(
        ScriptedProvider([reply(calls=[call("write", {"path": "p", "text": "t"}, id="toolu_1")]), reply("done")]),
        params=params(),
        tools=[write],
        config=config,
    )
    turn = yielded(handle.next_turn())
    turn.deny("toolu_1", "")
    handle.resume(Continue())
    yielded(handle.next_turn())
    (result,) = results_in(handle.messages[-1])
    assert result["content"].strip()


def test_what_was_said_during_a_request_goes_out_with_the_next_in_another_process() -> None:
    """A snapshot taken meanwhile knows it; and nobody's request is under way where it wakes up."""
    saved: list[dict[str, Any]] = []

    def answer(_request: Any) -> dict[str, Any]:
        handle.resume(InjectMessages([user("and this")]))
        saved.append(handle.snapshot())
        return reply("first")

    handle = ToolLoopHandle(ScriptedProvider(answer), params=params(), tools=[])
    try:
        handle.next_turn()
    finally:
        provider = ScriptedProvider([reply("second")])
        woken = ToolLoopHandle.restore(saved[0], provider)
        assert completed(woken.run()).text == "second"
        assert provider.requests[0]["messages"][-1] == user("and this")


def test_a_paused_reply_goes_back_as_it_came() -> None:
    """Even if it ends in thinking, which may come last in nothing else."""
    script = [reply("half", content=[], thinking=None, stop_reason="pause_turn"), reply("done")]
    script[0]["content"].append({"type": "thinking", "thinking": "hm"})
    with scene(script) as at:
        at.turn().continue_loop()
        assert at.done().text == "done"
        assert [block["type"] for block in at.sent()[-1]["content"]] == ["text", "thinking"]
