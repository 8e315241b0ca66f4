"""Parameters and whole requests that the API refuses: the error comes before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from anthropic.types import message_create_params as sdk_params
from anthropic.types.beta import message_create_params as beta_params

from tests.kit.each import each
from tests.kit.support import expect_completed, expect_refusal
from tests.kit.tools import TOOLS, params, user
from tests.kit.world import World, open_over_http
from toolloop import InjectMessages, ToolLoopHandle, tool
from toolloop._requests import params as request_params
from toolloop._requests.params import Secrets
from toolloop._requests.request_maker import RequestMaker
from toolloop.errors import InvalidHistory
from toolloop.providers import OPTION_NAMES
from toolloop.testing import FakeMessagesAPI, call, reply, server_call

SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
LOOKUP = {"name": "lookup", "input_schema": {"type": "object"}}


def make_marked(text: str = "x", mark: Any = None) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": mark or SHORT}


def make_many(count: int) -> list[dict[str, Any]]:
    return [make_marked(str(number)) for number in range(count)]


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
    with open_over_http([reply("fine")]) as at:
        before = at.handle.snapshot()
        for changes, word in BAD.values():
            with pytest.raises(ValueError, match=word):
                at.handle.update_params(**changes)
        assert at.handle.snapshot() == before
        assert at.expect_done().text == "fine"


def test_a_bad_parameter_is_refused_at_restore() -> None:
    """An accepted drift does not get around it."""
    with open_over_http([]) as at:
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
    with open_over_http([reply("fine")], tools=[], asked=asked) as at:
        with pytest.raises(ValueError, match="tool_choice"):
            at.handle.update_params(tools=None)
        at.handle.update_params(tools=None, tool_choice=None)
        assert at.expect_done().text == "fine"


@each(
    "changes",
    [
        {"tool_choice": {"type": "tool", "name": "add"}},
        {"tool_choice": {"type": "tool", "name": "lookup"}, "tools": [LOOKUP]},
        {"tool_choice": {"type": "none"}},
        {"system": [{"type": "text", "text": "Be brief."}]},
        {"system": [make_marked()], "cache_control": SHORT},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"betas": ["one-2026-01-01"]},
    ],
)
def test_good_parameters_are_taken(changes: dict[str, Any]) -> None:
    """At construction and later."""
    with open_over_http([reply("fine")], asked=params(**changes)) as at:
        assert at.expect_done().text == "fine"
    with open_over_http([reply("fine")]) as at:
        at.handle.update_params(**changes)
        assert at.expect_done().text == "fine"


def test_every_parameter_of_the_sdk_is_known() -> None:
    """Of `messages.create`, beta or not, and beside these only what older models take. What is newer: `extra_body`."""
    kinds = (beta_params.MessageCreateParamsNonStreaming, sdk_params.MessageCreateParamsNonStreaming)
    of_the_sdk = {name for kind in kinds for name in get_type_hints(kind)}
    assert of_the_sdk | OPTION_NAMES | {"output_format", "temperature", "top_k", "top_p"} == request_params._KNOWN


def test_a_parameter_with_a_slip_in_its_name_is_refused_wherever_one_is_given() -> None:
    """Later and at restore, too, and the loop is as before; in `extra_body` any name goes out."""
    with open_over_http([reply("fine")], asked=params(extra_body={"max_token": 3}), refusals=1) as at:
        before = at.handle.snapshot()
        with pytest.raises(ValueError, match="Did you mean 'metadata'"):
            at.handle.update_params(meta_data={"user_id": "u"})
        with pytest.raises(ValueError, match="Did you mean 'system'"):
            ToolLoopHandle.restore(before, at.api.client(), tools=TOOLS, params=params(sytem="x"))
        assert at.handle.snapshot() == before
        assert "max_token: Extra inputs" in str(at.expect_failed().error)  # the API's own word
        at.handle.update_params(extra_body=None)
        at.handle.retry()
        assert at.expect_done().text == "fine"


# --- cache marks: at most four in a whole request (source: rule 34 of the Messages API) ---
TOO_MANY: dict[str, dict[str, Any]] = {
    "in the messages": {"messages": [user(make_many(5))]},
    "in system and messages": {"system": make_many(2), "messages": [user(make_many(3))]},
    "with the one for all": {"cache_control": SHORT, "messages": [user(make_many(4))]},
    "in tools and messages": {"tools": [{**LOOKUP, "cache_control": SHORT}], "messages": [user(make_many(4))]},
    "in all places": {
        "tools": [{**LOOKUP, "cache_control": SHORT}],
        "system": make_many(1),
        "cache_control": SHORT,
        "messages": [user(make_many(2))],
    },
    "a lasting one after a short one": {"messages": [user([make_marked(), make_marked("y", LONG)])]},
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
        {"messages": [user(make_many(4))]},
        {"system": make_many(2), "messages": [user(make_many(2))]},
        {"system": [make_marked(mark=LONG)], "cache_control": SHORT, "messages": [user(make_many(2))]},
        {"tools": [{**LOOKUP, "cache_control": SHORT}], "messages": [user(make_many(3))]},
        {"messages": [user([{"type": "text", "text": 'about "cache_control":{} ' * 9}])]},
    ],
)
def test_four_cache_marks_are_none_too_many(asked: dict[str, Any]) -> None:
    """Words about marks are not marks."""
    with open_over_http([reply("fine")], asked=params(**asked)) as at:
        assert at.expect_done().text == "fine"


MARKED = [user([make_marked()])]


def resume_with_a_mark(at: World) -> None:
    at.turn()
    at.handle.resume(InjectMessages(MARKED))


AFTER_A_ROUND: dict[str, Callable[[World], Any]] = {
    "inject_and_continue": lambda at: at.turn().inject_and_continue(MARKED),
    "resume": resume_with_a_mark,
}


@each("inject", AFTER_A_ROUND.values())
def test_marks_of_injected_messages_add_up_over_rounds(inject: Callable[[World], Any]) -> None:
    """The fifth is refused at the call, and the `Yielded` still waits; without a mark the message is taken."""
    rounds = [reply(calls=[("add", {"a": 1, "b": 2})]) for _ in range(5)]
    with open_over_http([*rounds, reply("fine")]) as at:
        for _ in range(4):
            inject(at)
        turn = at.turn()
        with expect_refusal(at.handle, InvalidHistory, "cache-marks"):
            turn.inject_and_continue(MARKED)
        assert at.handle.pending_turn is turn
        turn.inject_and_continue([user("unmarked")])
        assert at.expect_done().text == "fine"


def test_too_many_marks_in_one_result_are_an_error_result() -> None:
    """A single result that no request could carry becomes an error for the model."""

    @tool
    def overdoes() -> list[dict[str, Any]]:
        """Mark too much."""
        return make_many(5)

    with open_over_http([reply(calls=[("overdoes", {})]), reply("fine")], tools=[overdoes]) as at:
        assert at.handle.run().unwrap().text == "fine"


@tool
def say() -> str:
    """Say something."""
    return "a word"


# --- more bytes than a request takes ---------------------------------------------------------------------------------


HALF = 16 * 1024 * 1024


def test_a_request_of_more_than_32_megabytes_is_not_sent() -> None:
    """Its messages are right each; the largest is named, and without it the loop goes on."""
    with open_over_http(
        [reply(calls=[("say", {})]), reply("fine")], tools=[say], asked=params(messages=[user("ä" * (HALF // 2))])
    ) as at:
        at.turn().inject_and_continue([user("x" * (HALF + 1))])
        with expect_refusal(at.handle, InvalidHistory, "request-size", "messages[3]", "Shorten", "33,554,432"):
            at.handle.next_turn()
        assert at.count == 1
        at.handle.messages_mut()[0]["content"] = "shorter"
        assert at.expect_done().text == "fine"


def test_what_goes_along_with_the_messages_counts_too() -> None:
    """A system prompt alone can be too much; the other parameters mend it."""
    with open_over_http([reply("fine")], asked=params(system="x" * (2 * HALF))) as at:
        with expect_refusal(at.handle, InvalidHistory, "request-size", "messages[0]"):
            at.handle.next_turn()
        at.handle.update_params(system="Be brief.")
        assert at.expect_done().text == "fine"


def test_a_request_that_just_fits_is_made() -> None:
    """Of the bytes a few are kept for what goes around the messages."""
    maker = RequestMaker([], Secrets())
    stored, first = '{"model":"m"}', '{"role":"user","content":"x"}'
    most = 2 * HALF - 1024 - len(stored) - len(first) - len('""') - 3

    def measure(length: int) -> int:
        return len(maker.make(stored, [first, f'"{"x" * length}"'], "container_1").body())

    assert 2 * HALF - 1024 <= measure(most) <= 2 * HALF
    with pytest.raises(InvalidHistory, match="request-size"):
        measure(most + 1)
    assert measure(most) <= 2 * HALF


# --- rounds that stay beside the history -----------------------------------------------------------------------------


CODE = {"type": "code_execution_20260120", "name": "code_execution"}
PROGRAM = server_call("code_execution", {"code": "look()"}, id="srvtoolu_c")
CALLER = {"type": "code_execution_20260120", "tool_id": "srvtoolu_c"}
RAN = {"type": "code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": []}
DONE = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_c", "content": RAN}
ENDS = reply(content=[DONE, {"type": "text", "text": "done"}])


@tool
def mark() -> list[Any]:
    """Say something to be cached."""
    return [{"type": "text", "text": "a word", "cache_control": {"type": "ephemeral"}}]


@each("by_code", [True, False])
def test_any_number_of_cache_marks_may_be_beside_the_history(by_code: bool) -> None:
    """Where they could not be removed, they are not sent."""
    more: dict[str, Any] = {"caller": CALLER} if by_code else {}
    asking = reply(content=[PROGRAM], calls=[call("mark", **more) for _ in range(5)], container="container_1")
    with open_over_http([asking, ENDS], tools=[mark], asked=params(tools=[CODE])) as at:
        assert expect_completed(at.handle.run()).text == "done"
        assert at.count == 2


def test_marks_of_follow_ups_add_up_over_turns() -> None:
    """The fifth is refused at the call; after the first was taken out with `messages_mut` it is accepted."""
    with open_over_http([reply("so")] * 5 + [reply("fine")]) as at:
        for _ in range(4):
            at.expect_done()
            at.handle.follow_up(MARKED)
        at.expect_done()
        with expect_refusal(at.handle, InvalidHistory, "cache-marks"):
            at.handle.follow_up(MARKED)
        working = at.handle.messages_mut()
        assert working[2] == MARKED[0]
        working[2] = user("unmarked")
        at.handle.follow_up(MARKED)
        assert at.expect_done().text == "fine"
