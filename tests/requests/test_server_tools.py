"""What goes back to the API of calls made by code, containers, toolsets, and tool search."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.each import each
from tests.kit.support import expect_completed, expect_error, expect_refusal, results_in
from tests.kit.tools import TOOLS, params, user
from tests.kit.world import World, open_over_http
from toolloop import Approve, AsyncToolLoopHandle, Deny, ToolLoopHandle, tool
from toolloop.errors import IllegalCommand
from toolloop.machine.values.jsontext import encode
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED
from toolloop.testing import call, fault, reply, server_call

CODE = {"type": "code_execution_20260120", "name": "code_execution"}
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


def call_by_code(name: str, given: dict[str, Any]) -> dict[str, Any]:
    return call(name, given, id="toolu_1", caller=CALLER)


def test_a_round_made_by_code_is_answered_by_results_alone() -> None:
    """The note of an edit stands inside the result; an injected message waits for the reply that ends the program."""
    program = reply(content=[PROGRAM], calls=[call_by_code("write", {"path": "a", "text": "b"})])
    asked = params(tools=[CODE], container="container_1")
    with open_over_http([program, reply(content=[DONE, SAID]), reply("fine")], asked=asked) as at:
        turn = at.turn()
        turn.approve(turn.pending[0], {"path": "z", "text": "y"})
        turn.inject_and_continue([user("hurry")])
        assert at.handle.run().unwrap().text == "fine"
        message = at.list_sent(1)[-1]
        (result,) = results_in(message)
        assert message["content"] == [result]
        assert [block["type"] for block in result["content"]] == ["text", "text"]
        assert '{"path":"z","text":"y"}' in result["content"][1]["text"]
        assert at.list_sent(2)[-1] == user("hurry")


def test_a_result_that_a_program_cannot_take_becomes_an_error_text() -> None:
    """A call made by code takes only text as its answer: the model's result says so, and the request is accepted."""
    program = reply(content=[PROGRAM], calls=[call_by_code("find", {"word": "x"})])
    asked = params(tools=[CODE], container="container_1")
    with open_over_http([program, reply(content=[DONE, SAID])], tools=[find], asked=asked) as at:
        at.turn().approve_all()
        assert at.handle.run().unwrap().text == "done"
        (result,) = results_in(at.list_sent()[-1])
        assert result["is_error"] is True
        assert "only text" in str(result["content"])


def test_an_answer_that_a_program_cannot_take_is_refused() -> None:
    """At the door, to the caller who gives it."""
    program = reply(content=[PROGRAM], calls=[call_by_code("find", {"word": "x"})])
    with open_over_http([program], tools=[find], asked=params(tools=[CODE], container="container_1")) as at:
        turn = at.turn()
        with expect_refusal(at.handle, IllegalCommand, "only text"):
            turn.answer(turn.pending[0], [IMAGE])
        turn.answer(turn.pending[0], "text")


CONTAINER_PROGRAM = server_call("code_execution", {"code": "look()"}, id="srvtoolu_c")


def asks(container: str | None = "container_1", name: str = "look", call_id: str = "toolu_1") -> dict[str, Any]:
    """A reply whose program asks for a file."""
    given = {"path": "a"} if name == "look" else {"path": "a", "text": "b"}
    first = [CONTAINER_PROGRAM] if call_id == "toolu_1" else []
    return reply(content=first, calls=[call(name, given, id=call_id, caller=CALLER)], container=container)


ENDS = reply(content=[DONE, SAID], container="container_1")


def approve(handle: ToolLoopHandle | AsyncToolLoopHandle) -> None:
    """Decide what waits, without a turn."""
    handle.decide({call.id: Approve() for call in handle.pending})


def containers(at: World) -> list[Any]:
    """The container that each request named."""
    return [request.json.get("container") for request in at.api.requests]


