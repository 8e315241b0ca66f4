"""Calls and their results: rules 15 to 18, 23 to 25.

The walk follows the pairing algorithm of the API notes (1h), which agrees with 312 recorded requests.
"""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from toolloop._messages.blocks import RESULT_KINDS, list_result_kinds
from toolloop._messages.reading import (
    SERVER_CALLS,
    Block,
    Run,
    Spot,
    find_last_closing_run,
    find_unanswered_server_calls,
    is_blank,
    is_made_by_code,
    is_server_result,
    kind_of,
    make_message_path,
    read_text,
)
from toolloop._messages.rules import Problems
from toolloop._messages.tool_changes import ADDITION, find_changes


@frozen
class _Walk:
    """The state of the walk: the calls without a result, and all ids of calls and server calls so far."""

    findings: Problems
    pending: dict[str, Spot] = field(factory=dict)
    used: set[str] = field(factory=set)
    server: set[str] = field(factory=set)


def check_pairing(runs: list[Run], findings: Problems) -> None:
    """Check that each call has exactly one result, in the right place."""
    walk = _Walk(findings)
    for run in runs:
        if run.role == "assistant":
            _report_unanswered(walk, "before the next assistant message")
            _walk_calls(run, walk)
        elif run.role == "user":
            _walk_results(run, walk)
        elif walk.pending:
            findings.add(
                "unanswered-call",
                make_message_path(run.messages[0]),
                "a system message is between calls and their results",
                remedy="Move the system message after the results; `repair` does.",
            )
    _report_unanswered(walk, "before the end")
    _check_server_calls(runs, findings)


def check_open_calls(runs: list[Run], findings: Problems, *, tools: Any) -> None:
    """Check that the request has the tool of each open server call. `tools` is None if unknown."""
    if not isinstance(tools, list):
        return
    named = {name for tool in tools if isinstance(tool, dict) and isinstance(name := tool.get("name"), str)}
    closing = find_last_closing_run(runs)
    added = any(change.kind == ADDITION for change in find_changes(runs))
    for call, (number, spot) in find_unanswered_server_calls(runs).items():
        name = read_text(spot.block, "name") or ""
        if number < closing or spot.kind != "server_tool_use" or name in named:
            continue  # reported as open already, a tool of an MCP server with a name of its own, or in the request
        if name in _CALLS_OF_CODE and _CALLS_OF_CODE & named:
            continue
        # Newer searches run code themselves, and a call of an unknown tool may have a different name.
        certain = not _SEARCHES & named if name in _CALLS_OF_CODE else name in _NAMED_ALIKE
        message = f"the server call {call} is open, but the request has no tool {name!r}"
        findings.add("server-tool-gone", spot.path, message, level=None if certain and not added else "warning")


def check_server_results(runs: list[Run], live: list[Run], findings: Problems) -> None:
    """Check that each server result is after its call. `live`: the runs from the last compaction block on.

    A compaction may be between the two. Results before it do not count.
    """
    spots = [spot for run in runs for spot in run.spots]
    called: set[str] = set()
    first = len(spots) - sum(len(run.spots) for run in live)
    for number, spot in enumerate(spots):
        if spot.kind in SERVER_CALLS:
            called.add(read_text(spot.block, "id") or "")
        elif number >= first and is_server_result(spot.kind):
            call = read_text(spot.block, "tool_use_id")
            if call is not None and call not in called:
                findings.add("orphan-server-result", spot.path, f"there is no server call {call} before this result")


# Source: the SDK's `ServerToolUseBlockParam`, and the names of its server tools.
_CALLS_OF_CODE: Final = frozenset({"code_execution", "bash_code_execution", "text_editor_code_execution"})
_SEARCHES: Final = frozenset({"web_search", "web_fetch"})
_NAMED_ALIKE: Final = _SEARCHES | {"advisor", "tool_search_tool_regex", "tool_search_tool_bm25"}


