"""A fake Messages API: real HTTP on loopback, answers from a script, and the API's own refusals."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from attrs import frozen

from toolloop.testing.api.answers import Answering, APIScript, Incoming, refused
from toolloop.testing.api.api_refusals import NEWEST_VERSION, Refusal, RequestContext
from toolloop.testing.api.conversations import Threads
from toolloop.testing.api.http import Answered, Asked, Loopback
from toolloop.testing.api.prompt_cache import PromptCache
from toolloop.testing.api.rules import find_broken_rule
from toolloop.testing.api.signing import Memory, Signer
from toolloop.testing.api.streams import Delivery, RecordedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anthropic import Anthropic, AsyncAnthropic

    from toolloop.testing.api.conversations import RefuseThread
    from toolloop.testing.api.replies import Delayed

MOST_BYTES = 32 * 1024 * 1024
_MESSAGES = "/v1/messages"
_KEY = "test-key"  # any key is accepted


@frozen
class RecordedRequest:
    """A request that the server received.

    Attributes:
        path: the path, with the query.
        headers: the headers, with names in lower case.
        body: the raw bytes.
        json: the decoded body, or None if it was not JSON.
        whole: the decoded body as the model sees it: in a message thread, with the messages that the server keeps
            before its own.
        status: the status of the answer; None for a dropped connection.
        refusal: the text of the rule that the request broke, or None.
        stream: the progress of a streamed answer; None for any other answer.

    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    json: Any
    status: int | None
    refusal: str | None = None
    stream: RecordedStream | None = None
    whole: Any = None


