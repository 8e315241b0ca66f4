"""What `check` says of the thinking parameter, of tools, and of what names tools: where, and where it says nothing."""

from __future__ import annotations

from typing import Any

from tests.messages.bodies import (
    HELLO,
    HI,
    NEXT,
    OPUS,
    SONNET_4_5,
    TOOL,
    assistant,
    call,
    reference,
    result,
    system,
    tool_change,
    user,
)
from toolloop._messages.tool_changes import list_defined, may_add_tools, may_change_tools
from toolloop.history import check
from toolloop.machine.values.jsontext import encode

REFERS = [HI, assistant(call()), user(result(content=[reference("fly")]))]
NO_FLY = {"type": "tool_reference", "name": "fly"}
ADDS = [HI, system(tool_change("tool_addition", "fly")), HELLO, NEXT]
MCP = {"type": "mcp_toolset", "mcp_server_name": "s"}


def find_problems(messages: Any = (HI,), **more: Any) -> list[tuple[str, str]]:
    return [(problem.path, problem.rule) for problem in check(list(messages), **{"model": OPUS} | more)]


def test_thinking_that_the_model_does_not_take_is_found() -> None:
    cases: list[tuple[str | None, Any, str]] = [
        (OPUS, {"type": "enabled", "budget_tokens": 2048}, "thinking"),
        (SONNET_4_5, {"type": "adaptive"}, "thinking"),
        ("claude-mythos-5", {"type": "disabled"}, "thinking"),
        (SONNET_4_5, {"type": "enabled", "budget_tokens": 1000}, "thinking.budget_tokens"),
        (None, {"type": "enabled", "budget_tokens": 1000}, "thinking.budget_tokens"),
    ]
    for model, thinking, path in cases:
        assert find_problems(model=model, thinking=thinking) == [(path, "thinking-config")]


def test_of_an_unknown_model_any_kind_of_thinking_passes() -> None:
    """And any other parameter is left to the API."""
    for thinking in [
        None,
        "adaptive",
        {},
        {"type": 7},
        {"type": "enabled"},
        {"type": "enabled", "budget_tokens": "many"},
    ] + [{"type": kind} for kind in ("adaptive", "disabled", "between_tools")]:
        assert find_problems(model="claude-saga-7", thinking=thinking) == []


def test_a_tool_is_pointed_at() -> None:
    """By its place; each of its flaws is named."""
    assert find_problems(tools=[TOOL, {"name": "a b"}, TOOL]) == [
        ("tools[1]", "tool-definition"),
        ("tools[1]", "tool-definition"),
        ("tools[2]", "tool-definition"),
    ]


def test_a_tool_without_a_name_is_not_the_callers() -> None:
    cases: list[Any] = [None, "look", [], [None, 7, {}, {"type": "text", "text": "x"}, MCP, MCP, {"name": 7}]]
    for tools in cases:
        assert find_problems(tools=tools) == []


def test_what_names_no_tool_is_found() -> None:
    assert find_problems(REFERS, tools=[TOOL]) == [("messages[2].content[0]", "tool-reference")]
    assert find_problems(ADDS, tools=[TOOL]) == [("messages[1].content[0]", "tool-reference")]


def test_where_a_tool_may_be_there_nothing_is_said() -> None:
    """The tools are not known, or have names that only a server knows, or it is there."""
    tools_cases: list[Any] = [None, [TOOL, MCP], [TOOL | {"name": "fly"}]]
    history_cases: list[list[Any]] = [REFERS, ADDS]
    for tools in tools_cases:
        for history in history_cases:
            assert find_problems(history, tools=tools) == []


def test_a_tool_that_is_defined_on_the_way_may_be_named() -> None:
    """Whichever it is: its definition is not looked into. A reference to an MCP tool is not looked up either."""
    defined = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": TOOL | {"name": "fly"}}}
    assert find_problems([HI, system(defined), HELLO, *ADDS], tools=[TOOL]) == []
    assert find_problems([HI, system(defined), HELLO, *REFERS], tools=[TOOL]) == []
    of_mcp = {"type": "tool_addition", "tool": {"type": "mcp_tool_reference", "server_name": "s", "name": "fly"}}
    assert find_problems([HI, system(of_mcp), HELLO, *REFERS], tools=[TOOL]) == []


