"""What an unfinished turn waits for."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tests.messages.bodies import (
    BY_CODE,
    HELLO,
    HI,
    NEXT,
    RUN_CODE,
    assistant,
    call,
    make_found,
    result,
    search,
    system,
    text,
    user,
)
from tests.messages.test_check import NEARLY
from toolloop.history import open_code_calls, open_server_calls

MCP = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "n", "server_name": "s", "input": {}}


def test_server_calls_wait_until_their_result() -> None:
    cases: list[tuple[list[Any], set[str]]] = [
        ([], set()),
        ([HI, HELLO], set()),
        ([HI, assistant(search(), make_found(), text())], set()),
        ([HI, assistant(search(), search("srvtoolu_2"), make_found())], {"srvtoolu_2"}),
        ([HI, assistant(search()), assistant(make_found())], set()),
        ([HI, assistant(search(), call()), user(result())], {"srvtoolu_1"}),
        ([HI, assistant(MCP)], {"mcptoolu_1"}),
        ([HI, assistant(MCP, {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1"})], set()),
    ]
    for messages, waiting in cases:
        assert waiting == open_server_calls(messages)


def test_calls_by_code_are_those_of_the_last_assistant_turn() -> None:
    """Results that are there already change nothing: a further user message would join their turn."""
    cases: list[tuple[list[Any], bool]] = [
        ([], False),
        ([HI], False),
        ([HI, HELLO], False),
        ([HI, assistant(call())], False),
        ([HI, assistant(call(caller={"type": "direct"}))], False),
        ([HI, assistant(RUN_CODE, call(**BY_CODE))], True),
        ([HI, assistant(RUN_CODE, call(**BY_CODE)), user(result())], True),
        ([HI, assistant(RUN_CODE, call(**BY_CODE)), HELLO], True),
        ([HI, assistant(RUN_CODE, call(**BY_CODE)), system(output_config={"effort": "low"}), user(result())], True),
        ([HI, assistant(RUN_CODE, call(**BY_CODE)), user(result()), assistant(text()), NEXT], False),
    ]
    for messages, expected in cases:
        assert expected is open_code_calls(messages)


@given(NEARLY)
def test_no_junk_makes_them_raise(messages: list[Any]) -> None:
    assert isinstance(open_code_calls(messages), bool)
    assert all(isinstance(call, str) for call in open_server_calls(messages))
