"""A second opinion, part one: the shape of a request body, message by message, parameter by parameter.

The numbers are those of the rules of the reference notes on the Messages API; `3.2` is a point of its part on results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

Block = dict[str, Any]
Body = dict[str, Any]
Version = tuple[str, tuple[int, int]]  # family and number of a model

THINKING = {"thinking", "redacted_thinking"}
# 4: the parameters that the API knows, and those that need a beta.
_KEYS = """model messages max_tokens cache_control container inference_geo metadata output_config service_tier speed
stop_sequences stream system thinking tool_choice tools diagnostics"""
_BETA_KEYS = "context_management mcp_servers fallbacks billing_policy compaction fallback_credit_token"
# 3, 4: the keys that a block needs, then those that it may have; 34: `cache_control` is not on all. 35: so of tools.
_TOOL = """name input_schema / description cache_control strict defer_loading allowed_callers input_examples
eager_input_streaming"""
_CHANGES = ("tool_addition", "tool_removal")
_SERVER_RESULT = "tool_use_id content / caller is_error cache_control"
_BLOCKS = {
    "text": "text / citations cache_control",
    "image": "source / transformations cache_control",
    "document": "source / title context citations cache_control",
    "search_result": "source title content / citations cache_control",
    "thinking": "thinking / signature",
    "redacted_thinking": "data /",
    "tool_use": "id name input / caller toolset_name cache_control",
    "tool_result": "tool_use_id / content is_error toolset_name cache_control",
    "server_tool_use": "id name input / caller cache_control",
    "mcp_tool_use": "id name input server_name / cache_control",
    "compaction": "content / encrypted_content signature tool_changes cache_control",
    "fallback": "from to / trigger",
    "container_upload": "file_id / cache_control",
    "tool_reference": "tool_name / cache_control",
    "mcp_tool_listing": "mcp_server_name tools /",
    **dict.fromkeys(_CHANGES, "tool / cache_control"),
}
_SOURCES = {"image": {"base64", "url", "file"}, "document": {"base64", "url", "file", "text", "content"}}
_IN_RESULTS = {"text", "image", "search_result", "document", "tool_reference"}  # 3.3


def if_so(*cases: tuple[object, str]) -> list[str]:
    """Return the texts of the problems that there are."""
    return [text for is_so, text in cases if is_so]


def content(message: Any) -> list[Block]:
    """Return the blocks of a message; a string is one text block."""
    given = message["content"]
    return [{"type": "text", "text": given}] if isinstance(given, str) else given


def nested(block: Block) -> list[Block]:
    """Return the blocks inside a tool result."""
    inner = block.get("content") if block["type"] == "tool_result" else None
    return inner if isinstance(inner, list) else []


def option(body: Body, name: str, key: str = "type") -> Any:
    """Return one key of a parameter that is an object; None if there is none."""
    given = body.get(name)
    return given.get(key) if isinstance(given, dict) else None


def shape(body: Body, *, beta: bool) -> Iterator[str]:
    """Judge types and unknown keys, which are refused independently of everything else."""
    limit, messages, stops = body.get("max_tokens"), body.get("messages"), body.get("stop_sequences") or []
    given, listed = messages if isinstance(messages, list) else [], body.get("tools") or []
    fills_cache = not (body.get("stream") or option(body, "thinking") == "enabled" or is_forced(body))
    unknown = body.keys() - {*_KEYS.split(), *(_BETA_KEYS.split() if beta else ())}
    yield from if_so(
        (unknown, f"4: {unknown}: Extra inputs are not permitted"),  # 32: among them temperature, top_p, top_k
        (not isinstance(body.get("model"), str), "5: model: a string is required"),
        (type(limit) is not int or limit < (0 if fills_cache else 1), "5: max_tokens: at least 1 is required"),
        (not 0 < len(given) <= 100_000, "1: messages: at least one message is required, and at most 100,000"),
        (len(json.dumps(body)) > 32 << 20, "1: the body is larger than 32 MB"),
        (not all(isinstance(stop, str) for stop in stops), "7: stop_sequences: an array of strings"),
        (not all(isinstance(tool, dict) for tool in listed), "7: tools: an array of objects"),
    )
    for number, message in enumerate(given):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant", "system"):
            yield f"2: messages.{number}: Unexpected role {role!r}"
        elif not isinstance(message.get("content"), str | list):
            yield f"3: messages.{number}.content: Input should be a string or an array"
        else:
            known = {"role", "content", *(("output_config", "clear_at") if role == "system" else ())}  # 22
            yield from if_so((message.keys() - known, f"4: messages.{number}: Extra inputs are not permitted"))
            for block in content(message):
                found = list(_keys(block)) or _block(block, role)
                yield from (f"{text} (messages.{number})" for text in found)


def _keys(block: Any) -> Iterator[str]:
    kind = str(block.get("type")) if isinstance(block, dict) else ""
    row = _BLOCKS.get(kind, _SERVER_RESULT if kind.endswith("_tool_result") else None)
    if row is None:
        yield f"3: Input tag {kind!r} does not match any of the expected tags"
        return
    yield from _fields(kind, block, row)
    for inner in nested(block):
        yield from _keys(inner)


def _fields(kind: str, given: dict[str, Any], row: str) -> Iterator[str]:
    needed, unknown = row.split("/", maxsplit=1)[0].split(), given.keys() - {"type", *row.split()}
    yield from (f"3: {kind}.{key}: Field required" for key in needed if key not in given)
    yield from (f"{34 if key == 'cache_control' else 4}: {kind}.{key}: Extra inputs" for key in unknown)


def _block(block: Block, role: str) -> list[str]:
    """Judge whether a block may be where it is, and its ids, texts, sources and signatures."""
    kind, in_user = block["type"], role == "user"
    id_pattern = {"tool_use": r"[a-zA-Z0-9_-]+", "server_tool_use": r"srvtoolu_[a-zA-Z0-9_]+"}.get(kind, ".*")
    is_unsigned = kind == "thinking" and not block.get("signature")
    given, inside, is_error = block.get("content"), {inner["type"] for inner in nested(block)}, block.get("is_error")
    return if_so(
        (kind == "tool_use" and role != "assistant", "20: `tool_use` only in `assistant` messages"),
        (kind == "tool_result" and not in_user, "20: `tool_result` only in `user` messages"),
        (kind in ("image", "document", "search_result") and not in_user, f"33: {kind} only in user content"),
        (role == "system" and kind not in ("text", *_CHANGES), f"21: {kind} in a system message"),
        (role != "system" and kind in _CHANGES, f"22: {kind} only in a system message"),
        (kind == "text" and in_user and block.get("citations"), "32: citations on text of the user"),
        (not re.fullmatch(id_pattern, str(block.get("id", ""))), f"20: id should match '^{id_pattern}$'"),
        (not isinstance(block.get("input", {}), dict), "20: input should be an object"),
        (is_unsigned and block["thinking"], "26: Invalid `signature` in `thinking` block"),
        (is_unsigned and not block["thinking"], "28: each thinking block must contain thinking"),
        (kind == "redacted_thinking" and not block["data"], "26: Invalid `data` in `redacted_thinking` block"),
        (kind == "compaction" and given == "", "36: an empty compaction"),
        (any(map(_is_blank, [block, *nested(block)])), "14: text must contain non-whitespace text"),
        (any(map(_has_no_source, [block, *nested(block)])), "3: a source is none of the expected tags"),
        (kind == "tool_result" and not isinstance(given, str | list | None), "3.2: content: a string or an array"),
        (is_error and not given, "3.2: content cannot be empty if `is_error` is true"),
        # The notes on the SDK, 2.5: the API answers 400 to an `is_error` result with non-text blocks.
        (is_error and inside - {"text"}, "3.2: content is text if `is_error` is true"),
        (inside - _IN_RESULTS, f"3.3: {sorted(inside)} inside a result"),
        ("search_result" in inside and len(inside) > 1, "33: search results beside other blocks in a result"),
    )


def _is_blank(block: Block) -> bool:
    return block["type"] == "text" and not (isinstance(block["text"], str) and block["text"].strip())


def _has_no_source(block: Block) -> bool:
    return block["type"] in _SOURCES and option(block, "source") not in _SOURCES[block["type"]]


def is_forced(body: Body) -> bool:
    """Whether the model must call a tool."""
    return option(body, "tool_choice") in ("any", "tool")


def tools(body: Body) -> list[str]:
    """Judge the tools and the choice among them (35)."""
    given, choice = body.get("tools") or [], body.get("tool_choice")
    kind, wanted = option(body, "tool_choice"), str(option(body, "tool_choice", "name"))
    names = [tool["name"] for tool in given if "name" in tool]
    late = [tool for tool in given if tool.get("defer_loading")]
    own = [tool for tool in given if tool.get("type") in (None, "custom")]
    badly_named = [tool for tool in own if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", str(tool.get("name", "")))]
    strict = [option(tool, "input_schema", "additionalProperties") for tool in own if tool.get("strict")]
    return [text for tool in own for text in _fields("tools.custom", tool, _TOOL)] + if_so(
        (len(set(names)) < len(names), "35: tools: Tool names must be unique."),
        (given and late == given, "35: At least one tool must have defer_loading=false."),
        (any(tool.get("cache_control") for tool in late), "35: defer_loading with cache_control"),
        (badly_named, "35: tools.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"),
        (any(is_open is not False for is_open in strict), "35: `strict` needs additionalProperties: false"),
        (choice is not None and kind not in ("auto", "any", "tool", "none"), "35: tool_choice: unknown tag"),
        (choice is not None and not given, "35: tool_choice may only be specified while providing tools."),
        (kind == "tool" and wanted not in names, f"35: Tool {wanted!r} not found in provided tools"),
    )


def cache_marks(body: Body) -> list[str]:
    """Judge how many cache marks there are, and their order: tools, system, messages, the whole (34)."""
    system = body["system"] if isinstance(body.get("system"), list) else []
    blocks = [each for message in body["messages"] for block in content(message) for each in (*nested(block), block)]
    holders = [*(body.get("tools") or []), *system, *blocks, body]
    lives = [mark.get("ttl") or "5m" for holder in holders if (mark := holder.get("cache_control"))]
    return if_so(
        (len(lives) > 4, f"34: A maximum of 4 blocks with cache_control may be provided. Found {len(lives)}."),
        (lives != sorted(lives), "34: a ttl='1h' cache_control block must not come after a ttl='5m' block."),
    )


def thinking(body: Body, version: Version | None) -> list[str]:
    """Judge thinking and effort against the model and the other parameters (31)."""
    kind, budget = option(body, "thinking"), option(body, "thinking", "budget_tokens")
    family, number = version or ("", (0, 0))
    effort, is_manual = option(body, "output_config", "effort"), kind == "enabled"
    must_think = family in ("fable", "mythos") or ((family, number) == ("opus", (5, 0)) and effort in ("xhigh", "max"))
    is_within = isinstance(budget, int) and 1024 <= budget < body["max_tokens"]
    return if_so(
        (body.get("thinking") and kind not in ("enabled", "adaptive", "disabled"), f"31: thinking.type: {kind!r}"),
        (is_manual and not is_within, "31: budget_tokens: at least 1024, and less than max_tokens"),
        (is_manual and is_forced(body), "31: Thinking may not be enabled when tool_choice forces tool use."),
        (is_manual and number >= (4, 7), '31: "thinking.type.enabled" is not supported for this model.'),
        (kind == "adaptive" and version and number <= (4, 5), "31: adaptive thinking is not supported on this model"),
        (kind == "disabled" and must_think, "31: thinking cannot be disabled on this model"),
        (effort == "xhigh" and number == (4, 6), "35: This model does not support effort level 'xhigh'."),  # recorded
    )
