"""Every call has its one result, in the next turn (messages-api.md, rules 15 to 20 and 23 to 25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.testing.blocks import SERVER_RESULTS
from toolloop.testing.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolloop.testing.runs import Block, Run

_ASSISTANT_ONLY = ("tool_use", "server_tool_use", "mcp_tool_use", "thinking", "redacted_thinking", *SERVER_RESULTS)
_USER_ONLY = ("tool_result", "image", "document", "search_result")  # a reply may hold a `container_upload`
_DIRECTIVES = ("tool_addition", "tool_removal")


def placement(runs: list[Run]) -> Refusal | None:
    """Which blocks may stand in whose messages (rules 20, 32, 33)."""
    for number, run in enumerate(runs):
        for block in run.blocks:
            kind = block["type"]
            if run.role == "user" and kind in _ASSISTANT_ONLY:
                return Refusal(f"messages.{number}: `{kind}` blocks can only be in `assistant` messages")
            if run.role == "assistant" and kind in _USER_ONLY:
                return Refusal(f"messages.{number}: `{kind}` blocks can only be in `user` messages")
            if run.role != "system" and kind in _DIRECTIVES:
                return Refusal(f"messages.{number}: `{kind}` blocks can only be in `system` messages")
    return None


def _unanswered(number: int, ids: Iterable[str]) -> Refusal:
    return Refusal(
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(ids)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def pairing(runs: list[Run]) -> Refusal | None:
    """Client calls and their results (rules 15 to 18)."""
    pending: dict[str, None] = {}  # in order, as a set is not
    for number, run in enumerate(runs):
        if run.role == "user":
            if refusal := _answers(number, run.blocks, pending):
                return refusal
            pending = {}
            continue
        if pending:
            return _unanswered(number, pending)
        if run.role == "assistant":
            for place, block in enumerate(run.blocks):
                if block["type"] == "tool_use":
                    if block["id"] in pending:
                        return Refusal(f"messages.{number}.content.{place}: `tool_use` ids must be unique")
                    pending[block["id"]] = None
    return _unanswered(len(runs) - 1, pending) if pending else None


def _answers(number: int, blocks: list[Block], pending: dict[str, None]) -> Refusal | None:
    open_ids = dict(pending)
    for place, block in enumerate(blocks):
        if block["type"] != "tool_result":
            if open_ids:
                return _unanswered(number, open_ids)
            continue
        answered = block["tool_use_id"]
        if answered in open_ids:
            del open_ids[answered]
        elif answered in pending:
            return Refusal(
                f"messages.{number}.content.{place}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {answered}"
            )
        else:
            return Refusal(
                f"messages.{number}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{answered}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                "message."
            )
    return _unanswered(number, open_ids) if open_ids else None


def _only_results(run: Run) -> bool:
    return bool(run.blocks) and all(block["type"] == "tool_result" for block in run.blocks)


def open_server_calls(runs: list[Run]) -> list[tuple[int, Block]]:
    """Server calls without a result anywhere after them, each with the number of its turn."""
    waiting: dict[str, tuple[int, Block]] = {}
    for number, run in enumerate(runs):
        for block in run.blocks:
            if block["type"] in {"server_tool_use", "mcp_tool_use"}:
                waiting[block["id"]] = (number, block)
            elif run.role == "assistant" and block["type"] in SERVER_RESULTS:
                waiting.pop(block["tool_use_id"], None)
    return list(waiting.values())


def _result_type(block: Block) -> str:
    if block["type"] == "mcp_tool_use":
        return "mcp_tool_result"
    return "tool_search_tool_result" if block["name"].startswith("tool_search") else f"{block['name']}_tool_result"


def _provides(tools: list[dict[str, Any]], block: Block) -> bool:
    if block["type"] == "mcp_tool_use":
        return True
    names = {tool.get("name") for tool in tools}
    return block["name"] in names or (block["name"].endswith("code_execution") and "code_execution" in names)


def server_pairing(runs: list[Run], tools: list[dict[str, Any]]) -> Refusal | None:
    """A server call is open only while its turn is (rule 23)."""
    for number, block in open_server_calls(runs):
        text = (
            f"messages.{number}: `{block['name']}` tool use with id `{block['id']}` was found without a corresponding "
            f"`{_result_type(block)}` block"
        )
        if not all(_only_results(run) for run in runs[number + 1 :] if run.role == "user"):
            return Refusal(text)
        if not _provides(tools, block):
            return Refusal(f"{text}, but no `{block['name']}` tool was provided")
    return None


def programmatic(runs: list[Run], *, has_container: bool) -> Refusal | None:
    """The answers to calls that code made (rule 25)."""
    for number, run in enumerate(runs[:-1]):
        calls = {
            block["id"]
            for block in run.blocks
            if block["type"] == "tool_use"
            and str((block.get("caller") or {}).get("type", "")).startswith("code_execution_")
        }
        if not calls:
            continue
        answers = runs[number + 1]
        if not _only_results(answers):
            return Refusal(
                f"messages.{number + 1}: when answering tool uses generated by code execution with tools, "
                "the user message may hold only `tool_result` blocks"
            )
        for place, block in enumerate(answers.blocks):
            inner = block.get("content")
            if block["tool_use_id"] in calls and isinstance(inner, list) and any(b["type"] != "text" for b in inner):
                return Refusal(
                    f"messages.{number + 1}.content.{place}: results of tool uses generated by code execution with "
                    "tools may hold only text"
                )
        if number + 1 == len(runs) - 1 and not has_container:
            return Refusal(
                "container_id is required when there are pending tool uses generated by code execution with tools."
            )
    return None
