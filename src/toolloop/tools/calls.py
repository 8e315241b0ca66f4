"""A read-only view of a call, for the caller, policies and predicates of tools. Fields are decoded on access."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from attrs import Factory, field, frozen

from toolloop._public import set_module
from toolloop.machine.rules.approving import count_missing, demands_of, find_counted, is_unjudged
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.values.calls import Call, DecisionRecord, Status, text_of_content
from toolloop.machine.values.demands import Ask, Demand
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.machine.values.setup import Setup, ToolAnnotations


@set_module("toolloop")
@frozen
class ToolResult:
    """The result of a call.

    Attributes:
        content: a string or a list of content blocks, as the model reads it.
        plain_text: the tool's return value as `to_plain_text` renders it, for hosts that show or log it. It is cut to
            4,096 characters where it differs from the text of the content, such as the name of a file.

    """

    tool_use_id: str
    content: JSON
    is_error: bool = False
    plain_text: str = field(default=Factory(lambda self: text_of_content(self.content), takes_self=True), repr=False)


@set_module("toolloop.types")
@frozen
class RecordedDecision:
    """A decision about a call, as recorded.

    Attributes:
        kind: `approve`, `deny`, `answer` or `rerun`.
        content: the edited input of an approval, or the content of an answer; else None.
        digest: the digest of the call that the decision was bound to, if any.
        at: the time of the decision, an aware UTC datetime.
        grant: the id of the standing grant that approved the call, if no decision was needed.
        groups: the groups of the person at that time.
        via: where the person decided, such as `handle` or `inbox`; None if a policy did, or if it was not recorded.
        rule, rule_digest: the rule of the policy that decided, and which version of it.

    """

    kind: str
    content: JSON
    is_error: bool
    by: str | None
    reason: str | None
    digest: str | None
    at: datetime
    grant: str | None = None
    groups: tuple[str, ...] = ()
    via: str | None = None
    rule: str | None = None
    rule_digest: str | None = None


def _to_recorded(record: DecisionRecord, path: tuple[str, ...]) -> RecordedDecision:
    return RecordedDecision(
        kind=record.kind,
        content=None if record.content is None else decode(record.content),
        is_error=record.is_error,
        by=record.by,
        reason=record.reason,
        digest=record.digest,
        at=datetime.fromtimestamp(record.at, UTC),
        grant=None if record.grant is None else "/".join((*path, record.grant)),
        groups=record.groups,
        via=record.via,
        rule=record.rule,
        rule_digest=record.rule_digest,
    )


@set_module("toolloop")
@frozen(eq=False)
class ToolCall:
    """A snapshot of a call. Each attribute returns a copy.

    Two are equal if they show the same call in the same state.
    """

    _call: Call = field(repr=False)
    _setup: Setup = field(repr=False)
    iteration: int

    @property
    def id(self) -> str:
        """The id of the `tool_use` block."""
        return self._call.id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self._call.name

    @property
    def toolset(self) -> str | None:
        """The toolset that the tool is a member of, such as `computer`, or None."""
        return self._call.toolset

    @property
    def input(self) -> dict[str, JSON]:
        """The input as the model proposed it."""
        value: dict[str, JSON] = decode(self._call.input)
        return value

    @property
    def effective_input(self) -> dict[str, JSON]:
        """The input that the tool gets: the proposed input, or the edited one."""
        value: dict[str, JSON] = decode(self._call.effective_input)
        return value

    @property
    def effective_input_text(self) -> str:
        """`effective_input` as JSON text."""
        return self._call.effective_input

    @property
    def input_schema(self) -> dict[str, JSON] | None:
        """The JSON Schema of the tool's input; None for a tool that only the API knows."""
        facts = self._setup.tool(self.name)
        if facts is not None:
            return None if facts.input_schema is None else dict(decode(facts.input_schema))
        defined: list[JSON] = decode(self._setup.params).get("tools") or []
        return next((tool.get("input_schema") for tool in defined if tool.get("name") == self.name), None)

    @property
    def annotations(self) -> ToolAnnotations | None:
        """The hints of the MCP server that has the tool, which are not checked; None for other tools."""
        facts = self._setup.tool(self.name)
        return None if facts is None else facts.annotations

    @property
    def brought(self) -> bool:
        """Whether the tool came with something that a person said: that person's front end answers the call."""
        return self.name in self._setup.brought

    @property
    def has_secrets(self) -> bool:
        """Whether the tool declares parameters whose values are hidden from persons."""
        return bool(self._setup.secrets_of(self.name))

    @property
    def status(self) -> str:
        """One of `proposed`, `waiting`, `decided`, `cleared`, `running`, `settled`."""
        return str(self._call.status)

    @property
    def why(self) -> str | None:
        """The reason that the call waits: `approval`, `external` or `uncertain`; None if it does not wait."""
        return str(self._call.why) if self._call.status is Status.WAITING and self._call.why else None

    @property
    def reason(self) -> str | None:
        """The policy's reason to ask, if it gave one."""
        return self._call.reason

    @property
    def preview(self) -> str | None:
        """The effects of the call, as described by the tool's `preview` when the call began to wait."""
        return self._call.preview

    @property
    def path(self) -> tuple[str, ...]:
        """The ids from the outermost call down to this one: more than one if the call is in a nested loop."""
        return (*self._setup.path, self._call.id)

    @property
    def digest(self) -> str:
        """A hash of the call as shown here. A decision about this object is bound to it."""
        return digest_of(self._setup, self.iteration, self._call)

    @property
    def expires_at(self) -> datetime | None:
        """The time at which a waiting call expires, an aware UTC datetime; None if it never does."""
        expires_at = self._call.expires_at
        return None if expires_at is None or self.why is None else datetime.fromtimestamp(expires_at, UTC)

    @property
    def decision(self) -> RecordedDecision | None:
        """The decision about the call, or None if there is none yet."""
        record = self._call.decision
        return None if record is None else _to_recorded(record, self._setup.path)

    @property
    def demands(self) -> tuple[Demand, ...]:
        """What the newest `Ask`s demand before the call starts; empty if one approval by any person is enough."""
        return self._call.demands

    @property
    def approvals(self) -> tuple[RecordedDecision, ...]:
        """The approvals so far of the input that would run, oldest first, while more are missing."""
        return tuple(_to_recorded(each, self._setup.path) for each in self._call.approvals)

    @property
    def counted_approvals(self) -> tuple[RecordedDecision, ...]:
        """Those of `approvals` that count for a demand: under a `fresh` one, none that were given before it stood."""
        counted = find_counted(demands_of(self._call), self._call.approvals)
        return tuple(each for each, counts in zip(self.approvals, counted, strict=True) if counts)

    @property
    def missing(self) -> int:
        """How many approvals are missing; 0 if the call does not wait. A lower bound until a policy judged an edit."""
        if self.why not in ("approval", "uncertain"):
            return 0
        return sum(count_missing(demands_of(self._call), self._call.approvals))

    @property
    def is_edit_judged(self) -> bool:
        """Whether the policies have judged the newest edit by a person, or there is none."""
        return not is_unjudged(self._call)

    @property
    def result(self) -> ToolResult | None:
        """The result, or None until the call is settled."""
        result = self._call.result
        if result is None:
            return None
        return ToolResult(self.id, decode(result.content), result.is_error, result.plain_text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolCall) or self._setup.within != other._setup.within:
            return False
        return (self._call, self.iteration) == (other._call, other.iteration)

    def __hash__(self) -> int:
        return hash((self._call.id, self.iteration))

    def __repr__(self) -> str:
        return f"<ToolCall {self.name} {'/'.join(self.path)}: {self.why or self.status}>"


# Whether a call waits for a decision, or a predicate on the call. An `Ask` gives the reason.
Needed = bool | Ask | Sequence[Ask] | None
NeedsApproval = bool | Callable[[ToolCall], Needed | Awaitable[Needed]]
# A function of the input that describes the effects of a call.
Preview = Callable[[dict[str, JSON]], str | Awaitable[str]]
# The same for `typed=True`: functions of the tool's arguments.
NeedsApprovalOfTyped = bool | Callable[..., Needed | Awaitable[Needed]]
TypedPreview = Callable[..., str | Awaitable[str]]
