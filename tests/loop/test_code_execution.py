"""Where the API allows results and nothing else: calls made by code, and rounds with a server call in flight."""

from __future__ import annotations

from typing import Any

from tests.loop.support import TOOLS, params, refused, results_in, scene, user
from toolloop import tool
from toolloop.errors import IllegalCommand
from toolloop.testing import call, reply, server_call, server_result

CODE = {"type": "code_execution_20260120", "name": "code_execution"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
PROGRAM = server_call("code_execution", {"code": "write()"}, id="srvtoolu_c")
CALLER = {"type": "code_execution_20260120", "tool_id": "srvtoolu_c"}
RAN = {"type": "code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": []}
DONE = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_c", "content": RAN}
SAID = {"type": "text", "text": "done"}
FOUND = [{"type": "search_result", "source": "s", "title": "t", "content": [SAID]}]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


@tool(needs_approval=True)
def find(word: str) -> list[dict[str, Any]]:
    """Find."""
    return FOUND


def by_code(name: str, given: dict[str, Any]) -> dict[str, Any]:
    return call(name, given, id="toolu_1", caller=CALLER)


def test_a_round_made_by_code_is_answered_by_results_alone() -> None:
    """The note of an edit stands inside the result; an injected message waits for the reply that ends the program."""
    program = reply(content=[PROGRAM], calls=[by_code("write", {"path": "a", "text": "b"})])
    asked = params(tools=[CODE], container="container_1")
    with scene([program, reply(content=[DONE, SAID]), reply("fine")], asked=asked) as at:
        turn = at.turn()
        turn.approve(turn.pending[0], {"path": "z", "text": "y"})
        turn.inject_and_continue([user("hurry")])
        assert at.handle.run().unwrap().text == "fine"
        message = at.sent(1)[-1]
        (result,) = results_in(message)
        assert message["content"] == [result]
        assert [block["type"] for block in result["content"]] == ["text", "text"]
        assert '{"path":"z","text":"y"}' in result["content"][1]["text"]
        assert at.sent(2)[-1] == user("hurry")


def test_a_result_that_a_program_cannot_take_becomes_an_error_text() -> None:
    """A call made by code may be answered by text alone: the model is told so, and the request is accepted."""
    program = reply(content=[PROGRAM], calls=[by_code("find", {"word": "x"})])
    asked = params(tools=[CODE], container="container_1")
    with scene([program, reply(content=[DONE, SAID])], tools=[find], asked=asked) as at:
        at.turn().approve_all()
        assert at.handle.run().unwrap().text == "done"
        (result,) = results_in(at.sent()[-1])
        assert result["is_error"] is True
        assert "only text" in str(result["content"])


def test_an_answer_that_a_program_cannot_take_is_refused() -> None:
    """At the door, to the caller who gives it."""
    program = reply(content=[PROGRAM], calls=[by_code("find", {"word": "x"})])
    with scene([program], tools=[find], asked=params(tools=[CODE], container="container_1")) as at:
        turn = at.turn()
        with refused(at.handle, IllegalCommand, "only text"):
            turn.answer(turn.pending[0], [IMAGE])
        turn.answer(turn.pending[0], "text")


def test_a_note_with_no_place_waits_for_the_next_legal_one() -> None:
    """Neither inside the result nor after it: it joins behind the reply that brings the server's result."""
    searching = reply(
        content=[server_call("web_search", {"query": "x"}, id="srvtoolu_s")],
        calls=[call("find", {"word": "a"}, id="toolu_1")],
    )
    found = reply(content=[server_result("web_search", id="srvtoolu_s"), SAID])
    with scene([searching, found, reply("fine")], tools=[find, *TOOLS], asked=params(tools=[SEARCH])) as at:
        turn = at.turn()
        turn.approve(turn.pending[0], {"word": "b"})
        assert at.handle.run().unwrap().text == "fine"
        (result,) = results_in(at.sent(1)[-1])
        assert (at.sent(1)[-1]["content"], result["content"]) == ([result], FOUND)
        (told,) = at.sent(2)[-1]["content"]
        assert '{"word":"b"}' in told["text"]


def test_a_stop_in_the_middle_of_a_program_leaves_a_history_that_goes_on() -> None:
    """The open server call leaves the history with the calls it made; the response keeps them."""
    program = reply("Running.", content=[PROGRAM], calls=[by_code("write", {"path": "a", "text": "b"})])
    with scene([program, reply("fine")], asked=params(tools=[CODE], container="container_1")) as at:
        at.turn().stop()
        done = at.done()
        assert done.response is not None
        assert [block["type"] for block in done.response["content"]] == ["text", "server_tool_use", "tool_use"]
        at.handle.follow_up([user("again")])
        assert at.handle.run().unwrap().text == "fine"
        assert "srvtoolu_c" not in str(at.sent())
