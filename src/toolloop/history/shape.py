"""The shape of messages and blocks: rules 1 to 4, 14, 20, 28, for which no other message need be looked at."""

from __future__ import annotations

import re
from typing import Any, Final

from toolloop.history.reading import (
    ROLES,
    Block,
    content_path,
    is_blank,
    is_directive,
    is_server_result,
    kind_of,
    message_path,
)
from toolloop.history.rules import Findings, Level

MAX_MESSAGES: Final = 100_000

_STRING: Final = (str, "a string")
_OBJECT: Final = (dict, "an object")
_LIST: Final = (list, "a list")

# What a block of each well-known type must have, and what it may have besides (source: the parameter types of the SDK).
_FIELDS: Final[dict[str, dict[str, tuple[type, str]]]] = {
    "text": {"text": _STRING},
    "image": {"source": _OBJECT},
    "document": {"source": _OBJECT},
    "search_result": {"content": _LIST, "source": _STRING, "title": _STRING},
    "thinking": {"thinking": _STRING, "signature": _STRING},
    "redacted_thinking": {"data": _STRING},
    "tool_use": {"id": _STRING, "name": _STRING, "input": _OBJECT},
    "tool_result": {"tool_use_id": _STRING},
    "server_tool_use": {"id": _STRING, "name": _STRING, "input": _OBJECT},
    "mcp_tool_use": {"id": _STRING, "name": _STRING, "input": _OBJECT, "server_name": _STRING},
}
_OPTIONAL: Final[dict[str, frozenset[str]]] = {
    "text": frozenset({"cache_control", "citations"}),
    "image": frozenset({"cache_control", "transformations"}),
    "document": frozenset({"cache_control", "citations", "context", "title"}),
    "search_result": frozenset({"cache_control", "citations"}),
    "thinking": frozenset(),
    "redacted_thinking": frozenset(),
    "tool_use": frozenset({"cache_control", "caller", "toolset_name"}),
    "tool_result": frozenset({"cache_control", "content", "is_error", "toolset_name"}),
    "server_tool_use": frozenset({"cache_control", "caller"}),
    "mcp_tool_use": frozenset({"cache_control"}),
}
# Known, but nobody but the API looks into them.
_OPAQUE: Final = frozenset(
    {
        "browser_state",
        "compaction",
        "connector_text",
        "container_upload",
        "fallback",
        "mcp_tool_listing",
        "tool_addition",
        "tool_reference",
        "tool_removal",
    }
)
_IDS: Final = {
    "tool_use": re.compile(r"[a-zA-Z0-9_-]+"),
    "server_tool_use": re.compile(r"srvtoolu_[a-zA-Z0-9_]+"),
}
_MESSAGE_KEYS: Final = {
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"role", "content"}),
    "system": frozenset({"role", "content", "clear_at", "output_config"}),
}
_IN_SYSTEM: Final = frozenset({"text", "tool_addition", "tool_removal"})
_ONLY_IN: Final = {
    "tool_use": "assistant",
    "tool_result": "user",
    "image": "user",
    "document": "user",
    "search_result": "user",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "server_tool_use": "assistant",
    "mcp_tool_use": "assistant",
}
_NEVER_IN_RESULTS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "compaction"}
)


def check_shape(messages: Any, findings: Findings) -> None:
    """Check each message by itself."""
    if not isinstance(messages, list | tuple):
        findings.add("message-shape", "messages", f"the messages are {_named(messages)}, not a list")
        return
    if not messages:
        findings.add("no-messages", "messages", "there are no messages")
    if len(messages) > MAX_MESSAGES:
        findings.add("too-many-messages", "messages", f"there are {len(messages)} messages")
    for number, message in enumerate(messages):
        _message(number, message, findings)


def _message(number: int, message: Any, findings: Findings) -> None:
    path = message_path(number)
    if not isinstance(message, dict):
        findings.add("message-shape", path, f"the message is {_named(message)}, not an object")
        return
    role = message.get("role")
    if role is None:
        findings.add("message-shape", path, "the message has no role")
    elif not isinstance(role, str) or role not in ROLES:
        findings.add("unknown-role", path, f"the role is {repr(role) if isinstance(role, str) else _named(role)}")
    else:
        for key in (key for key in message if key not in _MESSAGE_KEYS[role]):
            findings.add("unknown-key", path, f"a message of the role {role} has no key {key!r}")
        if not is_directive(message):
            _content(number, role, message.get("content"), findings)


