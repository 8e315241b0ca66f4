"""Thinking: its configuration, and where its blocks must be (messages-api.md, rules 27, 28, 31)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.testing.blocks import THINKING
from toolloop.testing.refusals import Refusal

if TYPE_CHECKING:
    from toolloop.testing.models import Model
    from toolloop.testing.runs import Run


def configuration(body: dict[str, Any], model: Model) -> Refusal | None:
    """Which thinking the model can do (rule 31)."""
    thinking = body.get("thinking") or {}
    effort = (body.get("output_config") or {}).get("effort")
    match thinking.get("type"):
        case "enabled" if not model.takes_manual_thinking:
            return Refusal(
                '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
                '"output_config.effort" to control thinking behavior.'
            )
        case "adaptive" if not model.takes_adaptive_thinking:
            return Refusal("adaptive thinking is not supported on this model")
        case "disabled" if not model.may_disable_thinking(effort):
            return Refusal('"thinking.type.disabled" is not supported for this model')
        case "enabled":
            return _manual(body, thinking["budget_tokens"])
    return None


def _manual(body: dict[str, Any], budget: int) -> Refusal | None:
    if budget >= body["max_tokens"]:
        return Refusal("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if (body.get("tool_choice") or {}).get("type") in {"any", "tool"}:
        return Refusal("Thinking may not be enabled when tool_choice forces tool use.")
    return None


def blocks(body: dict[str, Any], runs: list[Run], kept: list[Run]) -> Refusal | None:
    """No hollow thinking block, and in manual mode one at the start of the open turn (rules 27, 28).

    Args:
        body: the request.
        runs: its turns.
        kept: the same, without what stands before a compaction.

    """
    for number, run in enumerate(runs):
        for place, block in enumerate(run.blocks):
            if block["type"] == "thinking" and not block["thinking"] and not block["signature"]:
                return Refusal(f"messages.{number}.content.{place}.thinking: each thinking block must contain thinking")
    if (body.get("thinking") or {}).get("type") != "enabled":
        return None
    return _start_of_open_turn(kept)


def _start_of_open_turn(runs: list[Run]) -> Refusal | None:
    """One reply of the open turn must begin with thinking: the model need not think anew after every result."""
    spoken = [(number, run) for number, run in enumerate(runs) if run.role != "system"]
    if not spoken or not _has_result(spoken[-1][1]):
        return None
    replies = []
    for number, run in reversed(spoken):
        if run.role == "assistant":
            kinds = (block["type"] for block in run.blocks if block["type"] != "compaction")  # it leads a reply
            replies.append((number, next(kinds, "nothing")))
        elif not _has_result(run):
            break
    if any(first in THINKING for _, first in replies):
        return None
    number, first = replies[0]  # there is one: a result without a call was refused before
    return Refusal(
        f"messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When "
        "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost "
        "set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To "
        "avoid this requirement, disable `thinking`."
    )


def _has_result(run: Run) -> bool:
    return any(block["type"] == "tool_result" for block in run.blocks)
