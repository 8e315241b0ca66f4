"""What each block must have, and may have besides: rules 3, 4, 14 and 20 (source: the parameter types of the SDK)."""

from __future__ import annotations

import re
from typing import Any, Final

from toolloop.core.blocks import RESULT_KINDS, cache_mark_flaws, flaws, named
from toolloop.history.reading import THINKING, Block, is_server_result
from toolloop.history.rules import Findings, Level

_STRING: Final = (str, "a string")
_OBJECT: Final = (dict, "an object")
_ANYTHING: Final = (object, "anything")

# The results of the API's own tools (source: the SDK's types); what is inside is the API's own.
_SERVER_RESULTS: Final = frozenset(
    f"{tool}_tool_result"
    for tool in (
        *("web_search", "web_fetch", "tool_search", "advisor"),
        *("code_execution", "bash_code_execution", "text_editor_code_execution"),
    )
)
_WITH_CALLER: Final = _SERVER_RESULTS | {"tool_use", "server_tool_use"}

# Of the other kinds `core.blocks` knows what they may hold.
_FIELDS: Final[dict[str, dict[str, tuple[type, str]]]] = {
    "thinking": {"thinking": _STRING, "signature": _STRING},
    "redacted_thinking": {"data": _STRING},
    "tool_use": {"id": _STRING, "name": _STRING, "input": _OBJECT},
    "tool_result": {"tool_use_id": _STRING},
    "server_tool_use": {"id": _STRING, "name": _STRING, "input": _OBJECT},
    "mcp_tool_use": {"id": _STRING, "name": _STRING, "input": _OBJECT, "server_name": _STRING},
    "compaction": {},
    "container_upload": {"file_id": _STRING},
    "tool_addition": {"tool": _OBJECT},
    "tool_removal": {"tool": _OBJECT},
    "mcp_tool_result": {"tool_use_id": _STRING},
    **{kind: {"tool_use_id": _STRING, "content": _ANYTHING} for kind in _SERVER_RESULTS},
}
_OPTIONAL: Final[dict[str, frozenset[str]]] = {
    "thinking": frozenset(),
    "redacted_thinking": frozenset(),
    "tool_use": frozenset({"cache_control", "caller", "toolset_name"}),
    "tool_result": frozenset({"cache_control", "content", "is_error", "toolset_name"}),
    "server_tool_use": frozenset({"cache_control", "caller"}),
    "mcp_tool_use": frozenset({"cache_control"}),
    "compaction": frozenset({"cache_control", "content", "encrypted_content", "signature", "tool_changes"}),
    "container_upload": frozenset({"cache_control"}),
    "tool_addition": frozenset({"cache_control"}),
    "tool_removal": frozenset({"cache_control"}),
    "mcp_tool_result": frozenset({"cache_control", "content", "is_error"}),
    **dict.fromkeys(_SERVER_RESULTS, frozenset({"cache_control", "caller"})),
}
# Known, but nobody but the API looks into them.
_OPAQUE: Final = frozenset({"connector_text", "fallback", "mcp_tool_listing"})
# Optional keys whose values are strings.
_WORDS: Final = {
    "tool_use": ("toolset_name",),
    "tool_result": ("toolset_name",),
    "compaction": ("content", "encrypted_content", "signature"),
}
# What a system message adds or removes, by its type.
_CHANGED: Final[dict[str, dict[str, tuple[type, str]]]] = {
    "tool_reference": {"name": _STRING},
    "mcp_tool_reference": {"name": _STRING, "server_name": _STRING},
    "mcp_toolset_reference": {"server_name": _STRING},
    "tool_definition": {"definition": _OBJECT},
}
_IDS: Final = {
    "tool_use": re.compile(r"[a-zA-Z0-9_-]+"),
    "tool_result": re.compile(r"[a-zA-Z0-9_-]+"),
    "server_tool_use": re.compile(r"srvtoolu_[a-zA-Z0-9_]+"),
    "mcp_tool_use": re.compile(r"[a-zA-Z0-9_-]+"),
}


