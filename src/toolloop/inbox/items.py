"""The values that an inbox returns: waiting calls, a loop, and entries of the audit trail."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal, TypedDict

from attrs import evolve, field, frozen

from toolloop._interface.heads import CostView, UsageView
from toolloop._interface.loop_view import MessageView, TreeView
from toolloop._public import set_module
from toolloop.inbox.hiding import ShownInput
from toolloop.machine.rules.approving import describe_progress
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import JSON, encode
from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import Left, StoredLoop
from toolloop.tools.calls import RecordedDecision

_ID_LENGTH = 32  # characters
_GIST = 80  # characters
_DEMAND = ("need", "of", "not_by", "fresh", "reason", "rule")


@set_module("toolloop.inbox")
class LeftView(TypedDict):
    """Why workers leave a loop to others: `why`, the tools that are `missing`, and `since` (ISO 8601)."""

    why: str
    missing: list[str]
    since: str


def left_view(left: Left | None) -> LeftView | None:
    """Return why workers leave a loop to others, as JSON."""
    if left is None:
        return None
    since = datetime.fromtimestamp(left.since, UTC).isoformat()
    return {"why": left.why, "missing": [*left.missing], "since": since}


@set_module("toolloop.inbox")
class ResultView(TypedDict):
    """A result that is not in the conversation yet.

    Attributes:
        text: its text. `is_error`: whether it is an error.
        outcome: how the call ended, such as `returned`, `failed` or `denied`; as in the trail.

    """

    text: str
    is_error: bool
    outcome: str


@set_module("toolloop.inbox")
class ShownLoop(TreeView):
    """A loop as JSON, for a page: a `LoopView` with additional fields from the store and the journal.

    Attributes:
        messages: the conversation.
        metadata: the metadata of the loop.
        created: the time of creation, in ISO 8601.
        schemas: the JSON Schemas of the tools of waiting calls, by the path of the call joined with "/". A tool that
            only the API knows has none.
        shown: how inputs of waiting calls are shown, by the same paths; only of tools with `diff` or `secret`.
        left_to_others: why workers leave the loop to others; None if one drives it, or none has looked at it.
        results: the results of calls that ended while others of their round wait or run, by their paths joined with
            "/". They join the conversation with the rest.
        brought: the definitions of tools that came with something that a person said.
        said: the ids of all that persons said, also of what was withdrawn, or folded by a compaction.

    """

    messages: list[MessageView]
    metadata: dict[str, str]
    created: str
    schemas: dict[str, JSON]
    shown: dict[str, ShownInput]
    left_to_others: LeftView | None
    results: dict[str, ResultView]
    brought: list[JSON]
    said: list[str]


@set_module("toolloop.inbox")
@frozen
class InboxCall:
    """A call waiting for a decision. As a key of `Inbox.decide`, it binds the decision to the call as shown here.

    Attributes:
        loop_id: the id of the loop.
        path: the ids from the outermost call down to this one.
        names: the tool names of the calls in `path`.
        why: the reason that the call waits: `approval`, `external` or `uncertain`.
        takes: the decisions that it accepts: `approve`, `deny`, `answer`, `rerun`.
        digest: the hash that binds a decision to the call.
        reason: the policy's reason to ask, if it gave one.
        expires_at: the time at which the call expires, an aware UTC datetime; None if it never does.
        input: the input; shortened if its JSON has more than 4,000 characters.
        truncated: whether the input or the preview is shortened.
        metadata: the metadata of the loop.
        notification_id: identifies this wait of the call. It changes when the call waits for another reason.
        preview: the effects of the call, as described by the tool's `preview`, or None; at most 2,000 characters.
        demands: what the policies demand before the call starts; empty if one approval by any person is enough. They
            lack `rule_digest`, `expires_in` and `remind_after`.
        approvals: the approvals so far of the input that would run, oldest first. They have only `kind`, `by`,
            `groups`, `at` and `via`.
        missing: how many approvals are missing. It is a lower bound while `edited` is `unjudged`.
        edited: after an edit by a person: `unjudged` until the policies have judged the edited input, then `judged`.
        progress: the demands and approvals in words, such as "1 of 2: ana; 1 more approval of finance"; empty without
            demands.
        gist: the values of the input in one line of at most 80 characters.
        size: the number of characters of the input as JSON, also if `input` is shortened.
        since: when the call began to wait, an aware UTC datetime. It is None if an earlier version stored the row; so
            are the next three.
        asked: the beginning of the user's last message; at most 300 characters. For a call in a nested loop, it is the
            message to the outermost loop. It is None, too, if the message has no text, or was more than 1,000 messages
            ago.
        said: the beginning of the text of the reply with the call, likewise; None if the reply has no text.
        usage: the tokens that the loop has used so far, including nested loops. None in rows of versions that counted
            cached tokens as `input_tokens`.
        cost: what the loop has cost so far, likewise; None if no prices were set.
        secret: the parameters whose values are hidden in `input`.
        left: why workers leave its loop to others; None if one drives it, or none has looked at it.
        reminder: in a notification: 0 for the first one, then the number of the reminder. `notification_id` covers it.

    """

    loop_id: str
    path: tuple[str, ...]
    names: tuple[str, ...]
    why: str
    takes: tuple[str, ...]
    digest: str
    reason: str | None
    expires_at: datetime | None
    input: dict[str, JSON] = field(eq=False)
    truncated: bool
    metadata: Mapping[str, str] = field(eq=False)
    notification_id: str
    preview: str | None = field(default=None, eq=False)
    demands: tuple[Demand, ...] = field(default=(), eq=False)
    approvals: tuple[RecordedDecision, ...] = field(default=(), eq=False)
    missing: int = field(default=0, eq=False)
    edited: Literal["unjudged", "judged"] | None = field(default=None, eq=False)
    progress: str = field(default="", eq=False)
    gist: str = field(default="", eq=False)
    size: int = field(default=0, eq=False)
    since: datetime | None = field(default=None, eq=False)
    asked: str | None = field(default=None, eq=False)
    said: str | None = field(default=None, eq=False)
    usage: UsageView | None = field(default=None, eq=False)
    cost: CostView | None = field(default=None, eq=False)
    secret: tuple[str, ...] = field(default=(), eq=False)
    left: Left | None = field(default=None, eq=False)
    reminder: int = field(default=0, eq=False)

    @classmethod
    def of(cls, loop: StoredLoop, call: PendingCall, reminder: int = 0) -> InboxCall:
        """Return the item for a call of a loop. `reminder`: that of the notification."""
        demanded: Sequence[Mapping[str, JSON]] = call.named.get("demands", ())
        usage: UsageView | None = call.named.get("usage")
        cost: CostView | None = call.named.get("cost")
        demands, counts = tuple(map(_to_demand, demanded)), [each["missing"] for each in demanded]
        approved: Sequence[Mapping[str, JSON]] = call.named.get("approvals", ())
        names = [each["by"] for each in approved if each["counts"]]
        needs_approval = call.why in ("approval", "uncertain")
        shown, since = call.input, _since(loop, call)
        return cls(
            loop_id=loop.loop_id,
            path=call.path,
            names=call.names,
            why=call.why,
            takes=call.takes,
            digest=call.digest,
            reason=call.reason,
            expires_at=None if call.expires_at is None else datetime.fromtimestamp(call.expires_at, UTC),
            input=shown,
            truncated=call.truncated,
            metadata=loop.metadata,
            notification_id=notification_id(loop, call, reminder),
            preview=call.preview,
            demands=demands,
            approvals=tuple(map(_to_approval, approved)),
            missing=(sum(counts) if demands else 1) if needs_approval else 0,
            edited=call.named.get("edited"),
            progress=describe_progress(demands, counts, names) if demands else "",
            gist=gist_of(shown),
            size=call.named.get("size", len(call.input_text)),
            since=None if since is None else datetime.fromtimestamp(since, UTC),
            asked=call.named.get("asked"),
            said=call.named.get("said"),
            usage=usage.copy() if usage is not None and "total_input_tokens" in usage else None,
            cost=None if cost is None else cost.copy(),
            secret=tuple(call.named.get("secret", ())),
            left=loop.left,
            reminder=reminder,
        )

    @property
    def id(self) -> str:
        """The id of the `tool_use` block."""
        return self.path[-1]

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.names[-1]


def notification_id(loop: StoredLoop, call: PendingCall, reminder: int = 0) -> str:
    """Return the id of this wait of a call, or of a reminder of it."""
    # The digest includes the number of starts. A loop that was created again may have the same calls.
    parts = f"{loop.created} {call.why} {call.digest}"
    if demands := call.named.get("demands"):  # a stricter rule asks again; an approval does not
        parts += json.dumps([[each[name] for name in _DEMAND] for each in demands])
    parts += f" reminder {reminder}" if reminder else ""
    return sha256(parts.encode()).hexdigest()[:_ID_LENGTH]


def reminders_of(call: PendingCall, default: Sequence[float] = ()) -> list[float]:
    """Return when to remind of a call, in seconds since the epoch, in order. None is due at its deadline or later.

    `default`: after how many seconds, if no rule says so.
    """
    since, after = call.named.get("since"), call.named.get("remind_after") or default
    times: list[float] = [] if since is None else sorted(since + seconds for seconds in after)
    return [at for at in times if call.expires_at is None or at < call.expires_at]


def _to_demand(fields: Mapping[str, JSON]) -> Demand:
    demand = Demand(**{name: fields[name] for name in _DEMAND})
    return evolve(demand, of=tuple(demand.of), not_by=tuple(demand.not_by))


def _to_approval(fields: Mapping[str, JSON]) -> RecordedDecision:
    return RecordedDecision(
        kind=fields["kind"],
        content=None,
        is_error=False,
        by=fields["by"],
        reason=None,
        digest=None,
        at=datetime.fromtimestamp(fields["at"], UTC),
        groups=tuple(fields["groups"]),
        via=fields["via"],
    )


def _since(loop: StoredLoop, call: PendingCall) -> float | None:
    """Return when a call began to wait. Only the row of its loop has this; `call` may be made of the journal."""
    return next((each.named.get("since") for each in loop.pending if each.digest == call.digest), None)


def gist_of(fields: Mapping[str, JSON]) -> str:
    """Return the values of an input in one line: the first line of a text, and the length of a list or an object."""
    parts: list[str] = []
    for value in fields.values():
        if isinstance(value, str):
            text = " ".join(next(iter(value.strip().splitlines()), "").split())
        elif isinstance(value, (list, dict)):
            text = f"{len(value)} value{'' if len(value) == 1 else 's'}"
        else:
            text = encode(value)
        parts += [text] if text else []
        if sum(map(len, parts)) > _GIST:
            break
    gist = " · ".join(parts)
    return gist if len(gist) <= _GIST else f"{gist[: _GIST - 1]}…"


@set_module("toolloop.inbox")
@frozen
class TrailEntry:
    """A command of a person, a decision of a person or a policy, a use of a grant, or a call that expired.

    Attributes:
        kind: `approve`, `deny`, `answer`, `rerun`, `expired`, `stop`, `say`, `withdraw`, `retry`, `metadata`, `extend`
            or `continue`. `grant`: a grant let the call run. `revoke`: a grant was revoked. `unlink`: links were
            revoked. `fork`: the loop began as a copy of the one in `content`. `restored`: the store was restored from
            a backup. `uncertain`: the restored journal does not have the start of this call.
        at: the time, an aware UTC datetime.
        by: the name of the person, if known; for `grant`, of the person who gave it.
        reason: the reason, if given.
        path: the path of the decided call; empty for commands.
        name: the name of its tool.
        input: the input as the model proposed it.
        content: the edited input, the answer, or the messages; None if there is none.
        by_policy: whether a policy decided.
        via: where a person did it, such as `handle` or `inbox`; None if it was not recorded.
        groups: the groups of the person at that time.
        digest: the digest of the call as it was shown: of the input that would have run then. None for commands.
        rule: the rule of the policy that decided, if it has a name.
        rule_digest: the digest of the file with the rule.
        demands: what the policies demanded of the call when a person decided it, or when it expired.
        missing: how many approvals the call still needed after this one.
        outcome: how the call got its result after this decision, such as `returned`, `failed` or `denied`; None if it
            has none yet, or another decision came after this one.
        remember: the grant that was given with an approval: `tool`, `match` (None: exactly the input that was
            approved), `uses` and `expires_at` (ISO 8601); else None.
        grant: the id of the grant that was given, used or revoked.

    """

    kind: str
    at: datetime
    by: str | None = None
    reason: str | None = None
    path: tuple[str, ...] = ()
    name: str | None = None
    input: JSON = None
    content: JSON = None
    by_policy: bool = False
    via: str | None = None
    groups: tuple[str, ...] = ()
    digest: str | None = None
    rule: str | None = None
    rule_digest: str | None = None
    missing: int = 0
    outcome: str | None = None
    demands: tuple[Demand, ...] = ()
    remember: JSON = None
    grant: str | None = None
