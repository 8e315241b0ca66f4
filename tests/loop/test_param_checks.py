"""Parameters and cache marks that the API refuses: the error comes before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.each import each
from tests.loop.support import TOOLS, Scene, add, look, params, refused, scene, user, write
from toolloop import InjectMessages, Stop, ToolLoopHandle, tool
from toolloop.errors import BadTool, InvalidHistory
from toolloop.testing import FakeMessagesAPI, call, reply

SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
LOOKUP = {"name": "lookup", "input_schema": {"type": "object"}}
EXTERNAL = {"name": "write", "input_schema": {"type": "object"}}
DEVELOPER = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}


def marked(text: str = "x", mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": mark or SHORT}


def many(count: int) -> list[dict[str, Any]]:
    return [marked(str(number)) for number in range(count)]


@tool
def stores() -> list[dict[str, Any]]:
    """Give a text that is to be cached."""
    return [marked("big")]


# --- single parameters ---

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a model that is a number": ({"model": 5}, "model"),
    "a model without a name": ({"model": ""}, "model"),
    "max_tokens that is a text": ({"max_tokens": "x"}, "max_tokens"),
    "max_tokens that is true": ({"max_tokens": True}, "max_tokens"),
    "max_tokens that is broken": ({"max_tokens": 1.5}, "max_tokens"),
    "max_tokens below zero": ({"max_tokens": -1}, "max_tokens"),
    "system that is a number": ({"system": 5}, "system"),
    "a blank system": ({"system": " \n"}, "system"),
    "system of no blocks": ({"system": ["x"]}, "system"),
    "tools that are names": ({"tools": ["x"]}, "tools"),
    "a tool without a schema": ({"tools": [{"name": "t2"}]}, "tools"),
    "a tool without a name": ({"tools": [{"input_schema": {"type": "object"}}]}, "tools"),
    "a choice that is a word": ({"tool_choice": "auto"}, "tool_choice"),
    "a choice of no kind": ({"tool_choice": {"type": "some"}}, "tool_choice"),
    "a choice of an unknown tool": ({"tool_choice": {"type": "tool", "name": "zz"}}, "zz"),
    "a choice of no name": ({"tool_choice": {"type": "tool"}}, "tool_choice"),
    "betas that are a number": ({"betas": 5}, "betas"),
    "betas that are a text": ({"betas": "one"}, "betas"),
    "betas that are numbers": ({"betas": [1]}, "betas"),
}


@each(("changes", "word"), BAD.values())
def test_a_bad_parameter_is_refused_when_a_loop_is_made(changes: dict[str, Any], word: str) -> None:
    """It names the parameter, and no request is made."""
    with FakeMessagesAPI([]) as api:
        with pytest.raises(ValueError, match=word):
            ToolLoopHandle(api.client(), params=params(**changes), tools=TOOLS)
        assert api.requests == []


def test_a_bad_parameter_is_refused_when_it_is_changed() -> None:
    """The loop is as before, and its next request is accepted."""
    with scene([reply("fine")]) as at:
        before = at.handle.snapshot()
        for changes, word in BAD.values():
            with pytest.raises(ValueError, match=word):
                at.handle.update_params(**changes)
        assert at.handle.snapshot() == before
        assert at.done().text == "fine"


def test_a_bad_parameter_is_refused_at_restore() -> None:
    """An accepted drift is no way around it."""
    with scene([]) as at:
        asleep = at.handle.snapshot()
        for changes, word in BAD.values():
            with pytest.raises(ValueError, match=word):
                ToolLoopHandle.restore(
                    asleep, at.api.client(), tools=TOOLS, params=params(**changes), on_drift="accept"
                )


def test_a_choice_without_tools_is_refused() -> None:
    """There is nothing to choose from, whichever of the two is taken away last."""
    with FakeMessagesAPI([]) as api, pytest.raises(ValueError, match="tool_choice"):
        ToolLoopHandle(api.client(), params=params(tool_choice={"type": "auto"}))
    asked = params(tools=[LOOKUP], tool_choice={"type": "tool", "name": "lookup"})
    with scene([reply("fine")], tools=[], asked=asked) as at:
        with pytest.raises(ValueError, match="tool_choice"):
            at.handle.update_params(tools=None)
        at.handle.update_params(tools=None, tool_choice=None)
        assert at.done().text == "fine"


@each(
    "changes",
    [
        {"tool_choice": {"type": "tool", "name": "add"}},
        {"tool_choice": {"type": "tool", "name": "lookup"}, "tools": [LOOKUP]},
        {"tool_choice": {"type": "none"}},
        {"system": [{"type": "text", "text": "Be brief."}]},
        {"system": [marked()], "cache_control": SHORT},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"betas": ["one-2026-01-01"]},
    ],
)
def test_good_parameters_are_taken(changes: dict[str, Any]) -> None:
    """At construction and later."""
    with scene([reply("fine")], asked=params(**changes)) as at:
        assert at.done().text == "fine"
    with scene([reply("fine")]) as at:
        at.handle.update_params(**changes)
        assert at.done().text == "fine"


# --- waking up with other parts ---


def test_a_tool_of_a_name_that_the_parameters_define_is_refused_at_restore() -> None:
    """Accepted drift: an external tool became one of the loop's own, and is still in the parameters."""
    with scene([reply("fine"), reply("more")], tools=[look], asked=params(tools=[EXTERNAL])) as at:
        at.done()
        snapshot = at.handle.snapshot()
        with pytest.raises(BadTool, match="write"):
            ToolLoopHandle.restore(snapshot, at.api.client(), tools=[look, write], on_drift="accept")
        bare = params()
        copy = ToolLoopHandle.restore(snapshot, at.api.client(), tools=[look, add], params=bare, on_drift="accept")
        copy.follow_up([user("more")])
        assert copy.run().unwrap().text == "more"


