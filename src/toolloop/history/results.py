"""What a result may hold: rules 14, 25 and 33, and the section on the shape of results."""

from __future__ import annotations

from typing import Any, Final

from toolloop.core.blocks import IN_TOOLSETS, RESULT_KINDS, named
from toolloop.history.fields import check_fields
from toolloop.history.reading import Block, is_server_result, kind_of
from toolloop.history.rules import Findings

_NEVER_IN_RESULTS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "compaction"}
)


def check_result(path: str, role: str, block: Block, findings: Findings) -> None:
    """Check a `tool_result` by itself; its call is not looked at."""
    failed = block.get("is_error")
    content = block.get("content")
    if failed is not None and not isinstance(failed, bool):
        findings.add("block-fields", path, f"'is_error' is {named(failed)}, not true or false")
    # The SDK sends null for a tool that returned nothing, so null passes for absent.
    if content is None or isinstance(content, str | list):
        if failed is True and not content:
            findings.add("empty-error-result", path, "the result is an error without content")
    else:
        findings.add("result-content", path, f"the content of the result is {named(content)}")
    if isinstance(content, list):
        kinds = [_inner(f"{path}.content[{index}]", role, inner, findings) for index, inner in enumerate(content)]
        _together(path, block, kinds, findings)


def _inner(path: str, role: str, block: Any, findings: Findings) -> str | None:
    """Check one block inside a result and give its type."""
    kind = kind_of(block)
    if kind is None:
        findings.add("result-content", path, f"the block is {named(block)} without a type")
    elif kind in _NEVER_IN_RESULTS or is_server_result(kind):
        findings.add("result-content", path, f"a result cannot hold a block of the type {kind!r}")
    else:
        check_fields(path, role, block, findings)
    return kind


def _together(path: str, block: Block, kinds: list[str | None], findings: Findings) -> None:
    known = _known(kinds)
    if "search_result" in kinds and any(kind != "search_result" for kind in kinds):
        findings.add("mixed-search-results", path, "the result holds search results beside something else")
    if block.get("is_error") is True and (others := known - {"text"}):
        findings.add(
            "result-content", path, f"the result is an error and holds more than text: {', '.join(sorted(others))}"
        )


def check_members(path: str, block: Block, findings: Findings) -> None:
    """Check what the result of a toolset member holds, and that no other holds what only such a one can."""
    content = block.get("content")
    kinds = [kind_of(inner) for inner in content] if isinstance(content, list) else []
    known = _known(kinds)
    if block.get("toolset_name") is None:
        if "browser_state" in known:
            findings.add("result-content", path, "only the result of a toolset member can hold a browser_state")
        return
    if others := known - IN_TOOLSETS:
        findings.add("result-content", path, f"the result of a toolset member cannot hold: {', '.join(sorted(others))}")
    if kinds.count("browser_state") > 1:
        findings.add("result-content", path, "the result holds two browser states")


def _known(kinds: list[str | None]) -> set[str]:
    return {kind for kind in kinds if kind is not None and kind in RESULT_KINDS}
