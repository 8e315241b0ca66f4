"""The values of a loop: calls, results, decisions, commands. All are frozen; inputs and contents are JSON texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple

from attrs import field, frozen

from toolloop._public import set_module
from toolloop.machine.values.demands import Demand, Edit
from toolloop.machine.values.jsontext import JSON, decode, to_canonical
from toolloop.machine.values.names import Person


class Status(StrEnum):
    """The status of a call."""

    PROPOSED = "proposed"  # the model asked for it; no policy has judged it
    WAITING = "waiting"  # it waits for a decision of the caller
    DECIDED = "decided"  # the caller allowed it; it may start once the loop continues
    CLEARED = "cleared"  # it may start
    RUNNING = "running"  # it was started
    SETTLED = "settled"  # it has its one result


class Why(StrEnum):
    """Why a call waits."""

    APPROVAL = "approval"  # it needs approval
    EXTERNAL = "external"  # its result comes from the caller
    UNCERTAIN = "uncertain"  # it was started, and its end is unknown


class Outcome(StrEnum):
    """How a call got its result."""

    RETURNED = "returned"
    FAILED = "failed"
    DENIED = "denied"
    EXPIRED = "expired"
    ANSWERED = "answered"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_INPUT = "invalid_input"
    NOT_RUN = "not_run"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    UNCERTAIN = "uncertain"


@frozen
class Result:
    """The one result of a call.

    Attributes:
        content: the JSON text of a string or of a list of blocks.
        plain: the text for hosts, if it differs from that of the content.
        mark: the JSON text of the cache mark of its block.
        after: the JSON text of a list of blocks that follow the results in the user message.

    """

    content: str
    is_error: bool = False
    outcome: Outcome = Outcome.RETURNED
    plain: str | None = None
    mark: str | None = None
    after: str | None = None

    @property
    def plain_text(self) -> str:
        """Return the text for hosts."""
        return text_of_content(decode(self.content)) if self.plain is None else self.plain


def text_of_content(content: JSON) -> str:
    """Return the content of a result as text, with other blocks as their type in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in content)


@frozen
class GrantSpec:
    """The grant that a person gives with an approval: a `Grant` in the machine's form.

    Attributes:
        tool: the name of the tool; None means the tool of the call.
        match: JSON text that the input must match; None means exactly the input of the call.
        uses: how many later calls may run; None means no limit.
        expires_at: in seconds since the epoch; None means never.

    """

    tool: str | None = None
    match: str | None = None
    uses: int | None = None
    expires_at: float | None = None


@frozen
class StandingGrant:
    """A grant that was given: matching calls run without approval. It has either `match` or `exact`.

    Attributes:
        id: its id, unique in its loop.
        exact: JSON text of the only input that it covers.
        uses: how many more calls may run; None means no limit.
        by, reason, at: who gave it, why, and when.
        groups: the groups of the person who gave it, at that time.
        call_id: the id of the call whose approval included it.

    """

    id: str
    tool: str
    match: str | None = None
    exact: str | None = None
    uses: int | None = None
    expires_at: float | None = None
    by: str | None = None
    reason: str | None = None
    at: float = 0.0
    call_id: str = ""
    groups: tuple[str, ...] = ()


@frozen
class DecisionRecord:
    """A decision in the machine's form.

    Attributes:
        kind: `approve`, `deny`, `answer` or `rerun`.
        content: JSON text: the edited input of an approval, or the content of an answer.
        digest: the digest of the call that was shown; None binds the decision to the id alone.
        by_policy: whether a policy decided, not a person.
        remember: the grant that a person gave with it.
        grant: the id of the grant that allowed the call without approval.
        groups: the groups of the person at that time.
        via: where a person decided, such as `handle`, `inbox` or `x-` and a name of yours. None: in a version that did
            not record it. The rules of that version hold then, so give it.
        rule, rule_digest: the rule that decided, and which version of it.

    """

    kind: Literal["approve", "deny", "answer", "rerun"]
    content: str | None = None
    is_error: bool = False
    by: str | None = None
    reason: str | None = None
    digest: str | None = field(default=None, eq=False)
    at: float = field(default=0.0, eq=False)
    by_policy: bool = field(default=False, eq=False)
    remember: GrantSpec | None = field(default=None, eq=False)
    grant: str | None = field(default=None, eq=False)
    groups: tuple[str, ...] = field(default=(), eq=False)
    via: str | None = field(default=None, eq=False)
    rule: str | None = field(default=None, eq=False)
    rule_digest: str | None = field(default=None, eq=False)

    @property
    def is_yes(self) -> bool:
        """Return whether it is an approval by a person, here or by a grant."""
        return self.kind in ("approve", "rerun") and not self.by_policy

    def same_as(self, other: DecisionRecord) -> bool:
        """Return whether two decisions have the same kind, input and content. `by` and `reason` may differ."""
        return (self.kind, self.is_error) == (other.kind, other.is_error) and is_same_json(self.content, other.content)


def is_same_json(one: str | None, other: str | None) -> bool:
    """Return whether two JSON texts have the same value. The order of keys does not matter."""
    if one is None or other is None:
        return one is other
    return to_canonical(decode(one)) == to_canonical(decode(other))


@frozen
class Wait:
    """A result of a policy: the call waits for the caller.

    Attributes:
        fresh: whether to ignore standing grants.
        expires_in: the limit in seconds; None means the timeout of the setup.
        preview: a description of the call's effect, for the person who decides.
        demands: what must be met before the call starts; empty means one approval by any person.

    """

    why: Why
    reason: str | None = None
    fresh: bool = False
    expires_in: float | None = None
    preview: str | None = None
    demands: tuple[Demand, ...] = ()


