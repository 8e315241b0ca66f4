"""Injected messages: where they join, where they are held and join later, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.each import each
from tests.loop.support import Scene, assistant, params, refused, results_in, scene, user
from toolloop import Continue, InjectMessages, Stop, tool
from toolloop.errors import InvalidHistory
from toolloop.events import MessageHeld
from toolloop.testing import call, reply, server_call, server_result

ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
OPEN = server_call("web_search", {"query": "x"}, id="srvtoolu_s")
FOUND = server_result("web_search", id="srvtoolu_s")
SYSTEM = {"role": "system", "content": "Be quick."}
SAID = {"type": "text", "text": "found"}


def test_an_injected_message_is_a_message_of_its_own() -> None:
    """A closed message never changes: the results stay alone in theirs."""
    with scene([reply(calls=[ADD]), reply("fine")]) as at:
        at.turn().inject_and_continue([user("by the way"), user("and")])
        at.done()
        assert results_in(at.sent()[2]) == at.sent()[2]["content"]
        assert at.sent()[3:] == [user("by the way"), user("and")]


def test_messages_injected_one_after_the_other_keep_their_order() -> None:
    """Before the first request they accumulate too."""
    with scene([reply("fine")]) as at:
        at.handle.resume(InjectMessages([user("one")]))
        at.handle.resume(InjectMessages([user("two"), user("three")]))
        at.done()
        assert at.sent() == [user(), user("one"), user("two"), user("three")]


def test_injected_into_an_open_round_they_follow_its_results() -> None:
    """With a decision, the command goes on, and the message stands after the results."""
    with scene([reply(calls=[WRITE]), reply("fine")]) as at:
        turn = at.turn()
        turn.approve_all()
        turn.inject_and_continue([user("quick")])
        assert len(at.handle.messages) == 1
        at.handle.run()
        assert [message["role"] for message in at.sent()] == ["user", "assistant", "user", "user"]
        assert at.sent()[3] == user("quick")


def test_during_a_pause_a_message_is_held_and_joins_after_its_end() -> None:
    """A pause takes no user turn: the resumption goes out without it, and the request after it carries it."""
    script = [reply("so far", content=[OPEN], stop_reason="pause_turn"), reply(content=[FOUND, SAID]), reply("fine")]
    with scene(script, asked=params(tools=[SEARCH])) as at:
        at.turn().inject_and_continue([user("hurry"), SYSTEM])
        done = at.done()
        assert [event.count for event in done.events if isinstance(event, MessageHeld)] == [2]
        assert len(at.sent(1)) == 2
        assert at.sent(2)[-2:] == [user("hurry"), SYSTEM]
        assert done.text == "fine"


def test_beside_an_open_server_call_a_message_is_held() -> None:
    """A client call beside a server call in flight is answered by results alone; the message joins later."""
    script = [reply(content=[OPEN], calls=[ADD]), reply(content=[FOUND, SAID]), reply("fine")]
    with scene(script, asked=params(tools=[SEARCH])) as at:
        at.turn().inject_and_continue([user("hurry")])
        done = at.done()
        assert at.sent(1)[-1]["content"] == results_in(at.sent(1)[-1])
        assert at.sent(2)[-1] == user("hurry")
        assert done.text == "fine"


def test_a_held_message_goes_out_after_a_stop() -> None:
    """A pause that is stopped is dropped; what the user said is not."""
    script = [reply("so far", content=[OPEN], stop_reason="pause_turn"), reply("fine")]
    with scene(script, asked=params(tools=[SEARCH]), max_pauses=0) as at:
        at.turn().inject_and_continue([user("hurry")])
        at.done()
        at.handle.follow_up([user("again")])
        assert at.handle.run().unwrap().text == "fine"
        assert user("hurry") in at.sent()
        assert user("again") in at.sent()


def test_a_system_message_comes_last() -> None:
    """After the user's own messages, on a model that takes it."""
    with scene([reply(calls=[ADD]), reply("fine")]) as at:
        at.turn().inject_and_continue([user("by the way"), SYSTEM])
        at.done()
        assert at.sent()[-1] == SYSTEM


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
    with scene([reply(calls=[ADD]), reply("fine")]) as at:
        turn = at.turn()
        with refused(at.handle, InvalidHistory, "inject_and_continue()"):
            turn.inject_and_continue(messages)
        assert not turn.is_spent
        turn.continue_loop()
        assert at.done().text == "fine"


