"""What each block must have, and may have besides: rules 3, 4, 14 and 20 (source: the parameter types of the SDK)."""

from __future__ import annotations

import re
from typing import Any, Final

from toolloop.core.blocks import RESULT_KINDS, cache_mark_flaws, flaws, named
from toolloop.history.reading import THINKING, Block, is_server_result
from toolloop.history.rules import Findings, Level

_STRING: Final = (str, "a string")
_OBJECT: Final = (dict, "an object")

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
}
# Known, but nobody but the API looks into them.
_OPAQUE: Final = frozenset({"connector_text", "fallback", "mcp_tool_listing"})
# Optional keys whose values are strings.
_WORDS: Final = {
    "tool_use": ("toolset_name",),
    "tool_result": ("toolset_name",),
    "compaction": ("content", "encrypted_content", "signature"),
}
_IDS: Final = {
    "tool_use": re.compile(r"[a-zA-Z0-9_-]+"),
    "tool_result": re.compile(r"[a-zA-Z0-9_-]+"),
    "server_tool_use": re.compile(r"srvtoolu_[a-zA-Z0-9_]+"),
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
    elif is_server_result(kind):
        _field(path, block, "tool_use_id", _STRING, findings)
    elif kind not in RESULT_KINDS | _OPAQUE:
        findings.add("unknown-block", path, f"the type {kind!r} is not known here")


def _fields(path: str, role: str, kind: str, block: Block, findings: Findings) -> None:
    for key, wanted in _FIELDS[kind].items():
        _field(path, block, key, wanted, findings)
    _identity(path, kind, block, findings)
    for key in block:
        if key != "type" and key not in _FIELDS[kind] and key not in _OPTIONAL[kind]:
            findings.add("unknown-key", path, f"a {kind} block has no key {key!r}", level=_unknown(role, key))


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


def _field(path: str, block: Block, key: str, wanted: tuple[type, str], findings: Findings) -> None:
    kind, words = wanted
    if key not in block:
        findings.add("block-fields", path, f"the block has no {key!r}")
    elif not isinstance(block[key], kind):
        findings.add("block-fields", path, f"{key!r} is {named(block[key])}, not {words}")