@each("ended", [False, True])
def test_a_model_that_cannot_take_the_history_is_refused_at_restore(ended: bool) -> None:
    """As `update_params` refuses it: this one takes no system messages."""
    asked = params(messages=[user(), DEVELOPER])
    with scene([reply("fine")], asked=asked) as at:
        if ended:
            at.done()
        snapshot, older = at.handle.snapshot(), params(model="claude-sonnet-4-5")
        with pytest.raises(InvalidHistory) as caught:
            ToolLoopHandle.restore(snapshot, at.api.client(), tools=TOOLS, params=older, on_drift="accept")
        assert "restore()" in str(caught.value)
        assert caught.value.messages[:2] == [user(), DEVELOPER]
        if not ended:
            assert ToolLoopHandle.restore(snapshot, at.api.client(), tools=TOOLS).run().unwrap().text == "fine"


# --- cache marks: at most four in a whole request (source: rule 34 of the Messages API) ---

TOO_MANY: dict[str, dict[str, Any]] = {
    "in the messages": {"messages": [user(many(5))]},
    "in system and messages": {"system": many(2), "messages": [user(many(3))]},
    "with the one for all": {"cache_control": SHORT, "messages": [user(many(4))]},
    "in tools and messages": {"tools": [{**LOOKUP, "cache_control": SHORT}], "messages": [user(many(4))]},
    "in all places": {
        "tools": [{**LOOKUP, "cache_control": SHORT}],
        "system": many(1),
        "cache_control": SHORT,
        "messages": [user(many(2))],
    },
    "a lasting one after a short one": {"messages": [user([marked(), marked("y", LONG)])]},
}


@each("asked", TOO_MANY.values())
def test_too_many_cache_marks_are_refused_when_a_loop_is_made(asked: dict[str, Any]) -> None:
    """Those beside the messages are counted too."""
    with FakeMessagesAPI([]) as api:
        with pytest.raises(InvalidHistory) as caught:
            ToolLoopHandle(api.client(), params=params(**asked), tools=TOOLS)
        assert "cache-marks" in str(caught.value)
        assert api.requests == []


@each(
    "asked",
    [
        {"messages": [user(many(4))]},
        {"system": many(2), "messages": [user(many(2))]},
        {"system": [marked(mark=LONG)], "cache_control": SHORT, "messages": [user(many(2))]},
        {"tools": [{**LOOKUP, "cache_control": SHORT}], "messages": [user(many(3))]},
        {"messages": [user([{"type": "text", "text": 'about "cache_control":{} ' * 9}])]},
    ],
)
def test_four_cache_marks_are_none_too_many(asked: dict[str, Any]) -> None:
    """Words about marks are no marks."""
    with scene([reply("fine")], asked=params(**asked)) as at:
        assert at.done().text == "fine"


MARKED = [user([marked()])]


def resume_with_a_mark(at: Scene) -> None:
    at.turn()
    at.handle.resume(InjectMessages(MARKED))


AFTER_A_ROUND: dict[str, Callable[[Scene], Any]] = {
    "inject_and_continue": lambda at: at.turn().inject_and_continue(MARKED),
    "resume": resume_with_a_mark,
}


