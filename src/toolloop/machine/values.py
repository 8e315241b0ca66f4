"""The values of a loop: calls, results, decisions, commands. All frozen; inputs and contents are JSON texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple

from attrs import field, frozen

from toolloop.machine.jsontext import JSON, canonical, decode


class Status(StrEnum):
    """Where a call is on its way to its one result."""

    PROPOSED = "proposed"  # the model asks for it; no policy has judged it
    WAITING = "waiting"  # for a decision of the caller
    DECIDED = "decided"  # the caller lets it run; it may start once the loop continues
    CLEARED = "cleared"  # it may start
    RUNNING = "running"  # it was started
    SETTLED = "settled"  # it has its one result


class Why(StrEnum):
    """What a waiting call waits for."""

    APPROVAL = "approval"  # may it run?
    EXTERNAL = "external"  # its result comes from the caller
    UNCERTAIN = "uncertain"  # it was started, and its end is not known


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
        plain: the text for hosts, if it is not that of the content.
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
    """Return the content of a result as text; blocks that are not text are named by their type in brackets."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in content)


@frozen
class GrantSpec:
    """The grant that a person gives with an approval: a `Grant` in the machine's form.

    Attributes:
        tool: which tool; None is that of the call.
        match: JSON text that the input must match; None is exactly the input of the call.
        uses: how many later calls it lets run; None means no limit.
        expires_at: until when, in seconds since the epoch; None means without end.

    """

    tool: str | None = None
    match: str | None = None
    uses: int | None = None
    expires_at: float | None = None


@frozen
class StandingGrant:
    """A grant that was given: matching calls run without approval. It has either `match` or `exact`.

    Attributes:
        id: names it in its loop.
        exact: JSON text of the only input that it covers.
        uses: how many more calls it lets run; 0 is used up, None means no limit.
        by, reason, at: who gave it, why, and when.
        call_id: of the call with whose approval it was given.

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


@frozen
class DecisionRecord:
    """A decision in the machine's form.

    Attributes:
        kind: `approve`, `deny`, `answer` or `rerun`.
        content: JSON text: the edited input of an approval, or the content of an answer.
        digest: binds the decision to the call that was shown; None binds to the id alone.
        by_policy: a policy decided, not a person.
        remember: the grant that a person gave with it.
        grant: the id of the grant by which the call runs without approval.

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

    @property
    def by_person(self) -> bool:
        """Return whether a person decided on this very call."""
        return not self.by_policy and self.grant is None

    def same_as(self, other: DecisionRecord) -> bool:
        """Return whether two decisions are the same: kind, input and content, but not by whom and why."""
        return (self.kind, self.is_error) == (other.kind, other.is_error) and same_json(self.content, other.content)


def same_json(one: str | None, other: str | None) -> bool:
    """Return whether two JSON texts have the same value, whatever the order of keys."""
    if one is None or other is None:
        return one is other
    return canonical(decode(one)) == canonical(decode(other))


@frozen
class Wait:
    """A result of a policy: the call waits for the caller.

    Attributes:
        fresh: no standing grant satisfies it.
        expires_in: for how many seconds; None takes the timeout of the setup.
        preview: what the call would do, for the person who decides.

    """

    why: Why
    reason: str | None = None
    fresh: bool = False
    expires_in: float | None = None
    preview: str | None = None


@frozen
class Reject:
    """A result of a policy: the call cannot run, and its error text says why."""

    outcome: Outcome
    text: str


# What the policies decided about a call. A call without a result may run.
PolicyResult = Wait | Reject | DecisionRecord


