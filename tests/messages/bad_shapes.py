"""Requests with values that the API does not know, or that no request can carry: a part of the corpus."""

from __future__ import annotations

from typing import Any

from tests.messages.bodies import (
    HI,
    NEXT,
    SONNET_4_5,
    BadRequest,
    assistant,
    body,
    call,
    drop_keys,
    list_refused,
    make_answered,
    make_found,
    result,
    search,
    system,
    text,
    user,
)

_CHANGES = "mid-conversation-tool-changes-2026-07-01"
_CONFIG = "mid-conversation-output-config-2026-07-01"
_CLEAR = "mid-conversation-system-clear-at-2026-08-21"
LOW = system(output_config={"effort": "low"})
MCP_CALL = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "s", "input": {}}
MCP_RESULT = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": []}


def _make_call(caller: Any) -> dict[str, Any]:
    return body(HI, assistant(call(caller=caller)), user(result()))


def _make_search(answer: dict[str, Any]) -> dict[str, Any]:
    return body(HI, assistant(search(), answer, text()), NEXT)


def _make_question(question: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    return body(HI, assistant(question, answer, text()), NEXT)


BAD_SHAPES: list[BadRequest] = [
    *list_refused(
        {
            "not-encodable": {
                "half-a-pair": body({"role": "user", "content": "a\ud800"}),
                "half-a-pair-in-a-key": make_answered(content=[text(), {"\ud800": 1}]),
                "number-too-large": body(HI, assistant(call(input={"a": 1e999})), user(result())),
            },
            "block-fields": {
                "server-result-without-content": _make_search(drop_keys(make_found(), "content")),
                "caller-a-string": _make_call("direct"),
                "caller-without-type": _make_call({}),
                "caller-id-a-number": _make_call({"type": "direct", "tool_id": 7}),
                "mcp-call-id-with-a-space": _make_question(
                    MCP_CALL | {"id": "a b"}, MCP_RESULT | {"tool_use_id": "a b"}
                ),
                "mcp-result-is-error-a-number": _make_question(MCP_CALL, MCP_RESULT | {"is_error": 1}),
            },
            "unknown-key": {"server-result-parsed": _make_search(make_found(parsed_output=None))},
        }
    ),
    *list_refused(
        {
            "not-encodable": {
                "half-a-pair-of-the-model": body(HI, assistant(call(input={"a": "\udfff"})), user(result()))
            },
            "unknown-key": {
                "server-result-with-key": _make_search(make_found(mood="calm")),
                "caller-with-key": _make_call({"type": "direct", "mood": 1}),
            },
            "unknown-block": {"server-result-unknown": _make_search(make_found(type="web_swim_tool_result"))},
        },
        checked="warning",
    ),
    *list_refused({"message-shape": {"clear-at-unknown": body(HI, system(text(), clear_at="tomorrow"))}}, beta=_CLEAR),
    *list_refused(
        {
            "message-shape": {
                "output-config-a-string": body(HI, system(output_config="low")),
                "effort-of-a-message-unknown": body(HI, system(output_config={"effort": "huge"})),
                "directive-of-null": body(HI, LOW | {"content": None}),
                "directive-of-zero": body(HI, LOW | {"content": 0}),
                "directive-of-an-object": body(HI, LOW | {"content": {}}),
            },
            "unknown-key": {"format-of-a-message": body(HI, system(text(), output_config={"format": None}))},
            "system-model": {"directive-on-old-model": body(HI, LOW, model=SONNET_4_5)},
            "blank-text": {"directive-of-an-empty-string": body(HI, LOW | {"content": ""})},
            "unanswered-call": {"directive-first-and-no-answer": body(LOW, HI, assistant(call()))},
        },
        beta=_CONFIG,
    ),
    *list_refused(
        {
            "block-fields": {
                "removal-without-name": body(HI, system({"type": "tool_removal", "tool": {"type": "tool_reference"}})),
                "removal-of-no-type": body(HI, system({"type": "tool_removal", "tool": {"name": "look"}})),
                "addition-of-a-definition-without-one": body(
                    HI, system({"type": "tool_addition", "tool": {"type": "tool_definition"}})
                ),
            },
            "unknown-key": {
                "removal-with-key": body(
                    HI, system({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "look", "why": "x"}})
                )
            },
        },
        beta=_CHANGES,
    ),
    *list_refused(
        {
            "unknown-block": {
                "removal-of-unknown-type": body(
                    HI, system({"type": "tool_removal", "tool": {"type": "crowd_reference", "name": "look"}})
                )
            }
        },
        beta=_CHANGES,
        checked="warning",
    ),
]

#: The nearest ones that are taken, of those that need no beta.
NEAREST_SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("both-halves-of-a-pair", body({"role": "user", "content": "\U0001f600"})),
    ("mcp-result-without-content", _make_question(MCP_CALL, drop_keys(MCP_RESULT, "content"))),
    ("mcp-result-of-an-error", _make_question(MCP_CALL, MCP_RESULT | {"is_error": True})),
    ("caller-null", _make_call(None)),
    ("caller-of-a-server-result", _make_search(make_found(caller={"type": "direct"}))),
]
