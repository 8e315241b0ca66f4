"""Emptiness, blank text, who has the last word, and system messages (messages-api.md, rules 10 to 14, 21, 22)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.testing.blocks import SERVER_RESULTS, THINKING
from toolloop.testing.refusals import Context, Refusal
from toolloop.testing.rules_pairing import open_server_calls
from toolloop.testing.runs import Block, Run, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolloop.testing.models import Model

_DIRECTIVE_FORM = "; the directive-only form (content: [] with output_config) is accepted at any position"


def emptiness(runs: list[Run], model: Model) -> Refusal | None:
    """No turn is empty, but a last one of the assistant where prefill is known (rule 13)."""
    for number, run in enumerate(runs):
        if run.blocks or run.role == "system":
            continue
        if run.role == "user":
            return Refusal(f"messages.{number}: user messages must have non-empty content")
        if run is not runs[-1] or not model.takes_prefill:
            return Refusal(
                f"messages.{number}: all messages must have non-empty content except for the optional final "
                "assistant message"
            )
    return None


def _texts(blocks: list[Block]) -> Iterator[Block]:
    for block in blocks:
        if block["type"] == "text":
            yield block
        holder = block["source"] if block["type"] == "document" else block
        inner = holder.get("content")
        if block["type"] in {"tool_result", "search_result", "document"} and isinstance(inner, list):
            yield from _texts(inner)


def _blank(where: str, blocks: list[Block]) -> Refusal | None:
    for block in _texts(blocks):
        if not block["text"]:
            return Refusal(f"{where}: text content blocks must be non-empty")
        if not block["text"].strip():
            return Refusal(f"{where}: text content blocks must contain non-whitespace text")
    return None


def blank_text(body: dict[str, Any]) -> Refusal | None:
    """No text block is blank, inside results neither (rule 14; section 3, point 2)."""
    for number, message in enumerate(body["messages"]):
        if message["role"] == "system":
            continue
        for place, block in enumerate(blocks_of(message.get("content"))):
            if block["type"] == "text" and not block["text"] and block.get("cache_control"):
                return Refusal(
                    f"messages.{number}.content.{place}.text: cache_control cannot be set for empty text blocks"
                )
        if refusal := _blank("messages", blocks_of(message.get("content"))):
            return refusal
    system = body.get("system")
    return _blank("system", system) if isinstance(system, list) else None


def ending(body: dict[str, Any], runs: list[Run], model: Model, context: Context) -> Refusal | None:
    """Who may have the last word (rules 10 to 12)."""
    for number, run in enumerate(runs):
        if run is runs[-1] and context.is_paused(run.blocks):
            break  # the server goes on with what it paused, whatever that ends in
        if run.role == "assistant" and run.blocks and run.blocks[-1]["type"] in THINKING:
            return Refusal(
                f"messages.{number}: The final block in an assistant message cannot be `{run.blocks[-1]['type']}`."
            )
    last = runs[-1]
    if last.role != "assistant" or _resumes(body, runs, context):
        return None
    thinks = (body.get("thinking") or {}).get("type") in {"enabled", "adaptive"}
    if thinks or not model.takes_prefill:
        return Refusal(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    if (
        last.blocks
        and last.blocks[-1]["type"] == "text"
        and last.blocks[-1]["text"] != last.blocks[-1]["text"].rstrip()
    ):
        return Refusal("messages: final assistant content cannot end with trailing whitespace")
    return None


def _resumes(body: dict[str, Any], runs: list[Run], context: Context) -> bool:
    is_open = any(number == len(runs) - 1 for number, _ in open_server_calls(runs))
    blocks = runs[-1].blocks
    compacted = bool(blocks) and blocks[-1]["type"] == "compaction"
    # A whole conversation may be summarized, whoever spoke last in it.
    said = body.get("compaction") or "fallback_credit_token" in body
    return is_open or compacted or bool(said) or bool(context.is_paused(blocks))


def system_messages(body: dict[str, Any], runs: list[Run], model: Model, context: Context) -> Refusal | None:
    """System messages inside the conversation (rules 21 and 22)."""
    for number, run in enumerate(runs):
        if run.role != "system":
            continue
        if not model.takes_system_messages:
            return Refusal(f"messages.{run.first}: role 'system' is not supported on this model")
        for index, message in enumerate(run.messages, run.first):
            if refusal := _system_content(body, index, message, context):
                return refusal
        # The form that only directs may stand anywhere.
        spoken = [i for i, message in enumerate(run.messages, run.first) if blocks_of(message.get("content"))]
        if not spoken:
            continue
        if refusal := _position(runs, number, spoken):
            return refusal
        if any(block["type"] == "text" and not block["text"].strip() for block in run.blocks):
            return Refusal(f"messages.{spoken[0]}: system text blocks must contain non-whitespace text")
    return None


def _position(runs: list[Run], number: int, spoken: list[int]) -> Refusal | None:
    if not any(run.role != "system" for run in runs[:number]):
        return Refusal(
            "messages.0: use the top-level 'system' parameter for the initial system prompt" + _DIRECTIVE_FORM
        )
    before, after = runs[number - 1], runs[number + 1 : number + 2]
    if before.role == "assistant" and (not before.blocks or before.blocks[-1]["type"] not in SERVER_RESULTS):
        return Refusal(
            f"messages.{spoken[0]}: role 'system' must follow a 'user' message or an 'assistant' message ending in a "
            f"server tool result{_DIRECTIVE_FORM}"
        )
    if after and after[0].role != "assistant":
        return Refusal(
            f"messages.{spoken[-1]}: role 'system' must precede an 'assistant' message or end the array"
            + _DIRECTIVE_FORM
        )
    return None


def _system_content(body: dict[str, Any], index: int, message: dict[str, Any], context: Context) -> Refusal | None:
    blocks = blocks_of(message.get("content"))
    if not blocks and not message.get("output_config"):
        return Refusal(f"messages.{index}: system content must contain at least one block")
    for place, block in enumerate(blocks):
        if block["type"] not in {"text", "tool_addition", "tool_removal"}:
            return Refusal(
                f"messages.{index}: role 'system' supports text, tool_addition, and tool_removal blocks only"
            )
        if block["type"] != "text" and (
            refusal := _tool_change(body, f"messages.{index}.content.{place}", block, context)
        ):
            return refusal
    return None


def _tool_change(body: dict[str, Any], where: str, block: Block, context: Context) -> Refusal | None:
    tool = block["tool"]
    beta = (
        "inline-tools-2026-09-15"
        if tool.get("type") == "tool_definition"
        else "mid-conversation-tool-changes-2026-07-01"
    )
    # The later beta holds what the earlier one brought.
    if not (context.has_beta(beta) or context.has_beta("inline-tools-")):
        return Refusal(f"{where}.{block['type']}: Extra inputs are not permitted")
    if tool.get("type") == "tool_reference":
        defined = {entry.get("name") for entry in body.get("tools") or ()} | _inline_names(body)
        if tool.get("name") not in defined:
            return Refusal(
                f"{where}: Tool reference '{tool.get('name')}' not found in available tools",
                error_code="tool_reference_unresolved",
            )
    return None


def _inline_names(body: dict[str, Any]) -> set[str]:
    definitions: Iterator[dict[str, Any]] = (
        block["tool"].get("definition", {})
        for message in body["messages"]
        for block in blocks_of(message.get("content"))
        if block["type"] == "tool_addition"
    )
    return {name for definition in definitions if isinstance(name := definition.get("name"), str)}
