"""A failed request, as data for the machine and as an exception for the caller; and who may not drive now."""

from __future__ import annotations

from toolloop.core.errors import IllegalCommand, ModelError, OutsideError, ProtocolError
from toolloop.core.states import Failure, State


def told(error: Exception) -> str:
    """What an exception says of itself; one that only the caller knows, with its class."""
    name = "" if isinstance(error, OutsideError) else f"{type(error).__name__}: "
    try:
        return f"{name}{error}"
    except Exception:  # noqa: BLE001 - an exception that cannot even say what it is
        return f"{name}it says nothing more"


def failure_of(error: Exception) -> Failure:
    """A failed request as data."""
    if isinstance(error, ProtocolError):
        return Failure("protocol", str(error), retryable=error.retryable)
    return Failure(
        "model",
        str(error),
        status=getattr(error, "status", None),
        error_type=getattr(error, "kind", None),
        retryable=bool(getattr(error, "retryable", False)),
        retry_after=getattr(error, "retry_after", None),
        request_id=getattr(error, "request_id", None),
    )


def error_of(failure: Failure) -> ModelError | ProtocolError:
    """The exception for a failed request."""
    if failure.kind == "protocol":
        return ProtocolError(failure.message, retryable=failure.retryable)
    return ModelError(
        failure.message,
        status=failure.status,
        kind=failure.error_type,
        retryable=failure.retryable,
        retry_after=failure.retry_after,
        request_id=failure.request_id,
    )


def is_driven(state: State, asked: str) -> IllegalCommand:
    """The error for a caller who wants to drive while another one does."""
    return IllegalCommand(
        f"{asked}: another caller drives this loop right now; one caller drives, any may decide",
        state=type(state).__name__,
        asked=asked,
        allowed=("decide()", "pending", "view()", "resume(Stop())"),
    )
