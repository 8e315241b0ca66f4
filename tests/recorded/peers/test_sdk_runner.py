"""`ToolRunner` beside the SDK's own runner: equal request bodies, but for a written list of differences.

The list is in `docs/howto/from-the-sdk.md`, and names these tests. Each of them fails if the difference goes away, on
either side.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest

from tests.recorded.peers.side_by_side import (
    ADD,
    BYE,
    FAIL,
    MORE,
    PARAMS,
    Body,
    Side,
    asks,
    both,
    denied,
    nothing,
    once,
    said,
    user,
)
from toolloop import AsyncToolRunner
from toolloop.errors import IllegalCommand, InvalidHistory, ModelError, ProtocolError
from toolloop.terminations import PauseLimit
from toolloop.testing import FakeMessagesAPI, call, fault, reply, server_call, server_result

SEARCH: dict[str, Any] = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
ASKED = server_call("web_search", {"query": "q"}, id="srvtoolu_1")
FOUND = server_result("web_search", [], id="srvtoolu_1")
SO = {"type": "text", "text": "so"}
Script = Callable[[], list[Any]]


def paused(*blocks: Any) -> Any:
    return reply(content=blocks, stop_reason="pause_turn")


SAME: dict[str, tuple[Script, Body, dict[str, Any]]] = {
    "no call": (lambda: [BYE], nothing, {}),
    "one call": (lambda: [asks(ADD), BYE], nothing, {}),
    "several calls, several rounds": (lambda: [asks(SO, ADD, MORE), asks(ADD), BYE], nothing, {}),
    "thinking": (lambda: [reply(thinking="hm", calls=[("add", {"a": 1, "b": 2})]), BYE], nothing, {}),
    "a pause": (lambda: [paused(ASKED), reply(content=[FOUND, SO])], nothing, SEARCH),
    "two pauses": (lambda: [paused(ASKED), paused(FOUND, SO, ASKED | {"id": "srvtoolu_2"}), BYE], nothing, SEARCH),
    "cut off": (lambda: [reply(content=[SO, ADD], stop_reason="max_tokens")], nothing, {}),
    "a refusal": (lambda: [reply(content=[SO, ADD], stop_reason="refusal")], nothing, {}),
    "a limit": (lambda: [asks(ADD)], nothing, {"limit": 1}),
    "a message at the end": (lambda: [BYE], once(lambda side, _: side.runner.append_messages(user("x"))), {}),
    "a response that is only looked at": (lambda: [asks(ADD), BYE], once(lambda side, _: side.respond()), {}),
}


def test_the_same_goes_out() -> None:
    """Every body is equal, and the same tools run, equally often; with streams, too."""
    for name, (script, body, more) in SAME.items():
        for stream in (False, True):
            sdk, ours = both(script, body, stream=stream, **more)
            assert all(request.get("stream", False) is stream for request in sdk.bodies), name
            assert ours.bodies == sdk.bodies, name
            assert ours.ran == sdk.ran, name
            assert (ours.error, ours.yielded) == (sdk.error, sdk.yielded), name


def test_a_tool_runs_once_though_its_response_is_appended() -> None:
    """The documented way to look at results, or edit them, runs each tool twice there, and once here."""
    sdk, ours = both(
        lambda: [asks(ADD), BYE], once(lambda side, message: side.runner.append_messages(said(message), side.respond()))
    )
    assert ours.bodies == sdk.bodies
    assert sdk.ran == [("add", 1, 2)] * 2
    assert ours.ran == [("add", 1, 2)]


def test_a_denied_call_does_not_run() -> None:
    """There, the tool still runs if the caller appends an answer."""
    sdk, ours = both(
        lambda: [asks(ADD), BYE],
        once(lambda side, message: side.runner.append_messages(said(message), denied("toolu_1"))),
    )
    assert ours.bodies == sdk.bodies
    assert sdk.ran == [("add", 1, 2)]
    assert ours.ran == []


def test_a_call_that_was_left_out_does_not_run() -> None:
    """A message appended without the reply drops the reply in both; there its tools run first."""
    sdk, ours = both(lambda: [asks(ADD), BYE], once(lambda side, _: side.runner.append_messages(user("x"))))
    assert ours.bodies == sdk.bodies
    assert sdk.ran == [("add", 1, 2)]
    assert ours.ran == []


def test_a_denial_by_set_messages_params_is_the_only_answer() -> None:
    """There the reply goes out a second time, with a real result: one call has two answers."""

    def deny(side: Side, message: Any) -> None:
        side.runner.set_messages_params(
            lambda params: {**params, "messages": [*params["messages"], said(message), denied("toolu_1")]}
        )

    sdk, ours = both(lambda: [asks(ADD), BYE], once(deny))
    assert [message["role"] for message in sdk.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert sdk.ran == [("add", 1, 2)]
    assert ours.messages[2:] == [denied("toolu_1")]
    assert ours.ran == []


def test_a_reply_that_was_taken_over_has_its_calls_answered() -> None:
    """There the tool runs, its result is dropped, and the API refuses the unanswered call."""
    sdk, ours = both(lambda: [asks(ADD), BYE], once(lambda side, message: side.runner.append_messages(said(message))))
    assert isinstance(sdk.error, anthropic.BadRequestError)
    assert (sdk.refused, ours.refused) == (1, 0)
    assert sdk.ran == ours.ran == [("add", 1, 2)]
    assert ours.messages[2]["content"][0]["content"] == "3"


def test_answers_to_some_of_the_calls_are_refused() -> None:
    """Before anything runs; there all calls run, and the API refuses the request."""
    sdk, ours = both(
        lambda: [asks(ADD, MORE), BYE],
        once(lambda side, message: side.runner.append_messages(said(message), denied("toolu_1"))),
    )
    assert isinstance(sdk.error, anthropic.BadRequestError)
    assert sdk.ran == [("add", 1, 2), ("add", 3, 4)]
    assert isinstance(ours.error, InvalidHistory)
    assert ours.ran == []
    assert len(ours.bodies) == 1


def test_a_change_of_parameters_alone_leaves_the_reply_out() -> None:
    """There, the reply is still appended. Take it over with the change to keep it."""

    def tune(side: Side, message: Any) -> None:
        kept = [] if side.is_sdk else [message]
        side.runner.set_messages_params(
            lambda params: {**params, "max_tokens": 9, "messages": [*params["messages"], *kept]}
        )

    def tune_alone(side: Side, _message: Any) -> None:
        side.runner.set_messages_params(lambda params: {**params, "max_tokens": 9})

    sdk, ours = both(lambda: [asks(ADD), BYE], once(tune_alone))
    assert len(sdk.messages) == 3
    assert len(ours.messages) == 1
    assert ours.ran == []
    sdk, ours = both(lambda: [asks(ADD), BYE], once(tune))
    assert ours.bodies == sdk.bodies


def test_calls_in_a_pause_are_answered_before_it_is_resumed() -> None:
    """There a pause with a call of the client's is sent back as it is, with the call unanswered."""
    sdk, ours = both(lambda: [paused(ASKED, ADD), reply(content=[FOUND, SO])], **SEARCH)
    assert [message["role"] for message in sdk.messages] == ["user", "assistant"]
    assert [message["role"] for message in ours.messages] == ["user", "assistant", "user"]
    assert (sdk.ran, ours.ran) == ([], [("add", 1, 2)])
    assert ours.refused == 0