def _report_unanswered(walk: _Walk, until: str) -> None:
    for call, spot in walk.pending.items():
        walk.findings.add("unanswered-call", spot.path, f"the call {call} has no result {until}")
    walk.pending.clear()


def _walk_calls(run: Run, walk: _Walk) -> None:
    for spot in run.spots:
        call = read_text(spot.block, "id")
        if spot.kind == "text" and walk.pending:
            walk.findings.add("text-after-call", spot.path, "text follows a call")
        elif spot.kind in SERVER_CALLS and call is not None:
            walk.server.add(call)
        elif spot.kind == "tool_use" and call is not None:
            if call in walk.pending:
                walk.findings.add("duplicate-call", spot.path, f"two calls of this turn have the same id, {call}")
            elif call in walk.used:
                walk.findings.add("reused-call", spot.path, f"an earlier turn has a call with the same id, {call}")
            walk.pending.setdefault(call, spot)
    walk.used.update(walk.pending)


def _walk_results(run: Run, walk: _Walk) -> None:
    answered: set[str] = set()
    other: Spot | None = None
    displaced: Spot | None = None
    by_code = any(is_made_by_code(spot.block) for spot in walk.pending.values())
    for spot in run.spots:
        if spot.kind != "tool_result":
            other = other or spot
            continue
        call = read_text(spot.block, "tool_use_id")
        if call is None:
            continue
        if call in answered:
            walk.findings.add("repeated-result", spot.path, f"the call {call} already has a result")
        elif call not in walk.pending:
            _report_orphan(call, spot, walk)
        else:
            answered.add(call)
            displaced = displaced or other
            _check_result_content(walk.pending[call].block, spot, walk.findings)
    if displaced is not None:
        walk.findings.add("results-first", displaced.path, "another block is before the results of the calls")
    if by_code and other is not None:
        walk.findings.add("code-results-only", other.path, "this block is next to results of calls made by code")
    for call in answered:
        del walk.pending[call]
    _report_unanswered(walk, "in the user message after it")


def _check_result_content(call: Block, spot: Spot, findings: Problems) -> None:
    """Check the toolset and the content of a result against its call."""
    wanted, given = read_text(call, "toolset_name"), read_text(spot.block, "toolset_name")
    if wanted != given:
        named = "has no toolset_name" if given is None else f"has the toolset_name {given!r}"
        findings.add("toolset-name", spot.path, f"the result {named}, but its call has {wanted or 'none'}")
    content = spot.block.get("content")
    kinds = [kind_of(inner) for inner in content] if isinstance(content, list) else []
    by_code = is_made_by_code(call)
    may_hold = list_result_kinds(by_code=by_code, toolset=wanted)
    if others := sorted({kind for kind in kinds if kind in RESULT_KINDS} - may_hold):
        owner = "a call made by code" if by_code else "this call"
        rule = "code-results-only" if by_code else "result-content"
        findings.add(rule, spot.path, f"the result of {owner} cannot hold: {', '.join(others)}")
    if kinds.count("browser_state") > 1:
        findings.add("result-content", spot.path, "the result holds two browser states")


def _report_orphan(call: str, spot: Spot, walk: _Walk) -> None:
    if call in walk.server:
        message = f"{call} is a server call, which the API answers itself"
    elif call in walk.used:
        message = f"the call {call} is not in the assistant message directly before this result"
    else:
        message = f"the call {call} does not exist"
    walk.findings.add("orphan-result", spot.path, message)


def _check_server_calls(runs: list[Run], findings: Problems) -> None:
    closing = find_last_closing_run(runs)
    for call, (number, spot) in find_unanswered_server_calls(runs).items():
        if number < closing:
            name = spot.block.get("name")
            called = name if isinstance(name, str) and not is_blank(name) else spot.kind
            findings.add("open-server-call", spot.path, f"the server call {call} of {called} has no result")
