"""A second reading of how calls and results pair, written from the API's documentation and recorded traffic alone.

It shares no code with `toolloop._messages`, so a mistake has to be made twice to go unnoticed. It reads well-shaped
histories only. The numbers are those of the rules in the API notes.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

Block = dict[str, Any]
Run = tuple[str, list[Block]]

ASSISTANT_ONLY = {"tool_use", "server_tool_use", "mcp_tool_use", "thinking", "redacted_thinking"}
USER_ONLY = {"tool_result", "image", "document", "search_result"}
ELSEWHERE = {"tool_addition", "tool_removal", "tool_reference", "browser_state"}  # in system messages, or in results


def broken_rules(messages: list[dict[str, Any]]) -> set[int]:
    """Return the numbers of the rules that a history breaks: 15 to 18, 20, 23 and 25."""
    runs = read(messages)
    counted = since_last_summary(runs)
    return placement(runs) | client_calls(counted) | server_calls(counted) | calls_by_code(counted)


def read(messages: list[dict[str, Any]]) -> list[Run]:
    """Merge adjacent messages of one role; a system message that only directs may stand anywhere."""
    speaking = [message for message in messages if message["role"] != "system" or blocks(message)]
    return [
        (role, [block for message in group for block in blocks(message)])
        for role, group in groupby(speaking, lambda message: str(message["role"]))
    ]


def blocks(message: dict[str, Any]) -> list[Block]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def since_last_summary(runs: list[Run]) -> list[Run]:
    """Drop everything before the last compaction block with content: the API ignores it."""
    kept: list[Run] = []
    for role, found in runs:
        kept.append((role, []))
        for block in found:
            if block["type"] == "compaction" and block.get("content") is not None:
                kept = [(role, [])]
            kept[-1][1].append(block)
    return kept


def placement(runs: list[Run]) -> set[int]:
    """Rule 20, with 22, 32 and 33: calls are the assistant's, results, images and documents the user's."""
    wrong = {"user": ASSISTANT_ONLY | ELSEWHERE, "assistant": USER_ONLY | ELSEWHERE}
    return {
        20
        for role, found in runs
        for block in found
        if block["type"] in wrong.get(role, set()) or (role == "user" and block["type"].endswith("_tool_result"))
    }


def client_calls(runs: list[Run]) -> set[int]:
    """Rules 15 to 18: the user turn after a call begins with its one result."""
    broken: set[int] = set()
    pending: list[str] = []
    for role, found in runs:
        if role == "user":
            broken |= answers(found, pending)
            pending = []
            continue
        if pending:
            broken.add(15)
        if role == "assistant":
            pending = [block["id"] for block in found if block["type"] == "tool_use"]
            if len(set(pending)) < len(pending):
                broken.add(18)
    return broken | {15} if pending else broken


def answers(found: list[Block], pending: list[str]) -> set[int]:
    """Judge a user turn that has to answer these calls."""
    broken: set[int] = set()
    answered: set[str] = set()
    for block in found:
        if block["type"] != "tool_result":
            if set(pending) - answered:
                broken.add(15)
        elif block["tool_use_id"] in answered:
            broken.add(17)
        elif block["tool_use_id"] not in pending:
            broken.add(16)
        else:
            answered.add(block["tool_use_id"])
    return broken | {15} if set(pending) - answered else broken


def server_calls(runs: list[Run]) -> set[int]:
    """Rule 23: only user turns made of results may follow a server call that has no result, by its id, later."""
    opened: dict[str, int] = {}
    for number, (role, found) in enumerate(runs):
        for block in found:
            if block["type"] in {"server_tool_use", "mcp_tool_use"}:
                opened[block["id"]] = number
            elif role == "assistant" and "tool_use_id" in block:
                opened.pop(block["tool_use_id"], None)
    closing = [number for number, (role, found) in enumerate(runs) if role == "user" and not only_results(found)]
    return {23} if any(number < last for number in opened.values() for last in closing) else set()


def calls_by_code(runs: list[Run]) -> set[int]:
    """Rule 25: code gets nothing but results, and these hold only text."""
    for (_, found), (role, reply) in pairwise(runs):
        ids = {
            block["id"]
            for block in found
            if block["type"] == "tool_use" and (block.get("caller") or {}).get("type", "").startswith("code_execution")
        }
        if ids and role == "user":
            results = [block for block in reply if block["type"] == "tool_result" and block["tool_use_id"] in ids]
            inner = [each for block in results for each in blocks(block)]
            if not only_results(reply) or any(each["type"] != "text" for each in inner):
                return {25}
    return set()


def only_results(found: list[Block]) -> bool:
    return bool(found) and all(block["type"] == "tool_result" for block in found)
