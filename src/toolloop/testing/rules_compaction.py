"""Compaction: what may be asked to be summarized, and which blocks come back (messages-api.md, rule 36).

Sources: the error classes of the SDK with a `details.error_code`, and what its tool runner leaves out of a request for
a compaction. There are two modes. In threshold mode the server compacts when the conversation has grown long enough:
the block leads a reply, and whatever is sent before it is ignored. A request with the `compaction` parameter is
answered with nothing but a block, signed, which stands first in what is sent from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.testing.context_management import kinds_of_edits
from toolloop.testing.refusals import Context, Refusal
from toolloop.testing.rules_pairing import open_server_calls
from toolloop.testing.runs import after_compaction, summarizes

if TYPE_CHECKING:
    from toolloop.testing.runs import Run

# These shape a reply, and a compaction request has none.
_REPLY_ONLY = ("context_management", "stop_sequences", "output_format")


def combination(body: dict[str, Any], *, counts: bool) -> Refusal | None:
    """What cannot be asked for together with a compaction; where tokens are counted, only one of these matters."""
    if not body.get("compaction"):
        return None
    given = [name for name in _REPLY_ONLY if body.get(name)]
    if (body.get("tool_choice") or {}).get("type") in {"any", "tool"}:
        given.append("tool_choice")
    if (body.get("output_config") or {}).get("format"):
        given.append("output_config.format")
    wrong = [name for name in given if name == "context_management" or not counts]
    return Refusal(f"compaction: cannot be combined with `{wrong[0]}`") if wrong else None


def summarized(body: dict[str, Any], runs: list[Run], context: Context) -> Refusal | None:
    """There is something to summarize, and no turn is cut in two by it."""
    if not body.get("compaction"):
        return None
    kept = after_compaction(runs)
    spoken = [run for run in kept if run.role != "system"]
    if all(block["type"] == "compaction" for run in spoken for block in run.blocks):
        return Refusal(
            "messages: there is no `user` or `assistant` content to summarize",
            error_code="compaction_nothing_to_summarize",
        )
    # A server call that is still open over a round of calls keeps its turn open too.
    calls = spoken[-1].role == "assistant" and any(block["type"] == "tool_use" for block in spoken[-1].blocks)
    if calls or open_server_calls(kept) or context.is_paused(runs[-1].blocks):
        return Refusal(
            "messages: the conversation ends on an `assistant` turn that is not finished",
            error_code="compaction_incomplete_turn",
        )
    return None


def blocks(body: dict[str, Any], runs: list[Run]) -> Refusal | None:
    """Where the blocks stand that come back."""
    first = next((block for run in runs for block in run.blocks), None)
    found = [(run, block) for run in runs for block in run.blocks if summarizes(block)]
    # Only a block of a compaction request is signed.
    signed = [(run, block) for run, block in found if block.get("signature") is not None]
    if len(signed) > 1:
        return Refusal(
            "messages: more than one `compaction` block has content. Send only the one that was returned last.",
            error_code="compaction_block_ambiguous",
        )
    if any(run.role == "system" for run, _ in found) or any(block is not first for _, block in signed):
        return Refusal(
            "messages: the `compaction` block must be the first block of the conversation",
            error_code="compaction_block_misplaced",
        )
    if signed and any(kind.startswith("compact_") for kind in kinds_of_edits(body)):
        return Refusal("context_management: a compaction edit cannot be combined with a signed `compaction` block")
    return None
