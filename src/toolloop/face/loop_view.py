"""A loop as JSON, for a page: the same of the outermost one and of those inside its calls."""

from __future__ import annotations

from typing import Any

from toolloop.face.calls import ToolCall, pending_calls
from toolloop.face.results import text_of
from toolloop.machine import limits
from toolloop.machine.jsontext import JSON, decode
from toolloop.machine.loop import Failed, Finished, Loop, TooDeep, round_of
from toolloop.machine.queries import children
from toolloop.machine.state import Path, State


def view_of(state: State, *, error: str | None = None) -> dict[str, JSON]:
    """Return a whole loop: its calls that wait, and the loops inside its calls.

    Args:
        state: the loop.
        error: what the caller is told of one.

    """
    view = _of_one(state, ())
    if error is not None:
        view["error"] = error
    return {"loop_id": state.root.setup.loop_id, **view, "pending": [_of_call(call) for call in pending_calls(state)]}


def _of_one(state: State, path: Path) -> dict[str, Any]:
    loop = state.loops[path]
    response = None if loop.response is None else decode(loop.response)
    total = loop.total_usage
    round_ = round_of(loop)
    names = {} if round_ is None else {call.id: call.name for call in round_.calls}
    return {
        "state": type(loop.phase).__name__,
        "depth": loop.setup.depth,
        "iterations": loop.iterations,
        "text": None if response is None else text_of(response["content"]),
        "termination": loop.phase.termination.kind if isinstance(loop.phase, Finished) else None,
        "error": _error(loop),
        "usage": {
            "input_tokens": total.total_input_tokens,
            "output_tokens": total.output_tokens,
            "total_tokens": total.total_tokens,
        },
        "left": limits.left(loop),
        "children": [
            {"path": [*below], "name": names[below[-1]], **_of_one(state, below)}
            for below, _ in children(state, path, round_)
        ],
    }


def _error(loop: Loop) -> str | None:
    if isinstance(loop.phase, Failed):
        return loop.phase.failure.message
    return "it is nested too deep" if isinstance(loop.phase, TooDeep) else None


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
