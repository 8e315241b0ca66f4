"""A call of an unknown tool gets the names that are near, and no more than the model can use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.tools import look, params, send, user
from toolloop import Answer, MemoryStore, ToolLoopHandle, tool
from toolloop.errors import InvalidHistory
from toolloop.testing import ScriptedProvider, call, reply


def read_told(known: Any, **more: Any) -> str:
    """The result of a call of `lok`."""
    script = ScriptedProvider([reply(calls=[call("lok", {}, id="t1")]), reply("done")])
    handle = ToolLoopHandle(script, params=params(**more), tools=known)
    assert handle.run().unwrap().text == "done"
    return str(handle.messages[2]["content"][0]["content"])


def test_few_tools_are_all_named() -> None:
    """Also those that only the parameters define, but none that is deferred."""

    @tool(defer_loading=True)
    def lock() -> str:
        """Lock."""
        return ""

    raw: list[Any] = [{"name": name, "input_schema": {"type": "object"}} for name in ("ask", "look2")]
    raw[1]["defer_loading"] = True
    assert read_told([send, look, lock], tools=raw) == "There is no tool named 'lok'. The tools are: ask, look, send."


def test_where_all_tools_are_deferred_the_model_is_sent_to_search() -> None:
    many = [
        tool(lambda: "", name=f"tool_{number}", description="One of many.", defer_loading=True) for number in range(300)
    ]
    text = "There is no tool named 'lok'. The tools are: none that is loaded, but others can be searched for."
    assert read_told(many) == text


def test_of_many_the_nearest_ten_are_named() -> None:
    """The reply stays short."""
    many = [tool(lambda: "", name=f"tool_{number}", description="One of many.") for number in range(300)]
    text = read_told([*many, look])
    assert text.startswith("There is no tool named 'lok'. The tools are: look, ")
    assert text.endswith(", and 291 others.")
    assert len(text) < 250


def change(name: str, kind: str = "tool_addition") -> dict[str, Any]:
    """A block of a system message that defines a tool, or removes one."""
    definition = {"name": name, "description": "Ask a person.", "input_schema": {"type": "object"}}
    added = {"type": "tool_definition", "definition": definition}
    return {"type": kind, "tool": added if kind == "tool_addition" else {"type": "tool_reference", "name": name}}


def system(*blocks: Any) -> dict[str, Any]:
    return {"role": "system", "content": [*blocks]}


def make_waiting(*messages: Any, name: str = "ask", **more: Any) -> tuple[ToolLoopHandle, ScriptedProvider]:
    """A loop with such messages, driven until its call of a tool of this name."""
    model = ScriptedProvider([reply(calls=[call(name, {}, id="t1")]), reply("done")])
    handle = ToolLoopHandle(model, params=params(messages=[user(), *messages], **more), tools=[look])
    handle.next_turn()
    return handle, model


def test_a_tool_that_a_system_message_defines_is_external() -> None:
    """Its call waits for an answer, also in another process, and beside tools of the parameters."""
    raw = [{"name": "other", "input_schema": {"type": "object"}}]
    cases: list[dict[str, Any]] = [{}, {"tools": raw}]
    for more in cases:
        handle, model = make_waiting(system(change("ask")), **more)
        again = ToolLoopHandle.restore(handle.snapshot(), model, tools=[look])
        assert [(each.name, each.why) for each in again.pending] == [("ask", "external")]
        again.decide({"t1": Answer("yes")})
        assert again.run().unwrap().text == "done"
        assert again.messages[3]["content"][0]["content"] == "yes"


def test_a_system_message_of_a_later_turn_defines_tools_too() -> None:
    """In a stored loop, with `follow_up`. The call of one that was removed again is that of an unknown tool."""
    script = [reply("hello"), *(reply(calls=[call("ask", {}, id=f"t{number}")]) for number in (1, 2)), reply("done")]
    with ToolLoopHandle.open(MemoryStore(), "l", ScriptedProvider(script), params=params(), tools=[look]) as handle:
        handle.run()
        handle.follow_up([user("more"), system(change("ask"))])
        assert [each.why for each in handle.run().pending] == ["external"]
        handle.pending_turn.answer("t1", "yes")  # type: ignore[union-attr]  # it waits
        handle.pending_turn.inject_and_continue([system(change("ask", "tool_removal"))])  # type: ignore[union-attr]
        assert handle.run().unwrap().text == "done"
        assert "There is no tool named 'ask'" in str(handle.messages)


def test_a_definition_with_the_name_of_a_tool_of_the_loop_is_refused() -> None:
    """The API refuses it, and it would be unclear which of the two a call means."""
    with pytest.raises(InvalidHistory, match="it defines a tool 'look', but the request has one of this name"):
        make_waiting(system(change("look")))
    handle, _ = make_waiting(system(change("ask")))
    handle.decide({"t1": Answer("yes")})
    handle.run()
    with pytest.raises(InvalidHistory, match="it defines a tool 'look'"):
        handle.follow_up([user("more"), system(change("look"))])


def test_a_tool_that_later_gets_the_name_of_a_defined_one_is_refused() -> None:
    """When the loop is driven with it."""
    handle, model = make_waiting(system(change("ask")))
    ask = tool(lambda: "", name="ask", description="Ask.")
    again = ToolLoopHandle.restore(handle.snapshot(), model, tools=[look, ask], on_drift="accept")
    again.decide({"t1": Answer("yes")})
    with pytest.raises(InvalidHistory, match="it defines a tool 'ask'"):
        again.run()


def test_a_removed_tool_is_added_again_by_a_reference() -> None:
    """The reference means the definition of before."""
    again = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "ask"}}
    blocks = change("ask"), change("ask", "tool_removal"), again
    handle, _ = make_waiting(system(*blocks))
    assert [each.why for each in handle.pending] == ["external"]


def test_a_tool_that_a_message_brings_is_left_if_another_message_defines_it() -> None:
    """The API refuses two of one name; both are the caller's to answer."""
    handle, _ = make_waiting(system(change("ask")))
    handle.decide({"t1": Answer("yes")})
    handle.run()
    ask = {"name": "ask", "description": "Ask.", "input_schema": {"type": "object"}}
    handle.say("Go on.", tools=[ask, {**ask, "name": "show"}])
    assert names_brought(handle) == ["show"]