def test_a_definition_on_the_way_has_a_name_of_its_own() -> None:
    """Also beside tools whose names only a server knows. One without a name is not compared."""
    twice = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": TOOL}}
    empty = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {}}}
    for tools in ([TOOL], [TOOL, MCP]):
        assert find_problems([HI, system(twice)], tools=tools) == [("messages[1].content[0]", "tool-definition")]
        assert find_problems([HI, system(empty)], tools=tools) == []
    assert find_problems([HI, system(twice)], tools=[MCP]) == []


def compaction(*changes: Any, content: Any = "They talked.") -> dict[str, Any]:
    """A reply in which the server compacted what was before, with the changes of tools in it."""
    block = {"type": "compaction", "content": content, "tool_changes": [*changes]}
    return {"role": "assistant", "content": [block, {"type": "text", "text": "Hello."}]}


def test_a_compaction_of_the_server_defines_tools_by_value() -> None:
    """They are known like those of system messages, and clash with tools of the request in the same way."""
    fly: dict[str, Any] = {"type": "tool_definition", "definition": TOOL | {"name": "fly"}}
    adds, gone = ({"type": kind, "tool": tool} for kind, tool in (("tool_addition", fly), ("tool_removal", NO_FLY)))
    history = [HI, compaction(adds), NEXT]
    assert list_defined(history) == [fly["definition"]]
    assert list_defined([HI, compaction("no change", {"type": "tool_addition"}, adds), NEXT]) == [fly["definition"]]
    assert list_defined([*history, HELLO, system(gone)]) == []
    assert list_defined([HI, compaction(adds, content=None), NEXT]) == []  # it failed, and changes nothing
    assert list_defined([HI, {"role": "assistant", "content": [{"type": "compaction", "content": "So."}]}]) == []
    assert find_problems(history, tools=[TOOL]) == []
    assert find_problems([*history, HELLO, *REFERS], tools=[TOOL]) == []
    assert (
        find_problems([HI, compaction(gone), NEXT], tools=[TOOL]) == []
    )  # what the server says of tools is not judged
    path = "messages[1].content[0].tool_changes[0]"
    assert find_problems(history, tools=[TOOL | {"name": "fly"}]) == [(path, "tool-definition")]


def test_texts_that_may_change_tools_are_found_without_decoding_them() -> None:
    added, removed, other = (encode({"type": kind}) for kind in ("tool_addition", "tool_removal", "text"))
    assert [may_change_tools(texts) for texts in ([], [other], [other, added], [removed])] == [False, False, True, True]
    assert [may_add_tools(texts) for texts in ([], [removed, other], [other, added])] == [False, False, True]


def test_a_toolset_is_defined_once() -> None:
    """Of whatever date. Other toolsets, and those of MCP servers, have other names."""
    computer, browser = ({"type": f"{name}_toolset_20260801"} for name in ("computer", "browser"))
    adds = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": computer}}
    for definition in (computer, {"type": "computer_toolset_20270101"}):
        assert find_problems([HI, system(adds)], tools=[definition]) == [("messages[1].content[0]", "tool-definition")]
    assert find_problems([HI, system(adds)], tools=[browser, MCP, TOOL]) == []


def test_the_tools_that_system_messages_define_are_listed_until_they_are_removed() -> None:
    fly = {"type": "tool_definition", "definition": TOOL | {"name": "fly"}}
    typed = {"type": "tool_definition", "definition": {"type": "computer_toolset_20260801"}}
    noise: list[Any] = ["fly", {"type": "tool_reference", "name": "fly"}, {**fly, "definition": 5}]
    blocks = [{"type": "tool_addition", "tool": tool} for tool in (fly, typed, *noise)]
    history = [HI, system({"type": "text", "text": "w", "tool": fly}, *blocks), HELLO, "no message", {"role": "system"}]
    assert list_defined(history) == [fly["definition"], typed["definition"]]
    gone = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "fly"}}
    unknown = {"type": "tool_removal", "tool": {"type": "mcp_toolset_reference", "server_name": "s"}}
    assert list_defined([*history, system(gone, unknown)]) == [typed["definition"]]
    assert list_defined([*history, system(gone), system(blocks[0])]) == [typed["definition"], fly["definition"]]
