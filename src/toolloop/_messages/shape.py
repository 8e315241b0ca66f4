"""Check single messages: rules 1 to 4, 14, 20, 28, 36, and the contents of results."""

from __future__ import annotations

from typing import Any, Final

from toolloop._messages.blocks import BLOCKS, list_kinds, type_of
from toolloop._messages.reading import (
    ROLES,
    Block,
    is_blank,
    is_directive,
    kind_of,
    make_content_path,
    make_message_path,
)
from toolloop._messages.rules import Level, Problems
from toolloop._messages.schema import accept_any, accept_members, accept_one_of, name_type

MAX_MESSAGES: Final = 100_000

_CONTENT: Final = {"role": accept_any, "content": accept_any}
_SETTINGS: Final = {
    "clear_at": accept_one_of("never", "next_user_message"),
    "output_config": accept_members({}, {"effort": accept_one_of("low", "medium", "high", "xhigh", "max")}),
}
_MESSAGES: Final = {
    role: accept_members({}, _CONTENT | (_SETTINGS if role == "system" else {}), name=f"a message of the role {role}")
    for role in ROLES
}
_IN_ERRORS: Final = list_kinds("error")


def check_shape(messages: Any, findings: Problems) -> None:
    """Check each message by itself."""
    if not isinstance(messages, (list, tuple)):
        findings.add("message-shape", "messages", f"the messages are {name_type(messages)}, not a list")
        return
    if not messages:
        findings.add("no-messages", "messages", "the list of messages is empty")
    if len(messages) > MAX_MESSAGES:
        findings.add("too-many-messages", "messages", f"there are {len(messages)} messages")
    for number, message in enumerate(messages):
        _check_message(number, message, findings)


def _check_message(number: int, message: Any, findings: Problems) -> None:
    path = make_message_path(number)
    if not isinstance(message, dict):
        findings.add("message-shape", path, f"the message is {name_type(message)}, not an object")
        return
    role = message.get("role")
    if role is None:
        findings.add("message-shape", path, "the message has no role")
    elif not isinstance(role, str) or role not in ROLES:
        findings.add("unknown-role", path, f"the role is {repr(role) if isinstance(role, str) else name_type(role)}")
    else:
        for flaw in _MESSAGES[role](path, "", message):
            rule = "message-shape" if flaw.rule == "block-fields" else flaw.rule
            findings.add(rule, flaw.path, flaw.text, remedy="Give it a known value, or leave it out.")
        if not is_directive(message):
            _check_content(number, role, message.get("content"), findings)


def _check_content(number: int, role: str, content: Any, findings: Problems) -> None:
    path = make_content_path(number)
    if isinstance(content, str):
        if is_blank(content):
            findings.add("blank-text", path, "the content is blank")
        return
    if not isinstance(content, list):
        what = "the message has no content" if content is None else f"the content is {name_type(content)}"
        findings.add("message-shape", make_message_path(number), what)
        return
    if role == "system" and not content:
        findings.add("system-content", path, "the system message has no content")
    for index, block in enumerate(content):
        _block(f"{path}[{index}]", role, block, findings)


def _block(path: str, role: str, block: Any, findings: Problems) -> None:
    kind = kind_of(block)
    if kind is None:
        findings.add("block-shape", path, f"the block is {name_type(block)} without a type")
        return
    if role not in type_of(kind).places:
        rule = "system-content" if role == "system" else "misplaced-block"
        findings.add(rule, path, f"a message of the role {role} cannot hold a block of type {kind!r}")
    _check_members(path, role, kind, block, findings)
    if kind == "tool_result":
        _check_result(path, role, block, findings)
    elif kind == "text" and role == "user" and block.get("citations"):
        findings.add("user-citations", path, "a text block in a user message has citations")
    elif kind == "thinking" and block.get("thinking") == "" and block.get("signature") == "":
        findings.add("empty-thinking", path, "the thinking block has neither text nor a signature")
    elif kind == "compaction" and block.get("content") == "":
        findings.add("compaction-content", path, "the content of the compaction block is an empty string")


def _check_members(path: str, role: str, kind: str, block: Block, findings: Problems) -> None:
    for flaw in type_of(kind).shape(path, "", block):
        findings.add(flaw.rule, flaw.path, flaw.text, level=_choose_level(flaw.rule, flaw.key, role))
    if kind not in BLOCKS:
        findings.add("unknown-block", path, f"the block type {kind!r} is unknown to this version of toolloop")


def _choose_level(rule: str, key: str, role: str) -> Level | None:
    # A newer API may add members to its replies, and accepts them in requests. It does not accept these two: the SDK
    # adds the first, callers add the second.
    is_newer = rule == "unknown-key" and role == "assistant" and key not in ("parsed_output", "cache_control")
    return "warning" if is_newer else None


def _check_result(path: str, role: str, block: Block, findings: Problems) -> None:
    """Check the content of a result without looking at its call."""
    content, failed = block.get("content"), block.get("is_error") is True
    # The SDK sends null for a tool that returned nothing, so null is treated as absent.
    if not isinstance(content, str | list | None):
        findings.add("result-content", path, f"the content of the result is {name_type(content)}")
    elif failed and not content:
        findings.add("empty-error-result", path, "the result is an error without content")
    if not isinstance(content, list):
        return
    kinds = [kind_of(inner) for inner in content]
    for index, (kind, inner) in enumerate(zip(kinds, content, strict=True)):
        here = f"{path}.content[{index}]"
        if kind is None:
            findings.add("result-content", here, f"the block is {name_type(inner)} without a type")
        elif not type_of(kind).places & {"result", "toolset"}:
            findings.add("result-content", here, f"a result cannot hold a block of type {kind!r}")
        else:
            _check_members(here, role, kind, inner, findings)
    if "search_result" in kinds and any(kind != "search_result" for kind in kinds):
        findings.add("mixed-search-results", path, "the result mixes search results with other blocks")
    if failed and (others := sorted({kind for kind in kinds if kind is not None and kind in BLOCKS} - _IN_ERRORS)):
        findings.add("result-content", path, f"the error result holds blocks other than text: {', '.join(others)}")