class Call(NamedTuple):  # as `Loop`: it is copied at each step of its life
    """A `tool_use` block, and its state."""

    id: str
    name: str
    input: str
    by_code: bool = False  # made by code execution: its user turn may hold results only
    toolset: str | None = None  # of which it is a member: its result names it too
    status: Status = Status.PROPOSED
    judged: bool = False  # a policy has judged the effective input since it was proposed, edited or woken
    why: Why | None = None
    reason: str | None = None  # why a policy asks
    attempts: int = 0  # how many times it was started, ever
    edited: str | None = None
    decision: DecisionRecord | None = None
    result: Result | None = None
    expires_at: float | None = None  # until when it waits, or waited, for a decision
    has_loop: bool = False  # a loop runs inside it
    preview: str | None = None  # what it would do, as its tool said when it began to wait
    run: int = 1  # the number of the run; the caller of a runner asked for each one above 1

    @property
    def started(self) -> bool:
        """Return whether it was started at least once, ever."""
        return self.attempts > 0

    @property
    def effective_input(self) -> str:
        """Return the JSON text of the input that runs."""
        return self.input if self.edited is None else self.edited


@frozen
class Grant:
    """Let later calls run without approval. Without arguments: calls of the same tool with exactly the same input.

    Args:
        tool: the name of the tool; None is that of the call. Another one needs a `match`.
        match: what the input must match, by key; keys that are not named are free, so `{}` takes any input. In a
            string, `*` stands for one or more characters but slashes and backslashes, `**` for one or more of any kind,
            and `?` for one character but slashes. These never stand for a shell's control characters
            (`; & | < > $ ( )`, backticks, newlines), for `%`, or for characters that Unicode normalization changes; in
            the host of an address they stand for letters, digits, `-`, `.` and `_`. A string with such a place never
            matches a path with `.`, `..` or nothing between two slashes. Any other value must be equal.
        uses: how many calls it lets run; None means no limit.
        expires_at: until when, aware; None means for ever.

    """

    tool: str | None = None
    match: Mapping[str, JSON] | None = None
    uses: int | None = None
    expires_at: datetime | None = None


@frozen
class Approve:
    """Run the call, with the proposed input or with another.

    Args:
        input: what runs instead of the proposed input; None runs it as proposed.
        by: who decides, for the record.
        reason: why, for the record.
        digest: of the call as it was shown; if the call has changed since, the decision is refused.
        remember: let later calls that match run without approval.

    """

    input: Mapping[str, JSON] | None = None
    by: str | None = None
    reason: str | None = None
    digest: str | None = None
    remember: Grant | None = None


@frozen
class Deny:
    """Do not run the call, and tell the model why. For an uncertain call: its end stays unknown."""

    reason: str
    by: str | None = None
    digest: str | None = None


def _is_given(_answer: object, _attribute: object, content: JSON) -> None:
    if content is None:
        raise TypeError('the content of an answer is None; give a string or a list of content blocks, such as "ok"')


@frozen
class Answer:
    """Do not run the call, and use this result. For an uncertain call: this is how it ended.

    `content` is a string, or a list of content blocks.

    Raises:
        TypeError: the content is None.

    """

    content: JSON = field(validator=_is_given)
    is_error: bool = False
    by: str | None = None
    digest: str | None = None


@frozen
class Rerun:
    """Run an uncertain call again, although it may have had its effects already."""

    by: str | None = None
    digest: str | None = None


Decision = Approve | Deny | Answer | Rerun


@frozen
class Ask:
    """A result of a policy: let the caller decide.

    Args:
        reason: shown with the call.
        fresh: grants that were given before do not satisfy it.
        expires_in: how many seconds the call may wait; None is `decision_timeout` of the configuration.

    """

    reason: str | None = None
    fresh: bool = False
    expires_in: float | None = None


@frozen
class Continue:
    """Continue the loop."""


@frozen
class InjectMessages:
    """Add messages, and continue the loop if it waits for a command. `by`: who says so, for the record."""

    messages: Sequence[JSON]
    by: str | None = None


@frozen
class Stop:
    """End the loop. `by`: who says so, for the record."""

    reason: str | None = None
    by: str | None = None


Command = Continue | InjectMessages | Stop
