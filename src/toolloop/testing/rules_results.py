"""What a result may hold, by itself and as the answer to its call (messages-api.md, rules 25 and 33; section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.testing.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolloop.testing.runs import Block, Run

_IN_TOOLSETS = ("text", "image", "browser_state")


def _all(runs: list[Run], *kinds: str) -> Iterator[tuple[str, Block]]:
    for number, run in enumerate(runs):
        for place, block in enumerate(run.blocks):
            if block["type"] in kinds:
                yield f"messages.{number}.content.{place}", block


def _kinds(result: Block) -> list[str]:
    content = result.get("content")
    return [block["type"] for block in content] if isinstance(content, list) else []


def results(runs: list[Run]) -> Refusal | None:
    """What each result holds (rule 33; section 3, points 2 and 3)."""
    for path, block in _all(runs, "tool_result"):
        where, kinds = f"{path}.tool_result", set(_kinds(block))
        if block.get("is_error"):
            if not block.get("content"):
                return Refusal(f"{where}: content cannot be empty if `is_error` is true")
            if kinds - {"text"}:
                return Refusal(f'{where}: all content must be type "text" if `is_error` is true')
        if "search_result" in kinds and len(kinds) > 1:
            return Refusal(f"{where}: content must be all `search_result` blocks if any is")
    return None


def toolsets(runs: list[Run]) -> Refusal | None:
    """Results of toolset members: the name of the toolset, and what they hold (section 3, points 1 and 3)."""
    calls: dict[str, str | None] = {}
    for path, block in _all(runs, "tool_use", "tool_result"):
        if block["type"] == "tool_use":
            calls[block["id"]] = block.get("toolset_name")
            continue
        where, toolset, kinds = f"{path}.tool_result", calls.get(block["tool_use_id"]), _kinds(block)
        if toolset and block.get("toolset_name") is None:
            return Refusal(f"{where}.toolset_name: Field required")
        if block.get("toolset_name") != toolset:
            return Refusal(f"{where}.toolset_name: must be that of the `tool_use` block: {toolset}")
        allowed: Any = _IN_TOOLSETS if toolset else set(kinds) - {"browser_state"}
        if other := next((kind for kind in kinds if kind not in allowed), None):
            members = "of a toolset member" if toolset else "of a tool that is no toolset member"
            return Refusal(f"{where}.content: a result {members} cannot contain `{other}` blocks")
        if kinds.count("browser_state") > 1:
            return Refusal(f"{where}.content: at most one `browser_state` block may be provided")
    return None
