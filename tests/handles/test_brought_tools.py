"""`say(tools=)`: the tools of a front end come with a message, in one command, and the loop records whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.support import expect_yielded
from tests.kit.tools import params, write
from tests.kit.world import each_store, store_at
from toolloop import Answer, Inbox, MemoryStore, ToolLoopHandle, tool
from toolloop.errors import BadTool, IllegalCommand
from toolloop.testing import ScriptedProvider, call, reply

WHERE: dict[str, Any] = {"name": "where", "description": "Where the user is.", "input_schema": {"type": "object"}}
ASKED = reply(calls=[call("where", {}, id="c1")])


def list_waiting(handle: Any) -> list[tuple[str, str | None, bool]]:
    return [(each_.name, each_.why, each_.brought) for each_ in handle.pending]


@each_store
def test_a_call_of_a_tool_that_came_with_a_message_is_of_the_front_end(where: str, tmp_path: Path) -> None:
    """Also for an inbox, and for a process that opens the loop later."""
    store = store_at(where, tmp_path)
    with ToolLoopHandle.open(store, "loop", ScriptedProvider([]), tools=[write], params=params(messages=[])):
        pass
    inbox = Inbox(store)
    inbox.say("loop", "Where am I?", by="ana", key="m1", tools=[WHERE])
    inbox.say("loop", "Where am I?", by="ana", key="m1", tools=[{**WHERE, "name": "other"}])  # it was said
    with ToolLoopHandle.open(store, "loop", ScriptedProvider([ASKED, reply("Here.")]), tools=[write]) as handle:
        handle.run()
        assert list_waiting(handle) == [("where", "external", True)]
        assert inbox.show("loop")["brought"] == [WHERE]
        inbox.decide("loop", {"c1": Answer("at home")})
        assert handle.run().text == "Here."


def test_an_external_tool_of_the_parameters_is_the_servers() -> None:
    """Whatever a message brings under its name; likewise a tool that the loop runs itself."""
    provider = ScriptedProvider([ASKED])
    handle = ToolLoopHandle(provider, params=params(messages=[], tools=[WHERE]), tools=[write])
    handle.say("Where am I?", tools=[{**WHERE, "description": "Mine."}, {**WHERE, "name": "write"}])
    handle.run()
    assert list_waiting(handle) == [("where", "external", False)]
    assert [tool.get("description") for tool in provider.requests[0]["tools"] if tool["name"] == "where"] == [
        WHERE["description"]
    ]


def test_a_name_that_was_the_servers_stays_the_servers() -> None:
    """A call of it may wait still, and its result is not for a front end. The server may define it again."""
    provider = ScriptedProvider([ASKED, reply("Here."), ASKED])
    handle = ToolLoopHandle(provider, params=params(tools=[WHERE]), tools=[])
    handle.run()
    handle.update_params(tools=[])
    handle.say("Where am I?", tools=[WHERE])
    assert list_waiting(handle) == [("where", "external", False)]
    handle.update_params(tools=[WHERE])
    handle.decide({"c1": Answer("at home")})
    handle.run()
    handle.run()
    handle.say("And now?", tools=[WHERE])
    handle.run()
    assert list_waiting(handle) == [("where", "external", False)]


def test_a_message_while_calls_wait_brings_its_tools_for_the_next_request() -> None:
    provider = ScriptedProvider([reply(calls=[call("write", {"path": "a", "text": "b"}, id="c1")]), ASKED])
    handle = ToolLoopHandle(provider, params=params(), tools=[write])
    turn = expect_yielded(handle.run())
    handle.say("You may look where I am", tools=[WHERE])
    turn.deny("c1", "not now")
    handle.run()
    assert list_waiting(handle) == [("where", "external", True)]


def test_a_paused_reply_with_thinking_keeps_its_tools() -> None:
    """The API refuses its thinking after other tools, so that the message has to come without them, or later."""
    paused = reply("So far", thinking="hm", stop_reason="pause_turn")
    handle = ToolLoopHandle(ScriptedProvider([paused]), params=params(model="claude-opus-5-5"))
    assert expect_yielded(handle.next_turn()).reason == "paused"
    with pytest.raises(IllegalCommand, match="the model has paused"):
        handle.say("And where am I?", tools=[WHERE])
    assert handle.view()["kept"] == []


@each(
    ("first", "then"),
    [
        ([], [{**WHERE, "name": f"tool{number}"} for number in range(65)]),
        ([WHERE], [{**WHERE, "name": f"tool{number}"} for number in range(64)]),
        ([], [{**WHERE, "description": "x" * 64_000}]),
        ([{**WHERE, "description": "x" * 40_000}], [{**WHERE, "name": "tool0", "description": "x" * 30_000}]),
    ],
)
def test_a_loop_takes_64_tools_of_front_ends(first: Any, then: Any) -> None:
    """Those of all messages count together, and a message that brings more is not said."""
    handle = ToolLoopHandle(ScriptedProvider([reply("Yes?")]), params=params(messages=[]), tools=[write])
    handle.say("Hi", tools=first)
    handle.run()
    with pytest.raises(BadTool, match="at most 64 tools of front ends") as refused:
        handle.say("And now?", tools=then)
    assert refused.value.tool == then[0]["name"]
    assert len(handle.messages) == 2
    handle.say("And now?", tools=[{**WHERE, "name": "last"}])


@each(
    "bad",
    [
        [{"name": "where"}],
        [{"name": "", "input_schema": {}}],
        [{"name": "where", "input_schema": "none"}],
        [{"type": "web_search_20250305", "name": "web_search"}],
        [{**WHERE, "cache_control": {"type": "ephemeral"}}],
        [{**WHERE, "name": "where is"}],
        [{**WHERE, "name": "w" * 65}],
        [{**WHERE, "description": 5}],
        [{**WHERE, "input_schema": {}}],
        [{**WHERE, "input_schema": {"type": "array"}}],
        [{**WHERE, "input_schema": {"type": "object", "properties": 7}}],
        ["where"],
    ],
)
def test_only_definitions_are_taken(bad: Any) -> None:
    """Not tools that the API runs itself, for a message must not start costs of another kind.

    Nor those that the API refuses, for no later request would succeed.
    """
    handle = ToolLoopHandle(ScriptedProvider([]), params=params(messages=[]), tools=[write])
    with pytest.raises(BadTool, match="expected objects with name, input_schema"):
        handle.say("Hi", tools=bad)
    assert handle.messages == ()


def test_tools_are_a_list() -> None:
    handle = ToolLoopHandle(ScriptedProvider([]), params=params(messages=[]))
    with pytest.raises(TypeError, match="expected a list"):
        handle.say("Hi", tools=WHERE)  # type: ignore[arg-type] # the mistake that is tested


@pytest.mark.parametrize(("is_open", "more"), [(False, {}), (True, {}), (True, {"on_drift": "accept"})])
def test_a_tool_of_the_process_takes_the_name_of_one_that_was_brought(is_open: bool, more: Any) -> None:
    """What was brought is dropped. An open call keeps the definition it was proposed under: the front end answers."""
    store, ran = MemoryStore(), list[str]()

    @tool(name="where")
    def find() -> str:
        """Find the user."""
        ran.append("where")
        return "found"

    provider = ScriptedProvider(
        [reply("Hi."), ASKED if is_open else reply("So."), reply("Here."), ASKED, reply("Yes.")]
    )
    with ToolLoopHandle.open(store, "loop", provider, tools=[], params=params()) as handle:
        handle.run()
        handle.say("Where am I?", tools=[WHERE])
        handle.run()
    with ToolLoopHandle.open(store, "loop", provider, tools=[find], **more) as handle:
        if is_open:
            handle.say("Now?")
            assert list_waiting(handle) == [("where", "external", True)]
            handle.decide({"c1": Answer("at home")})
            assert (handle.run().text, ran) == ("Here.", [])
        else:
            handle.say("Now?")
            assert (handle.run().text, ran) == ("Here.", [])
        assert [each_["description"] for each_ in provider.requests[2]["tools"]] == ["Find the user."]
        assert Inbox(store).show("loop")["brought"] == []
        handle.update_params(max_tokens=99)
        handle.say("And now?", tools=[WHERE])
        assert (handle.run().text, ran) == ("Yes.", ["where"])


def test_parameters_change_before_a_brought_tool_is_dropped() -> None:
    """By the same rule, before the loop is driven."""
    store, provider = MemoryStore(), ScriptedProvider([reply("Hi."), reply("So."), reply("Here.")])
    with ToolLoopHandle.open(store, "loop", provider, tools=[], params=params()) as handle:
        handle.run()
        handle.say("Where am I?", tools=[{**WHERE, "name": "write"}, WHERE])
        handle.run()
    with ToolLoopHandle.open(store, "loop", provider, tools=[write]) as handle:
        handle.update_params(max_tokens=99)
        handle.say("Now?")
        handle.run()
    assert [each_["name"] for each_ in provider.requests[2]["tools"]] == ["write", "where"]
