"""Failures of the client are `ModelError` or `ProtocolError`, with the SDK's exception as the cause."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import given, strategies as st

from tests.providers.asking import FACES, KEY, Face, ask, request
from tests.providers.server import Answer, message, refusal, serving
from toolloop.errors import ModelError, ProtocolError
from toolloop.providers import AnthropicProvider, AsyncAnthropicProvider
from toolloop.providers.sdk_errors import retry_after

# messages-api.md section 5: status, error.type, class, and whether the same request may succeed.
STATUSES: list[tuple[int, str, type[anthropic.APIStatusError], bool]] = [
    (400, "invalid_request_error", anthropic.BadRequestError, False),
    (401, "authentication_error", anthropic.AuthenticationError, False),
    (402, "billing_error", anthropic.PaymentRequiredError, False),
    (403, "permission_error", anthropic.PermissionDeniedError, False),
    (404, "not_found_error", anthropic.NotFoundError, False),
    (408, "timeout_error", anthropic.RequestTimeoutError, True),
    (409, "conflict_error", anthropic.ConflictError, True),
    (412, "invalid_request_error", anthropic.PreconditionFailedError, False),
    (413, "request_too_large", anthropic.ContentTooLargeError, False),
    (422, "invalid_request_error", anthropic.UnprocessableEntityError, False),
    (429, "rate_limit_error", anthropic.RateLimitError, True),
    (499, "invalid_request_error", anthropic.ClientClosedRequestError, False),
    (500, "api_error", anthropic.InternalServerError, True),
    (503, "api_error", anthropic.ServiceUnavailableError, True),
    (504, "timeout_error", anthropic.GatewayTimeoutError, True),
    (529, "overloaded_error", anthropic.OverloadedError, True),
]


def failure(face: Face, *answers: Answer, asked: Any = None, **settings: Any) -> ModelError:
    with serving(*answers) as server, pytest.raises(ModelError) as failed:
        ask(face, server, asked or request(), **settings)
    return failed.value


def test_each_status_keeps_its_parts() -> None:
    """Status, type, request id and verdict are attributes, survive pickling, and the SDK's class is the cause."""
    for status, kind, cause, retryable in STATUSES:
        error = failure("sync", refusal(status, kind))
        for copy in (error, pickle.loads(pickle.dumps(error))):
            assert (status, kind, retryable, "req_1", None) == (
                copy.status,
                copy.kind,
                copy.retryable,
                copy.request_id,
                copy.retry_after,
            )
            assert f"answered {status} {kind}: No. (request req_1)" in str(copy)
        assert type(error.__cause__) is cause


def test_x_should_retry_decides() -> None:
    """`x-should-retry` overrides the status."""
    cases: list[tuple[int, str, bool]] = [(400, "true", True), (529, "false", False)]
    for status, word, retryable in cases:
        assert failure("sync", refusal(status, x_should_retry=word)).retryable is retryable


def test_a_proxy_that_refuses_with_a_page_is_quoted_in_part() -> None:
    """The message stays short."""
    error = failure("sync", Answer(b"<html>" + b"x" * 9000, 502, {"content-type": "text/html"}))
    assert (error.status, error.kind, error.retryable) == (502, None, True)
    assert len(str(error)) < 700


def test_the_client_retries_with_the_same_body() -> None:
    """Attempts 0, 1 and 2 carry the same bytes; the third is answered."""
    for face in FACES:
        asked = request()
        with serving(refusal(429, retry_after_ms="1"), refusal(529, retry_after_ms="1"), message()) as server:
            reply = ask(face, server, asked, max_retries=2)
        assert reply["id"] == "msg_1"
        assert [received.headers["x-stainless-retry-count"] for received in server.received] == ["0", "1", "2"]
        assert {received.body for received in server.received} == {asked.body()}


def test_after_the_last_retry_the_error_has_retry_after() -> None:
    """`retry_after` is that of the last answer."""
    for face in FACES:
        error = failure(face, refusal(529, retry_after_ms="1"), refusal(429, retry_after="7"), max_retries=1)
        assert (error.status, error.retry_after, error.retryable) == (429, 7.0, True)


def test_a_dropped_connection_may_be_tried_again() -> None:
    """Before the answer or in the middle of it: no status, retryable."""
    fault_cases: list[Any] = ["drop", "cut"]
    for fault in fault_cases:
        for face in FACES:
            error = failure(face, Answer(b"{", fault=fault))
            assert (error.status, error.kind, error.retryable) == (None, None, True)
            assert type(error.__cause__) is anthropic.APIConnectionError
            assert "RemoteProtocolError" in str(error) or "ReadError" in str(error)


def test_a_timeout_may_be_tried_again() -> None:
    """The timeout of a request is the one it was given."""
    timeout_cases: list[Any] = [0.05, httpx2.Timeout(5, read=0.05)]
    for timeout in timeout_cases:
        for face in FACES:
            error = failure(face, Answer(fault="hang"), asked=request(options={"timeout": timeout}))
            assert error.retryable
            assert type(error.__cause__) is anthropic.APITimeoutError


def test_a_200_that_is_not_a_message_is_refused() -> None:
    """The SDK accepts it; the error quotes the answer."""
    cases: list[tuple[bytes, str]] = [
        (b"<html>Sign in</html>", "text/html"),
        (b'{"type":"message","content":[', "application/json"),
        (b'{"type":"error","error":{}}', "application/json"),
        (b'{"type":"message"}', "application/json"),
        (b'["message"]', "application/json"),
        (b'{"type":"message","content":[NaN]}', "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"", "application/json"),
    ]
    for body, kind in cases:
        answer = Answer(body, headers={"content-type": kind, "request-id": "req_9"})
        with serving(answer) as server, pytest.raises(ProtocolError, match="req_9") as failed:
            ask("sync", server, request())
        assert failed.value.retryable
        assert kind in str(failed.value)
        assert len(str(failed.value)) < 700


def test_retry_after_is_a_number_of_seconds() -> None:
    """Milliseconds come first. The wait is finite and not negative; a date is ignored."""
    cases: list[tuple[dict[str, str], float | None]] = [
        ({}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT"}, None),
    ]
    for headers, seconds in cases:
        assert retry_after(headers) == seconds


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text()))
def test_no_header_breaks_retry_after(headers: dict[str, str]) -> None:
    """For any header the wait is None or a number of seconds."""
    seconds = retry_after(headers)
    assert seconds is None or seconds >= 0


def test_errors_never_contain_the_key() -> None:
    """Not in a message, a repr or a pickle, even if the key itself is invalid."""
    for bad in ("Illegal\nheader", "\ud800"):
        for face in FACES:
            errors = [
                failure(face, refusal(401)),
                failure(face, Answer(fault="drop")),
                failure(face, message(), api_key=KEY + bad),
            ]
            for error in errors:
                texts = [str(error), repr(error), repr(vars(error)), repr(pickle.dumps(error))]
                assert all(KEY not in text for text in texts)
                assert KEY not in "".join(traceback.format_exception_only(error))


def test_a_provider_shows_no_key() -> None:
    """Its repr names its client's type."""
    with anthropic.Anthropic(api_key=KEY) as client:
        assert repr(AnthropicProvider(client)) == "AnthropicProvider(client=Anthropic)"
    awaited = anthropic.AsyncAnthropic(api_key=KEY)
    assert repr(AsyncAnthropicProvider(awaited)) == "AsyncAnthropicProvider(client=AsyncAnthropic)"
