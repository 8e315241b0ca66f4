"""What the server may do to a conversation by itself: context management, and compaction (the SDK's parameter types).

Sources: `BetaContextManagementConfigParam` and its edits, `BetaCompactionConfigParam`; the public documentation for the
least trigger, and for what clearing of thinking asks for; public reports for its wording.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.testing.refusals import Context, Refusal
from toolloop.testing.schema import (
    Found,
    Key,
    Shape,
    array,
    at_least,
    boolean,
    fields,
    need,
    one_of,
    optional,
    string,
    tagged,
)

if TYPE_CHECKING:
    from toolloop.testing.models import Model

EDITS_BETA = "context-management-"
COMPACT_EDIT_BETA = "compact-2026-01-12"
COMPACTION_BETA = "compact-2026-09-04"

_LEAST_TRIGGER = 50_000  # tokens; a conversation that is shorter is not compacted
_CLEARS_THINKING = "clear_thinking_20251015"


def _counted(kind: str, least: int = 0) -> Shape:
    return fields({"type": need(one_of(kind)), "value": need(at_least(least))})


def _switch_or_names(value: Any, path: str, context: Context) -> Found:
    yield from (array(string) if isinstance(value, list) else boolean)(value, path, context)


def _kept_thinking(value: Any, path: str, context: Context) -> Found:
    turns = {"thinking_turns": _counted("thinking_turns", 1), "all": fields({"type": string})}
    yield from (one_of("all") if isinstance(value, str) else tagged(turns))(value, path, context)


_TRIGGERS = tagged({"input_tokens": _counted("input_tokens"), "tool_uses": _counted("tool_uses")})
_EDITS: dict[str, tuple[str, Shape]] = {
    _CLEARS_THINKING: (EDITS_BETA, fields({"type": string, "keep": _kept_thinking})),
    "clear_tool_uses_20250919": (
        EDITS_BETA,
        fields(
            {
                "type": string,
                "clear_at_least": optional(_counted("input_tokens")),
                "clear_tool_inputs": optional(_switch_or_names),
                "exclude_tools": optional(array(string)),
                "keep": _counted("tool_uses"),
                "trigger": _TRIGGERS,
            }
        ),
    ),
    "compact_20260112": (
        COMPACT_EDIT_BETA,
        fields(
            {
                "type": string,
                "instructions": optional(string),
                "pause_after_compaction": boolean,
                "trigger": optional(_counted("input_tokens", _LEAST_TRIGGER)),
            }
        ),
    ),
}


def _edit(value: Any, path: str, context: Context) -> Found:
    # An edit whose beta is off is one that this API has never heard of.
    known = {name: shape for name, (beta, shape) in _EDITS.items() if context.has_beta(beta)}
    yield from tagged(known)(value, path, context)


# The compaction edit came before the rest was out of beta: its own beta is enough for it.
CONTEXT_MANAGEMENT = Key(optional(fields({"edits": array(_edit)})), beta=(EDITS_BETA, COMPACT_EDIT_BETA))
COMPACTION = Key(
    optional(fields({"type": need(one_of("summarize")), "instructions": optional(string)})), beta=COMPACTION_BETA
)


def kinds_of_edits(body: dict[str, Any]) -> list[str]:
    """The types of the edits that a request asks for."""
    return [edit["type"] for edit in (body.get("context_management") or {}).get("edits", ())]


def edits(body: dict[str, Any], model: Model) -> Refusal | None:
    """Thinking is cleared first, and only where there is any."""
    kinds = kinds_of_edits(body)
    if _CLEARS_THINKING not in kinds:
        return None
    if kinds.index(_CLEARS_THINKING) or kinds.count(_CLEARS_THINKING) > 1:
        return Refusal(f"context_management: the `{_CLEARS_THINKING}` strategy must be listed first, and once")
    # Newer models think unless they are told not to.
    thinks = (body.get("thinking") or {}).get("type", "disabled" if model.takes_manual_thinking else "adaptive")
    if thinks == "disabled":
        return Refusal(f"`{_CLEARS_THINKING}` strategy requires `thinking` to be enabled or adaptive")
    return None