def test_blank_text_is_not_sent_back() -> None:
    """The API refuses it; there it goes out."""
    sdk, ours = both(lambda: [asks({"type": "text", "text": ""}, ADD), BYE])
    assert isinstance(sdk.error, anthropic.BadRequestError)
    assert [block["type"] for block in ours.messages[1]["content"]] == ["tool_use"]
    assert (sdk.refused, ours.refused) == (1, 0)


def test_calls_that_a_history_begins_with_are_run() -> None:
    """There the request goes out with the call unanswered."""
    asked = [user("hi"), {"role": "assistant", "content": [ADD]}]
    sdk, ours = both(lambda: [BYE], messages=asked)
    assert sdk.messages == asked
    assert ours.messages == [*asked, user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"}])]
    assert (sdk.refused, ours.refused) == (1, 0)


def test_the_model_learns_more_of_a_failure() -> None:
    """Which field does not fit and why, and which tools there are, instead of a Python `repr`."""
    cases: list[tuple[Any, str, str]] = [
        (FAIL, "ValueError('no')", "ValueError: no"),
        (call("nope", {}, id="toolu_1"), "Error: Tool 'nope' not found", "There is no tool named 'nope'"),
        (
            call("add", {"a": "x", "b": 1}, id="toolu_1"),
            "ValueError('Invalid arguments for function add')",
            'a: Input should be a valid integer, got "x"',
        ),
    ]
    for asked, there, here in cases:
        sdk, ours = both(partial(list, [asks(asked), BYE]))
        ((theirs,), (mine,)) = (side.messages[2]["content"] for side in (sdk, ours))
        assert theirs["content"] == there
        assert here in mine["content"]
        assert theirs | {"content": ""} == mine | {"content": ""}


def test_after_an_error_it_goes_on() -> None:
    """There the iterator is over, and `until_done` gives the last reply as if it were the answer."""
    sdk, ours = both(lambda: [asks(ADD), fault(400), BYE], again=True)
    assert sdk.later == "over"
    assert len(sdk.bodies) == 2
    assert sdk.runner.until_done().stop_reason == "tool_use"
    assert ours.bodies == [*sdk.bodies, sdk.bodies[1]]
    assert ours.later["content"] == BYE["content"]
    assert ours.ran == sdk.ran == [("add", 1, 2)]


def test_errors_are_our_own() -> None:
    """There is a kind for each status; here one, with the SDK's as its cause."""
    for status in (400, 401, 404, 500):
        sdk, ours = both(partial(list, [fault(status)] * 9))
        assert isinstance(sdk.error, anthropic.APIStatusError)
        assert not isinstance(ours.error, anthropic.AnthropicError)
        assert isinstance(ours.error, ModelError)
        assert type(ours.error.__cause__) is type(sdk.error)


def test_to_append_nothing_changes_nothing() -> None:
    """There it is a change, so the reply is dropped, and its tools have run."""
    sdk, ours = both(lambda: [asks(ADD), BYE], once(lambda side, _: side.runner.append_messages()))
    assert sdk.messages == [user("hi")]
    assert len(ours.messages) == 3
    assert sdk.ran == ours.ran == [("add", 1, 2)]


def test_another_history_goes_out_as_it_is() -> None:
    """There the reply and its results are appended to it."""

    def begin_anew(side: Side, _message: Any) -> None:
        side.runner.set_messages_params(lambda params: {**params, "messages": [user("other")]})

    sdk, ours = both(lambda: [asks(ADD), BYE], once(begin_anew))
    assert [message["role"] for message in sdk.messages] == ["user", "assistant", "user"]
    assert sdk.ran == [("add", 1, 2)]
    assert ours.messages == [user("other")]
    assert ours.ran == []


def test_a_response_that_is_edited_in_place_is_not_sent() -> None:
    """There it is the very object that goes out."""

    def edit(side: Side, _message: Any) -> None:
        side.respond()["content"][0]["content"] = "edited"

    sdk, ours = both(lambda: [asks(ADD), BYE], once(edit))
    assert [side.messages[2]["content"][0]["content"] for side in (sdk, ours)] == ["edited", "3"]


def test_a_reply_that_is_edited_in_place_runs_unedited() -> None:
    """There the tool runs with what the caller made of its input."""

    def edit(side: Side, message: Any) -> None:
        block = message.content[0] if side.is_sdk else message["content"][0]
        (block.input if side.is_sdk else block["input"])["a"] = 7

    sdk, ours = both(lambda: [asks(ADD), BYE], once(edit))
    assert (sdk.ran, ours.ran) == ([("add", 7, 2)], [("add", 1, 2)])
    assert [side.messages[1]["content"][0]["input"]["a"] for side in (sdk, ours)] == [7, 1]


def test_a_container_is_named_only_where_code_waits_in_it() -> None:
    """There every later request names the container of a reply."""
    code: dict[str, Any] = {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}
    sdk, ours = both(lambda: [reply(calls=[ADD], container="c1"), BYE], **code)
    assert sdk.bodies[1]["container"] == "c1"
    assert ours.bodies[1] == {key: value for key, value in sdk.bodies[1].items() if key != "container"}


def test_pauses_in_a_row_have_a_limit() -> None:
    """There they have none."""

    def script() -> list[Any]:
        asked = [ASKED | {"id": f"srvtoolu_{number}"} for number in range(12)]
        found = [FOUND | {"tool_use_id": f"srvtoolu_{number}"} for number in range(12)]
        return [
            paused(asked[0]),
            *(paused(found[at - 1], asked[at]) for at in range(1, 12)),
            reply(content=[found[11], SO]),
        ]

    sdk, ours = both(script, **SEARCH)
    assert (sdk.yielded, ours.yielded) == (13, 11)
    assert ours.runner.into_result().termination == PauseLimit(10)
    assert ours.bodies == sdk.bodies[:11]


def test_a_reply_that_makes_no_sense_is_an_error() -> None:
    """Two calls of one id, or none where it stopped for one: there it is yielded, and its tools run."""
    for odd in (asks(ADD, MORE | {"id": "toolu_1"}), reply("so", stop_reason="tool_use")):
        sdk, ours = both(partial(list, [odd, BYE]))
        assert (sdk.yielded, ours.yielded) == (1, 0)
        assert isinstance(ours.error, ProtocolError)
        assert ours.ran == []


def test_thinking_at_the_end_is_not_sent_back() -> None:
    """The API refuses it; there it goes out."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": ""}
    sdk, ours = both(lambda: [reply(content=[ADD, thinking], stop_reason="tool_use"), BYE])
    assert isinstance(sdk.error, anthropic.BadRequestError)
    assert [block["type"] for block in ours.messages[1]["content"]] == ["tool_use"]
    assert (sdk.refused, ours.refused) == (1, 0)


def test_a_stream_gives_events_and_the_message() -> None:
    """There it has a face of its own for the text, and an `until_done`."""
    sdk, ours = both(lambda: [BYE], stream=True)
    for name in ("text_stream", "get_final_text", "until_done"):
        assert hasattr(sdk.stream, name)
        assert not hasattr(ours.stream, name)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_stream_is_read_in_its_block(backend: str) -> None:
    """There it is iterated as it is."""

    async def story() -> None:
        with FakeMessagesAPI([BYE, BYE]) as api:
            async with api.async_client() as client:
                theirs = client.beta.messages.tool_runner(**PARAMS, tools=[], stream=True, thread=False)
                async for stream in theirs:
                    assert [event async for event in stream]
                async for ours in AsyncToolRunner(client, params=PARAMS, stream=True):
                    with pytest.raises(IllegalCommand, match="async with stream"):
                        await anext(ours)
                    async with ours:
                        assert [event async for event in ours]

    anyio.run(story, backend=backend)


def test_the_page_names_each_of_these_tests() -> None:
    """And no other, so that its list is the one that is tested."""
    page = (Path(__file__).parents[3] / "docs" / "howto" / "from-the-sdk.md").read_text()
    tests = {name for name in globals() if name.startswith("test_")}
    assert set(re.findall(r"`(test_\w+)`", page)) == tests - {
        test_the_same_goes_out.__name__,
        test_the_page_names_each_of_these_tests.__name__,
    }
