"""The judge: what the API refuses, in the order in which it looks (messages-api.md, rule 7)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from toolloop.testing import (
    context_management,
    envelope,
    rules_compaction,
    rules_images,
    rules_messages,
    rules_pairing,
    rules_results,
    rules_thinking,
    rules_tools,
)
from toolloop.testing.models import model
from toolloop.testing.refusals import Context, Refusal
from toolloop.testing.runs import after_compaction, runs_of

if TYPE_CHECKING:
    from toolloop.testing.signing import Signer


def judge(body: Any, context: Context, signer: Signer | None, *, counts: bool = False) -> Refusal | None:
    """The one thing that the API would say against a request, or None.

    Args:
        body: the decoded body.
        context: the headers and the memory of the server.
        signer: who checks thinking and compaction blocks; without one nobody does.
        counts: whether tokens are to be counted, and no reply is asked for.

    """
    if refusal := envelope.encodable(body) or envelope.shape(body, context, counts=counts):
        return refusal
    if not context.has_model(body["model"]):
        return Refusal(f"model: {body['model']}", 404, "not_found_error")
    who, runs = model(body["model"]), runs_of(body["messages"])
    kept = after_compaction(runs)
    if counts:
        body = {**body, "max_tokens": sys.maxsize}  # where no reply is asked for, nothing asks how long one may be
    return (
        envelope.limits(body)
        or rules_compaction.combination(body, counts=counts)
        or context_management.edits(body, who)
        or rules_tools.tools(body)
        or rules_thinking.configuration(body, who)
        or rules_tools.effort(body, who)
        or rules_messages.emptiness(runs, who)
        or rules_messages.blank_text(body)
        or rules_compaction.blocks(body, runs)
        or rules_pairing.placement(runs)
        or rules_results.results(runs)
        or rules_images.images(body, who)
        or (None if counts else rules_compaction.summarized(body, runs, context))
        or rules_pairing.pairing(kept)
        or rules_results.toolsets(kept)
        or rules_messages.system_messages(body, runs, who, context)
        or rules_pairing.server_pairing(kept, body.get("tools") or [])
        or rules_messages.ending(body, runs, who, context)
        or rules_thinking.blocks(body, runs, kept)
        or (signer and signer.check(body, runs, who, context))
        or rules_pairing.programmatic(kept, has_container=counts or bool(body.get("container")))
        or rules_tools.tools_in_history(body, runs)
        or rules_tools.cache_marks(body)
        or rules_tools.citations(body)
        or rules_tools.cited_by_user(runs, context.version)
        or rules_tools.container(body)
        or None
    )
