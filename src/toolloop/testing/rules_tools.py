"""Tools, tool choice, cache marks, citations and the container (messages-api.md, rules 7, 20, 33 to 35)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.testing.refusals import NEWEST_VERSION, Refusal
from toolloop.testing.runs import Block, Run, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolloop.testing.models import Model

_MOST_CACHE_MARKS = 4
_HOLDERS = ("tool_result", "search_result", "document")


def tools(body: dict[str, Any]) -> Refusal | None:
    """The tool definitions (rule 35)."""
    defined = body.get("tools") or []
    names = [tool["name"] for tool in defined if "name" in tool]
    if len(set(names)) < len(names):
        return Refusal("tools: Tool names must be unique.")
    for number, tool in enumerate(defined):
        if tool.get("type") in {None, "custom"} and (refusal := _custom(f"tools.{number}.custom", tool)):
            return refusal
        if tool.get("defer_loading") and tool.get("cache_control"):
            return Refusal(f"tools.{number}: cache_control cannot be set together with defer_loading")
    if defined and all(tool.get("defer_loading") for tool in defined):
        return Refusal("At least one tool must have defer_loading=false. All tools cannot be deferred.")
    return _choice(body, names)


def _custom(where: str, tool: dict[str, Any]) -> Refusal | None:
    schema = tool["input_schema"]
    if "type" not in schema:
        return Refusal(f"{where}.input_schema.type: Field required")
    if schema["type"] != "object":
        return Refusal(f"{where}.input_schema.type: Input should be 'object'")
    if tool.get("strict") and schema.get("additionalProperties") is not False:
        return Refusal(f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    return None


def _choice(body: dict[str, Any], names: list[str]) -> Refusal | None:
    choice = body.get("tool_choice")
    if choice is None:
        return None
    if not body.get("tools"):
        return Refusal("tool_choice may only be specified while providing tools.")
    if choice["type"] == "tool" and choice["name"] not in names:
        return Refusal(f"Tool '{choice['name']}' not found in provided tools")
    return None


def tools_in_history(body: dict[str, Any], runs: list[Run]) -> Refusal | None:
    """A history with calls needs tools, and references to tools need theirs (rules 20 and 35)."""
    defined = {tool.get("name") for tool in body.get("tools") or ()}
    # What a toolset brings, and what a system message added, is not looked up here.
    is_open = None in defined or any(block["type"] == "tool_addition" for run in runs for block in run.blocks)
    for run in runs:
        for block in run.blocks:
            if block["type"] not in {"tool_use", "tool_result"}:
                continue
            if not body.get("tools"):
                return Refusal("Requests which include `tool_use` or `tool_result` blocks must define tools.")
            inner = block.get("content")
            for item in inner if isinstance(inner, list) else ():
                if item["type"] == "tool_reference" and item["tool_name"] not in defined and not is_open:
                    return Refusal(f"Tool reference '{item['tool_name']}' not found in available tools")
    return None


def effort(body: dict[str, Any], model: Model) -> Refusal | None:
    """The level of effort (rule 35)."""
    level = (body.get("output_config") or {}).get("effort")
    if level and not model.takes_effort(level):
        return Refusal(f"This model does not support effort level '{level}'. Supported levels: high, low, max, medium.")
    return None


def _parts(where: str, blocks: list[Block]) -> Iterator[tuple[str, Block]]:
    for place, block in enumerate(blocks):
        # A mark stands at the end of its block: behind those of the blocks inside.
        inside, holder = ("source.content", block["source"]) if block["type"] == "document" else ("content", block)
        if block["type"] in _HOLDERS and isinstance(holder.get("content"), list):
            yield from _parts(f"{where}.{place}.{inside}", holder["content"])
        yield f"{where}.{place}", block


def _everything(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that can carry a cache mark, in the order of the prompt: tools, system, messages."""
    for number, tool in enumerate(body.get("tools") or ()):
        yield f"tools.{number}", tool
    if isinstance(body.get("system"), list):
        yield from _parts("system", body["system"])
    for number, message in enumerate(body["messages"]):
        yield from _parts(f"messages.{number}.content", blocks_of(message.get("content")))


def cache_marks(body: dict[str, Any]) -> Refusal | None:
    """At most four marks, the lasting ones first (rule 34)."""
    marks = [(where, part["cache_control"]) for where, part in _everything(body) if part.get("cache_control")]
    count = len(marks) + bool(body.get("cache_control"))
    if count > _MOST_CACHE_MARKS:
        return Refusal(f"A maximum of 4 blocks with cache_control may be provided. Found {count}.")
    short = False
    for where, mark in marks:
        if mark.get("ttl") == "1h" and short:
            return Refusal(
                f"{where}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block."
            )
        short = short or mark.get("ttl") != "1h"
    return None


def citations(body: dict[str, Any]) -> Refusal | None:
    """Citations are on for all documents and search results, or for none (rule 33)."""
    switches = {
        bool((block.get("citations") or {}).get("enabled"))
        for message in body["messages"]
        for _, block in _parts("", blocks_of(message.get("content")))
        if block["type"] in {"document", "search_result"}
    }
    if len(switches) > 1:
        return Refusal("messages: citations must be enabled for all documents and search results, or for none")
    return None


def cited_by_user(runs: list[Run], version: str) -> Refusal | None:
    """A user's text cites nothing, since this version (rule 32)."""
    for number, run in enumerate(runs):
        for place, block in enumerate(run.blocks):
            if run.role == "user" and block["type"] == "text" and block.get("citations") and version >= NEWEST_VERSION:
                return Refusal(f"messages.{number}.content.{place}.text.citations: not allowed in `user` messages")
    return None


def container(body: dict[str, Any]) -> Refusal | None:
    """A container is for code execution (rule 7)."""
    runs_code = any(str(tool.get("type")).startswith("code_execution_") for tool in body.get("tools") or ())
    if body.get("container") and not runs_code:
        return Refusal("container: Container identifier can only be provided when using the code execution tool")
    return None
