"""Malformed replies, and malformed answers of policies and `stop_when`: the loop goes on or says what failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.each import each
from tests.loop.support import completed, failed, params, scene, user, yielded
from toolloop import Ask, LoopConfig, ToolLoopHandle, tool
from toolloop.errors import ModelError, ProtocolError
from toolloop.providers import Request
from toolloop.terminations import NaturalEnd, StopCondition
from toolloop.testing import ScriptedProvider, call, reply

ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")


class Gives:
    """A provider of somebody's own. Its first reply is what it was made with; then it says fine."""

    def __init__(self, first: Any) -> None:
        self.replies = [first, {"content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"}]

    def send(self, request: Request) -> Any:
        return self.replies.pop(0)


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"in": value}
    return value


def saying(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"content": list(blocks), "stop_reason": "end_turn", **more}


def using(**changes: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}, **changes}
    return saying({key: value for key, value in block.items() if value != "left out"}, stop_reason="tool_use")


NO_REPLIES: dict[str, Any] = {
    "nothing": None,
    "a text": "x",
    "bytes": b"{}",
    "a list": [],
    "some object": object(),
    "no content": {"stop_reason": "end_turn"},
    "content that is a text": {"content": "x", "stop_reason": "end_turn"},
    "a block that is a text": saying("x"),
    "a block of no type": saying({"text": "x"}),
    "a block whose type is a number": saying({"type": 5}),
    "text without a text": saying({"type": "text"}),
    "text that is null": saying({"type": "text", "text": None}),
    "text that is a number": saying({"type": "text", "text": 5}),
    "a stop reason that is a number": saying(stop_reason=5),
    "a call without an id": using(id="left out"),
    "a call whose id is empty": using(id=""),
    "a call whose id is a number": using(id=5),
    "a call without a name": using(name="left out"),
    "a call without an input": using(input="left out"),
    "a call whose input is a list": using(input=[]),
    "two calls of one id": saying(*[using()["content"][0]] * 2, stop_reason="tool_use"),
    "something that is no JSON": saying({"type": "text", "text": "x", "more": {1}}),
    "not a number": saying({"type": "text", "text": "x", "more": float("nan")}),
    "an input nested too deep": using(input=nested(100_000)),
}


@each("given", NO_REPLIES.values())
def test_a_reply_that_makes_no_sense_is_an_error_result(given: Any) -> None:
    """It joins nothing and breaks nothing: the loop can be read, put to sleep, and told to try again."""
    handle = ToolLoopHandle(Gives(given), params=params())
    error = failed(handle.next_turn())
    assert isinstance(error.error, ProtocolError)
    assert str(error.error).strip()
    assert failed(handle.next_turn()) is error
    assert (handle.messages, handle.is_finished, handle.view()["state"]) == ((user(),), True, "Failed")
    assert isinstance(handle.into_result().iterations, int)
    copy = ToolLoopHandle.restore(handle.snapshot(), Gives(given))
    assert isinstance(failed(copy.next_turn()).error, ProtocolError)
    handle.retry()
    assert completed(handle.next_turn()).text == "fine"


class MuteError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


@each("error", [MuteError(), OSError("down"), RecursionError(), KeyError(1)])
def test_whatever_a_provider_raises_is_an_error_result(error: Exception) -> None:
    """The outside world failed; the exception is the cause, and its type is named."""
    handle = ToolLoopHandle(ScriptedProvider([error, reply("fine")]), params=params())
    result = failed(handle.next_turn())
    assert isinstance(result.error, ModelError)
    assert type(error).__name__ in str(result.error)
    assert result.error.__cause__ is error
    handle.retry()
    assert completed(handle.next_turn()).text == "fine"


@each("levels", [600, 900])
def test_a_reply_that_is_nested_deep_does_not_stand_in_the_way_of_an_edit(levels: int) -> None:
    """What no caller touched is kept as it came, however deep; the rest of the history can be edited."""
    deep = call("add", {"a": nested(levels)}, id="toolu_1")
    handle = ToolLoopHandle(ScriptedProvider([reply(calls=[deep]), reply("so"), reply("fine")]), params=params())
    assert completed(handle.run()).text == "so"
    working = handle.messages_mut()
    working[0] = user("edited")
    handle.follow_up([user("more")])
    assert completed(handle.run()).text == "fine"
    assert handle.messages[0] == user("edited")
    assert handle.messages[1]["content"] == [deep]


