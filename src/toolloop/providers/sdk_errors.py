"""Convert exceptions of the SDK to `ModelError`, with advice whether and when the same request may succeed."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from toolloop.errors import ModelError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import anthropic

_CLIENT_ERROR = 400
_SERVER_ERROR = 500
_RETRYABLE_STATUSES = frozenset({408, 409, 429})  # and 500 and above (anthropic-sdk 2.12, `_should_retry`)
# A stream that fails has status 200, so its error type decides: the API's types, and those of Bedrock's streams
# (botocore 1.44, `bedrock-runtime`, `ResponseStream`).
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
_SHOWN = 500  # characters of an error text: a proxy may answer with a whole page


@contextmanager
def outside_errors() -> Generator[None]:
    """Convert exceptions of the SDK to `ModelError` and `ProtocolError`, with the SDK's exception as the cause.

    Ctrl-C and cancellation are not subclasses of `Exception`, and pass through.

    Raises:
        ModelError: the request failed, or the client did not send it.
        ProtocolError: an event of a stream was not JSON.

    """
    try:
        yield
    except Exception as error:
        if (own := _as_own(error)) is None:
            raise
        # The text of the cause quotes the header that HTTP does not allow, which may contain a key.
        raise own from (None if _is_never_sent(error) else error)


def _is_never_sent(error: Exception) -> bool:
    import httpx2  # noqa: PLC0415 - `import toolloop` must not load it

    return isinstance(error, httpx2.LocalProtocolError) or isinstance(error.__cause__, httpx2.LocalProtocolError)


def _as_own(error: Exception) -> ModelError | ProtocolError | None:
    """Return the converted exception; None for exceptions that the SDK does not raise."""
    import anthropic  # noqa: PLC0415 - `import toolloop` must not load the SDK
    import httpx2  # noqa: PLC0415 - nor this

    match error:
        case anthropic.APIStatusError():
            return _refused(error)
        case _ if _is_never_sent(error):
            return ModelError(
                "the client did not send the request: a header has a character that HTTP does not allow. Check the "
                "client's API key and extra_headers"
            )
        case anthropic.APIConnectionError() | httpx2.TransportError():
            return _unanswered(error)
        case json.JSONDecodeError() | UnicodeDecodeError():
            return ProtocolError(
                f"an event in the stream of the reply is not JSON ({error}). Send the same request again",
                retryable=True,
            )
        case anthropic.AnthropicError() | ImportError() | TypeError() | ValueError() | RecursionError():
            # Missing credentials, an invalid setting, a missing package for a platform, or an event nested too deeply.
            return ModelError(
                f"the client could not send the request, or could not read the reply: {error}",
                retryable=isinstance(error, anthropic.RetryableError),
            )
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait before a retry, from `retry-after-ms` or `retry-after`; None without a number."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) / unit
            if math.isfinite(seconds):
                return max(0.0, seconds)
    return None


def broken_off(kind: str | None, said: str, *, status: int = 200, request_id: str | None = None) -> ModelError:
    """Return the error for an error event in a stream. Its headers do not count: they were sent before the error."""
    retryable = kind is None or kind in _RETRYABLE_KINDS  # an error without a type comes from a proxy
    return _failure(
        "the API interrupted its reply with", said, kind=kind, status=status, request_id=request_id, retryable=retryable
    )


def _refused(error: anthropic.APIStatusError) -> ModelError:
    status, headers, kind = error.status_code, error.response.headers, error.type
    said = error.api_message or error.message
    if status < _CLIENT_ERROR:
        return broken_off(kind, said, status=status, request_id=error.request_id)
    retryable = status in _RETRYABLE_STATUSES or status >= _SERVER_ERROR
    retryable = {"true": True, "false": False}.get(headers.get("x-should-retry", ""), retryable)
    return _failure(
        f"the API answered {status}",
        said,
        kind=kind,
        status=status,
        request_id=error.request_id,
        retryable=retryable,
        retry_after=retry_after(headers),
    )


def _failure(what: str, said: str, **facts: Any) -> ModelError:
    kind, request_id = facts["kind"] or "no error type", facts["request_id"]
    named = f" (request {request_id})" if request_id else ""
    advice = _advice(facts.get("retry_after"), retryable=facts["retryable"])
    return ModelError(f"{what} {kind}: {said[:_SHOWN]}{named}. {advice}", **facts)


def _unanswered(error: Exception) -> ModelError:
    # Only the name of the cause, because its text may quote a header with a key.
    named = error.__cause__ or error
    return ModelError(
        f"could not reach the API, or the connection broke during the reply ({type(named).__name__}). "
        f"{_advice(None, retryable=True)}",
        retryable=True,
    )


def _advice(wait: float | None, *, retryable: bool) -> str:
    if not retryable:
        return "The same request will fail again"
    return "The same request may succeed" + (f" in {wait:g} s" if wait else "")
