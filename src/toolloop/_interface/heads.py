"""The head of a stored loop: a summary that can be read without the journal."""

from __future__ import annotations

from toolloop._interface.calls import pending_calls
from toolloop.machine.queries import next_deadline, status_of, waiting
from toolloop.machine.record.loop import Failed, round_of
from toolloop.machine.record.state import State
from toolloop.machine.rules.approving import demands_of, is_unjudged, missing, which_count
from toolloop.machine.rules.deciding import TAKES
from toolloop.machine.values.calls import Call, DecisionRecord, Why
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import JSON
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
    records: dict[tuple[str, ...], Call] = {(*path, call.id): call for path, call in waiting(state)}
    after = _RETRY_AFTER if failure is None or failure.retry_after is None else failure.retry_after
    return Head(
        status_of(state, is_handed_over=is_handed_over),
        next_deadline(state),
        tuple(_pending(state, call, records[call.path]) for call in pending_calls(state)),
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


def _pending(state: State, call: ToolCall, record: Call) -> PendingCall:
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
        named=_named(record),
    )


def _named(call: Call) -> dict[str, JSON]:
    """Return what `PendingCall.named` says of a call."""
    named: dict[str, JSON] = {
        "demands": [
            {**_demand_to_json(demand), "missing": count}
            for demand, count in zip(call.demands, missing(call.demands, call.approvals), strict=True)
        ],
        "approvals": [
            {**_approval_to_json(yes), "counts": is_counted}
            for yes, is_counted in zip(call.approvals, which_count(demands_of(call), call.approvals), strict=True)
        ],
        "edited": None if call.edit is None else "unjudged" if is_unjudged(call) else "judged",
    }
    return {name: value for name, value in named.items() if value}


def _demand_to_json(demand: Demand) -> dict[str, JSON]:
    texts = {"reason": demand.reason, "rule": demand.rule}
    return {"need": demand.need, "of": [*demand.of], "not_by": [*demand.not_by], "fresh": demand.fresh, **texts}


def _approval_to_json(yes: DecisionRecord) -> dict[str, JSON]:
    return {"kind": yes.kind, "by": yes.by, "groups": [*yes.groups], "at": yes.at, "via": yes.via}