@frozen
class Reject:
    """A result of a policy: the call cannot run, and gets this error text."""

    outcome: Outcome
    text: str


# The result of the policies for a call. A call without one may run.
PolicyResult = Wait | Reject | DecisionRecord


class Call(NamedTuple):  # a named tuple, as `Loop`, because it is copied often
    """A `tool_use` block, and its state."""

    id: str
    name: str
    input: str
    by_code: bool = False  # made by code execution: its user turn may only contain results
    toolset: str | None = None  # the toolset of the tool, which the result must name too
    status: Status = Status.PROPOSED
    judged: bool = False  # a policy has judged the effective input since it was proposed, edited or woken
    why: Why | None = None
    reason: str | None = None  # why a policy asks
    attempts: int = 0  # how many times it was started
    edited: str | None = None
    decision: DecisionRecord | None = None
    result: Result | None = None
    expires_at: float | None = None  # the deadline for a decision
    has_loop: bool = False  # a loop runs inside it
    preview: str | None = None  # its tool's description of its effect, made when it began to wait
    run: int = 1  # the number of the run; a runner's caller asked for each one above 1
    demands: tuple[Demand, ...] = ()  # those of the newest `Ask`s; empty: one approval by anybody, if it waits
    approvals: tuple[DecisionRecord, ...] = ()  # of the effective input, oldest first, before the `decision`
    edit: Edit | None = None  # what became of the newest edit by a person
    redefined: int = 0  # how often a driver accepted another definition of its tool while it was open

    @property
    def is_member(self) -> bool:
        """Return whether it is a call of a member of a toolset, under the name of both: `computer.left_click`."""
        return self.toolset is not None and self.name.startswith(f"{self.toolset}.")

    @property
    def own_name(self) -> str:
        """Return the name that its block has: for a member of a toolset, without that of the toolset."""
        return self.name.removeprefix(f"{self.toolset}.") if self.is_member else self.name

    @property
    def started(self) -> bool:
        """Return whether it was started at least once."""
        return self.attempts > 0

    @property
    def effective_input(self) -> str:
        """Return the JSON text of the input that runs."""
        return self.input if self.edited is None else self.edited


@set_module("toolloop")
@frozen
class Grant:
    """Let later calls run without approval. By default, it covers calls of the same tool with exactly the same input.

    Args:
        tool: the name of the tool; None means the tool of the call. A grant for another tool needs a `match`.
        match: the values that the input must have, by key. Other keys are not compared, so `{}` matches any input.
            Strings may have wildcards: `*` matches one or more characters except slashes and backslashes, `**` matches
            one or more characters, and `?` matches one character except slashes and backslashes. Wildcards never match
            a shell's control characters (`; & | < > $ ( )`, backticks, newlines), `%`, or characters that Unicode
            normalization changes. In the host of an address, they match letters, digits, `-`, `.` and `_`. A string
            with wildcards never matches a path with `.`, `..` or an empty part. Other values must be equal.
        uses: how many calls may run; None means no limit.
        expires_at: an aware datetime; None means never.

    """

    tool: str | None = None
    match: Mapping[str, JSON] | None = None
    uses: int | None = None
    expires_at: datetime | None = None


@set_module("toolloop")
@frozen
class Approve:
    """Run the call, with the proposed input or with another.

    Args:
        input: the input to run instead of the proposed one; None keeps the proposed input.
        by: who decides, for the record.
        reason: why, for the record.
        digest: the digest of the call as it was shown. If the call has changed since, the decision is refused.
        remember: a grant that lets later matching calls run without approval.
        rule, rule_digest: for policies: the name of the rule that decides, and which version of it. It is recorded as
            by `rule: NAME`.

    """

    input: Mapping[str, JSON] | None = None
    by: str | Person | None = None
    reason: str | None = None
    digest: str | None = None
    remember: Grant | None = None
    rule: str | None = None
    rule_digest: str | None = None


@set_module("toolloop")
@frozen
class Deny:
    """Do not run the call, and send the reason to the model. An uncertain call keeps the outcome `uncertain`.

    `rule`, `rule_digest`: as for `Approve`.
    """

    reason: str
    by: str | Person | None = None
    digest: str | None = None
    rule: str | None = None
    rule_digest: str | None = None


def _is_given(_answer: object, _attribute: object, content: JSON) -> None:
    if content is None:
        raise TypeError('the content of an answer is None; give a string such as "ok", or a list of content blocks')


@set_module("toolloop")
@frozen
class Answer:
    """Do not run the call, and use this result. For an uncertain call, it is the result of the run.

    `content` is a string, or a list of content blocks.

    Raises:
        TypeError: the content is None.

    """

    content: JSON = field(validator=_is_given)
    is_error: bool = field(default=False, kw_only=True)
    by: str | Person | None = field(default=None, kw_only=True)
    digest: str | None = field(default=None, kw_only=True)


@set_module("toolloop")
@frozen
class Rerun:
    """Run an uncertain call again, although it may have had its effects already."""

    by: str | Person | None = None
    digest: str | None = None


Decision = Approve | Deny | Answer | Rerun


@set_module("toolloop")
@frozen
class Continue:
    """Continue the loop. `by`: who sent it, for the record."""

    by: str | Person | None = None


@set_module("toolloop")
@frozen
class InjectMessages:
    """Add messages, and continue the loop if it waits for a command. `by`: who sent it, for the record."""

    messages: Sequence[JSON]
    by: str | Person | None = None


@set_module("toolloop")
@frozen
class Stop:
    """End the loop. `by`: who sent it, for the record."""

    reason: str | None = None
    by: str | Person | None = None


Command = Continue | InjectMessages | Stop
