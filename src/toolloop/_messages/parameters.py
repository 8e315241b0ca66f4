"""The `thinking` parameter, the tools, and the blocks that refer to tools: rules 22, 31, 35."""

from __future__ import annotations

import re
from typing import Any, Final

from toolloop._messages.models import takes_thinking
from toolloop._messages.reading import Run, kind_of, read_text, walk_blocks
from toolloop._messages.rules import Problems
from toolloop._messages.tool_changes import ADDITION, find_changes, toolset_of

_LEAST_BUDGET: Final = 1024
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_parameters(  # noqa: PLR0913 - the parts of a request, by name
    findings: Problems, *, model: object, tools: Any, thinking: Any, tool_choice: Any, max_tokens: Any
) -> None:
    """Check the `thinking` parameter against the model and the other parameters, and the definitions of the tools."""
    if isinstance(thinking, dict):
        _check_thinking(thinking, findings, model)
        if thinking.get("type") == "enabled":
            _check_manual_thinking(thinking, findings, tool_choice=tool_choice, max_tokens=max_tokens)
    if isinstance(tools, list):
        _check_tools(tools, findings)


def _check_thinking(thinking: dict[str, Any], findings: Problems, model: object) -> None:
    kind = thinking.get("type")
    if takes_thinking(model, kind) is False:
        findings.add("thinking-config", "thinking", f"{model} does not accept thinking of type {kind!r}")


def _check_manual_thinking(thinking: dict[str, Any], findings: Problems, *, tool_choice: Any, max_tokens: Any) -> None:
    budget, path = thinking.get("budget_tokens"), "thinking.budget_tokens"
    if isinstance(budget, int) and budget < _LEAST_BUDGET:
        findings.add(
            "thinking-config", path, f"the budget is {budget}, less than {_LEAST_BUDGET}", remedy="Raise the budget."
        )
    if isinstance(budget, int) and isinstance(max_tokens, int) and budget >= max_tokens:
        message = f"the budget is {budget}, and max_tokens only {max_tokens}"
        findings.add("thinking-config", path, message, remedy="Lower the budget, or raise max_tokens.")
    if isinstance(tool_choice, dict) and tool_choice.get("type") in ("any", "tool"):
        message = "tool_choice forces a tool, which does not go with manual thinking"
        findings.add("thinking-config", "thinking", message, remedy="Use the tool_choice auto, or turn thinking off.")


def _check_tools(tools: list[Any], findings: Problems) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        name = read_text(tool, "name") if isinstance(tool, dict) else None
        if name is None:
            continue  # a toolset has no name
        if name in seen:
            findings.add("tool-definition", f"tools[{index}]", f"two tools are named {name!r}")
        seen.add(name)
        if tool.get("type") not in (None, "custom"):
            continue
        if not _TOOL_NAME.fullmatch(name):
            findings.add("tool-definition", f"tools[{index}]", f"{name!r} is not a valid tool name")
        if not isinstance(tool.get("input_schema"), dict):
            findings.add("tool-definition", f"tools[{index}]", f"the tool {name!r} has no input_schema")


def check_references(runs: list[Run], findings: Problems, *, tools: Any) -> None:
    """Check the references to tools: in results of a tool search by the client, and in changes of tools."""
    if not isinstance(tools, list):
        return
    named = {tool.get("name") for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)}
    toolsets = {toolset_of(tool) for tool in tools} - {None}
    changes = list(find_changes(runs))
    for change in changes:
        name, toolset = read_text(change.definition, "name"), toolset_of(change.definition)
        if name in named or toolset in toolsets:
            what = f"a tool {name!r}" if name in named else f"the toolset {toolset!r}"
            message = f"it defines {what}, but the request has one of this name"
            remedy = "Leave the definition out, or the one of the request."
            findings.add("tool-definition", change.path, message, remedy=remedy)
    if any(change.definition for change in changes) or len(named) < len(tools):
        return  # the names of such tools, and of those of an MCP server, are not all known
    for change in changes:
        name = read_text(change.tool, "name") if kind_of(change.tool) == "tool_reference" else None
        if name is not None and name not in named and not change.is_compacted:
            findings.add("tool-reference", change.path, f"it adds or removes an unknown tool {name!r}")
    for run in () if any(change.kind == ADDITION for change in changes) else runs:
        for path, block in walk_blocks(run):
            name = read_text(block, "tool_name") if kind_of(block) == "tool_reference" else None
            if name is not None and name not in named:
                findings.add("tool-reference", path, f"it refers to an unknown tool {name!r}")
