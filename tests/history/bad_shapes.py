"""Requests with values that the API does not know, or that no request can carry: a part of the corpus."""

from __future__ import annotations

from typing import Any

from tests.history.bodies import (
    HELLO,
    HI,
    NEXT,
    SONNET_4_5,
    BadRequest,
    answered,
    assistant,
    body,
    call,
    found,
    result,
    search,
    system,
    text,
    thinking,
    user,
    without,
)

_CHANGES = "mid-conversation-tool-changes-2026-07-01"
_CONFIG = "mid-conversation-output-config-2026-07-01"
_CLEAR = "mid-conversation-system-clear-at-2026-08-21"
LOW = system(output_config={"effort": "low"})
MCP_CALL = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "s", "input": {}}
MCP_RESULT = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": []}


def _called(caller: Any) -> dict[str, Any]:
    return body(HI, assistant(call(caller=caller)), user(result()))


def _searched(answer: dict[str, Any]) -> dict[str, Any]:
    return body(HI, assistant(search(), answer, text()), NEXT)


def _asked(question: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    return body(HI, assistant(question, answer, text()), NEXT)


def _changing(name: str, tool: Any, *, kind: str = "tool_removal", **more: Any) -> BadRequest:
    return BadRequest(name, 22, "block-fields", body(HI, system({"type": kind, "tool": tool})), beta=_CHANGES, **more)


_JSON = [
    BadRequest("half-a-pair", 308, "not-encodable", body({"role": "user", "content": "a\ud800"})),
    BadRequest(
        "half-a-pair-of-the-model",
        308,
        "not-encodable",
        body(HI, assistant(call(input={"a": "\udfff"})), user(result())),
        checked="warning",
    ),
    BadRequest("half-a-pair-in-a-key", 308, "not-encodable", answered(content=[text(), {"\ud800": 1}])),
    BadRequest("number-too-large", 308, "not-encodable", body(HI, assistant(call(input={"a": 1e999})), user(result()))),
]

_BLOCKS = [
    BadRequest("server-result-without-content", 20, "block-fields", _searched(without(found(), "content"))),
    BadRequest("server-result-parsed", 4, "unknown-key", _searched(found(parsed_output=None))),
    BadRequest("server-result-with-key", 4, "unknown-key", _searched(found(mood="calm")), checked="warning"),
    BadRequest(
        "server-result-unknown", 3, "unknown-block", _searched(found(type="web_swim_tool_result")), checked="warning"
    ),
    BadRequest("caller-a-string", 20, "block-fields", _called("direct")),
    BadRequest("caller-without-type", 20, "block-fields", _called({})),
    BadRequest("caller-id-a-number", 20, "block-fields", _called({"type": "direct", "tool_id": 7})),
    BadRequest("caller-with-key", 20, "unknown-key", _called({"type": "direct", "mood": 1}), checked="warning"),
    BadRequest(
        "mcp-call-id-with-a-space",
        20,
        "block-fields",
        _asked(MCP_CALL | {"id": "a b"}, MCP_RESULT | {"tool_use_id": "a b"}),
    ),
    BadRequest("mcp-result-is-error-a-number", 20, "block-fields", _asked(MCP_CALL, MCP_RESULT | {"is_error": 1})),
]

_SYSTEM = [
    BadRequest("clear-at-unknown", 22, "message-shape", body(HI, system(text(), clear_at="tomorrow")), beta=_CLEAR),
    BadRequest("output-config-a-string", 22, "message-shape", body(HI, system(output_config="low")), beta=_CONFIG),
    BadRequest(
        "effort-of-a-message-unknown",
        22,
        "message-shape",
        body(HI, system(output_config={"effort": "huge"})),
        beta=_CONFIG,
    ),
    BadRequest(
        "format-of-a-message",
        22,
        "unknown-key",
        body(HI, system(text(), output_config={"format": None})),
        beta=_CONFIG,
    ),
    _changing("removal-without-name", {"type": "tool_reference"}),
    _changing("removal-of-no-type", {"name": "look"}),
    _changing("removal-of-a-definition", {"type": "tool_definition", "definition": {}}),
    _changing("addition-of-a-definition-without-one", {"type": "tool_definition"}, kind="tool_addition"),
    BadRequest(
        "removal-with-key",
        22,
        "unknown-key",
        body(HI, system({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "look", "why": "x"}})),
        beta=_CHANGES,
    ),
    BadRequest(
        "removal-of-unknown-type",
        22,
        "unknown-block",
        body(HI, system({"type": "tool_removal", "tool": {"type": "crowd_reference", "name": "look"}})),
        checked="warning",
        beta=_CHANGES,
    ),
]

_DIRECTING = [
    BadRequest("directive-on-old-model", 21, "system-model", body(HI, LOW, model=SONNET_4_5), beta=_CONFIG),
    BadRequest("directive-of-an-empty-string", 14, "blank-text", body(HI, LOW | {"content": ""}), beta=_CONFIG),
    *[
        BadRequest(f"directive-of-{name}", 3, "message-shape", body(HI, LOW | {"content": content}), beta=_CONFIG)
        for name, content in (("null", None), ("zero", 0), ("an-object", {}))
    ],
    BadRequest(
        "directive-before-a-result",
        15,
        "unanswered-call",
        body(HI, assistant(call()), LOW, user(result())),
        checked="warning",
        beta=_CONFIG,
    ),
    BadRequest(
        "directive-between-results",
        16,
        "orphan-result",
        body(HI, assistant(call("a"), call("b")), user(result("a")), LOW, user(result("b"))),
        checked="warning",
        beta=_CONFIG,
    ),
    BadRequest(
        "directive-after-thinking",
        12,
        "thinking-last",
        body(HI, assistant(thinking()), LOW, assistant(text()), NEXT),
        checked="warning",
        beta=_CONFIG,
    ),
    BadRequest(
        "directive-after-an-empty-message",
        13,
        "empty-content",
        body(HI, HELLO, user(), LOW, NEXT),
        checked="warning",
        beta=_CONFIG,
    ),
    BadRequest("directive-first-and-no-answer", 15, "unanswered-call", body(LOW, HI, assistant(call())), beta=_CONFIG),
]

BAD_SHAPES: list[BadRequest] = [*_JSON, *_BLOCKS, *_SYSTEM, *_DIRECTING]

#: The API takes these, if a message that only sets `output_config` parts the turns around it.
DIRECTED: list[tuple[str, str, dict[str, Any]]] = [
    ("directive-after-the-last-reply", "prefill", body(HI, HELLO, LOW)),
    (
        "directive-after-results-of-code",
        "code-results-only",
        body(
            HI,
            assistant(
                search("srvtoolu_c", name="code_execution"),
                found("srvtoolu_c"),
                call(caller={"type": "code_execution_1"}),
            ),
            user(result()),
            LOW,
            NEXT,
            container="container_1",
        ),
    ),
]

#: The nearest ones that are taken, of those that need no beta.
NEAREST_SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("both-halves-of-a-pair", body({"role": "user", "content": "\U0001f600"})),
    ("mcp-result-without-content", _asked(MCP_CALL, without(MCP_RESULT, "content"))),
    ("mcp-result-of-an-error", _asked(MCP_CALL, MCP_RESULT | {"is_error": True})),
    ("caller-null", _called(None)),
    ("caller-of-a-server-result", _searched(found(caller={"type": "direct"}))),
]
