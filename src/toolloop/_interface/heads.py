"""The head of a stored loop: a summary that can be read without the journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from toolloop._interface.calls import pending_calls, text_of
from toolloop._public import set_module
from toolloop.machine.queries import next_deadline, status_of, waiting
from toolloop.machine.record.loop import Failed, Loop, round_of
from toolloop.machine.record.state import State
from toolloop.machine.rules.approving import demands_of, is_unjudged, missing, which_count
from toolloop.machine.rules.deciding import TAKES
from toolloop.machine.values.calls import Call, DecisionRecord, Why, text_of_content
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.stores.pending import PendingCall, excerpt_of, preview_of, shorten_input
from toolloop.stores.protocol import Head
from toolloop.tools.calls import ToolCall
from toolloop.tools.secrets import SecretKey, hide_secrets, no_key

# Messages that this library writes begin like this; the others are decoded to be sure.
_NOT_OF_A_USER = ('{"role":"assistant"', '{"role":"user","content":[{"type":"tool_result"')
_LOOK_BACK = 1000  # messages, so that the cost does not grow with the conversation
_RETRY_AFTER = 1.0  # seconds, if the API sends no delay; gives the driver of the failed request time to set its own


@set_module("toolloop.types")
class UsageView(TypedDict):
    """The tokens that a loop has used."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


def head_of(  # noqa: PLR0913 - what a head depends on besides the state
    state: State,
    now: float,
    *,
    is_handed_over: bool,
    attempts: int | None = None,
    earlier: Head | None = None,
    key: SecretKey = no_key,
) -> Head:
    """Return the head of a loop.

    Args:
        state: the state of the loop.
        now: seconds since the epoch.
        is_handed_over: see `status_of`.
        attempts: see `Head`.
        earlier: the head before it. Calls that waited then have been waiting since.
        key: see `hide_secrets`.

    """
    failure = state.root.phase.failure if isinstance(state.root.phase, Failed) else None
    is_retryable = failure is not None and failure.retryable
    after = _RETRY_AFTER if failure is None or failure.retry_after is None else failure.retry_after
    return Head(
        status_of(state, is_handed_over=is_handed_over),
        next_deadline(state),
        tuple(_pending(state, now, earlier, key)),
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


def _pending(state: State, now: float, earlier: Head | None, key: SecretKey) -> Iterator[PendingCall]:
    records: dict[tuple[str, ...], Call] = {(*path, call.id): call for path, call in waiting(state)}
    if not records:
        return
    since = {} if earlier is None else {call.digest: call.named.get("since") for call in earlier.pending}
    asked, usage = _asked(state.root), usage_of(state.root)
    said = {path: _said(state.loops[path]) for path in {path[:-1] for path in records}}
    for call in pending_calls(state):
        secrets = state.loops[call.path[:-1]].setup.secrets_of(call.name)
        hidden = encode(hide_secrets(call.effective_input, secrets, key)) if secrets else call.effective_input_text
        text, is_shortened = shorten_input(hidden)
        preview, is_cut = preview_of(call.preview)
        digest, expires_at = call.digest, call.expires_at
        named: dict[str, JSON] = {
            **_approvals_of(records[call.path]),
            "since": since.get(digest, now),
            "size": len(call.effective_input_text) if is_shortened else None,
            "asked": asked,
            "said": said[call.path[:-1]],
            "usage": usage,
            "secret": [*secrets],
        }
        yield PendingCall(
            path=call.path,
            names=names_along(state, call.path),
            why=call.why or "",
            takes=accepted_decisions(call),
            digest=digest,
            reason=call.reason,
            expires_at=None if expires_at is None else expires_at.timestamp(),
            input_text=text,
            truncated=is_shortened or is_cut,
            preview=preview,
            named={name: value for name, value in named.items() if value},
        )


def usage_of(loop: Loop) -> UsageView:
    """Return the tokens of a loop so far, including its nested loops."""
    total = loop.total_usage
    return {
        "input_tokens": total.total_input_tokens,
        "output_tokens": total.output_tokens,
        "total_tokens": total.total_tokens,
    }


def _asked(loop: Loop) -> str | None:
    """Return the beginning of the user's last message."""
    for text in reversed(loop.messages[-_LOOK_BACK:]):
        if not text.startswith(_NOT_OF_A_USER):
            message = decode(text)
            content = message["content"]
            has_results = isinstance(content, list) and any(block["type"] == "tool_result" for block in content)
            if message["role"] == "user" and not has_results:
                return excerpt_of(text_of_content(content))
    return None


def _said(loop: Loop) -> str | None:
    """Return the beginning of the text of the last reply."""
    return None if loop.response is None else excerpt_of(text_of(decode(loop.response)["content"]))


def _approvals_of(call: Call) -> dict[str, JSON]:
    """Return the demands, approvals and edits of a call for `PendingCall.named`."""
    return {
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


def _demand_to_json(demand: Demand) -> dict[str, JSON]:
    texts = {"reason": demand.reason, "rule": demand.rule}
    return {"need": demand.need, "of": [*demand.of], "not_by": [*demand.not_by], "fresh": demand.fresh, **texts}


def _approval_to_json(yes: DecisionRecord) -> dict[str, JSON]:
    return {"kind": yes.kind, "by": yes.by, "groups": [*yes.groups], "at": yes.at, "via": yes.via}