def test_a_system_message_is_refused_for_a_model_that_takes_none() -> None:
    """It names the rule at the call."""
    with scene([reply(calls=[ADD])], asked=params(model="claude-sonnet-4-5")) as at:
        turn = at.turn()
        with refused(at.handle, InvalidHistory, "messages[", "claude-sonnet-4-5 does not accept system messages"):
            turn.inject_and_continue([SYSTEM])


def test_a_system_message_alone_is_refused_during_a_pause() -> None:
    """It would follow the reply that ends the pause, where the API takes none; with a user message it is held."""
    with scene([reply("so far", content=[OPEN], stop_reason="pause_turn")], asked=params(tools=[SEARCH])) as at:
        turn = at.turn()
        with refused(at.handle, InvalidHistory, "follows an assistant message"):
            turn.inject_and_continue([SYSTEM])
        turn.inject_and_continue([user("hurry"), SYSTEM])


def test_a_user_message_after_an_injected_system_message_is_refused() -> None:
    """Two commands may not make together what one may not: a system message precedes the model or ends the array."""
    with scene([reply("fine")]) as at:
        at.handle.resume(InjectMessages([SYSTEM]))
        with refused(at.handle, InvalidHistory):
            at.handle.resume(InjectMessages([user("x")]))
        assert at.done().text == "fine"


@each("paused", [True, False])
def test_a_user_message_after_a_held_system_message_is_refused(paused: bool) -> None:
    """Likewise among those that are held, or that wait for the results of an open round."""
    open_round = reply(calls=[WRITE]) if not paused else reply("so far", content=[OPEN], stop_reason="pause_turn")
    answer = reply(content=[FOUND, SAID]) if paused else reply("fine")
    with scene([open_round, answer, reply("fine")], asked=params(tools=[SEARCH]), execution="ready") as at:
        at.turn().inject_and_continue([user("hurry"), SYSTEM])
        with refused(at.handle, InvalidHistory):
            at.handle.resume(InjectMessages([user("x")]))


def test_no_messages_are_none() -> None:
    """An empty list is a command to go on."""
    with scene([reply(calls=[ADD]), reply("fine")]) as at:
        at.turn().inject_and_continue([])
        at.done()
        assert len(at.sent()) == 3


def test_a_follow_up_to_a_held_system_message_is_in_order() -> None:
    """A system message that was held when a pause was stopped stands after the next user turn."""
    script = [reply("so far", content=[OPEN], stop_reason="pause_turn"), reply("fine")]
    with scene(script, asked=params(tools=[SEARCH])) as at:
        at.turn().inject_and_continue([user("hurry"), SYSTEM])
        at.handle.resume(Stop())
        at.done()
        at.handle.follow_up([user("again")])
        assert at.handle.run().unwrap().text == "fine"
        assert at.sent() == [user(), user("hurry"), user("again"), SYSTEM]


