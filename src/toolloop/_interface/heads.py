"""The head of a stored loop: a summary that can be read without the journal."""

from __future__ import annotations

from toolloop._interface.calls import pending_calls
from toolloop.machine.queries import next_deadline, status_of
from toolloop.machine.record.loop import Failed, round_of
from toolloop.machine.record.state import State
from toolloop.machine.rules.deciding import TAKES
from toolloop.machine.values.calls import Why
from toolloop.stores.pending import PendingCall, preview_of, shorten_input
from toolloop.stores.protocol import Head
from toolloop.tools.calls import ToolCall

_RETRY_AFTER = 1.0  # seconds, if the API sends no delay; gives the driver of the failed request time to set its own


def head_of(state: State, now: float, *, is_handed_over: bool, attempts: int | None = None) -> Head:
    """Return the head of a loop.

    Args:
        state: the state of the loop.
        now: seconds since the epoch.
        is_handed_over: see `status_of`.
        attempts: see `Head`.

    """
    failure = state.root.phase.failure if isinstance(state.root.phase, Failed) else None
    is_retryable = failure is not None and failure.retryable
    after = _RETRY_AFTER if failure is None or failure.retry_after is None else failure.retry_after
    return Head(
        status_of(state, is_handed_over=is_handed_over),
        next_deadline(state),
        tuple(_pending(state, call) for call in pending_calls(state)),
        is_retryable,
        now + after if is_retryable else None,
        attempts,
        now,
    )


def accepted_decisions(call: ToolCall) -> tuple[str, ...]:
    """Return the decisions that a waiting call accepts."""
    return TAKES[Why(call.why or Why.APPROVAL)]


def names_along(state: State, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tool names of the calls along a path."""
    rounds = [(round_of(state.loops[path[:depth]]), call_id) for depth, call_id in enumerate(path)]
    calls = [None if round_ is None else round_.find(call_id) for round_, call_id in rounds]
    return tuple("" if call is None else call.name for call in calls)


def _pending(state: State, call: ToolCall) -> PendingCall:
    text, is_shortened = shorten_input(call.effective_input_text)
    preview, is_cut = preview_of(call.preview)
    return PendingCall(
        path=call.path,
        names=names_along(state, call.path),
        why=call.why or "",
        takes=accepted_decisions(call),
        digest=call.digest,
        reason=call.reason,
        expires_at=None if call.expires_at is None else call.expires_at.timestamp(),
        input_text=text,
        truncated=is_shortened or is_cut,
        preview=preview,
    )