def test_a_surrogate_of_the_model_does_not_stand_in_the_way_of_an_edit() -> None:
    """What no caller may say, the model may have said: it is kept beside an edit."""
    handle = ToolLoopHandle(ScriptedProvider([reply("a\ud800"), reply("fine")]), params=params())
    handle.run()
    handle.messages_mut()[0] = user("edited")
    handle.follow_up([user("more")])
    assert completed(handle.run()).text == "fine"
    assert handle.messages[1]["content"] == [{"type": "text", "text": "a\ud800"}]


class Vague:
    """An answer that is neither true nor false, such as an array of numbers."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


@each("said", [None, False, 0, 0.0, "", [], {}])
def test_a_stop_when_that_says_nothing_lets_the_loop_go_on(said: Any) -> None:
    """Whatever is falsy is no word to stop."""
    with scene([reply("fine")], stop_when=lambda view: said) as at:
        assert at.done().termination == NaturalEnd()


@each(("said", "reason"), [(True, None), (1, None), (["x"], None), ("enough", "enough")])
def test_a_stop_when_that_says_something_ends_the_loop(said: Any, reason: str | None) -> None:
    """A text is the reason; nothing of the reply runs."""
    with scene([reply(calls=[ADD])], stop_when=lambda view: said) as at:
        assert (at.done().termination, at.ran) == (StopCondition(reason), [])


@each("error", [LookupError("no"), GeneratorExit()])
def test_what_stop_when_raises_comes_through_as_it_is(error: BaseException) -> None:
    """The state is unchanged, and the next turn asks once more."""
    asked = [error]

    def stop_when(view: Any) -> bool:
        if asked:
            raise asked.pop()
        return False

    with scene([reply("fine")], stop_when=stop_when) as at:
        with pytest.raises(type(error)) as caught:
            at.handle.next_turn()
        assert caught.value is error
        assert at.done().text == "fine"
        assert at.count == 1


def test_a_stop_when_whose_answer_cannot_be_read_raises_through() -> None:
    """What reading its answer raises is its own affair, and the next turn asks once more."""
    answers: list[Any] = [Vague(), False]
    with scene([reply("fine")], stop_when=lambda view: answers.pop(0)) as at:
        with pytest.raises(ValueError, match="ambiguous"):
            at.handle.next_turn()
        assert at.done().text == "fine"


def test_a_message_may_be_added_after_stop_when_raised() -> None:
    """Nothing is requested of a reply that is only judged: an edit meanwhile is adopted, and stays."""
    asked = [LookupError("no")]

    def stop_when(view: Any) -> bool:
        if asked:
            raise asked.pop()
        return False

    with scene([reply("fine"), reply("more")], stop_when=stop_when) as at:
        with pytest.raises(LookupError):
            at.handle.next_turn()
        at.handle.messages_mut().append(user("and then?"))
        assert at.done().text == "fine"
        assert at.handle.messages[:2] == (user(), user("and then?"))
        at.handle.follow_up([user("go on")])
        assert at.done().text == "more"


def spend_with(predicate: Callable[..., Any]) -> Any:
    @tool(needs_approval=predicate)
    def spend() -> str:
        """Spend."""
        return "spent"

    return spend


def test_a_predicate_whose_answer_is_neither_true_nor_false_asks() -> None:
    """It fails closed, as one that raises does."""
    script = [reply(calls=[("spend", {})]), reply("fine")]
    with scene(script, tools=[spend_with(lambda call: Vague())]) as at:
        turn = at.turn()
        (pending,) = turn.pending
        assert pending.why == "approval"
        assert "ValueError" in str(pending.reason)
        turn.approve(pending)
        assert at.handle.run().unwrap().text == "fine"


@each("word", [Ask(reason=5), Ask(reason=["a"])])  # type: ignore[arg-type]
@each("who", ["policy", "predicate"])
def test_the_reason_of_an_ask_is_shown_as_a_text(word: Ask, who: str) -> None:
    """Whatever a policy gave as a reason, a page can show it and a snapshot can hold it."""
    script = [reply(calls=[("spend", {})])]
    config = LoopConfig(on_tool_call=(lambda call, view: word) if who == "policy" else None)
    tools = [spend_with(lambda call: word)]
    handle = ToolLoopHandle(ScriptedProvider(script), params=params(), tools=tools, config=config)
    (pending,) = yielded(handle.next_turn()).pending
    assert pending.reason == str(word.reason)
    copy = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), tools=tools, config=config)
    assert [call.reason for call in copy.pending] == [pending.reason]
