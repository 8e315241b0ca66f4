"""A loop as JSON, for a page. The root and nested loops have the same fields."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypedDict

from toolloop._interface.calls import RunningCall, pending_calls, text_of
from toolloop._interface.heads import UsageView, accepted_decisions, names_along, usage_of
from toolloop._interface.progress import calls_that_run
from toolloop._public import set_module
from toolloop.machine.queries import children, status_of
from toolloop.machine.record.loop import Failed, Finished, Kept, Loop, TooDeep, round_of
from toolloop.machine.record.state import Path, State
from toolloop.machine.rules import limits
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.tools.calls import ToolCall
from toolloop.tools.secrets import SecretKey, hide_secrets, no_key


@set_module("toolloop.types")
class PendingView(TypedDict):
    """A waiting call as JSON: see `ToolCall`.

    Attributes:
        names: the tool names of the calls along its path.
        input: the input that would run, with the secret values of its tool hidden.
        takes: the decisions that it accepts: `approve`, `deny`, `answer`, `rerun`.
        expires_at: a time in ISO 8601, or None.
        preview: the effects of the call, as described by the tool's `preview`; or None.

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


@set_module("toolloop.types")
class KeptView(TypedDict):
    """What a person said and can still withdraw: its `id`, the `messages`, `by` whom, and `at` (ISO 8601)."""

    id: str
    messages: list[JSON]
    by: str | None
    at: str


@set_module("toolloop.types")
class RunningView(TypedDict):
    """A running call as JSON: see `RunningCall`. `since`: a time in ISO 8601, or None."""

    id: str
    name: str
    since: str | None
    message: str | None
    progress: float | None
    total: float | None


class _OneView(TypedDict):
    """A loop without its nested loops and waiting calls."""

    state: str
    depth: int
    iterations: int
    text: str | None
    termination: str | None
    error: str | None
    usage: UsageView
    left: dict[str, int | float | None]


@set_module("toolloop.types")
class ChildView(_OneView):
    """A nested loop. `path`: the ids down to its call; `name`: the tool of that call. The rest is as in `LoopView`."""

    path: list[str]
    name: str
    children: list[ChildView]


@set_module("toolloop")
class LoopView(_OneView):
    """A loop as JSON, for a page, as returned by `handle.view()`.

    Attributes:
        loop_id: the id.
        status: the status, as in `store.list()`.
        state: the name of its phase, such as `Waiting` or `Finished`.
        depth: the number of loops around it.
        iterations: the number of answered requests.
        text: the text of the last reply; None without a reply or a text.
        termination: the kind of its termination, once it has ended.
        error: the error of a failed request, until it is retried.
        usage: input tokens, output tokens and total tokens.
        left: what is left of each limit; None means no limit.
        children: the loops inside its calls, each with its `path`, the `name` of its tool, and its own children.
        pending: the waiting calls, including nested ones.
        kept: what persons said, until it joins the conversation: oldest first.
        running: the running calls, including nested ones, each with the progress that its tool reported.
        driven: whether a driver works on the loop. It is False, too, if the driver of a `running` or `stopping` loop is
            gone, and None if an async handle does not drive the loop itself: `AsyncInbox.show` knows it.

    """

    loop_id: str
    status: str
    children: list[ChildView]
    pending: list[PendingView]
    kept: list[KeptView]
    running: list[RunningView]
    driven: bool | None


def view_of(
    state: State,
    *,
    error: str | None = None,
    key: SecretKey = no_key,
    running: Sequence[RunningCall] = (),
    is_driven: bool | None = None,
) -> LoopView:
    """Return a loop with its waiting calls and its nested loops.

    Args:
        state: the state of the loop.
        error: the text of its error, if any.
        key: see `hide_secrets`.
        running: what its driver says of the calls that run.
        is_driven: whether it has a driver; None if that is unknown.

    """
    view = _of_one(state, ())
    if error is not None:
        view["error"] = error
    pending = [_of_call(state, call, key) for call in pending_calls(state)]
    return {
        "loop_id": state.root.setup.loop_id,
        "status": status_of(state),
        **view,
        "children": _inside(state, ()),
        "pending": pending,
        "kept": [_of_kept(each) for each in state.root.kept if each.id],
        "running": [_of_running(call) for call in calls_that_run(state, running)],
        "driven": is_driven,
    }


def _of_running(call: RunningCall) -> RunningView:
    return {
        "id": call.id,
        "name": call.name,
        "since": None if call.since is None else call.since.isoformat(),
        "message": call.message,
        "progress": call.progress,
        "total": call.total,
    }


def _of_one(state: State, path: Path) -> _OneView:
    loop = state.loops[path]
    response = None if loop.response is None else decode(loop.response)
    return {
        "state": type(loop.phase).__name__,
        "depth": loop.setup.depth,
        "iterations": loop.iterations,
        "text": None if response is None else text_of(response["content"]),
        "termination": loop.phase.termination.kind if isinstance(loop.phase, Finished) else None,
        "error": _error(loop),
        "usage": usage_of(loop),
        "left": limits.left(loop),
    }


def _inside(state: State, path: Path) -> list[ChildView]:
    round_ = round_of(state.loops[path])
    names = {} if round_ is None else {call.id: call.name for call in round_.calls}
    return [
        {"path": [*below], "name": names[below[-1]], **_of_one(state, below), "children": _inside(state, below)}
        for below, _ in children(state, path, round_)
    ]


def _of_kept(kept: Kept) -> KeptView:
    at = datetime.fromtimestamp(kept.at, UTC).isoformat()
    return {"id": kept.id, "messages": [decode(text) for text in kept.messages], "by": kept.by, "at": at}


def _error(loop: Loop) -> str | None:
    if isinstance(loop.phase, Failed):
        return loop.phase.failure.message
    return "the loop is nested too deeply" if isinstance(loop.phase, TooDeep) else None


def _of_call(state: State, call: ToolCall, key: SecretKey) -> PendingView:
    secrets = state.loops[call.path[:-1]].setup.secrets_of(call.name)
    return {
        "id": call.id,
        "path": list(call.path),
        "name": call.name,
        "names": [*names_along(state, call.path)],
        "takes": [*accepted_decisions(call)],
        "input": hide_secrets(call.effective_input, secrets, key),
        "why": call.why,
        "reason": call.reason,
        "expires_at": None if call.expires_at is None else call.expires_at.isoformat(),
        "digest": call.digest,
        "preview": call.preview,
    }
