"""The `thinking` parameter, the tools, and the blocks that refer to tools: rules 22, 31, 35."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from toolloop._messages.models import takes_thinking
from toolloop._messages.reading import Run, blocks_of, kind_of, role_of, text_key, with_inner
from toolloop._messages.rules import Problems
from toolloop.machine.values.jsontext import decode

_LEAST_BUDGET: Final = 1024
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_parameters(  # noqa: PLR0913 - the parts of a request, by name
    findings: Problems, *, model: object, tools: Any, thinking: Any, tool_choice: Any, max_tokens: Any
) -> None:
    """Check the `thinking` parameter against the model and the other parameters, and the definitions of the tools."""
    if isinstance(thinking, dict):
        _thinking(thinking, findings, model)
        if thinking.get("type") == "enabled":
            _manual_thinking(thinking, findings, tool_choice=tool_choice, max_tokens=max_tokens)
    if isinstance(tools, list):
        _tools(tools, findings)


def _thinking(thinking: dict[str, Any], findings: Problems, model: object) -> None:
    kind = thinking.get("type")
    if takes_thinking(model, kind) is False:
        findings.add("thinking-config", "thinking", f"{model} does not accept thinking of type {kind!r}")


def _manual_thinking(thinking: dict[str, Any], findings: Problems, *, tool_choice: Any, max_tokens: Any) -> None:
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


def _tools(tools: list[Any], findings: Problems) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        name = text_key(tool, "name") if isinstance(tool, dict) else None
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
    """Check the references to tools: in results of a tool search by the client, and in system messages."""
    if not isinstance(tools, list):
        return
    named = {tool.get("name") for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)}
    changes = [spot for run in runs if run.role == "system" for spot in run.spots if spot.kind in _CHANGES]
    tools_of = [(spot, tool) for spot in changes if isinstance(tool := spot.block.get("tool"), dict)]
    defined = [(spot.path, text_key(each, "name")) for spot, tool in tools_of if (each := _defined_by(tool))]
    for path, name in defined:
        if name in named:
            findings.add("tool-definition", path, f"it defines a tool {name!r}, but the request has one of this name")
    if defined or len(named) < len(tools):
        return  # the names of such tools, and of those of an MCP server, are not all known
    for spot, tool in tools_of:
        name = text_key(tool, "name") if kind_of(tool) == "tool_reference" else None
        if name is not None and name not in named:
            findings.add("tool-reference", spot.path, f"it adds or removes an unknown tool {name!r}")
    for run in () if any(spot.kind == "tool_addition" for spot in changes) else runs:
        for path, block in with_inner(run):
            name = text_key(block, "tool_name") if kind_of(block) == "tool_reference" else None
            if name is not None and name not in named:
                findings.add("tool-reference", path, f"it refers to an unknown tool {name!r}")


def list_defined(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the definitions of the tools that system messages add, without those that are removed again."""
    found: dict[str, dict[str, Any]] = {}
    known: dict[str, dict[str, Any]] = {}
    for message in messages:
        for _, block, kind in blocks_of(message) if role_of(message) == "system" else ():
            tool = block.get("tool")
            if not isinstance(tool, dict) or kind not in _CHANGES:
                continue
            definition = _defined_by(tool)
            name = text_key(definition or tool, "name") or str(definition.get("type"))
            known |= {name: definition} if definition else {}
            if kind == "tool_removal":
                found.pop(name, None)
            elif name in known:  # a reference may add again what was removed
                found[name] = known[name]
    return list(found.values())


def list_defined_in(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return `list_defined` of messages as JSON texts, of which most are not read."""
    return list_defined(decode(text) for text in texts if any(f'"{kind}"' in text for kind in _CHANGES))


def _defined_by(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the definition that a system message adds; empty if it refers to a tool."""
    definition = tool.get("definition") if kind_of(tool) == "tool_definition" else None
    return definition if isinstance(definition, dict) else {}


_CHANGES: Final = frozenset({"tool_addition", "tool_removal"})
