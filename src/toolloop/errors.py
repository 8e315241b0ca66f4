"""All errors, in two groups: those that the caller can fix, and failures of the outside world.

Each message states what failed, why, and what to do. Each error keeps its parts as attributes and can be pickled.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

__all__ = [
    "AlreadyDecided",
    "BadLink",
    "BadTool",
    "CallerError",
    "Conflict",
    "DecisionConflict",
    "Drift",
    "IllegalCommand",
    "InvalidEdit",
    "InvalidHistory",
    "LinkExpired",
    "LinkUsed",
    "LoopNotFound",
    "MaxDepthExceeded",
    "ModelError",
    "NotAllowed",
    "OutsideError",
    "ProtocolError",
    "StaleRevision",
    "StoreError",
    "ToolLoopError",
    "UndecidedCalls",
    "UnknownCall",
    "UnpricedModel",
    "UnreadableSnapshot",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


class ToolLoopError(Exception):
    """The root of all errors of toolloop. Keyword arguments become attributes."""

    def __init__(self, message: str, **parts: Any) -> None:
        """Keep the message and the parts."""
        super().__init__(message)
        self.__dict__.update(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by message and parts, because the constructor of a subclass may take other arguments."""
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[ToolLoopError], args: tuple[Any, ...], parts: dict[str, Any]) -> ToolLoopError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(parts)
    return error


class CallerError(ToolLoopError):
    """The caller asked for something that is not allowed now. It is raised, and the loop is unchanged."""


class IllegalCommand(CallerError):
    """A command or decision that the current state does not allow."""

    state: str
    asked: str
    allowed: tuple[str, ...]


class InvalidEdit(IllegalCommand):
    """An approval with an edited input that does not fit the schema of the tool."""


class UnknownCall(CallerError):
    """A decision names a call that does not exist."""

    call: str
    known: tuple[str, ...]


class DecisionConflict(CallerError):
    """A decision on a call that has changed since it was shown, or a second decision that differs from the first.

    Attributes:
        call: the path of the call.
        decision: the kind of the existing decision (`approve`, `deny`, `answer`, `rerun`); None if there is none.
        by: who made it, if known.
        at: when it was made, an aware UTC time; None if there is none.

    """

    call: str
    decision: str | None
    by: str | None
    at: datetime | None


class AlreadyDecided(DecisionConflict):
    """A decision on a call that already has its result."""


class BadLink(CallerError):
    """A link that is forged or truncated, or whose call has changed since the link was made."""


class LinkExpired(CallerError):
    """A link that has expired. `at`: when, an aware UTC time."""

    at: datetime


class LinkUsed(AlreadyDecided):
    """A link to a call that was already decided, by this link or in another way."""


class NotAllowed(CallerError):
    """A person tries what only another person may do."""


class UndecidedCalls(CallerError):
    """The loop cannot continue while calls wait for a decision."""

    calls: tuple[str, ...]


class InvalidHistory(CallerError):
    """Messages that the API would refuse. `problems` lists the place, the rule and the remedy for each."""

    problems: tuple[Any, ...]
    messages: list[Any]


class BadTool(CallerError):
    """An object that cannot be a tool of this loop."""

    tool: str


class Drift(CallerError):
    """The tools, policies or parameters differ from when the loop was stored, and `on_drift` does not accept it.

    Attributes:
        changes: descriptions of the refused differences.
        missing: the names of the stored tools that are missing here; for a tool of a nested loop, the names of the
            outer tools precede it, as in `research/search`.

    """

    changes: tuple[str, ...]
    missing: tuple[str, ...] = ()


class UnpricedModel(CallerError):
    """The loop has a budget for its cost, and a model that a request names has no price. `models`: their names."""

    models: tuple[str, ...]


class OutsideError(ToolLoopError):
    """Something outside the program failed.

    Attributes:
        partial_text: the text received so far, if a streamed reply broke off.

    """

    partial_text: str | None = None


class ModelError(OutsideError):
    """The model request failed. The SDK's exception, if there is one, is the cause."""

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
    """A reply that does not follow the protocol. `retryable`: the same request may get a valid reply."""

    retryable: bool

    def __init__(self, message: str, *, retryable: bool = False, partial_text: str | None = None) -> None:
        """Keep the message and the parts."""
        super().__init__(message, retryable=retryable, partial_text=partial_text)


class StoreError(OutsideError):
    """A store failed. Nothing is lost."""


class LoopNotFound(StoreError):
    """The store has no loop with this id."""

    loop_id: str


class Conflict(StoreError):
    """Another driver holds the loop, or its id is already in use.

    Attributes:
        loop_id: the id of the loop.
        owner: the driver that holds it, or None.
        until: when its lease expires, in seconds since the epoch, or None.
        token: the token of that lease, or None.

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
        """Keep the message and the parts."""
        super().__init__(message, loop_id=loop_id, owner=owner, until=until, token=token, **parts)


class StaleRevision(Conflict):
    """The journal is at another revision than expected. `rev`: its current revision."""

    rev: int


class UnreadableSnapshot(StoreError):
    """A snapshot that is damaged, not from toolloop, or in a newer format.

    Attributes:
        is_newer: whether a newer version of toolloop can read it: its format or one of its events is unknown here.

    """

    is_newer: bool = False


class MaxDepthExceeded(ToolLoopError):
    """The loop is nested too deep to run."""

    current: int
    limit: int

    def __init__(self, current: int, limit: int) -> None:
        """`current`: the loop's depth; `limit`: `max_depth`; loops at this depth or deeper are refused."""
        super().__init__(
            f"this loop is at depth {current}, and max_depth is {limit}, so no request was sent. "
            "Raise LoopConfig.max_depth, or use fewer levels of nesting",
            current=current,
            limit=limit,
        )
