"""The head of a stored loop: a summary that can be read without the journal."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TypedDict

from attrs import frozen

from toolloop._interface.calls import text_of
from toolloop._public import set_module
from toolloop._usage import Cost
from toolloop.compaction.segments import SUMMARY_START
from toolloop.machine.queries import next_deadline, status_of, waiting
from toolloop.machine.record.loop import Failed, Loop, Path, State
from toolloop.machine.rules.approving import count_missing, demands_of, find_counted, is_unjudged
from toolloop.machine.rules.deciding import TAKES
from toolloop.machine.rules.saying import is_own
from toolloop.machine.values.calls import Call, DecisionRecord, Why, text_of_content
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.machine.values.setup import Setup
from toolloop.stores.pending import PendingCall, excerpt_of, preview_of, shorten_input
from toolloop.stores.protocol import Head
from toolloop.tools.calls import ToolCall
from toolloop.tools.secrets import SecretKey, give_no_key, has_secrets, hide_in_messages, hide_secrets

# Messages that this library writes begin like this; the others are decoded to be sure.
_NOT_OF_A_USER = ('{"role":"assistant"', '{"role":"user","content":[{"type":"tool_result"')
_LOOK_BACK = 1000  # messages, so that the cost does not grow with the conversation
_RETRY_AFTER = 1.0  # seconds, if the API sends no delay; gives the driver of the failed request time to set its own


@set_module("toolloop.types")
class UsageView(TypedDict):
    """The tokens that a loop has used, with the names of `Usage`: `input_tokens` are not cached ones."""

    input_tokens: int
    total_input_tokens: int
    output_tokens: int
    total_tokens: int


@set_module("toolloop.types")
class CostView(TypedDict):
    """A `Cost` as JSON: the known `dollars` as a decimal text, and `is_partial`."""

    dollars: str
    is_partial: bool


def head_of(  # noqa: PLR0913 - what a head depends on besides the state
    state: State,
    now: float,
    *,
    is_handed_over: bool,
    attempts: int | None = None,
    earlier: Head | None = None,
    key: SecretKey = give_no_key,
    rows: PendingRows | None = None,
) -> Head:
    """Return the head of a loop.

    Args:
        state: the state of the loop.
        now: seconds since the epoch.
        is_handed_over: see `status_of`.
        attempts: see `Head`.
        earlier: the head before it. Calls that waited then have been waiting since.
        key: see `hide_secrets`.
        rows: makes the rows of the waiting calls; those of the heads before are kept there.

    """
    failure = state.root.phase.failure if isinstance(state.root.phase, Failed) else None
    is_retryable = failure is not None and failure.retryable
    after = _RETRY_AFTER if failure is None or failure.retry_after is None else failure.retry_after
    return Head(
        status_of(state, is_handed_over=is_handed_over),
        next_deadline(state),
        (rows or PendingRows()).of(state, now, earlier, key),
        is_retryable,
        now + after if is_retryable else None,
        attempts,
        now,
    )


def list_accepted_decisions(call: ToolCall) -> tuple[str, ...]:
    """Return the decisions that a waiting call accepts."""
    return TAKES[Why(call.why or Why.APPROVAL)]


def list_names_along(state: State, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tool names of the calls along a path."""
    return tuple("" if call is None else call.name for call in state.calls_along(path))


@frozen(eq=False)
class _Beside:
    """What stands beside the calls of a loop in their rows, with what it was made of."""

    setup: Setup
    messages: Chain[str]
    response: str | None
    usage: UsageView
    cost: CostView | None
    asked: str | None
    said: str | None

    @classmethod
    def of(cls, loop: Loop, root: Loop, known: _Beside | None) -> _Beside:
        """Return that of a loop: the known one if it was made of the same."""
        usage, cost = usage_of(root), cost_of(root)
        if known is not None and (known.usage, known.cost) == (usage, cost) and known.is_of(loop, root):
            return known
        asked, said = excerpt_of(find_asked(root)), _find_said(loop)
        return cls(loop.setup, root.messages, loop.response, usage, cost, asked, said)

    def is_of(self, loop: Loop, root: Loop) -> bool:
        """Return whether it was made of these loops, but for the usage and its cost."""
        return self.setup is loop.setup and self.messages is root.messages and self.response is loop.response


