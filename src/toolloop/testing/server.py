"""A fake Messages API: real HTTP on loopback, answers from a script, and the API's own refusals.

The rules are read from the public documentation and from recorded traffic, and written here a second time, with nothing
of `toolloop.history`: what the library lets through and the real API would refuse, this server refuses.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from typing import TYPE_CHECKING, Any, Self

from toolloop.core.freezing import frozen
from toolloop.testing.answers import Answering, Script, counts, refused
from toolloop.testing.http import Answered, Asked, Loopback
from toolloop.testing.memory import Memory
from toolloop.testing.models import exists
from toolloop.testing.refusals import NEWEST_VERSION, Context, Refusal
from toolloop.testing.rules import judge
from toolloop.testing.signing import Signer
from toolloop.testing.streams import Delivery, RecordedStream

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from anthropic import Anthropic, AsyncAnthropic

    from toolloop.testing.replies import Delayed

MOST_BYTES = 32 * 1024 * 1024
_MESSAGES = "/v1/messages"
_COUNTING = "/v1/messages/count_tokens"
_KEY = "test-key"  # no secret: nobody checks it


@frozen
class RecordedRequest:
    """A request that came in.

    Attributes:
        path: with the query.
        headers: the names in lower case.
        body: the raw bytes.
        json: the decoded body, or None where it was not JSON.
        status: what it was answered with; None for a dropped connection.
        refusal: the text of the rule it broke, or None.
        stream: how the stream goes that it was answered with; None for any other answer.

    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    json: Any
    status: int | None
    refusal: str | None = None
    stream: RecordedStream | None = None


class FakeMessagesAPI:
    """A Messages API on loopback, as a context manager; it runs from construction until `close`.

    Requests to count tokens are judged and recorded like the others, and answered without the script. Who asks for a
    stream gets a `reply` as one, each event in a write and a chunk of its own.

    Args:
        script: answers in order, or a function that makes one of a request's JSON. It is called for one request at a
            time; to wait, it returns a `delayed`. An answer is a `reply`, or a `fault`, `dropped`, `delayed`, `html`,
            `verbatim` or `streamed`. A script that has run out, or a function that raises, answers 500 and says so.
        models: the names of the models there are; unless given, whatever could be one: `claude-` and a family
            or a number.
        enforce: whether to refuse what the API refuses. False serves recordings.
        verify_signatures: whether thinking blocks that come back must be ones that were handed out, where the model
            binds them in the same conversation, and signed compaction blocks likewise. False takes recorded ones.
        secret: the key of the signatures. Servers of one secret know each other's.

    """

    def __init__(
        self,
        script: Script,
        *,
        models: Collection[str] | None = None,
        enforce: bool = True,
        verify_signatures: bool = True,
        secret: bytes = b"toolloop",
    ) -> None:
        """Start the server."""
        self._models = models
        self._enforce = enforce
        self._signer = Signer(secret) if enforce and verify_signatures else None
        self._memory = Memory()
        self._answering = Answering(script, self._memory, self._signer)
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
        """Every request so far, in the order of arrival."""
        return list(self._requests)

    @property
    def refused(self) -> list[RecordedRequest]:
        """The requests that broke a rule; scripted faults are not among them."""
        return [request for request in self.requests if request.refusal is not None]

    def client(self, **kwargs: Any) -> Anthropic:
        """A real client of this server, without retries unless asked for; it is closed with the server."""
        from anthropic import Anthropic, DefaultHttpxClient  # noqa: PLC0415 - it takes a second, and not all need it

        if "http_client" not in kwargs:
            # Neither a proxy of the environment nor the reading of certificates gets in the way.
            kwargs["http_client"] = DefaultHttpxClient(trust_env=False, verify=False)
        return self._clients.enter_context(Anthropic(**self._settings(kwargs)))

    def async_client(self, **kwargs: Any) -> AsyncAnthropic:
        """Like `client`, but the caller closes it: `async with api.async_client() as client`."""
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient  # noqa: PLC0415 - likewise

        if "http_client" not in kwargs:
            kwargs["http_client"] = DefaultAsyncHttpxClient(trust_env=False, verify=False)
        return AsyncAnthropic(**self._settings(kwargs))

    def _settings(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {"api_key": _KEY, "base_url": self.url, "max_retries": 0, **kwargs}

    def close(self) -> None:
        """Stop the server; what is delayed goes at once. Closing twice does nothing."""
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
        counting = asked.path.partition("?")[0] == _COUNTING
        context = self._context(asked)
        refusal = self._refusal(asked, body, unreadable, context)
        with self._lock:
            number = next(self._ids)
            request_id = f"req_fake_{number:06}"
            answered: Answered | None
            delays: list[Delayed] = []
            if refusal:
                answered = refused(refusal, request_id)
            elif counting:
                answered = counts(body, request_id)
            else:
                answered, delays = self._answering.next(asked.body, body, context, request_id)
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
                )
            )
        for delay in delays:
            self._wait(delay)
        return answered

    def _wait(self, delay: Delayed) -> None:
        with self._lock:
            if self._closed:
                return
            self._waiting.add(delay.released)
        delay.arrived.set()
        delay.released.wait(delay.seconds)

    def _context(self, asked: Asked) -> Context:
        return Context(
            betas=frozenset(filter(None, map(str.strip, asked.headers.get("anthropic-beta", "").split(",")))),
            version=asked.headers.get("anthropic-version", NEWEST_VERSION),
            has_model=self._has_model,
            is_own=self._memory.is_own,
            is_paused=self._memory.is_paused,
        )

    def _refusal(self, asked: Asked, body: Any, unreadable: str | None, context: Context) -> Refusal | None:
        path = asked.path.partition("?")[0]
        if asked.method != "POST" or path not in {_MESSAGES, _COUNTING}:
            return Refusal(f"Not found: {asked.method} {asked.path}", 404, "not_found_error")
        if unreadable:
            return Refusal(f"The request body is not valid JSON: {unreadable}")
        if not self._enforce:
            return None
        if not (asked.headers.get("x-api-key") or asked.headers.get("authorization")):
            return Refusal("x-api-key header is required", 401, "authentication_error")
        if len(asked.body) > MOST_BYTES:
            return Refusal("Request exceeds the maximum size", 413, "request_too_large")
        return judge(body, context, self._signer, counts=path == _COUNTING)

    def _has_model(self, name: str) -> bool:
        return exists(name) if self._models is None else name in self._models


def _decoded(body: bytes) -> tuple[Any, str | None]:
    try:
        return json.loads(body, parse_constant=_no_constant), None
    except ValueError as error:
        return None, str(error)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
