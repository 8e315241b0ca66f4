"""A loop as JSON, for a page: the same of the outermost one and of those inside its calls."""

from __future__ import annotations

from typing import Any

from toolloop.core import limits
from toolloop.core.jsontext import JSON, decode
from toolloop.core.states import Failed, Finished, State, TooDeep
from toolloop.core.tree import children, round_of
from toolloop.handle.turns import text_of
from toolloop.handle.views import ToolCall, pending_calls


def view_of(state: State, *, error: str | None = None) -> dict[str, JSON]:
    """A whole loop: its calls that wait, and the loops inside its calls. `error`: what the caller is told of one."""
    view = _of_one(state)
    if error is not None:
        view["error"] = error
    return {"loop_id": state.ledger.setup.loop_id, **view, "pending": [_of_call(call) for call in pending_calls(state)]}


def _of_one(state: State) -> dict[str, Any]:
    ledger = state.ledger
    response = None if ledger.response is None else decode(ledger.response)
    total = ledger.total_usage
    return {
        "state": type(state).__name__,
        "depth": ledger.setup.depth,
        "iterations": ledger.iterations,
        "text": None if response is None else text_of(response["content"]),
        "termination": state.termination.kind if isinstance(state, Finished) else None,
        "error": _trouble(state),
        "usage": {
            "input_tokens": total.total_input_tokens,
            "output_tokens": total.output_tokens,
            "total_tokens": total.total_tokens,
        },
        "left": limits.left(ledger),
        "children": [
            {"path": list(child.ledger.setup.path), "name": call.name, **_of_one(child)}
            for call, child in children(round_of(state))
        ],
    }


def _trouble(state: State) -> str | None:
    if isinstance(state, Failed):
        return state.failure.message
    return "it is nested too deep" if isinstance(state, TooDeep) else None


def _of_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "path": list(call.path),
        "name": call.name,
        "input": call.effective_input,
        "why": call.why,
        "reason": call.reason,
        "expires_at": None if call.expires_at is None else call.expires_at.isoformat(),
        "digest": call.digest,
    }
