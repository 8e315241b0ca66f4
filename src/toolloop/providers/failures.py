"""What the SDK raises, as `ModelError`: what failed, and whether and when the same request may succeed."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING

from toolloop.core.errors import ModelError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    import anthropic

_CLIENT_ERROR = 400
_SERVER_ERROR = 500
_RETRYABLE_STATUSES = frozenset({408, 409, 429})  # and all from 500 on (anthropic-sdk 2.12, `_should_retry`)
# A stream that fails has sent its status 200 long before; only the type is left to judge by. The API's types, and those
# that Bedrock's streams may tell (botocore 1.44, `bedrock-runtime`, `ResponseStream`).
_RETRYABLE_KINDS = frozenset(
    {
        "api_error",
        "overloaded_error",
        "rate_limit_error",
        "timeout_error",
        "internalServerException",
        "modelStreamErrorException",
        "modelTimeoutException",
        "serviceUnavailableException",
        "throttlingException",
    }
)
_SHOWN = 500  # characters of a refusal: a proxy may answer with a page


def outside_errors() -> AbstractContextManager[None]:
    """Raise what the SDK raises as our own, with the SDK's exception as the cause.

    Ctrl-C and cancellation are no `Exception`, and pass through.

    Raises:
        ModelError: the request failed, or the client would not send it.
        ProtocolError: what streamed in was not JSON.

    """
    return _OUTSIDE


class _OutsideErrors:
    """It holds nothing, so one does for all, and where nothing fails it costs two calls."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and (own := _as_own(error)) is not None:
            raise own from error


_OUTSIDE = _OutsideErrors()


def _as_own(error: Exception) -> ModelError | ProtocolError | None:
    """What the SDK raised as our own; None for what it does not raise."""
    import anthropic  # noqa: PLC0415 - `import toolloop` must not pay for the SDK
    import httpx2  # noqa: PLC0415 - likewise

    match error:
        case anthropic.APIStatusError():
            return _refused(error)
        case anthropic.APIConnectionError() | httpx2.TransportError():
            return _unanswered(error)
        case json.JSONDecodeError() | UnicodeDecodeError():
            return ProtocolError(
                f"an event of the reply's stream is not JSON ({error}). Send the same request again", retryable=True
            )
        case anthropic.AnthropicError() | ImportError() | TypeError() | ValueError() | RecursionError():
            # No credentials, a setting that cannot be, a package that a platform's client needs, an event too deep: the
            # client's own words say it best.
            return ModelError(
                f"the client did not send the request, or could not use its answer: {error}",
                retryable=isinstance(error, anthropic.RetryableError),
            )
    return None


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The seconds that a response asks to wait, or None: `retry-after-ms`, else `retry-after`, seconds or a date.

    A date is compared with the response's own `date`, so that the two clocks need not agree; `now` (seconds since the
    epoch) stands in for it.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    wanted = headers.get("retry-after")
    seconds = _number(wanted)
    if seconds is not None:
        return max(0.0, seconds)
    until = _date(wanted)
    if until is None:
        return None
    sent = _date(headers.get("date"))
    if sent is None:
        sent = time.time() if now is None else now
    return max(0.0, until - sent)


def broken_off(kind: str | None, said: str, *, status: int = 200, request_id: str | None = None) -> ModelError:
    """A stream that told an error. What its headers say of retrying they said of an answer that began well."""
    retryable = kind is None or kind in _RETRYABLE_KINDS  # what is none of the API's words is a proxy's, say
    return ModelError(
        f"the API broke off its reply with {_described(kind, said, request_id)}. {_advice(retryable, None)}",
        status=status,
        kind=kind,
        retryable=retryable,
        request_id=request_id,
    )


def _refused(error: anthropic.APIStatusError) -> ModelError:
    status, headers, kind = error.status_code, error.response.headers, error.type
    said = error.api_message or error.message
    if status < _CLIENT_ERROR:
        return broken_off(kind, said, status=status, request_id=error.request_id)
    retryable = status in _RETRYABLE_STATUSES or status >= _SERVER_ERROR
    retryable = {"true": True, "false": False}.get(headers.get("x-should-retry", ""), retryable)
    wait = retry_after(headers)
    return ModelError(
        f"the API answered {status} {_described(kind, said, error.request_id)}. {_advice(retryable, wait)}",
        status=status,
        kind=kind,
        retryable=retryable,
        retry_after=wait,
        request_id=error.request_id,
    )


def _described(kind: str | None, said: str, request_id: str | None) -> str:
    named = f" (request {request_id})" if request_id else ""
    return f"{kind or 'no error type'}: {said[:_SHOWN]}{named}"


def _unanswered(error: Exception) -> ModelError:
    # The name of the cause only: its text may quote a header, and so a key.
    named = error.__cause__ or error
    return ModelError(
        f"the API could not be reached, or its answer broke off ({type(named).__name__}). {_advice(True, None)}",
        retryable=True,
    )


def _advice(retryable: bool, wait: float | None) -> str:
    if not retryable:
        return "The same request will fail again"
    return "The same request may succeed" + (f" in {wait:g} s" if wait else "")


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _date(text: str | None) -> float | None:
    import email.utils  # noqa: PLC0415 - only a date needs it, and it brings half of `email` along

    parts = email.utils.parsedate_tz(text or "")
    if parts is None:
        return None
    try:
        return float(email.utils.mktime_tz(parts))
    except (OverflowError, ValueError):  # a date that no calendar has
        return None
