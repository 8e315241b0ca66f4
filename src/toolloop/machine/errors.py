"""What can go wrong, split by who must act: the caller, or the outside world.

Every message says what was asked, in what state, what is allowed now and what to do. Every error keeps its parts as
attributes and survives pickling.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any


class ToolLoopError(Exception):
    """The root of all errors of toolloop. Keyword arguments become attributes."""

    def __init__(self, message: str, **parts: Any) -> None:
        """Keep the message and the parts."""
        super().__init__(message)
        self.__dict__.update(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by message and parts; the constructor of a subclass may want something else."""
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[ToolLoopError], args: tuple[Any, ...], parts: dict[str, Any]) -> ToolLoopError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(parts)
    return error


class CallerError(ToolLoopError):
    """The caller asked for something that is not allowed now. Raised; the loop is as before, to the last field."""


class IllegalCommand(CallerError):
    """A command, decision or move that the present state does not allow."""

    state: str
    asked: str
    allowed: tuple[str, ...]


class InvalidEdit(IllegalCommand):
    """An approval with an edited input that does not fit the schema of the tool."""


class UnknownCall(CallerError):
    """A decision names a call that is not there."""

    call: str
    known: tuple[str, ...]


class DecisionConflict(CallerError):
    """A decision for another call than the one shown, or a second decision that differs from the first.

    Attributes:
        call: the call, by its path.
        decision: the kind of the decision that stands (`approve`, `deny`, `answer`, `rerun`); None: there is none.
        by: who made it, as far as that is known.
        at: when, an aware UTC time; None if there is none.

    """

    call: str
    decision: str | None
    by: str | None
    at: datetime | None


class AlreadyDecided(DecisionConflict):
    """A decision for a call that has its result."""


class BadLink(CallerError):
    """A link that is forged or cut off, or whose call is not the one any more that it was made for."""


class LinkExpired(CallerError):
    """A link whose time is over. `at`: since when, an aware UTC time."""

    at: datetime


class LinkUsed(AlreadyDecided):
    """A link to a call that is decided: by this link, or in another way."""


class UndecidedCalls(CallerError):
    """The loop was told to go on while calls wait for a decision."""

    calls: tuple[str, ...]


class InvalidHistory(CallerError):
    """Messages that the API would refuse. `problems` says where, which rule, and how to mend it."""

    problems: tuple[Any, ...]
    messages: list[Any]


class BadTool(CallerError):
    """Something that cannot be a tool of this loop."""

    tool: str


class Drift(CallerError):
    """A loop is driven with other tools, policies or parameters than it was stored with, and must not go on with them.

    Attributes:
        changes: the differences that are refused, in words.

    """

    changes: tuple[str, ...]


class OutsideError(ToolLoopError):
    """The outside world failed.

    Attributes:
        partial_text: the text of a reply as far as it came, if it was streamed and broke off.

    """

    partial_text: str | None = None


class ModelError(OutsideError):
    """The model request failed. The SDK's exception, where there is one, is the cause."""

    status: int | None
    kind: str | None
    retryable: bool
    retry_after: float | None
    request_id: str | None

    def __init__(  # noqa: PLR0913 - the parts of an API error, each of which a caller acts on
        self,
        message: str,
        *,
        status: int | None = None,
        kind: str | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        request_id: str | None = None,
        partial_text: str | None = None,
    ) -> None:
        """`status`: the HTTP status; `kind`: the API's `error.type`; `retry_after`: seconds."""
        super().__init__(
            message,
            status=status,
            kind=kind,
            retryable=retryable,
            retry_after=retry_after,
            request_id=request_id,
            partial_text=partial_text,
        )


class ProtocolError(OutsideError):
    """A reply that makes no sense. `retryable`: the same request may get a better one."""

    retryable: bool

    def __init__(self, message: str, *, retryable: bool = False, partial_text: str | None = None) -> None:
        """Keep the verdict whether to try again."""
        super().__init__(message, retryable=retryable, partial_text=partial_text)


class StoreError(OutsideError):
    """A store failed. Nothing is lost."""


class LoopNotFound(StoreError):
    """No loop of this id is in the store."""

    loop_id: str


class Conflict(StoreError):
    """Somebody else has the loop: another driver works on it, or its id is taken.

    Attributes:
        loop_id: which loop.
        owner: who drives it, or None.
        until: until when its lease runs, in seconds since the epoch, or None.
        token: of that lease, or None.

    """

    loop_id: str
    owner: str | None
    until: float | None
    token: int | None

    def __init__(
        self,
        message: str,
        *,
        loop_id: str,
        owner: str | None = None,
        until: float | None = None,
        token: int | None = None,
        **parts: Any,
    ) -> None:
        """Keep who has it, and until when."""
        super().__init__(message, loop_id=loop_id, owner=owner, until=until, token=token, **parts)


class StaleRevision(Conflict):
    """The loop has gone on since its caller looked: the journal has another revision than expected. `rev`: which."""

    rev: int


class UnreadableSnapshot(StoreError):
    """A snapshot that is damaged, foreign, or of a newer format."""


class MaxDepthExceeded(ToolLoopError):
    """The loop would run deeper than its limit."""

    current: int
    limit: int

    def __init__(self, current: int, limit: int) -> None:
        """`current`: the loop's depth; `limit`: the first depth at which no loop runs."""
        super().__init__(
            f"this loop is at depth {current}, and max_depth is {limit}: no request was made. "
            "Raise LoopConfig.max_depth, or nest less deeply",
            current=current,
            limit=limit,
        )
