"""One hand-written bad request for each rule of the API; the server says what the API says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testing.asking import Said, judged

NEW = "claude-opus-5-5"
OLD = "claude-sonnet-4-5"
HI = {"role": "user", "content": "Hi"}
ADD = {"name": "add", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
CODE = {"type": "code_execution_20250825", "name": "code_execution"}
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://e.x/i.png"}}
FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "f"}]}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": NEW, "max_tokens": 4096, "tools": [ADD, SEARCH, CODE], "messages": list(messages), **fields}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [text(block) if isinstance(block, str) else block for block in blocks]}


def claude(*blocks: Any) -> dict[str, Any]:
    return {**user(*blocks), "role": "assistant"}


def system(*blocks: Any, **fields: Any) -> dict[str, Any]:
    return {**user(*blocks), "role": "system", **fields}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def use(call_id: str = "toolu_1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "add", "input": {}, **fields}


def result(call_id: str = "toolu_1", content: Any = "4", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def search(call_id: str = "srvtoolu_1", name: str = "web_search") -> dict[str, Any]:
    return {"type": "server_tool_use", "id": call_id, "name": name, "input": {}}


def mcp() -> dict[str, Any]:
    return {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "s", "input": {}}


def found(call_id: str = "srvtoolu_1") -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}


def thought(words: str = "hm", signature: str = "sig") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


def without(request: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in request.items() if name != key}


MANUAL = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ROUND = (HI, claude(use()), user(result()))
ADDED = {"type": "tool_reference", "name": "add"}
REMOVAL = {"type": "tool_removal", "tool": ADDED}
BY_CODE = use(caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_1"})
CODE_ROUND = (HI, claude(search(name="code_execution"), BY_CODE))

ENVELOPE: list[tuple[str, dict[str, Any], str]] = [
    ("1", body(), "messages: at least one message is required"),
    ("2", body({"role": "tool", "content": "x"}), 'Unexpected role "tool". Allowed roles are "user" or "assistant"'),
    ("3", body({"content": "x"}), "messages.0.role: Field required"),
    ("3", body({"role": "user"}), "messages.0.content: Field required"),
    ("3", body({"role": "user", "content": 7}), "messages.0.content: Input should be a valid array"),
    ("3", body(user({"text": "x"})), "messages.0.content.0.type: Field required"),
    ("3", body(user({"type": "x"})), "messages.0.content.0: Input tag 'x' found using 'type' does not match"),
    ("3", body("Hi"), "messages.0: Input should be an object"),
    ("4", body({**HI, "name": "me"}), "messages.0.name: Extra inputs are not permitted"),
    ("4", body(HI, claude(text("x", parsed_output=None)), HI), "messages.1.content.0.text.parsed_output: Extra inputs"),
    ("4", body(HI, mood="calm"), "mood: Extra inputs are not permitted"),
    ("4", body(HI, context_management={}), "context_management: Extra inputs are not permitted"),
    ("5", without(body(HI), "max_tokens"), "max_tokens: Field required"),
    ("5", body(HI, max_tokens=0, stream=True), "max_tokens: Input should be greater than or equal to 1"),
    ("5", body(HI, max_tokens=-1), "max_tokens: Input should be greater than or equal to 0"),
    ("5", body(HI, max_tokens=True), "max_tokens: Input should be a valid integer"),
    ("7", body(HI, container="c", tools=[ADD]), "container: Container identifier can only be provided when using"),
]
ENDS: list[tuple[str, dict[str, Any], str]] = [
    ("10", body(HI, claude("I")), "does not support assistant message prefill"),
    ("10", body(HI, claude("I"), model=OLD, **MANUAL), "does not support assistant message prefill"),
    ("11", body(HI, claude("I "), model=OLD), "final assistant content cannot end with trailing whitespace"),
    ("12", body(HI, claude("I", thought()), HI), "messages.1: The final block in an assistant message cannot be"),
    ("13", body(user()), "messages.0: user messages must have non-empty content"),
    ("13", body(HI, claude(), HI), "messages.1: all messages must have non-empty content except for the optional"),
    ("14", body(user("")), "messages: text content blocks must be non-empty"),
    ("14", body(user(" \n")), "messages: text content blocks must contain non-whitespace text"),
    ("14", body({"role": "user", "content": ""}), "messages: text content blocks must be non-empty"),
    ("14", body(HI, system=[text("")]), "system: text content blocks must be non-empty"),
    ("14", body(user("a", text("", **MARK))), "messages.0.content.1.text: cache_control cannot be set for empty text"),
]
PAIRS: list[tuple[str, dict[str, Any], str]] = [
    ("15", body(HI, claude(use()), HI), "messages.2: `tool_use` ids were found without `tool_result` blocks"),
    ("15", body(HI, claude(use())), "immediately after: toolu_1. Each `tool_use` block must have"),
    ("15", body(HI, claude(use("a"), use("b")), user(result("a"))), "immediately after: b."),
    ("15", body(HI, claude(use()), user("first", result())), "immediately after: toolu_1."),
    ("15", body(HI, claude(use()), system("s"), user(result())), "immediately after: toolu_1."),
    ("16", body(HI, user(result())), "messages.0.content.1: unexpected `tool_use_id` found in `tool_result` blocks"),
    ("16", body(*ROUND, claude("x"), user(result())), "messages.4.content.0: unexpected `tool_use_id`"),
    ("17", body(HI, claude(use()), user(result(), result())), "messages.2.content.1: each tool_use must have a single"),
    (
        "18",
        body(HI, claude(use()), claude(use()), user(result())),
        "messages.1.content.1: `tool_use` ids must be unique",
    ),
    ("20", body(user(use())), "messages.0: `tool_use` blocks can only be in `assistant` messages"),
    ("20", body(HI, claude(result()), HI), "messages.1: `tool_result` blocks can only be in `user` messages"),
    ("20", body(user({"type": "tool_result"})), "messages.0.content.0.tool_result.tool_use_id: Field required"),
    ("20", body(HI, claude(use("a b")), HI), "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"),
    ("20", body(HI, claude(search("toolu_1")), HI), "String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"),
    ("20", body(HI, claude(use(input=[])), HI), "messages.1.content.0.tool_use.input: Input should be an object"),
    (
        "20",
        without(body(*ROUND), "tools"),
        "Requests which include `tool_use` or `tool_result` blocks must define tools.",
    ),
    (
        "23",
        body(HI, claude(search()), HI),
        "`web_search` tool use with id `srvtoolu_1` was found without a corresponding",
    ),
    ("23", body(HI, claude(search()), tools=[ADD]), "but no `web_search` tool was provided"),
    (
        "23",
        body(HI, claude(mcp()), HI),
        "`ask` tool use with id `mcptoolu_1` was found without a corresponding `mcp_tool_result`",
    ),
    (
        "23",
        body(HI, claude(search(name="tool_search_tool_regex")), HI),
        "was found without a corresponding `tool_search_tool_result` block",
    ),
    ("24", body(HI, claude(search()), user(result("srvtoolu_1"))), "unexpected `tool_use_id`"),
    ("25", body(*CODE_ROUND, user(result())), "container_id is required when there are pending tool uses generated"),
    ("25", body(*CODE_ROUND, user(result(content=[IMAGE])), container="c"), "may hold only text"),
    ("25", body(HI, claude(BY_CODE), user(result(), "and"), container="c"), "may hold only `tool_result` blocks"),
]
SYSTEM: list[tuple[str, dict[str, Any], str]] = [
    ("21", body(HI, system("s"), model=OLD), "role 'system' is not supported on this model"),
    ("21", body(HI, claude("x"), system("s")), "messages.2: role 'system' must follow a 'user' message or an"),
    ("21", body(HI, system("s"), HI), "messages.1: role 'system' must precede an 'assistant' message or end the array"),
    ("21", body(system("s"), HI), "messages.0: use the top-level 'system' parameter for the initial system prompt"),
    ("21", body(HI, system()), "messages.1: system content must contain at least one block"),
    ("21", body(HI, system(IMAGE)), "messages.1: role 'system' supports text, tool_addition, and tool_removal blocks"),
    ("21", body(HI, system(" ")), "messages.1: system text blocks must contain non-whitespace text"),
    ("22", body(HI, system(REMOVAL)), "tool_removal: Extra inputs are not permitted"),
    ("22", body(user(REMOVAL)), "blocks can only be in `system` messages"),
    ("22", body(HI, system({**REMOVAL, "tool": {}})), "tool_removal.tool.type: Field required"),
    ("22", body(HI, system({**REMOVAL, "tool": {**ADDED, "name": {}}})), "tool.name: Input should be a valid string"),
    ("22", body(HI, system("s", clear_at="never")), "messages.1.clear_at: Extra inputs are not permitted"),
]
THOUGHT: list[tuple[str, dict[str, Any], str]] = [
    ("26", body(HI, claude({"type": "thinking", "thinking": "x"}, "y"), HI), "thinking.signature: Field required"),
    (
        "27",
        body(*ROUND, model=OLD, **MANUAL),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but",
    ),
    (
        "28",
        body(HI, claude(thought("", ""), "x"), HI),
        "messages.1.content.0.thinking: each thinking block must contain",
    ),
    ("31", body(HI, **MANUAL), '"thinking.type.enabled" is not supported for this model.'),
    ("31", body(HI, model=OLD, thinking={"type": "adaptive"}), "adaptive thinking is not supported on this model"),
    (
        "31",
        body(HI, model="claude-fable-5", thinking={"type": "disabled"}),
        '"thinking.type.disabled" is not supported',
    ),
    (
        "31",
        body(HI, model="claude-opus-5", thinking={"type": "disabled"}, output_config={"effort": "max"}),
        '"thinking.type.disabled" is not supported',
    ),
    ("31", body(HI, model=OLD, thinking={"type": "enabled", "budget_tokens": 9}), "greater than or equal to 1024"),
    (
        "31",
        body(HI, model=OLD, max_tokens=1024, **MANUAL),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    ("31", body(HI, model=OLD, **MANUAL, tool_choice={"type": "any"}), "Thinking may not be enabled when tool_choice"),
]
REST: list[tuple[str, dict[str, Any], str]] = [
    ("32", body(HI, claude(DOCUMENT), HI), "messages.1: `document` blocks can only be in `user` messages"),
    ("32", body(user(text("x", citations=[{}]))), "messages.0.content.0.text.citations: not allowed"),
    ("32", body(HI, temperature=1), "temperature: Extra inputs are not permitted"),
    ("33", body(HI, claude(FOUND), HI), "messages.1: `search_result` blocks can only be in `user` messages"),
    (
        "33",
        body(HI, claude(use()), user(result(content=[FOUND, text("x")]))),
        "must be all `search_result` blocks if any",
    ),
    ("33", body(user({**DOCUMENT, "citations": {"enabled": True}}, FOUND)), "citations must be enabled for all"),
    ("33", body(HI, claude(IMAGE), HI), "messages.1: `image` blocks can only be in `user` messages"),
    (
        "34",
        body(user(*[text("x", **MARK)] * 4), **MARK),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    ("34", body(HI, claude({**thought(), **MARK}, "x"), HI), "thinking.cache_control: Extra inputs are not permitted"),
    (
        "34",
        body(user(text("x", **HOUR)), system=[text("x", **MARK)]),
        "messages.0.content.0.cache_control.ttl: a ttl='1h'",
    ),
    ("35", body(HI, tools=[{**ADD, "name": "a b"}]), "String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"),
    (
        "35",
        body(HI, output_config={"effort": "huge"}),
        "effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'",
    ),
    ("35", body(HI, tools=[ADD, ADD]), "tools: Tool names must be unique."),
    ("35", body(HI, tools=[{"name": "add"}]), "tools.0.custom.input_schema: Field required"),
    ("35", body(HI, tools=[{"name": "add", "input_schema": {}}]), "tools.0.custom.input_schema.type: Field required"),
    ("35", body(HI, tools=[{**ADD, "input_schema": {"type": "array"}}]), "input_schema.type: Input should be 'object'"),
    ("35", body(HI, tools=[{**ADD, "strict": True}]), "'additionalProperties' must be explicitly set to false"),
    (
        "35",
        body(HI, tools=[{**ADD, "type": "gadget"}]),
        "tools.0: Input tag 'gadget' found using 'type' does not match",
    ),
    ("35", body(HI, tool_choice={"type": "tool", "name": "x"}), "Tool 'x' not found in provided tools"),
    ("35", without(body(HI, tool_choice={"type": "any"}), "tools"), "may only be specified while providing tools."),
    ("35", body(HI, tool_choice="any"), "tool_choice: Input should be an object"),
    ("35", body(HI, tool_choice={"type": "x"}), "expected tags: 'auto', 'any', 'tool', 'none'"),
    ("35", body(HI, tools=[{**ADD, "defer_loading": True}]), "At least one tool must have defer_loading=false."),
    ("35", body(HI, tools=[CODE, {**ADD, "defer_loading": True, **MARK}]), "cannot be set together with defer_loading"),
    (
        "35",
        body(HI, claude(use()), user(result(content=[{"type": "tool_reference", "tool_name": "x"}]))),
        "Tool reference 'x' not found in available tools",
    ),
    (
        "35",
        body(HI, model="claude-opus-4-6", output_config={"effort": "xhigh"}),
        "does not support effort level 'xhigh'",
    ),
    ("results, 1", body(HI, claude(use()), user(result(name="x"))), "tool_result.name: Extra inputs are not permitted"),
    (
        "results, 2",
        body(HI, claude(use()), user(result(content="", is_error=True))),
        "content cannot be empty if `is_error`",
    ),
    ("results, 2", body(HI, claude(use()), user(result(content=[text("")]))), "text content blocks must be non-empty"),
    ("results, 3", body(HI, claude(use()), user(result(content=[use()]))), "Input tag 'tool_use' found using 'type'"),
]
BAD = [*ENVELOPE, *ENDS, *PAIRS, *SYSTEM, *THOUGHT, *REST]


@pytest.mark.parametrize(
    ("rule", "request_body", "message"), BAD, ids=[f"{rule}: {words[:40]}" for rule, _, words in BAD]
)
def test_a_request_that_breaks_a_rule_is_refused_in_the_words_of_the_api(
    rule: str, request_body: dict[str, Any], message: str
) -> None:
    said = judged(request_body)
    assert (said.status, said.type) == (400, "invalid_request_error")
    assert message in said.message


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("8 merged turns", body(HI, HI, claude("a"), claude("b"), HI, system("s"), system("t"))),
    ("9 assistant first", body(claude("Hello"), HI)),
    ("10 prefill on an old model", body(HI, claude("I"), model=OLD)),
    ("10 resumed pause", body(HI, claude(search()))),
    ("10 resumed pause of an MCP call", body(HI, claude(mcp()))),
    ("10 after a compaction", body(HI, claude({"type": "compaction", "content": "So far."}))),
    ("13 an empty message beside a full one", body(user(), HI)),
    ("13 an empty prefill", body(HI, claude(), model=OLD)),
    ("15 results in any order, then text", body(HI, claude(use("a"), use("b")), user(result("b"), result("a"), "so"))),
    ("15 text after a call", body(HI, claude(use(), "and"), user(result()))),
    ("18 an id used again in a later turn", body(*ROUND, claude(use()), user(result()))),
    ("19 results over two messages", body(HI, claude(use("a"), use("b")), user(result("a")), user(result("b")))),
    ("20 a call of an unknown tool", body(HI, claude(use(name="gone")), user(result()))),
    ("21 system after a server result", body(HI, claude("x", search(), found()), system("s"))),
    ("23 a result in a later message", body(HI, claude(search()), claude(found(), "x"), HI)),
    ("23 open beside client calls", body(HI, claude(search(), use()), user(result()))),
    ("25 calls by code", body(*CODE_ROUND, user(result()), container="c")),
    (
        "27 thinking only at the start of the turn",
        body(HI, claude(thought(), use()), user(result()), *ROUND[1:], model=OLD, **MANUAL),
    ),
    ("28 thinking that is not shown", body(HI, claude(thought(""), "x"), HI)),
    ("31 no thinking on opus 5", body(HI, model="claude-opus-5", thinking={"type": "disabled"})),
    ("33 search results alone", body(HI, claude(use()), user(result(content=[FOUND, FOUND])))),
    ("34 four marks", body(user(*[text("x", **MARK)] * 4))),
    ("34 an hour first", body(user(text("x", **MARK)), system=[text("x", **HOUR)])),
    (
        "results: none, empty, many",
        body(
            HI,
            claude(use("a"), use("b"), use("c")),
            user(result("a", None), result("b", []), result("c", [text("x"), IMAGE, DOCUMENT])),
        ),
    ),
    ("max_tokens 0 warms the cache", body(HI, max_tokens=0)),
    ("an empty system prompt", body(HI, system="")),
    (
        "every top-level key",
        body(
            HI,
            metadata={"user_id": None},
            stop_sequences=["x"],
            service_tier="auto",
            tool_choice={"type": "none"},
            output_config={"effort": "low"},
            container=None,
        ),
    ),
]


@pytest.mark.parametrize("request_body", [good for _, good in GOOD], ids=[name for name, _ in GOOD])
def test_a_request_that_only_looks_odd_is_answered(request_body: dict[str, Any]) -> None:
    assert judged(request_body) == Said(200)


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
def test_sampling_parameters_belong_to_the_old_version(name: str) -> None:
    assert judged(body(HI, **{name: 1}), anthropic_version="2023-06-01").status == 200
    assert judged(body(HI, **{name: 1})).status == 400


@pytest.mark.parametrize(
    ("key", "value", "beta"),
    [
        ("context_management", {"edits": []}, "context-management-2025-06-27"),
        ("mcp_servers", [], "mcp-client-2025-11-20"),
        ("fallbacks", [], "server-side-fallback-2026-07-01"),
        ("billing_policy", {}, "anything-at-all"),
    ],
)
def test_a_beta_key_wants_its_beta(key: str, value: Any, beta: str) -> None:
    assert judged(body(HI, **{key: value}), anthropic_beta=f"other, {beta}") == Said(200)
    assert judged(body(HI, **{key: value})).message == f"{key}: Extra inputs are not permitted"


TOOL_CHANGES = "mid-conversation-tool-changes-2026-07-01"


def change(kind: str, **tool: Any) -> dict[str, Any]:
    return body(HI, system({"type": kind, "tool": tool}))


def test_a_tool_change_names_a_tool_of_the_request() -> None:
    known = change("tool_removal", type="tool_reference", name="add")
    assert judged(known, anthropic_beta=TOOL_CHANGES) == Said(200)
    said = judged(change("tool_addition", type="tool_reference", name="x"), anthropic_beta=TOOL_CHANGES)
    assert (said.status, said.error_code) == (400, "tool_reference_unresolved")


def test_a_tool_defined_inline_wants_another_beta() -> None:
    inline = change("tool_addition", type="tool_definition", definition={**ADD, "name": "sub"})
    assert judged(inline, anthropic_beta="inline-tools-2026-09-15") == Said(200)
    assert judged(inline, anthropic_beta=TOOL_CHANGES).status == 400


def test_the_form_that_only_directs_may_stand_anywhere() -> None:
    low = system(output_config={"effort": "low"})
    beta = "mid-conversation-output-config-2026-07-01"
    assert judged(body(low, HI, low, HI), anthropic_beta=beta) == Said(200)
    assert judged(body(low, HI)).message == "messages.0.output_config: Extra inputs are not permitted"
    assert judged(body({"role": "system"}, HI)).message == "messages.0.content: Field required"


def test_too_many_messages_are_refused() -> None:
    assert "at most 100000" in judged(body(*[HI] * 100_001)).message


def test_wrong_types_are_told_before_unknown_keys_wherever_they_stand() -> None:
    assert judged(body({**HI, "mood": 1}, {"role": "user"})).message == "messages.1.content: Field required"