def names_brought(handle: ToolLoopHandle) -> list[str]:
    return [each["name"] for each in json.loads(handle.state.root.setup.params)["tools"]]


def test_a_tool_of_a_message_that_joins_later_is_left_too() -> None:
    """Of one that is kept while a call waits, and of one that comes with it."""
    ask = {"name": "ask", "description": "Ask.", "input_schema": {"type": "object"}}
    handle, _ = make_waiting(name="other", tools=[{**ask, "name": "other"}])
    handle.say([user("more"), system(change("ask"))])
    handle.say([system(change("show"))], tools=[ask, {**ask, "name": "show"}, {**ask, "name": "last"}])
    assert names_brought(handle) == ["other", "last"]
    handle.decide({"t1": Answer("yes")})
    assert handle.run().unwrap().text == "done"


def test_a_tool_that_was_defined_and_removed_is_left_too() -> None:
    """A message may add it again by its name, and the API refuses a request that has another one of it."""
    ask = {"name": "ask", "description": "Ask.", "input_schema": {"type": "object"}}
    handle, _ = make_waiting(name="other", tools=[{**ask, "name": "other"}])
    texts = [user("more"), system(change("ask"), change("ask", "tool_removal"))]
    handle.say(texts, tools=[ask, {**ask, "name": "show"}])
    assert names_brought(handle) == ["other", "show"]


def make_compacted(*names: str) -> dict[str, Any]:
    """A compaction by the server, with the definitions of tools that it compacted."""
    return {"type": "compaction", "content": "They talked.", "tool_changes": [*map(change, names)]}


@pytest.mark.parametrize("is_open", [False, True])
def test_a_tool_that_a_compaction_defines_is_external(is_open: bool) -> None:
    """In the reply with the call, or in one before."""
    first = {"role": "assistant", "content": [make_compacted("ask"), {"type": "text", "text": "Hello."}]}
    block = {"type": "tool_use", "id": "t1", "name": "ask", "input": {}}
    body = {**reply(calls=[call("ask", {}, id="t1")]), "content": [make_compacted("ask"), block]}
    messages = [user()] if is_open else [user(), first, user("more")]
    script = [body if is_open else reply(calls=[call("ask", {}, id="t1")]), reply("done")]
    handle = ToolLoopHandle(ScriptedProvider(script), params=params(messages=messages), tools=[look])
    handle.next_turn()
    assert [(each.name, each.why) for each in handle.pending] == [("ask", "external")]
    handle.decide({"t1": Answer("yes")})
    assert handle.run().unwrap().text == "done"