class PendingRows:
    """The rows of the waiting calls of a tree of loops. A row is made again only if something in it has changed.

    Many calls may wait, and each decision writes the rows of all others.
    """

    def __init__(self) -> None:
        """Start without rows."""
        # Each row with the call that it was made of, and what stands beside it. Replaced as a whole.
        self._rows: dict[Path, tuple[Call, _Beside, PendingCall]] = {}

    def of(self, state: State, now: float, earlier: Head | None, key: SecretKey) -> tuple[PendingCall, ...]:
        """Return the rows of a state. The arguments are those of `head_of`."""
        old, rows, beside = self._rows, dict[Path, tuple[Call, _Beside, PendingCall]](), dict[Path, _Beside]()
        before = {path[:-1]: known for path, (_, known, _) in old.items()}
        since: dict[str, JSON] | None = None
        for path, call in waiting(state):
            if (around := beside.get(path)) is None:
                around = beside[path] = _Beside.of(state.loops[path], state.root, before.get(path))
            where = (*path, call.id)
            known = old.get(where)
            if known is not None and known[0] is call and known[1] is around:
                rows[where] = known
                continue
            if since is None:
                since = {} if earlier is None else {row.digest: row.named.get("since") for row in earlier.pending}
            rows[where] = call, around, _make_row(state, path, call, around, since, now, key)
        self._rows = rows
        return tuple([row for _, _, row in rows.values()])


def _make_row(  # noqa: PLR0913, PLR0917 - what a row depends on
    state: State, path: Path, record: Call, around: _Beside, since: Mapping[str, JSON], now: float, key: SecretKey
) -> PendingCall:
    call = ToolCall(record, around.setup, state.loops[path].iterations)
    secrets = around.setup.secrets_of(call.name)
    hidden = encode(hide_secrets(call.effective_input, secrets, key)) if secrets else call.effective_input_text
    text, is_shortened = shorten_input(hidden)
    preview, is_cut = preview_of(call.preview)
    digest, expires_at = call.digest, call.expires_at
    named: dict[str, JSON] = {
        **_list_approvals(record),
        "since": since.get(digest, now),
        "size": len(call.effective_input_text) if is_shortened else None,
        "asked": around.asked,
        "said": around.said,
        "usage": around.usage,
        "cost": around.cost,
        "secret": [*secrets],
    }
    return PendingCall(
        path=call.path,
        names=list_names_along(state, call.path),
        why=call.why or "",
        takes=list_accepted_decisions(call),
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
        "input_tokens": total.input_tokens,
        "total_input_tokens": total.total_input_tokens,
        "output_tokens": total.output_tokens,
        "total_tokens": total.total_tokens,
    }


def cost_of(loop: Loop) -> CostView | None:
    """Return the cost of a loop so far, including its nested loops; None if no prices were set."""
    return view_of_cost(loop.total_usage.cost)


def view_of_cost(cost: Cost | None) -> CostView | None:
    """Return a cost as JSON."""
    return None if cost is None else {"dollars": f"{cost.dollars:f}", "is_partial": cost.is_partial}


def text_of_cost(view: CostView) -> str:
    """Return a cost for people, such as "at least $0.0123"."""
    return str(Cost(Decimal(view["dollars"]), view["is_partial"]))


def find_asked(loop: Loop) -> str:
    """Return the last message of a user in the history; empty if there is none.

    Results, summaries, and messages that the loop itself wrote are not of a user. Secret values of inputs are hidden: a
    history that was given may have notes of another loop.
    """
    recent = loop.messages[-_LOOK_BACK:]
    for place in reversed(range(len(recent))):
        if recent[place].startswith(_NOT_OF_A_USER) or is_own(loop, recent[place]):
            continue
        message = decode(recent[place])
        blocks = message["content"] if isinstance(message["content"], list) else []
        if message["role"] != "user" or any(block["type"] == "tool_result" for block in blocks):
            continue
        if blocks and has_secrets(loop.setup):
            *_, message = hide_in_messages(map(decode, recent[: place + 1]), loop.setup, give_no_key)
        if not (asked := text_of_content(message["content"])).startswith(SUMMARY_START):
            return asked
    return ""


def _find_said(loop: Loop) -> str | None:
    """Return the beginning of the text of the last reply."""
    return None if loop.response is None else excerpt_of(text_of(decode(loop.response)["content"]))


def _list_approvals(call: Call) -> dict[str, JSON]:
    """Return the demands, approvals and edits of a call for `PendingCall.named`."""
    return {
        "demands": [
            {**_encode_demand(demand), "missing": count}
            for demand, count in zip(call.demands, count_missing(call.demands, call.approvals), strict=True)
        ],
        "approvals": [
            {**_encode_approval(yes), "counts": is_counted}
            for yes, is_counted in zip(call.approvals, find_counted(demands_of(call), call.approvals), strict=True)
        ],
        "remind_after": sorted({seconds for demand in call.demands for seconds in demand.remind_after}),
        "edited": None if call.edit is None else "unjudged" if is_unjudged(call) else "judged",
    }


def _encode_demand(demand: Demand) -> dict[str, JSON]:
    texts = {"reason": demand.reason, "rule": demand.rule}
    return {"need": demand.need, "of": [*demand.of], "not_by": [*demand.not_by], "fresh": demand.fresh, **texts}


def _encode_approval(yes: DecisionRecord) -> dict[str, JSON]:
    return {"kind": yes.kind, "by": yes.by, "groups": [*yes.groups], "at": yes.at, "via": yes.via}
