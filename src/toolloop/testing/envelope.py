"""What a request as a whole may hold (messages-api.md, rules 1 to 5, 32 and 35; section 3, point 8)."""

from __future__ import annotations

import json
from typing import Any

from toolloop.testing.blocks import CACHE, TEXT, content_block
from toolloop.testing.context_management import COMPACTION, CONTEXT_MANAGEMENT
from toolloop.testing.refusals import NEWEST_VERSION, THINKING_CONTROLS, Context, Refusal
from toolloop.testing.schema import (
    EXTRA,
    Found,
    Key,
    Shape,
    anything,
    array,
    at_least,
    boolean,
    fields,
    mapping,
    need,
    number,
    one_of,
    optional,
    pattern,
    string,
    tagged,
    text_or,
)

MOST_MESSAGES = 100_000
# Sampling parameters went with this version (rule 32).
_NO_SAMPLING = NEWEST_VERSION

_EFFORT = optional(one_of("low", "medium", "high", "xhigh", "max"))
_BINDING = fields({"prefix_mismatch_behavior": optional(one_of("error", "drop_block"))})
_BOUND: dict[str, Key | Shape] = {
    "display": optional(one_of("summarized", "omitted", "updates")),
    "block_binding": Key(optional(_BINDING), beta=THINKING_CONTROLS),
}
_CHOICE: dict[str, Key | Shape] = {"type": string, "disable_parallel_tool_use": optional(boolean)}
_CALLERS = optional(array(string))
_CUSTOM_TOOL = fields(
    {
        "type": optional(string),
        "name": need(pattern("^[a-zA-Z0-9_-]{1,64}$")),
        "description": optional(string),
        "input_schema": need(mapping),
        "input_examples": optional(array(mapping)),
        "allowed_callers": _CALLERS,
        "cache_control": CACHE,
        "defer_loading": optional(boolean),
        "eager_input_streaming": optional(boolean),
        "strict": optional(boolean),
    }
)
# The tools that the API itself defines come and go with dates; one list of keys serves them all.
_API_TOOLS = (
    "bash_",
    "code_execution_",
    "browser_toolset_",
    "memory_",
    "computer_",
    "text_editor_",
    "web_search_",
    "web_fetch_",
    "tool_search_tool_",
    "advisor_",
    "mcp_toolset",
)
_API_TOOL = fields(
    {
        "type": string,
        "name": string,
        "allowed_callers": _CALLERS,
        "cache_control": CACHE,
        "defer_loading": optional(boolean),
        "strict": optional(boolean),
        "input_examples": optional(array(mapping)),
        "max_uses": optional(at_least(1)),
        "max_tokens": optional(at_least(1)),
        **dict.fromkeys(
            (
                *("allowed_domains", "blocked_domains", "user_location", "citations", "max_content_tokens"),
                *("url_sources", "use_cache", "response_inclusion", "configs", "default_config", "tools"),
                *("mcp_server_name", "model", "caching", "max_characters", "enable_zoom"),
                *("display_height_px", "display_width_px", "display_number"),
            ),
            anything,
        ),
    }
)


def _tool(value: Any, path: str, context: Context) -> Found:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind is None or kind == "custom":
        yield from _CUSTOM_TOOL(value, f"{path}.custom", context)
    elif isinstance(kind, str) and kind.startswith(_API_TOOLS):
        yield from _API_TOOL(value, f"{path}.{kind}", context)
    else:
        expected = ", ".join(f"'{tag}…'" for tag in ("custom", *_API_TOOLS))
        yield (
            False,
            f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}",
        )


_CONTENT = text_or(array(content_block))
_MESSAGE = fields({"role": string, "content": need(_CONTENT)})
_SYSTEM_MESSAGE = fields(
    {
        "role": string,
        "content": _CONTENT,
        "clear_at": Key(
            optional(one_of("next_user_message", "never")), beta="mid-conversation-system-clear-at-2026-08-21"
        ),
        "output_config": Key(optional(fields({"effort": _EFFORT})), beta="mid-conversation-output-config-2026-07-01"),
    }
)


def _message(value: Any, path: str, context: Context) -> Found:
    if not isinstance(value, dict):
        yield False, f"{path}: Input should be an object"
        return
    role = value.get("role")
    if "role" not in value:
        yield False, f"{path}.role: Field required"
    elif role not in ("user", "assistant", "system"):
        yield False, f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"'
    if role == "system":
        yield from _SYSTEM_MESSAGE(value, path, context)
        # Only the form that merely directs (rule 21) may do without content.
        if "content" not in value and "output_config" not in value:
            yield False, f"{path}.content: Field required"
    else:
        yield from _MESSAGE(value, path, context)


