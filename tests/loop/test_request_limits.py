"""Limits of a request as a whole: its bytes and its cache marks, told to the caller before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.each import each
from tests.loop.support import completed, params, refused, scene, user
from toolloop import tool
from toolloop.errors import InvalidHistory
from toolloop.requests.params import RequestMaker, Secrets
from toolloop.testing import call, reply, server_call


@tool
def say() -> str:
    """Say something."""
    return "a word"


# --- more bytes than a request takes ---------------------------------------------------------------------------------

HALF = 16 * 1024 * 1024


def test_a_request_of_more_than_32_megabytes_is_not_sent() -> None:
    """Its messages are right each; the largest is named, and without it the loop goes on."""
    with scene(
        [reply(calls=[("say", {})]), reply("fine")], tools=[say], asked=params(messages=[user("ä" * (HALF // 2))])
    ) as at:
        at.turn().inject_and_continue([user("x" * (HALF + 1))])
        with refused(at.handle, InvalidHistory, "request-size", "messages[3]", "messages_mut()", "33,554,432"):
            at.handle.next_turn()
        assert at.count == 1
        at.handle.messages_mut()[0]["content"] = "shorter"
        assert at.done().text == "fine"


def test_what_goes_along_with_the_messages_counts_too() -> None:
    """A system prompt alone can be too much; the other parameters mend it."""
    with scene([reply("fine")], asked=params(system="x" * (2 * HALF))) as at:
        with refused(at.handle, InvalidHistory, "request-size", "messages[0]"):
            at.handle.next_turn()
        at.handle.update_params(system="Be brief.")
        assert at.done().text == "fine"


def test_a_request_that_just_fits_is_made() -> None:
    """Of the bytes a few are kept for what goes around the messages."""
    maker = RequestMaker([], Secrets())
    stored, first = '{"model":"m"}', '{"role":"user","content":"x"}'
    most = 2 * HALF - 1024 - len(stored) - len(first) - len('""') - 3

    def made(length: int) -> int:
        return len(maker.make(stored, [first, f'"{"x" * length}"'], "container_1").body())

    assert 2 * HALF - 1024 <= made(most) <= 2 * HALF
    with pytest.raises(InvalidHistory, match="request-size"):
        made(most + 1)
    assert made(most) <= 2 * HALF


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
    """Where nobody could take them out they do not go along."""
    more: dict[str, Any] = {"caller": CALLER} if by_code else {}
    asking = reply(content=[PROGRAM], calls=[call("mark", **more) for _ in range(5)], container="container_1")
    with scene([asking, ENDS], tools=[mark], asked=params(tools=[CODE])) as at:
        assert completed(at.handle.run()).text == "done"
        assert at.count == 2
