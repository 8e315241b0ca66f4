"""A failed request, as data for the machine and as an exception for the caller."""

from __future__ import annotations

from attrs import evolve

from toolloop.errors import ModelError, OutsideError, ProtocolError
from toolloop.machine.record.loop import Failure


def describe_error(error: Exception) -> str:
    """Return the message of an exception, with its class if it is not an error of toolloop."""
    name = "" if isinstance(error, OutsideError) else f"{type(error).__name__}: "
    try:
        return f"{name}{error}"
    except Exception:  # noqa: BLE001 - the exception's own `__str__` raised
        return f"{name}it has no readable message"


def make_failure(error: Exception) -> Failure:
    """Return the data of an exception raised by a request."""
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


def make_error(failure: Failure, raised: Exception | None) -> Exception:
    """Return the exception for a failed request: `raised`, if that is the one.

    It is not after another process sent the request again.
    """
    if raised is not None and evolve(make_failure(raised), path=failure.path) == failure:
        return raised
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