@each("max_tokens", [256, MOST_UNSTREAMED + 1])
def test_the_results_of_calls_made_by_code_go_out_with_its_container(max_tokens: int) -> None:
    """And no other request does: neither the first, nor those of later turns."""
    script = [asks(), asks(None, call_id="toolu_2"), ENDS, reply(calls=[("look", {"path": "b"})]), reply("fine")]
    with open_over_http(script, asked=params(tools=[CODE], max_tokens=max_tokens)) as at:
        assert expect_completed(at.handle.run()).text == "done"
        at.handle.follow_up([user("again")])
        assert expect_completed(at.handle.run()).text == "fine"
        assert containers(at) == [None, "container_1", "container_1", None, None]


def test_a_container_of_the_reply_takes_the_place_of_the_given_one() -> None:
    """The skills that the caller asked for stay; afterwards the parameters are as they were."""
    skills = [{"type": "anthropic", "skill_id": "xlsx"}]
    asked = params(tools=[CODE], container={"id": "container_0", "skills": skills})
    with open_over_http([asks(), ENDS, reply("fine")], asked=asked) as at:
        at.handle.run()
        at.handle.follow_up([user("again")])
        at.handle.run()
        mine, theirs = ({"id": name, "skills": skills} for name in ("container_0", "container_1"))
        assert containers(at) == [mine, theirs, mine]


def test_a_paused_program_is_resumed_in_its_container() -> None:
    paused = reply(content=[CONTAINER_PROGRAM], stop_reason="pause_turn", container="container_1")
    with open_over_http([paused, ENDS], asked=params(tools=[CODE])) as at:
        assert expect_completed(at.handle.run()).text == "done"
        assert containers(at) == [None, "container_1"]


def test_a_loop_that_slept_over_an_approval_goes_on_in_the_container() -> None:
    with open_over_http([asks(name="write"), ENDS], asked=params(tools=[CODE])) as at:
        at.turn()
        snapshot = json.loads(json.dumps(at.handle.snapshot()))
        woken = ToolLoopHandle.restore(snapshot, at.api.client(), tools=TOOLS)
        approve(woken)
        assert expect_completed(woken.run()).text == "done"
        assert containers(at) == [None, "container_1"]


@each("named", ["container_9", None])
def test_one_that_the_caller_names_or_takes_away_counts_while_code_waits(named: str | None) -> None:
    """An expired one is left out of the next request (source: rule 25), and another may take its place."""
    script = [asks(), fault(400, "invalid_request_error", "container: expired"), ENDS]
    with open_over_http(script, asked=params(tools=[CODE]), refusals=0 if named else 1) as at:
        expect_error(at.handle.run())
        at.handle.update_params(container=named)
        at.handle.retry()
        done = at.handle.run()
        assert named is None or expect_completed(done).text == "done"
        assert containers(at) == [None, "container_1", named]


BROWSER = {"type": "browser_toolset_20260801"}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
STATE = {"type": "browser_state", "tabs": []}


@tool
def screenshot() -> str:
    """Take a picture."""
    return "a picture"


def member(name: str, given: dict[str, Any] | None = None, call_id: str | None = None) -> dict[str, Any]:
    return call(name, given, id=call_id or f"toolu_{name}", toolset_name="browser")


def list_sent_results(at: World) -> dict[str, Any]:
    """The results that the last request with such carries, by call id."""
    message = next(message for message in reversed(at.list_sent()) if "tool_result" in encode(message))
    return {block["tool_use_id"]: block for block in results_in(message)}


