"""Answers: from the script to the bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from toolloop.machine.values.jsontext import encode
from toolloop.providers.scripted import Completion, fill_in_seals
from toolloop.testing.api.http import Answered
from toolloop.testing.api.replies import Delayed, Dropped, Fault, Verbatim
from toolloop.testing.api.streams import Delivery, Streamed, frames_of, frames_of_text

if TYPE_CHECKING:
    from toolloop.testing.api.api_refusals import Refusal
    from toolloop.testing.api.conversations import Threads
    from toolloop.testing.api.prompt_cache import PromptCache
    from toolloop.testing.api.signing import Memory, Signer

APIAnswer = Mapping[str, Any] | Fault | Dropped | Delayed | Verbatim | Streamed
APIScript = Iterable[APIAnswer] | Callable[[dict[str, Any]], APIAnswer]

_JSON = "application/json"
_EVENTS = "text/event-stream; charset=utf-8"
_NO_RETRY = {"x-should-retry": "false"}


@frozen
class Incoming:
    """A request to answer.

    Attributes:
        body: the decoded body, with the messages that the server keeps before its own; the script's function gets a
            copy.
        betas: the betas that it enables.
        id: the id of the request, for the answer.

    """

    body: dict[str, Any]
    betas: frozenset[str]
    id: str


class Answering:
    """Takes answers from a script and completes them.

    Args:
        script: see `FakeMessagesAPI`.
        memory: remembers the replies.
        signer: signs thinking and compaction blocks; if None, they get a placeholder.
        threads: keeps the conversations of message threads.
        cache: keeps the beginnings of requests; None for no cache.

    """

    def __init__(
        self, script: APIScript, memory: Memory, signer: Signer | None, threads: Threads, cache: PromptCache | None
    ) -> None:
        """Take the script."""
        self._function = script if callable(script) else None
        self._answers = iter(()) if callable(script) else iter(script)
        self._memory = memory
        self._signer = signer
        self._threads = threads
        self._cache = cache
        self._complete = Completion()

    def next(self, asked: Incoming) -> tuple[Answered | None, list[Delayed]]:
        """Return the next answer, None for a dropped connection, and the delays before it."""
        delays: list[Delayed] = []
        # The script is the test's own code: its errors must reach the client.
        try:
            answer = self._function(json.loads(json.dumps(asked.body))) if self._function else next(self._answers, None)
            while isinstance(answer, Delayed):
                delays.append(answer)
                answer = answer.answer
            if isinstance(answer, Mapping) and asked.body.get("stream"):
                answer = Streamed(answer)
            return self._ready(answer, asked), delays
        except Exception as error:  # noqa: BLE001 - see above
            return _error(asked.id, 500, "api_error", f"the script raised {error!r}", _NO_RETRY), []

    def _ready(self, answer: APIAnswer | None, asked: Incoming) -> Answered | None:
        match answer:
            case None:
                text = f"the script has run out: there is no answer for {asked.id}"
                return _error(asked.id, 500, "api_error", text, _NO_RETRY)
            case Dropped():
                return None
            case Fault(status=status, type=kind, message=text, retry_after=seconds):
                wait = {} if seconds is None else {"retry-after": f"{seconds:g}"}
                return _error(asked.id, status, kind, text, wait)
            case Verbatim(status=status, headers=headers, body=content):
                return Answered(status, {"content-type": _JSON, **headers}, _raw(content))
            case Mapping():
                message = self._message(answer, asked)
                return Answered(200, {"content-type": _JSON, "request-id": asked.id}, encode(message).encode())
            case Streamed():
                return self._delivered(answer, asked)
        raise TypeError(
            f"{answer!r} is not an answer. Use reply, compacted, fault, dropped, delayed, html, verbatim or streamed"
        )

    def _delivered(self, how: Streamed, asked: Incoming) -> Answered:
        if not asked.body.get("stream"):
            raise ValueError("the answer is streamed(...), but the request does not ask for a stream")
        if isinstance(how.answer, Verbatim):
            headers = {"content-type": _EVENTS, **how.answer.headers}
            return Answered(how.answer.status, headers, Delivery(frames_of_text(_raw(how.answer.body), how), how))
        headers = {"content-type": _EVENTS, "request-id": asked.id}
        return Answered(200, headers, Delivery(frames_of(self._message(how.answer, asked), how), how))

    def _message(self, answer: Mapping[str, Any], asked: Incoming) -> dict[str, Any]:
        body = asked.body
        used = None if self._cache is None else self._cache.use(body)
        message = self._complete(answer if used is None else {"usage": used, **answer}, body.get("model"))
        if body.get("context_management"):
            message.setdefault("context_management", {"applied_edits": []})
        if body.get("compaction"):
            kinds = [block["type"] for block in message["content"]]
            if kinds != ["compaction"] or message["stop_reason"] != "compaction":
                raise ValueError("the answer to a request with `compaction` must be a summary alone. Use compacted")
            if self._signer:
                message["content"] = [self._signer.sign_summary(message["content"][0])]
        elif self._signer:
            message["content"] = self._signer.sign(message["content"], body)
        fill_in_seals(message["content"], "unsigned")
        self._memory.add(message["content"], message["stop_reason"])
        self._threads.keep(body, asked.betas, message)
        return message


def refused(refusal: Refusal, request_id: str) -> Answered:
    """Return the API's answer to a broken rule."""
    details = {"details": {"error_code": refusal.error_code}} if refusal.error_code else {}
    return _error(request_id, refusal.status, refusal.type, refusal.message, _NO_RETRY, details)


def _error(  # noqa: PLR0913, PLR0917 - the parts of an error answer
    request_id: str,
    status: int,
    kind: str,
    message: str,
    headers: Mapping[str, str],
    more: Mapping[str, Any] = {},
) -> Answered:
    error = {"type": kind, "message": message, **more}
    raw = encode({"type": "error", "error": error, "request_id": request_id}).encode()
    return Answered(status, {"content-type": _JSON, "request-id": request_id, **headers}, raw)


def _raw(content: Mapping[str, Any] | str | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    return content.encode() if isinstance(content, str) else encode(dict(content)).encode()
