"""A loop as JSON, for a page. The root and nested loops have the same fields."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import NotRequired, TypedDict

from toolloop._interface.calls import RunningCall, list_pending_calls, text_of
from toolloop._interface.heads import CostView, UsageView, cost_of, list_accepted_decisions, list_names_along, usage_of
from toolloop._interface.progress import Progress, list_running_calls
from toolloop._public import set_module
from toolloop.machine.message_ids import list_with_ids
from toolloop.machine.queries import list_children, status_of
from toolloop.machine.record.loop import Failed, Finished, Kept, Loop, Path, State, TooDeep, find_round_calls
from toolloop.machine.rules import limits
from toolloop.machine.values.jsontext import JSON, decode, decode_all
from toolloop.machine.values.setup import ToolAnnotations
from toolloop.tools.calls import ToolCall
from toolloop.tools.secrets import SecretKey, give_no_key, hide_in_messages, hide_secrets


@set_module("toolloop.types")
class AnnotationsView(TypedDict):
    """The hints of an MCP server about a tool as JSON: see `ToolAnnotations`."""

    read_only_hint: bool
    destructive_hint: bool
    idempotent_hint: bool
    open_world_hint: bool


@set_module("toolloop.types")
class PendingView(TypedDict):
    """A waiting call as JSON: see `ToolCall`.

    Attributes:
        names: the tool names of the calls along its path.
        input: the input that would run, with the secret values of its tool hidden.
        takes: the decisions that it accepts: `approve`, `deny`, `answer`, `rerun`.
        expires_at: a time in ISO 8601, or None.
        preview: the effects of the call, as described by the tool's `preview`; or None.
        annotations: the hints of the MCP server that has the tool, which are not checked; None for other tools.

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
    annotations: AnnotationsView | None


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


@set_module("toolloop.types")
class MessageView(TypedDict):
    """A message of the conversation, with its id.

    Attributes:
        id: the same in each process, in forks, and after a compaction. That of a reply is in `RequestStarted`, and that
            of the first message that `say` gave is its return value.
        role: `user`, `assistant` or `system`.
        content: the content, with secret values of inputs hidden.

    """

    id: str
    role: str
    content: JSON


class _OneView(TypedDict):
    """A loop without its nested loops and waiting calls."""

    state: str
    depth: int
    iterations: int
    text: str | None
    termination: str | None
    error: str | None
    usage: UsageView
    cost: CostView | None
    left: dict[str, int | float | None]


class _ViewWithMessages(_OneView):
    """The same, perhaps with its conversation."""

    messages: NotRequired[list[MessageView]]


@set_module("toolloop.types")
class ChildView(_ViewWithMessages):
    """A nested loop. `path`: the ids down to its call; `name`: the tool of that call. The rest is as in `LoopView`."""

    path: list[str]
    name: str
    children: list[ChildView]


class TreeView(_OneView):
    """A loop with its nested loops and waiting calls, without the conversation."""

    loop_id: str
    status: str
    children: list[ChildView]
    pending: list[PendingView]
    kept: list[KeptView]
    running: list[RunningView]
    driven: bool | None


