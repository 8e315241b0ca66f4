"""A loop as JSON, for a page: the same of the outermost one and of those inside its calls."""

from __future__ import annotations

from typing import TypedDict

from toolloop.face.calls import pending_calls
from toolloop.face.heads import names_along, takes
from toolloop.face.results import text_of
from toolloop.machine import limits
from toolloop.machine.jsontext import JSON, decode
from toolloop.machine.loop import Failed, Finished, Loop, TooDeep, round_of
from toolloop.machine.queries import children, status_of
from toolloop.machine.state import Path, State
from toolloop.tools.calls import ToolCall


class PendingView(TypedDict):
    """A call that waits, as JSON: see `ToolCall`.

    Attributes:
        names: of the tools of the calls along its path.
        takes: the decisions that it takes: `approve`, `deny`, `answer`, `rerun`.
        expires_at: a time by ISO 8601, or None.
        preview: what the call would do, as the `preview` of its tool said; or None.

    """

    id: str
    path: list[str]
    name: str
    names: list[str]
    takes: list[str]
    input: dict[str, JSON]
    why: str | None
    reason: str | None
    expires_at: str | None
    digest: str
    preview: str | None


class UsageView(TypedDict):
    """What a loop used, in tokens."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class _OneView(TypedDict):
    """A loop, without the loops inside it and the calls that wait."""

    state: str
    depth: int
    iterations: int
    text: str | None
    termination: str | None
    error: str | None
    usage: UsageView
    left: dict[str, int | float | None]


class ChildView(_OneView):
    """A loop inside a call. `path`: the ids down to that call; `name`: of its tool. The rest as in `LoopView`."""

    path: list[str]
    name: str
    children: list[ChildView]


class LoopView(_OneView):
    """A loop as JSON, for a page: what `handle.view()` returns.

    Attributes:
        loop_id: its id.
        status: what it waits for, as in `store.list()`.
        state: where it is: the name of its phase, such as `Waiting` or `Finished`.
        depth: how deep it is nested.
        iterations: how many requests were answered.
        text: of the last reply; None before it, or without text in it.
        termination: the kind of its end, once it has ended.
        error: what failed, while that is not retried.
        usage: input, output and all tokens.
        left: what is left of each limit; None is no limit.
        children: the loops inside its calls, each with its `path`, the `name` of its tool, and its own children.
        pending: the calls that wait, nested ones included.

    """

    loop_id: str
    status: str
    children: list[ChildView]
    pending: list[PendingView]


def view_of(state: State, *, error: str | None = None) -> LoopView:
    """Return a whole loop: its calls that wait, and the loops inside its calls.

    Args:
        state: the loop.
        error: what the caller is told of one.

    """
    view = _of_one(state, ())
    if error is not None:
        view["error"] = error
    pending = [_of_call(state, call) for call in pending_calls(state)]
    return {
        "loop_id": state.root.setup.loop_id,
        "status": status_of(state),
        **view,
        "children": _inside(state, ()),
        "pending": pending,
    }


def _of_one(state: State, path: Path) -> _OneView:
    loop = state.loops[path]
    response = None if loop.response is None else decode(loop.response)
    total = loop.total_usage
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
    }


def _inside(state: State, path: Path) -> list[ChildView]:
    round_ = round_of(state.loops[path])
    names = {} if round_ is None else {call.id: call.name for call in round_.calls}
    return [
        {"path": [*below], "name": names[below[-1]], **_of_one(state, below), "children": _inside(state, below)}
        for below, _ in children(state, path, round_)
    ]


def _error(loop: Loop) -> str | None:
    if isinstance(loop.phase, Failed):
        return loop.phase.failure.message
    return "it is nested too deep" if isinstance(loop.phase, TooDeep) else None


def _of_call(state: State, call: ToolCall) -> PendingView:
    return {
        "id": call.id,
        "path": list(call.path),
        "name": call.name,
        "names": [*names_along(state, call.path)],
        "takes": [*takes(call)],
        "input": call.effective_input,
        "why": call.why,
        "reason": call.reason,
        "expires_at": None if call.expires_at is None else call.expires_at.isoformat(),
        "digest": call.digest,
        "preview": call.preview,
    }