@each("end", ["stop", "max_pauses", "max_iterations", "refusal", "max_tokens"])
def test_a_system_message_before_a_dropped_pause_leaves_a_history_that_goes_on(end: str) -> None:
    """What was injected during the pause may not join behind a system message: the follow-up must be possible."""
    paused = reply("so far", content=[OPEN], stop_reason="pause_turn")
    later = {
        "refusal": [reply(stop_reason="refusal")],
        "max_tokens": [reply(content=[FOUND], stop_reason="max_tokens")],
    }
    limits = {"max_pauses": {"max_pauses": 0}, "max_iterations": {"max_iterations": 1}}
    asked = params(tools=[SEARCH], messages=[user(), SYSTEM])
    with scene([paused, *later.get(end, []), reply("fine")], asked=asked, **limits.get(end, {})) as at:
        at.turn().inject_and_continue([user("hurry")])
        if end == "stop":
            at.handle.resume(Stop())
        at.done()
        at.handle.follow_up([user("again")])
        assert at.handle.run().unwrap().text == "fine"
        said = [message["content"] for message in at.sent() if message["role"] != "assistant"]
        assert sorted(said) == sorted(["hello", SYSTEM["content"], "hurry", "again"])


@each("decided", [False, True])
def test_a_system_message_alone_is_refused_beside_an_open_server_call(decided: bool) -> None:
    """The round waits for the server's result too, so the message would follow the reply that brings it."""
    script = [reply(content=[OPEN], calls=[WRITE]), reply(content=[FOUND, SAID]), reply("fine")]
    with scene(script, asked=params(tools=[SEARCH]), execution="barrier" if decided else "ready") as at:
        turn = at.turn()
        if decided:
            turn.approve_all()
        with refused(at.handle, InvalidHistory, "follows an assistant message"):
            turn.inject_and_continue([SYSTEM])
        turn.approve_all()
        turn.inject_and_continue([user("hurry"), SYSTEM])
        assert at.handle.run().unwrap().text == "fine"
        assert at.sent()[-2:] == [user("hurry"), SYSTEM]


@each("title", ["assistant", '"role":"assistant"'])
def test_a_result_that_names_the_assistant_is_no_message_of_the_model(title: str) -> None:
    """What a message may follow is judged by its roles, not by words in it."""

    @tool
    def fetch() -> list[dict[str, Any]]:
        """Fetch a document."""
        return [
            {"type": "document", "title": title, "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
        ]

    with scene([reply(calls=[("fetch", {})]), reply("fine")], tools=[fetch]) as at:
        at.turn().inject_and_continue([user("hurry")])
        assert at.done().text == "fine"
        assert at.sent()[-1] == user("hurry")


HALF = "half a pair: \ud83d"


def resume_with_half(at: Scene) -> None:
    at.turn()
    at.handle.resume(InjectMessages([user(HALF)]))


def edit_with_half(at: Scene) -> None:
    at.turn()
    at.handle.messages_mut().append(user(HALF))
    at.handle.resume(Continue())


SAYINGS: dict[str, Callable[[Scene], Any]] = {
    "injected": lambda at: at.turn().inject_and_continue([user(HALF)]),
    "injected as a block": lambda at: at.turn().inject_and_continue([user([{"type": "text", "text": HALF}])]),
    "resumed": resume_with_half,
    "a system prompt": lambda at: at.handle.update_params(system=HALF),
    "an edit": edit_with_half,
}


@each("say", SAYINGS.values())
def test_half_a_surrogate_pair_is_refused_wherever_a_caller_speaks(say: Callable[[Scene], Any]) -> None:
    """No request can carry it: who says it is told where it is, before anything is sent."""
    with scene([reply(calls=[ADD])]) as at, pytest.raises(TypeError, match="surrogate"):
        say(at)
    with (
        pytest.raises(TypeError, match=r"messages\[0\]\.content .*surrogate"),
        scene([], asked=params(messages=[user(HALF)])),
    ):
        pass


def test_half_a_surrogate_pair_is_refused_in_a_follow_up() -> None:
    """The loop stays where it ended, and takes another one."""
    with scene([reply("so"), reply("fine")]) as at:
        at.done()
        with pytest.raises(TypeError, match="surrogate"):
            at.handle.follow_up([user(HALF)])
        at.handle.follow_up([user("a whole one: \U0001f600")])
        assert at.done().text == "fine"