@each("inject", AFTER_A_ROUND.values())
def test_marks_of_injected_messages_add_up_over_rounds(inject: Callable[[Scene], Any]) -> None:
    """The fifth is refused at the call, and the `Yielded` still waits; without a mark the message is taken."""
    rounds = [reply(calls=[("add", {"a": 1, "b": 2})]) for _ in range(5)]
    with scene([*rounds, reply("fine")]) as at:
        for _ in range(4):
            inject(at)
        turn = at.turn()
        with refused(at.handle, InvalidHistory, "cache-marks"):
            turn.inject_and_continue(MARKED)
        assert at.handle.pending_turn is turn
        turn.inject_and_continue([user("unmarked")])
        assert at.done().text == "fine"


def test_marks_of_follow_ups_add_up_over_turns() -> None:
    """The fifth is refused at the call; after the first was taken out with `messages_mut` it is accepted."""
    with scene([reply("so")] * 5 + [reply("fine")]) as at:
        for _ in range(4):
            at.done()
            at.handle.follow_up(MARKED)
        at.done()
        with refused(at.handle, InvalidHistory, "cache-marks"):
            at.handle.follow_up(MARKED)
        working = at.handle.messages_mut()
        assert working[2] == MARKED[0]
        working[2] = user("unmarked")
        at.handle.follow_up(MARKED)
        assert at.done().text == "fine"


def unmark_first_result(at: Scene) -> None:
    message = next(message for message in at.handle.messages_mut() if "tool_result" in str(message["content"]))
    message["content"][0]["content"] = "unmarked"


def test_marks_of_results_add_up_over_rounds() -> None:
    """The tool has run, so the request that would carry the fifth mark is refused; an edit of the history mends it."""
    rounds = [reply(calls=[("stores", {})]) for _ in range(5)]
    with scene([*rounds, reply("fine")], tools=[stores]) as at:
        for _ in range(5):
            at.turn().continue_loop()
        with refused(at.handle, InvalidHistory, "cache-marks", "next_turn()"):
            at.handle.next_turn()
        with refused(at.handle, InvalidHistory, "cache-marks"):
            at.handle.run()
        assert at.count == 5
        unmark_first_result(at)
        assert at.done().text == "fine"


def test_marks_of_the_answers_of_one_round_add_up() -> None:
    """Five answers, each of which is fine by itself."""
    calls = [call("lookup", id=f"toolu_{number}") for number in range(5)]
    with scene([reply(calls=calls), reply("fine")], tools=[], asked=params(tools=[LOOKUP])) as at:
        turn = at.turn()
        for each in calls:
            turn.answer(each["id"], [marked()])
        turn.continue_loop()
        assert at.turn().reason == "tools_executed"
        at.handle.pending_turn.continue_loop()  # type: ignore[union-attr]
        with refused(at.handle, InvalidHistory, "cache-marks"):
            at.handle.next_turn()
        unmark_first_result(at)
        assert at.done().text == "fine"
        assert at.count == 2


def test_too_many_marks_in_one_result_are_an_error_result() -> None:
    """A single result that no request could carry is told to the model."""

    @tool
    def overdoes() -> list[dict[str, Any]]:
        """Mark too much."""
        return many(5)

    with scene([reply(calls=[("overdoes", {})]), reply("fine")], tools=[overdoes]) as at:
        assert at.handle.run().unwrap().text == "fine"


def change_and_go_on(at: Scene, changes: dict[str, Any]) -> None:
    at.handle.update_params(**changes)
    at.handle.next_turn()


@each("changes", [{"system": many(1)}, {"cache_control": SHORT}, {"tools": [{**LOOKUP, "cache_control": SHORT}]}])
def test_marks_of_changed_parameters_are_counted_with_those_of_the_history(changes: dict[str, Any]) -> None:
    """Refused at the change, or before the request at the latest; the change can be taken back."""
    with scene([reply("fine")], asked=params(messages=[user(many(4))])) as at:
        with pytest.raises(InvalidHistory, match="cache-marks"):
            change_and_go_on(at, changes)
        assert at.count == 0
        at.handle.update_params(**dict.fromkeys(changes))
        assert at.done().text == "fine"


def test_marks_that_are_refused_leave_a_loop_that_can_be_stopped_and_asleep() -> None:
    """The loop stands before its request: it can be copied, put to sleep, and ended."""
    rounds = [reply(calls=[("stores", {})]) for _ in range(5)]
    with scene(rounds, tools=[stores]) as at:
        for _ in range(5):
            at.turn().continue_loop()
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=[stores])
        for handle in (at.handle, copy):
            with pytest.raises(InvalidHistory):
                handle.next_turn()
            assert handle.pending_turn is None
        copy.resume(Stop())
        assert copy.next_turn().unwrap().termination.kind == "stop_condition"