def test_the_members_of_a_toolset_of_the_parameters_are_answered_one_after_the_other() -> None:
    """Every result names the toolset, also of one that is not run. A plain call's result names none."""
    calls = [
        member("screenshot"),
        member("click", {"x": 1}),
        member("scroll"),
        call("screenshot", id="toolu_plain"),
    ]
    with open_over_http([reply(calls=calls), reply("fine")], tools=[screenshot], asked=params(tools=[BROWSER])) as at:
        turn = at.turn()
        assert [(each.name, each.why) for each in at.handle.pending] == [("browser.screenshot", "external")]
        turn.answer("toolu_screenshot", [PNG, STATE])
        turn.continue_loop()
        turn = at.turn()
        assert [(each.name, each.why) for each in at.handle.pending] == [("browser.click", "external")]
        turn.deny("toolu_click", "not there")
        assert expect_completed(at.handle.run()).text == "fine"
        results = list_sent_results(at)
        named = {call_id for call_id, block in results.items() if block.get("toolset_name") == "browser"}
        assert named == {block["id"] for block in calls} - {"toolu_plain"}
        assert "toolset_name" not in results["toolu_plain"]
        assert results["toolu_screenshot"]["content"] == [PNG, STATE]
        assert results["toolu_scroll"]["content"] == "Not executed: an earlier action in this turn failed."


def test_a_loop_that_slept_still_knows_the_toolset() -> None:
    script = [reply(calls=[member("click", {"x": 1})]), reply("fine")]
    with open_over_http(script, asked=params(tools=[BROWSER])) as at:
        at.turn()
        woken = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client())
        woken.decide({"toolu_click": Deny("no")})
        assert expect_completed(woken.run()).text == "fine"
        assert list_sent_results(at)["toolu_click"]["toolset_name"] == "browser"


def test_the_caller_of_a_call_is_kept_unchanged() -> None:
    """Also one that this version does not know."""
    direct = {"type": "direct"}
    novel = {"type": "another_way_20270101", "tool_id": "srvtoolu_1"}
    calls = [call("screenshot", id="toolu_1", caller=direct), call("screenshot", id="toolu_2", caller=novel)]
    with open_over_http([reply(calls=calls), reply("fine")]) as at:
        at.handle.run()
        asked = at.list_sent()[1]["content"]
        assert [block["caller"] for block in asked] == [direct, novel]
        assert [block["type"] for block in at.list_sent()[2]["content"]] == ["tool_result", "tool_result"]


# --- tool search -----------------------------------------------------------------------------------------------------


@tool(defer_loading=True)
def rare(x: int) -> str:
    """Do what is seldom needed."""
    return f"rare {x}"


@tool
def find_tools(word: str) -> list[dict[str, Any]]:
    """Find tools by a word."""
    return [{"type": "tool_reference", "tool_name": "rare"}]


def test_references_that_a_search_of_ones_own_gives_pass_through() -> None:
    """The deferred tool goes along in the definitions, and can be called once it was found."""
    script = [
        reply(calls=[call("find_tools", {"word": "seldom"}, id="toolu_1")]),
        reply(calls=[call("rare", {"x": 1}, id="toolu_2")]),
        reply("fine"),
    ]
    with open_over_http(script, tools=[find_tools, rare]) as at:
        assert expect_completed(at.handle.run()).text == "fine"
        definitions = {each["name"]: each.get("defer_loading") for each in at.api.requests[0].json["tools"]}
        assert definitions == {"find_tools": None, "rare": True}
        (found,) = results_in(at.list_sent(1)[-1])
        assert found["content"] == [{"type": "tool_reference", "tool_name": "rare"}]
        (done,) = results_in(at.list_sent(2)[-1])
        assert done["content"] == "rare 1"


def test_an_edit_before_a_call_made_by_code_allows_a_later_pause() -> None:
    """The paused reply was made after the edit. Only the thinking of the reply before it is left out."""
    program = reply(content=[PROGRAM], calls=[call_by_code("write", {"path": "a", "text": "b"})], thinking="write it")
    pause = reply("Hm.", content=[DONE], thinking="it is written", stop_reason="pause_turn")
    asked = params(tools=[CODE], container="container_1")
    with open_over_http([program, pause, reply("fine")], asked=asked) as at:
        turn = at.turn()
        at.handle.messages_mut()[0] = user("Write b to a.")
        turn.approve_all()
        turn.continue_loop()
        assert at.handle.run().unwrap().text == "fine"
        assert "write it" not in str(at.list_sent())
        assert "it is written" in str(at.list_sent())
