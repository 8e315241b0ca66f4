"""Injected messages: where they join, where they are queued and join later, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.support import expect_completed, expect_refusal, results_in
from tests.kit.tools import assistant, params, user
from tests.kit.world import World, open_over_http
from toolloop import Continue, InjectMessages, ToolLoopHandle
from toolloop.errors import InvalidHistory
from toolloop.events import MessageHeld
from toolloop.terminations import NaturalEnd
from toolloop.testing import ScriptedProvider, call, reply, server_call, server_result

ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
OPEN = server_call("web_search", {"query": "x"}, id="srvtoolu_s")
FOUND = server_result("web_search", id="srvtoolu_s")
SYSTEM = {"role": "system", "content": "Be quick."}
SAID = {"type": "text", "text": "found"}


def test_an_injected_message_is_a_message_of_its_own() -> None:
    """A closed message never changes: the results stay alone in theirs."""
    with open_over_http([reply(calls=[ADD]), reply("fine")]) as at:
        at.turn().inject_and_continue([user("by the way"), user("and")])
        at.expect_done()
        assert results_in(at.list_sent()[2]) == at.list_sent()[2]["content"]
        assert at.list_sent()[3:] == [user("by the way"), user("and")]


def test_injected_into_an_open_round_they_follow_its_results() -> None:
    """With a decision, the command goes on, and the message stands after the results."""
    with open_over_http([reply(calls=[WRITE]), reply("fine")]) as at:
        turn = at.turn()
        turn.approve_all()
        turn.inject_and_continue([user("quick")])
        assert len(at.handle.messages) == 1
        at.handle.run()
        assert [message["role"] for message in at.list_sent()] == ["user", "assistant", "user", "user"]
        assert at.list_sent()[3] == user("quick")


def test_during_a_pause_a_message_is_held_and_joins_after_its_end() -> None:
    """A pause takes no user turn: the resumption goes out without it, and the request after it carries it."""
    script = [reply("so far", content=[OPEN], stop_reason="pause_turn"), reply(content=[FOUND, SAID]), reply("fine")]
    with open_over_http(script, asked=params(tools=[SEARCH])) as at:
        at.turn().inject_and_continue([user("hurry"), SYSTEM])
        done = at.expect_done()
        assert [event.count for event in done.events if isinstance(event, MessageHeld)] == [2]
        assert len(at.list_sent(1)) == 2
        assert at.list_sent(2)[-2:] == [user("hurry"), SYSTEM]
        assert done.text == "fine"


def test_beside_an_open_server_call_a_message_is_held() -> None:
    """A client call beside a server call in flight is answered by results alone; the message joins later."""
    script = [reply(content=[OPEN], calls=[ADD]), reply(content=[FOUND, SAID]), reply("fine")]
    with open_over_http(script, asked=params(tools=[SEARCH])) as at:
        at.turn().inject_and_continue([user("hurry")])
        done = at.expect_done()
        assert at.list_sent(1)[-1]["content"] == results_in(at.list_sent(1)[-1])
        assert at.list_sent(2)[-1] == user("hurry")
        assert done.text == "fine"


def test_a_system_message_comes_last() -> None:
    """After the user's own messages, on a model that takes it."""
    with open_over_http([reply(calls=[ADD]), reply("fine")]) as at:
        at.turn().inject_and_continue([user("by the way"), SYSTEM])
        at.expect_done()
        assert at.list_sent()[-1] == SYSTEM


REFUSED: dict[str, list[Any]] = {
    "an assistant message": [assistant("I say")],
    "a system message before a user's": [SYSTEM, user("x")],
    "an orphan result": [user([{"type": "tool_result", "tool_use_id": "toolu_z", "content": "x"}])],
    "a result of a closed round": [user([{"type": "tool_result", "tool_use_id": "toolu_a", "content": "x"}])],
    "an unknown role": [{"role": "tool", "content": "x"}],
    "a blank text": [user([{"type": "text", "text": " "}])],
    "no message": [5],
}


@each("messages", REFUSED.values())
def test_what_the_api_would_refuse_there_is_refused(messages: list[Any]) -> None:
    """At the call, not at the request; nothing changed and the turn still waits."""
    with open_over_http([reply(calls=[ADD]), reply("fine")]) as at:
        turn = at.turn()
        with expect_refusal(at.handle, InvalidHistory, "inject_and_continue()"):
            turn.inject_and_continue(messages)
        assert not turn.is_spent
        turn.continue_loop()
        assert at.expect_done().text == "fine"


