"""Members of toolsets, and tools that are found by search: what goes back to the API of each."""

from __future__ import annotations

from typing import Any

from tests.loop.support import Scene, completed, params, results_in, scene, user
from toolloop import Deny, ToolLoopHandle, tool
from toolloop.machine.jsontext import encode
from toolloop.testing import call, reply, server_call

BROWSER = {"type": "browser_toolset_20260801"}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
STATE = {"type": "browser_state", "tabs": []}


@tool
def screenshot() -> list[dict[str, Any]]:
    """Take a picture of the page."""
    return [PNG]


@tool(needs_approval=True)
def click(x: int) -> str:
    """Click."""
    return f"clicked at {x}"


@tool
def zoom() -> str:
    """Fail."""
    raise OSError("no lens")


MEMBERS = (screenshot, click, zoom)


def member(name: str, given: dict[str, Any] | None = None, call_id: str | None = None) -> dict[str, Any]:
    return call(name, given, id=call_id or f"toolu_{name}", toolset_name="browser")


def sent_results(at: Scene) -> dict[str, Any]:
    """The results that the last request with such carries, by call id."""
    message = next(message for message in reversed(at.sent()) if "tool_result" in encode(message))
    return {block["tool_use_id"]: block for block in results_in(message)}


def test_every_result_of_a_toolset_member_names_the_toolset() -> None:
    """Whether it ran, failed, was denied, answered, or is unknown here; a plain call's result names none."""
    calls = [
        member("screenshot"),
        member("zoom"),
        member("click", {"x": 1}),
        member("click", {"x": 2}, "toolu_answered"),
        member("click", {"x": 3}, "toolu_edited"),
        member("click", {"x": "left"}, "toolu_misfit"),
        member("scroll"),
        call("screenshot", id="toolu_plain"),
    ]
    with scene([reply(calls=calls), reply("fine")], tools=MEMBERS, asked=params(tools=[BROWSER])) as at:
        turn = at.turn()
        turn.deny("toolu_click", "not there")
        turn.answer("toolu_answered", [PNG, STATE])
        turn.approve("toolu_edited", {"x": 4})
        assert completed(at.handle.run()).text == "fine"
        results = sent_results(at)
        named = {call_id for call_id, block in results.items() if block.get("toolset_name") == "browser"}
        assert named == {block["id"] for block in calls} - {"toolu_plain"}
        assert "toolset_name" not in results["toolu_plain"]
        told = results["toolu_edited"]["content"]
        assert [block["type"] for block in told] == ["text", "text"]
        assert '{"x":4}' in told[1]["text"]
        assert results["toolu_answered"]["content"] == [PNG, STATE]


def test_results_of_calls_that_did_not_run_name_it_too() -> None:
    """Those that the end of a loop makes."""
    script = [reply(calls=[member("click", {"x": 1})]), reply("fine")]
    with scene(script, tools=MEMBERS, asked=params(tools=[BROWSER])) as at:
        at.turn().stop()
        at.done()
        at.handle.follow_up([user("and?")])
        assert completed(at.handle.run()).text == "fine"
        assert sent_results(at)["toolu_click"]["toolset_name"] == "browser"


def test_a_loop_that_slept_still_knows_the_toolset() -> None:
    script = [reply(calls=[member("click", {"x": 1})]), reply("fine")]
    with scene(script, tools=MEMBERS, asked=params(tools=[BROWSER])) as at:
        at.turn()
        woken = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=MEMBERS)
        woken.decide({"toolu_click": Deny("no")})
        assert completed(woken.run()).text == "fine"
        assert sent_results(at)["toolu_click"]["toolset_name"] == "browser"


def test_the_caller_of_a_call_is_kept_as_it_came() -> None:
    """Also one that this version has never heard of."""
    direct = {"type": "direct"}
    novel = {"type": "another_way_20270101", "tool_id": "srvtoolu_1"}
    calls = [call("screenshot", id="toolu_1", caller=direct), call("screenshot", id="toolu_2", caller=novel)]
    with scene([reply(calls=calls), reply("fine")], tools=MEMBERS) as at:
        at.handle.run()
        asked = at.sent()[1]["content"]
        assert [block["caller"] for block in asked] == [direct, novel]
        assert [block["type"] for block in at.sent()[2]["content"]] == ["tool_result", "tool_result"]


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
    with scene(script, tools=[find_tools, rare]) as at:
        assert completed(at.handle.run()).text == "fine"
        definitions = {each["name"]: each.get("defer_loading") for each in at.api.requests[0].json["tools"]}
        assert definitions == {"find_tools": None, "rare": True}
        (found,) = results_in(at.sent(1)[-1])
        assert found["content"] == [{"type": "tool_reference", "tool_name": "rare"}]
        (done,) = results_in(at.sent(2)[-1])
        assert done["content"] == "rare 1"


def test_a_search_of_the_servers_own_goes_back_as_it_came() -> None:
    """Nobody answers the server's call, and nobody looks into its result."""
    found = {
        "type": "tool_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "rare"}],
        },
    }
    search = server_call("tool_search_tool_regex", {"pattern": "rare"}, id="srvtoolu_1")
    script = [reply(content=[search, found], calls=[call("rare", {"x": 1}, id="toolu_2")]), reply("fine")]
    server_tool = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    with scene(script, tools=[rare], asked=params(tools=[server_tool])) as at:
        assert completed(at.handle.run()).text == "fine"
        assert at.sent()[1]["content"][:2] == [search, found]
        assert [block["tool_use_id"] for block in results_in(at.sent()[2])] == ["toolu_2"]