def _tool_choice(value: Any, path: str, context: Context) -> Found:
    tags = {
        "auto": fields(_CHOICE),
        "any": fields(_CHOICE),
        "tool": fields({**_CHOICE, "name": need(string)}),
        "none": fields({"type": string}),
    }
    yield from tagged(tags)(value, path, context)


_KEYS: dict[str, Key | Shape] = {
    "model": need(string),
    "messages": need(array(_message)),
    "max_tokens": need(at_least(0)),
    "cache_control": CACHE,
    "container": optional(text_or(mapping)),
    "diagnostics": anything,
    "inference_geo": optional(string),
    "metadata": optional(fields({"user_id": optional(string)})),
    "output_config": optional(
        fields({"effort": _EFFORT, "format": optional(mapping), "task_budget": Key(mapping, beta="task-budgets-")})
    ),
    "service_tier": optional(string),
    "speed": optional(string),
    "stop_sequences": optional(array(string)),
    "stream": optional(boolean),
    "system": optional(text_or(array(tagged({"text": TEXT})))),
    "thinking": optional(
        tagged(
            {
                "enabled": fields({"type": string, "budget_tokens": need(at_least(1024)), **_BOUND}),
                "adaptive": fields({"type": string, **_BOUND}),
                "disabled": fields({"type": string}),
                "between_tools": fields({"type": string}),
            }
        )
    ),
    "tool_choice": optional(_tool_choice),
    "tools": optional(array(_tool)),
    "temperature": number,
    "top_p": number,
    "top_k": number,
    "context_management": CONTEXT_MANAGEMENT,
    "mcp_servers": Key(anything, beta="mcp-client-"),
    "fallbacks": Key(anything, beta="server-side-fallback-"),
    "fallback_credit_token": Key(anything, beta="fallback-credit-"),
    "compaction": COMPACTION,
    "output_format": Key(optional(mapping), beta="structured-outputs-"),
    "thread": Key(anything, beta="message-threads-"),
    "billing_policy": Key(anything, beta=""),
}
# What `MessageCountTokensParams` of the SDK has.
_COUNTED = (
    *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed"),
    *("context_management", "compaction", "mcp_servers", "billing_policy"),
)
_BODY = fields(_KEYS)
_COUNTED_BODY = fields({name: _KEYS[name] for name in _COUNTED})


def encodable(body: Any) -> Refusal | None:
    """No string has half a surrogate pair (section 3, point 8), no number is none: the API reads no such JSON."""
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return Refusal("The request body is not valid JSON: no low surrogate in string")
    except ValueError:
        return Refusal("The request body is not valid JSON: number out of range")
    return None


def shape(body: Any, context: Context, *, counts: bool) -> Refusal | None:
    """The first wrong type of a request, else the first unknown key.

    Args:
        body: the decoded body.
        context: the headers and the memory of the server.
        counts: whether tokens are to be counted, and no reply is asked for.

    """
    found = (
        list((_COUNTED_BODY if counts else _BODY)(body, "", context))
        if isinstance(body, dict)
        else [(False, "Input should be an object")]
    )
    wrong = [message for unknown_key, message in found if not unknown_key]
    unknown = [message for unknown_key, message in found if unknown_key]
    if isinstance(body, dict) and context.version >= _NO_SAMPLING:
        unknown += [f"{name}: {EXTRA}" for name in ("temperature", "top_p", "top_k") if name in body]
    return next(map(Refusal, wrong + unknown), None)


def limits(body: dict[str, Any]) -> Refusal | None:
    """Counts: messages, and tokens asked for (rules 1 and 5)."""
    if not body["messages"]:
        return Refusal("messages: at least one message is required")
    if len(body["messages"]) > MOST_MESSAGES:
        return Refusal(f"messages: at most {MOST_MESSAGES} messages are allowed")
    if body["max_tokens"] == 0:
        # Allowed only to warm the cache.
        output_format = (body.get("output_config") or {}).get("format")
        thinks = (body.get("thinking") or {}).get("type") == "enabled"
        forced = (body.get("tool_choice") or {}).get("type") in {"any", "tool"}
        if body.get("stream") or output_format or thinks or forced:
            return Refusal("max_tokens: Input should be greater than or equal to 1")
    return None