class FakeMessagesAPI:
    """A Messages API on loopback, as a context manager; it runs from construction until `close`.

    A request that asks for a stream gets a `reply` as a stream. Each event is one write, and one chunk of the transfer
    encoding.

    Args:
        script: answers in order, or a function that returns one for a request's JSON. The function is called for one
            request at a time; to wait, it returns a `delayed`. An answer is a `reply`, or a `compacted`, `fault`,
            `dropped`, `delayed`, `html`, `verbatim` or `streamed`. If the script has run out, or the function raises,
            the answer has status 500 and the reason.
        enforce: whether to refuse the requests that the API refuses. Use False to serve recordings.
        verify_signatures: whether to refuse signed blocks that the server did not send, and thinking from another
            conversation if the model binds it. False accepts recorded blocks.
        refuse_thread: called for each request of a message thread; returns the `error_code` to refuse it with, such as
            `thread_not_found`, or None. A script's function gets the whole conversation of a thread.
        clock: returns the time in seconds, for the prompt cache. If a request has cache marks and the script sets no
            usage, the usage of the reply counts the estimated tokens that were read from the cache and written to it.
            Without `enforce`, there is no cache.

    """

    def __init__(
        self,
        script: APIScript,
        *,
        enforce: bool = True,
        verify_signatures: bool = True,
        refuse_thread: RefuseThread | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the server."""
        self._enforce = enforce
        self._signer = Signer() if enforce and verify_signatures else None
        self._memory = Memory()
        self._threads = Threads(refuse_thread)
        cache = PromptCache(clock) if enforce else None  # it reads only well-formed requests
        self._answering = Answering(script, self._memory, self._signer, self._threads, cache)
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._requests: list[RecordedRequest] = []
        self._waiting: set[threading.Event] = set()
        self._closed = False
        self._clients = contextlib.ExitStack()
        self._loopback = Loopback(self._respond)

    @property
    def url(self) -> str:
        """The base URL for a client."""
        return f"http://127.0.0.1:{self._loopback.port}"

    @property
    def requests(self) -> list[RecordedRequest]:
        """The requests so far, in their order of arrival."""
        return list(self._requests)

    @property
    def refused(self) -> list[RecordedRequest]:
        """The requests that broke a rule. Requests that the script answered with a fault are not included."""
        return [request for request in self.requests if request.refusal is not None]

    def forget_threads(self) -> None:
        """Lose all conversations of message threads, as if they expired."""
        with self._lock:
            self._threads.forget()

    def client(self, **kwargs: Any) -> Anthropic:
        """Return a real client of this server, without retries by default; the server closes it."""
        from anthropic import Anthropic, DefaultHttpxClient  # noqa: PLC0415 - it takes a second to import

        if "http_client" not in kwargs:
            # Ignore the environment's proxy, and do not load certificates.
            kwargs["http_client"] = DefaultHttpxClient(trust_env=False, verify=False)
        return self._clients.enter_context(Anthropic(**self._settings(kwargs)))

    def async_client(self, **kwargs: Any) -> AsyncAnthropic:
        """Return an async client; the caller closes it: `async with api.async_client() as client`."""
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient  # noqa: PLC0415 - likewise

        if "http_client" not in kwargs:
            kwargs["http_client"] = DefaultAsyncHttpxClient(trust_env=False, verify=False)
        return AsyncAnthropic(**self._settings(kwargs))

    def _settings(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {"api_key": _KEY, "base_url": self.url, "max_retries": 0, **kwargs}

    def close(self) -> None:
        """Stop the server and send delayed answers at once. Closing twice does nothing."""
        with self._lock:
            already, self._closed = self._closed, True
            for event in self._waiting:
                event.set()
        if not already:
            self._clients.close()
            self._loopback.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FakeMessagesAPI {self.url}: {len(self.requests)} requests>"

    def _respond(self, asked: Asked) -> Answered | None:
        body, unreadable = _decoded(asked.body)
        betas = frozenset(filter(None, map(str.strip, asked.headers.get("anthropic-beta", "").split(","))))
        with self._lock:
            whole, refusal = self._threads.enter(body, betas)
        refusal = refusal or self._refusal(asked, whole, betas, unreadable)
        with self._lock:
            number = next(self._ids)
            request_id = f"req_fake_{number:06}"
            answered: Answered | None
            delays: list[Delayed] = []
            if refusal:
                answered = refused(refusal, request_id)
            else:
                answered, delays = self._answering.next(Incoming(whole, betas, request_id))
            self._requests.append(
                RecordedRequest(
                    method=asked.method,
                    path=asked.path,
                    headers=asked.headers,
                    body=asked.body,
                    json=body,
                    status=answered.status if answered else None,
                    refusal=refusal.message if refusal else None,
                    stream=answered.body.record if answered and isinstance(answered.body, Delivery) else None,
                    whole=whole,
                )
            )
        for delay in delays:
            self._wait(delay)
        with self._lock:
            self._threads.leave(body)
        return answered

    def _wait(self, delay: Delayed) -> None:
        with self._lock:
            if self._closed:
                return
            self._waiting.add(delay.released)
        delay.arrived.set()
        delay.released.wait(delay.seconds)

    def _refusal(self, asked: Asked, body: Any, betas: frozenset[str], unreadable: str | None) -> Refusal | None:
        if asked.method != "POST" or asked.path.partition("?")[0] != _MESSAGES:
            return Refusal(f"Not found: {asked.method} {asked.path}", 404, "not_found_error")
        if unreadable:
            return Refusal(f"The request body is not valid JSON: {unreadable}")
        if not self._enforce:
            return None
        if not (asked.headers.get("x-api-key") or asked.headers.get("authorization")):
            return Refusal("x-api-key header is required", 401, "authentication_error")
        if len(asked.body) > MOST_BYTES:
            return Refusal("Request exceeds the maximum size", 413, "request_too_large")
        context = RequestContext(
            betas=betas,
            version=asked.headers.get("anthropic-version", NEWEST_VERSION),
            is_own=self._memory.is_own,
            is_paused=self._memory.is_paused,
        )
        return find_broken_rule(body, context, self._signer)


def _decoded(body: bytes) -> tuple[Any, str | None]:
    try:
        return json.loads(body, parse_constant=_no_constant), None
    except ValueError as error:
        return None, str(error)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