def test_a_system_message_is_refused_for_a_model_that_takes_none() -> None:
    """It names the rule at the call."""
    with open_over_http([reply(calls=[ADD])], asked=params(model="claude-sonnet-4-5")) as at:
        turn = at.turn()
        with expect_refusal(
            at.handle, InvalidHistory, "messages[", "claude-sonnet-4-5 does not accept system messages"
        ):
            turn.inject_and_continue([SYSTEM])


def test_a_user_message_after_an_injected_system_message_is_refused() -> None:
    """Two commands may not make together what one may not: a system message precedes the model or ends the array."""
    with open_over_http([reply("fine")]) as at:
        at.handle.resume(InjectMessages([SYSTEM]))
        with expect_refusal(at.handle, InvalidHistory):
            at.handle.resume(InjectMessages([user("x")]))
        assert at.expect_done().text == "fine"


@each("decided", [False, True])
def test_a_system_message_alone_is_refused_beside_an_open_server_call(decided: bool) -> None:
    """The round waits for the server's result too, so the message would follow the reply that brings it."""
    script = [reply(content=[OPEN], calls=[WRITE]), reply(content=[FOUND, SAID]), reply("fine")]
    with open_over_http(script, asked=params(tools=[SEARCH]), execution="barrier" if decided else "ready") as at:
        turn = at.turn()
        if decided:
            turn.approve_all()
        with expect_refusal(at.handle, InvalidHistory, "follows an assistant message"):
            turn.inject_and_continue([SYSTEM])
        turn.approve_all()
        turn.inject_and_continue([user("hurry"), SYSTEM])
        assert at.handle.run().unwrap().text == "fine"
        assert at.list_sent()[-2:] == [user("hurry"), SYSTEM]


HALF = "half a pair: \ud83d"


def resume_with_half(at: World) -> None:
    at.turn()
    at.handle.resume(InjectMessages([user(HALF)]))


def edit_with_half(at: World) -> None:
    at.turn()
    at.handle.messages_mut().append(user(HALF))
    at.handle.resume(Continue())


SAYINGS: dict[str, Callable[[World], Any]] = {
    "injected": lambda at: at.turn().inject_and_continue([user(HALF)]),
    "injected as a block": lambda at: at.turn().inject_and_continue([user([{"type": "text", "text": HALF}])]),
    "resumed": resume_with_half,
    "a system prompt": lambda at: at.handle.update_params(system=HALF),
    "an edit": edit_with_half,
}


@each("say", SAYINGS.values())
def test_half_a_surrogate_pair_is_refused_wherever_a_caller_speaks(say: Callable[[World], Any]) -> None:
    """No request can carry it: the caller gets an error with its place, before anything is sent."""
    with open_over_http([reply(calls=[ADD])]) as at, pytest.raises(TypeError, match="surrogate"):
        say(at)
    with (
        pytest.raises(TypeError, match=r"messages\[0\]\.content .*surrogate"),
        open_over_http([], asked=params(messages=[user(HALF)])),
    ):
        pass


def user_message(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_a_system_message_said_during_a_request_waits_for_the_next_user_turn() -> None:
    """After the model's last word there is no place for it; after the user's next one there is."""

    def answer(_request: Any) -> dict[str, Any]:
        if handle.iterations == 0:
            handle.resume(InjectMessages([{"role": "system", "content": "Be brief."}]))
        return reply("one")

    with open_over_http(answer) as at:
        handle = at.handle
        assert at.expect_done().termination == NaturalEnd()
        handle.follow_up([user_message("again")])
        assert at.expect_done().text == "one"
        assert [message["role"] for message in at.list_sent()[-1:]] == ["system"]


def test_what_was_said_during_a_request_goes_out_with_the_next_in_another_process() -> None:
    """A snapshot taken meanwhile has it; where it is restored, no request is under way."""
    saved: list[dict[str, Any]] = []

    def answer(_request: Any) -> dict[str, Any]:
        handle.resume(InjectMessages([user_message("and this")]))
        saved.append(handle.snapshot())
        return reply("first")

    handle = ToolLoopHandle(ScriptedProvider(answer), params=params(), tools=[])
    try:
        handle.next_turn()
    finally:
        provider = ScriptedProvider([reply("second")])
        woken = ToolLoopHandle.restore(saved[0], provider)
        assert expect_completed(woken.run()).text == "second"
        assert provider.requests[0]["messages"][-1] == user_message("and this")


def test_a_paused_reply_goes_back_unchanged() -> None:
    """Even if it ends in thinking, which may come last in nothing else."""
    script = [reply("half", content=[], thinking=None, stop_reason="pause_turn"), reply("done")]
    script[0]["content"].append({"type": "thinking", "thinking": "hm"})
    with open_over_http(script) as at:
        at.turn().continue_loop()
        assert at.expect_done().text == "done"
        assert [block["type"] for block in at.list_sent()[-1]["content"]] == ["text", "thinking"]