@set_module("toolloop")
class LoopView(TreeView, _ViewWithMessages):
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
        usage: uncached input tokens, all input tokens, output tokens and total tokens, named as in `Usage`.
        cost: what its requests have cost so far, with those of nested loops; None if no prices were set.
        left: what is left of each limit; None means no limit.
        children: the loops inside its calls, each with its `path`, the `name` of its tool, and its own children.
        pending: the waiting calls, including nested ones.
        kept: what persons said, until it joins the conversation: oldest first.
        running: the running calls, including nested ones, each with the progress that its tool reported.
        messages: the conversation so far, only with `view(messages=True)`: the history, then messages that have not
            joined it yet. Children have theirs.
        driven: whether a driver works on the loop. It is False, too, if the driver of a `running` or `stopping` loop is
            gone, and None if an async handle does not drive the loop itself: `AsyncInbox.show` knows it.

    """


def view_of(
    state: State,
    *,
    error: str | None = None,
    key: SecretKey = give_no_key,
    doing: tuple[bool | None, Progress] = (None, Progress()),
    messages: bool = False,
) -> LoopView:
    """Return a loop with its waiting calls and its nested loops.

    Args:
        state: the state of the loop.
        error: the text of its error, if any.
        key: see `hide_secrets`.
        doing: whether it has a driver, or None if that is unknown; and what that does now.
        messages: whether the view has the conversation.

    """
    is_driven, progress = doing
    view_one = partial(_view_one, key=key if messages else None)
    view = view_one(state, ())
    if error is not None:
        view["error"] = error
    pending = [_view_call(state, call, key) for call in list_pending_calls(state)]
    return {
        "loop_id": state.root.setup.loop_id,
        "status": status_of(state),
        **view,
        "children": _view_inside(state, (), view_one),
        "pending": pending,
        "kept": [_view_kept(each) for each in state.root.kept if each.id],
        "running": [_view_running(call) for call in list_running_calls(state, progress.running)],
        "driven": is_driven,
    }


def _view_messages(loop: Loop, key: SecretKey) -> list[MessageView]:
    named = list_with_ids(loop)
    shown = hide_in_messages(decode_all(text for _, text in named), loop.setup, key)
    return [
        {"id": name, "role": message["role"], "content": message["content"]}
        for (name, _), message in zip(named, shown, strict=True)
    ]


def _view_running(call: RunningCall) -> RunningView:
    return {
        "id": call.id,
        "name": call.name,
        "since": None if call.since is None else call.since.isoformat(),
        "message": call.message,
        "progress": call.progress,
        "total": call.total,
    }


def _view_one(state: State, path: Path, key: SecretKey | None) -> _ViewWithMessages:
    """Return a loop without those inside its calls. `key`: hides secrets in messages; None leaves messages out."""
    loop = state.loops[path]
    response = None if loop.response is None else decode(loop.response)
    view: _ViewWithMessages = {
        "state": type(loop.phase).__name__,
        "depth": loop.setup.depth,
        "iterations": loop.iterations,
        "text": None if response is None else text_of(response["content"]),
        "termination": loop.phase.termination.kind if isinstance(loop.phase, Finished) else None,
        "error": _find_error(loop),
        "usage": usage_of(loop),
        "cost": cost_of(loop),
        "left": limits.count_left(loop),
    }
    if key is not None:
        view["messages"] = _view_messages(loop, key)
    return view


def _view_inside(state: State, path: Path, view_one: Callable[[State, Path], _ViewWithMessages]) -> list[ChildView]:
    calls = find_round_calls(state.loops[path])
    names = {call.id: call.name for call in calls}
    return [
        {
            "path": [*below],
            "name": names[below[-1]],
            **view_one(state, below),
            "children": _view_inside(state, below, view_one),
        }
        for below, _ in list_children(state, path, calls)
    ]


def _view_kept(kept: Kept) -> KeptView:
    at = datetime.fromtimestamp(kept.at, UTC).isoformat()
    return {"id": kept.id, "messages": [decode(text) for text in kept.messages], "by": kept.by, "at": at}


def _find_error(loop: Loop) -> str | None:
    if isinstance(loop.phase, Failed):
        return loop.phase.failure.message
    return "the loop is nested too deeply" if isinstance(loop.phase, TooDeep) else None


def _view_call(state: State, call: ToolCall, key: SecretKey) -> PendingView:
    secrets = state.loops[call.path[:-1]].setup.secrets_of(call.name)
    return {
        "id": call.id,
        "path": list(call.path),
        "name": call.name,
        "names": [*list_names_along(state, call.path)],
        "takes": [*list_accepted_decisions(call)],
        "input": hide_secrets(call.effective_input, secrets, key),
        "why": call.why,
        "reason": call.reason,
        "expires_at": None if call.expires_at is None else call.expires_at.isoformat(),
        "digest": call.digest,
        "preview": call.preview,
        "annotations": None if call.annotations is None else _view_annotations(call.annotations),
    }


def _view_annotations(hints: ToolAnnotations) -> AnnotationsView:
    return {
        "read_only_hint": hints.read_only_hint,
        "destructive_hint": hints.destructive_hint,
        "idempotent_hint": hints.idempotent_hint,
        "open_world_hint": hints.open_world_hint,
    }