def check_fields(path: str, role: str, block: Block, findings: Findings) -> None:
    """Check what a block that has a type has besides: its own fields, and what is inside them."""
    kind = block["type"]
    found = (
        flaws(block, path) if kind in RESULT_KINDS else cache_mark_flaws(block, path) if kind not in THINKING else ()
    )
    for flaw in found:
        # What is inside a block `repair` does not touch.
        rule = "block-fields" if flaw.rule == "blank-text" and flaw.path != path else flaw.rule
        level = _unknown(role, flaw.key) if rule == "unknown-key" else None
        findings.add(rule, flaw.path, flaw.text, level=level)
    if kind in _FIELDS:
        _fields(path, role, kind, block, findings)
    elif kind not in RESULT_KINDS | _OPAQUE:
        if is_server_result(kind):
            _field(path, block, "tool_use_id", _STRING, findings)
        findings.add("unknown-block", path, f"the type {kind!r} is not known here")


def _fields(path: str, role: str, kind: str, block: Block, findings: Findings) -> None:
    for key, wanted in _FIELDS[kind].items():
        _field(path, block, key, wanted, findings)
    _identity(path, kind, block, findings)
    if kind in _WITH_CALLER and block.get("caller") is not None:
        _caller(path, role, block["caller"], findings)
    if kind == "mcp_tool_result" and not isinstance(block.get("is_error"), bool | None):
        findings.add("block-fields", path, f"'is_error' is {named(block['is_error'])}, not true or false")
    if kind in ("tool_addition", "tool_removal") and isinstance(block.get("tool"), dict):
        _changed(path, kind, block["tool"], findings)
    for key in block:
        if key != "type" and key not in _FIELDS[kind] and key not in _OPTIONAL[kind]:
            findings.add("unknown-key", path, f"a {kind} block has no key {key!r}", level=_unknown(role, key))


def _caller(path: str, role: str, caller: Any, findings: Findings) -> None:
    """What made a call: the model itself, or code (rule 25)."""
    if not isinstance(caller, dict):
        findings.add("block-fields", path, f"'caller' is {named(caller)}, not an object")
        return
    _field(path, caller, "type", _STRING, findings, of="caller")
    if "tool_id" in caller:
        _field(path, caller, "tool_id", _STRING, findings, of="caller")
    for key in caller.keys() - {"type", "tool_id"}:
        findings.add("unknown-key", path, f"a caller has no key {key!r}", level=_unknown(role, key))


def _changed(path: str, kind: str, tool: dict[str, Any], findings: Findings) -> None:
    """What a system message adds or removes (rule 22)."""
    what = tool.get("type")
    if not isinstance(what, str) or (what == "tool_definition" and kind == "tool_removal"):
        findings.add("block-fields", path, f"'tool' is no reference that a {kind} takes")
    elif what not in _CHANGED:
        findings.add("unknown-block", path, f"the type {what!r} of a tool to change is not known here")
    else:
        for key, wanted in _CHANGED[what].items():
            _field(path, tool, key, wanted, findings, of=what)
        for key in tool.keys() - _CHANGED[what].keys() - {"type"}:
            findings.add("unknown-key", path, f"a {what} has no key {key!r}")


def _unknown(role: str, key: str) -> Level | None:
    # A newer API may say more in its replies, and takes its own words back. These two are not among them: the one is
    # the SDK's own, the other the caller's.
    return "warning" if role == "assistant" and key not in ("parsed_output", "cache_control") else None


def _identity(path: str, kind: str, block: Block, findings: Findings) -> None:
    pattern = _IDS.get(kind)
    name: Any = block.get("tool_use_id" if kind == "tool_result" else "id")
    if pattern is not None and isinstance(name, str) and not pattern.fullmatch(name):
        findings.add("block-fields", path, f"the id {name!r} does not match {pattern.pattern}")
    changes = block.get("tool_changes") if kind == "compaction" else None
    if changes is not None and not (isinstance(changes, list) and all(isinstance(item, dict) for item in changes)):
        findings.add("block-fields", path, "'tool_changes' is not a list of objects")
    for key in _WORDS.get(kind, ()):
        if not isinstance(block.get(key), str | None):
            findings.add("block-fields", path, f"{key!r} is {named(block[key])}, not a string")


def _field(  # noqa: PLR0913 - what is looked for, and where
    path: str, block: Block, key: str, wanted: tuple[type, str], findings: Findings, *, of: str = "block"
) -> None:
    kind, words = wanted
    if key not in block:
        findings.add("block-fields", path, f"the {of} has no {key!r}")
    elif not isinstance(block[key], kind):
        findings.add("block-fields", path, f"{key!r} is {named(block[key])}, not {words}")
