"""A call as its caller, policies and tools' predicates see it: read-only, decoded when asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from attrs import Factory, field, frozen

from toolloop.machine.calls import digest_of
from toolloop.machine.jsontext import JSON, decode
from toolloop.machine.setup import Setup
from toolloop.machine.values import Ask, Call, Status, text_of_content


@frozen
class ToolResult:
    """The result of a call.

    Attributes:
        content: a string or a list of content blocks, as the model reads it.
        plain_text: the `to_plain_text` of what the tool returned, for hosts that show or log it. Where that is not the
            text of the content, such as the name of a file, it has at most 4,096 characters.

    """

    tool_use_id: str
    content: JSON
    is_error: bool = False
    plain_text: str = field(default=Factory(lambda self: text_of_content(self.content), takes_self=True), repr=False)


@frozen
class RecordedDecision:
    """A decision that was made on a call.

    Attributes:
        kind: `approve`, `deny`, `answer` or `rerun`.
        content: the edited input of an approval, or what was answered; else None.
        digest: of the call as it was shown, if the decision was bound to that.
        at: when, an aware UTC time.
        grant: the id of the standing grant by which the call runs, if no decision was needed.

    """

    kind: str
    content: JSON
    is_error: bool
    by: str | None
    reason: str | None
    digest: str | None
    at: datetime
    grant: str | None = None


@frozen(eq=False)
class ToolCall:
    """A call as it stood when it was shown. Everything read from it is a copy.

    Two are equal when they show the same call in the same state.
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
    def input(self) -> dict[str, JSON]:
        """The input as the model proposed it."""
        value: dict[str, JSON] = decode(self._call.input)
        return value

    @property
    def effective_input(self) -> dict[str, JSON]:
        """The input that runs: the proposed one, or what a person put in its place."""
        value: dict[str, JSON] = decode(self._call.effective_input)
        return value

    @property
    def effective_input_text(self) -> str:
        """The JSON text of that."""
        return self._call.effective_input

    @property
    def status(self) -> str:
        """One of `proposed`, `waiting`, `decided`, `cleared`, `running`, `settled`."""
        return str(self._call.status)

    @property
    def why(self) -> str | None:
        """What a waiting call waits for: `approval`, `external` or `uncertain`."""
        return str(self._call.why) if self._call.status is Status.WAITING and self._call.why else None

    @property
    def reason(self) -> str | None:
        """Why a policy asks, if it said so."""
        return self._call.reason

    @property
    def preview(self) -> str | None:
        """What the call would do, as the `preview` of its tool said when it began to wait."""
        return self._call.preview

    @property
    def path(self) -> tuple[str, ...]:
        """The ids from the outermost call down to this one: more than one for a call of a loop inside a call."""
        return (*self._setup.path, self._call.id)

    @property
    def digest(self) -> str:
        """What binds a decision to this call as it is shown here."""
        return digest_of(self._setup, self.iteration, self._call)

    @property
    def expires_at(self) -> datetime | None:
        """When a waiting call expires, an aware UTC time; None: never."""
        expires_at = self._call.expires_at
        return None if expires_at is None or self.why is None else datetime.fromtimestamp(expires_at, UTC)

    @property
    def decision(self) -> RecordedDecision | None:
        """What was decided, by whom, when and why; None while nothing is."""
        record = self._call.decision
        if record is None:
            return None
        return RecordedDecision(
            kind=record.kind,
            content=None if record.content is None else decode(record.content),
            is_error=record.is_error,
            by=record.by,
            reason=record.reason,
            digest=record.digest,
            at=datetime.fromtimestamp(record.at, UTC),
            grant=None if record.grant is None else "/".join((*self._setup.path, record.grant)),
        )

    @property
    def result(self) -> ToolResult | None:
        """Its result, once it is settled."""
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


# Whether a call waits for the caller's decision, or a predicate on the call; an `Ask` says why.
NeedsApproval = bool | Callable[[ToolCall], bool | Ask | Awaitable[bool | Ask | None] | None]
# What a call would do: a function of its input.
Preview = Callable[[dict[str, JSON]], str | Awaitable[str]]