def _content(number: int, role: str, content: Any, findings: Findings) -> None:
    path = content_path(number)
    if isinstance(content, str):
        if is_blank(content):
            findings.add("blank-text", path, "the content has no words")
        return
    if not isinstance(content, list):
        what = "the message has no content" if content is None else f"the content is {_named(content)}"
        findings.add("message-shape", message_path(number), what)
        return
    if role == "system" and not content:
        findings.add("system-content", path, "the system message has no content")
    for index, block in enumerate(content):
        _block(f"{path}[{index}]", role, block, findings)


def _block(path: str, role: str, block: Any, findings: Findings) -> None:
    kind = kind_of(block)
    if kind is None:
        findings.add("block-shape", path, f"the block is {_named(block)} without a type")
        return
    if role == "system" and kind not in _IN_SYSTEM:
        findings.add("system-content", path, f"a system message cannot hold a block of the type {kind!r}")
    elif ("assistant" if is_server_result(kind) else _ONLY_IN.get(kind, role)) != role:
        findings.add("misplaced-block", path, f"a block of the type {kind!r} stands in a message of the role {role}")
    _fields(path, role, kind, block, findings)
    if kind == "text":
        _text(path, role, block, findings)
    elif kind == "tool_result":
        _result(path, role, block, findings)
    elif kind == "thinking" and block.get("thinking") == "" and block.get("signature") == "":
        findings.add("empty-thinking", path, "the thinking block has neither words nor a signature")


def _fields(path: str, role: str, kind: str, block: Block, findings: Findings) -> None:
    required = _FIELDS.get(kind)
    if required is None:
        if is_server_result(kind):
            _field(path, block, "tool_use_id", _STRING, findings)
        elif kind not in _OPAQUE:
            findings.add("unknown-block", path, f"the type {kind!r} is not known here")
        return
    for key, wanted in required.items():
        _field(path, block, key, wanted, findings)
    pattern = _IDS.get(kind)
    name = block.get("id")
    if pattern is not None and isinstance(name, str) and not pattern.fullmatch(name):
        findings.add("block-fields", path, f"the id {name!r} does not match {pattern.pattern}")
    for key in block:
        if key == "type" or key in required or key in _OPTIONAL[kind]:
            continue
        # A newer API may say more in its replies, and takes its own words back. `parsed_output` is the SDK's own.
        newer = role == "assistant" and key != "parsed_output"
        findings.add("unknown-key", path, f"a {kind} block has no key {key!r}", level="warning" if newer else None)


def _field(path: str, block: Block, key: str, wanted: tuple[type, str], findings: Findings) -> None:
    kind, words = wanted
    if key not in block:
        findings.add("block-fields", path, f"the block has no {key!r}")
    elif not isinstance(block[key], kind):
        findings.add("block-fields", path, f"{key!r} is {_named(block[key])}, not {words}")


def _text(path: str, role: str, block: Block, findings: Findings) -> None:
    if is_blank(block.get("text")):
        findings.add("blank-text", path, "the text block has no words")
    if role == "user" and block.get("citations"):
        findings.add("user-citations", path, "a text block of the user has citations")


def _result(path: str, role: str, block: Block, findings: Findings) -> None:
    failed = block.get("is_error")
    content = block.get("content")
    if failed is not None and not isinstance(failed, bool):
        findings.add("block-fields", path, f"'is_error' is {_named(failed)}, not true or false")
    # The SDK sends null for a tool that returned nothing, so null passes for absent.
    if content is None or isinstance(content, str | list):
        if failed is True and not content:
            findings.add("empty-error-result", path, "the result is an error without content")
    else:
        findings.add("result-content", path, f"the content of the result is {_named(content)}")
    if isinstance(content, list):
        kinds = [_inner(f"{path}.content[{index}]", role, inner, findings) for index, inner in enumerate(content)]
        if "search_result" in kinds and any(kind != "search_result" for kind in kinds):
            findings.add("mixed-search-results", path, "the result holds search results beside something else")


def _inner(path: str, role: str, block: Any, findings: Findings) -> str | None:
    """Check one block inside a result and give its type."""
    kind = kind_of(block)
    if kind is None:
        findings.add("result-content", path, f"the block is {_named(block)} without a type")
    elif kind in _NEVER_IN_RESULTS:
        findings.add("result-content", path, f"a result cannot hold a block of the type {kind!r}")
    else:
        _fields(path, role, kind, block, findings)
        if kind == "text" and is_blank(block.get("text")):
            # That blank text is refused here as well is likely, not known; of empty text it is known.
            level: Level | None = None if block["text"] == "" else "warning"
            findings.add("blank-text", path, "a text block inside the result has no words", level=level)
    return kind


_NAMES: Final = (
    (bool, "true or false"),
    (str, "a string"),
    (int | float, "a number"),
    (dict, "an object"),
    (list, "a list"),
)


def _named(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    return next((name for kind, name in _NAMES if isinstance(value, kind)), f"a {type(value).__name__}")
