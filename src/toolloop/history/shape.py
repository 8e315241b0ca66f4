"""The shape of messages and blocks: rules 1 to 4, 14, 20, 28, 36, for which no other message need be looked at."""

from __future__ import annotations

from typing import Any, Final

from toolloop.core.blocks import named
from toolloop.history.fields import check_fields
from toolloop.history.reading import (
    ROLES,
    content_path,
    is_blank,
    is_directive,
    is_server_result,
    kind_of,
    message_path,
)
from toolloop.history.results import check_result
from toolloop.history.rules import Findings

MAX_MESSAGES: Final = 100_000

_MESSAGE_KEYS: Final = {
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"role", "content"}),
    "system": frozenset({"role", "content", "clear_at", "output_config"}),
}
_IN_SYSTEM: Final = frozenset({"text", "tool_addition", "tool_removal"})
_ONLY_IN_RESULTS: Final = frozenset({"browser_state", "tool_reference"})
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
    "tool_addition": "system",
    "tool_removal": "system",
}


def check_shape(messages: Any, findings: Findings) -> None:
    """Check each message by itself."""
    if not isinstance(messages, list | tuple):
        findings.add("message-shape", "messages", f"the messages are {named(messages)}, not a list")
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
        findings.add("message-shape", path, f"the message is {named(message)}, not an object")
        return
    role = message.get("role")
    if role is None:
        findings.add("message-shape", path, "the message has no role")
    elif not isinstance(role, str) or role not in ROLES:
        findings.add("unknown-role", path, f"the role is {repr(role) if isinstance(role, str) else named(role)}")
    else:
        for key in (key for key in message if key not in _MESSAGE_KEYS[role]):
            findings.add("unknown-key", path, f"a message of the role {role} has no key {key!r}")
        if role == "system":
            _settings(path, message, findings)
        if not is_directive(message):
            _content(number, role, message.get("content"), findings)


def _settings(path: str, message: dict[str, Any], findings: Findings) -> None:
    clear_at, config = message.get("clear_at"), message.get("output_config")
    if clear_at not in (None, "next_user_message", "never"):
        remedy = "Set it to `never` or `next_user_message`, or leave it out."
        findings.add("message-shape", path, "the value of 'clear_at' is not known", remedy=remedy)
    if not isinstance(config, dict | None):
        findings.add("message-shape", path, f"'output_config' is {named(config)}, not an object", remedy=_EFFORT)
    elif config is not None:
        if config.get("effort") not in (None, *_EFFORTS):
            findings.add("message-shape", path, "the value of 'effort' is not known", remedy=_EFFORT)
        for key in config.keys() - {"effort"}:
            findings.add("unknown-key", path, f"the 'output_config' of a message has no key {key!r}")


_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_EFFORT: Final = "Set it to an object with an `effort`: low, medium, high, xhigh or max."


def _content(number: int, role: str, content: Any, findings: Findings) -> None:
    path = content_path(number)
    if isinstance(content, str):
        if is_blank(content):
            findings.add("blank-text", path, "the content has no words")
        return
    if not isinstance(content, list):
        what = "the message has no content" if content is None else f"the content is {named(content)}"
        findings.add("message-shape", message_path(number), what)
        return
    if role == "system" and not content:
        findings.add("system-content", path, "the system message has no content")
    for index, block in enumerate(content):
        _block(f"{path}[{index}]", role, block, findings)


def _block(path: str, role: str, block: Any, findings: Findings) -> None:
    kind = kind_of(block)
    if kind is None:
        findings.add("block-shape", path, f"the block is {named(block)} without a type")
        return
    if role == "system" and kind not in _IN_SYSTEM:
        findings.add("system-content", path, f"a system message cannot hold a block of the type {kind!r}")
    elif kind in _ONLY_IN_RESULTS:
        findings.add("misplaced-block", path, f"a block of the type {kind!r} stands outside a result")
    elif ("assistant" if is_server_result(kind) else _ONLY_IN.get(kind, role)) != role:
        findings.add("misplaced-block", path, f"a block of the type {kind!r} stands in a message of the role {role}")
    check_fields(path, role, block, findings)
    if kind == "tool_result":
        check_result(path, role, block, findings)
    elif kind == "text" and role == "user" and block.get("citations"):
        findings.add("user-citations", path, "a text block of the user has citations")
    elif kind == "thinking" and block.get("thinking") == "" and block.get("signature") == "":
        findings.add("empty-thinking", path, "the thinking block has neither words nor a signature")
    elif kind == "compaction" and block.get("content") == "":
        findings.add("compaction-content", path, "the content of the compaction block is an empty string")
