"""The recorded description of each tool, which is compared when a stored loop is opened again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from toolloop.machine.jsontext import JSON, canonical, encode
from toolloop.machine.setup import Setup, ToolFacts
from toolloop.tools import Tool, ToolRegistry


def facts_of(tool: Tool[..., Any]) -> ToolFacts:
    """Return what the machine must know of a tool, and what is compared when a loop wakes up."""
    needs = tool.needs_approval
    approval: Literal["always", "never", "predicate"] = "predicate"
    if isinstance(needs, bool):
        approval = "always" if needs else "never"
    schema = tool.input_schema
    return ToolFacts(tool.name, tool.effect, approval, _digest(tool.compared()), encode(schema) if schema else None)


def _digest(parts: Mapping[str, JSON]) -> str:
    """Return the digest of what is compared: if that has several parts, one of each, to tell later which changed."""
    digests = {name: hashlib.sha256(canonical(part).encode()).hexdigest() for name, part in parts.items()}
    if len(digests) == 1:
        return "".join(digests.values())
    return ",".join(f"{name}={digest[:16]}" for name, digest in digests.items())


def changed_parts(then: ToolFacts, now: ToolFacts) -> list[str]:
    """Return which parts of a tool changed."""
    old, new = _parts(then), _parts(now)
    if old.keys() != new.keys():
        return ["definition"]
    return [name for name, digest in new.items() if old[name] != digest]


def _parts(facts: ToolFacts) -> dict[str, str]:
    named = (part.partition("=") for part in facts.digest.split(","))
    return {name if digest else "definition": digest or name for name, _, digest in named}


def facts_in_order(setup: Setup, tools: ToolRegistry) -> tuple[ToolFacts, ...]:
    """Return the facts of tools, in the order in which a loop has had them so far."""
    places = {facts.name: place for place, facts in enumerate(setup.tools)}
    return tuple(facts_of(tool) for tool in sorted(tools, key=lambda tool: places.get(tool.name, len(places))))


def definitions_in_order(setup: Setup, tools: ToolRegistry) -> list[dict[str, Any]]:
    """Return the definitions in the order in which the loop has its tools: a loop that slept sends the same bytes."""
    places = {facts.name: place for place, facts in enumerate(setup.tools)}
    return sorted(tools.definitions(), key=lambda tool: places.get(str(tool["name"]), len(places)))
