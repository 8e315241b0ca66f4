"""From the script to the bytes on the wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolloop.providers.scripted import Completion
from toolloop.testing import sse
from toolloop.testing.counting import counted
from toolloop.testing.http import Answered
from toolloop.testing.models import model
from toolloop.testing.refusals import THINKING_CONTROLS
from toolloop.testing.replies import Delayed, Dropped, Fault, Verbatim
from toolloop.testing.runs import runs_of
from toolloop.testing.signing import Prefix
from toolloop.testing.streams import Delivery, Streamed, laid_out, laid_out_verbatim

if TYPE_CHECKING:
    from toolloop.testing.memory import Memory
    from toolloop.testing.refusals import Context, Refusal
    from toolloop.testing.signing import Signer

Answer = Mapping[str, Any] | Fault | Dropped | Delayed | Verbatim | Streamed
Script = Iterable[Answer] | Callable[[dict[str, Any]], Answer]

_JSON = "application/json"
_EVENTS = "text/event-stream; charset=utf-8"


class Answering:
    """Takes answers from a script and makes them whole.

    Args:
        script: see `FakeMessagesAPI`.
        memory: learns what is handed out.
        signer: signs thinking blocks; without one they get a mark in place of a signature.

    """

    def __init__(self, script: Script, memory: Memory, signer: Signer | None) -> None:
        """Take the script."""
        self._function = script if callable(script) else None
        self._answers = iter(()) if callable(script) else iter(script)
        self._memory = memory
        self._signer = signer
        self._complete = Completion()

    def next(
        self, raw: bytes, body: dict[str, Any], context: Context, request_id: str
    ) -> tuple[Answered | None, list[Delayed]]:
        """The next answer, ready to be sent, and the delays before it. None is a dropped connection.

        Args:
            raw: the body as it came; a function gets a decoded copy of its own.
            body: the same, decoded.
            context: the headers and the memory of the server.
            request_id: names the answer.

        """
        delays: list[Delayed] = []
        # The script is the test's own code: what goes wrong in it must reach the client as words, never as silence.
        try:
            answer = self._function(json.loads(raw)) if self._function else next(self._answers, None)
            while isinstance(answer, Delayed):
                delays.append(answer)
                answer = answer.answer
            if isinstance(answer, Mapping) and body.get("stream"):
                answer = Streamed(answer=answer)
            return self._ready(answer, body, context, request_id), delays
        except Exception as error:  # noqa: BLE001 - see above
            return _error(request_id, 500, "api_error", f"the script raised {error!r}", {"x-should-retry": "false"}), []

    def _ready(self, answer: Answer | None, body: dict[str, Any], context: Context, request_id: str) -> Answered | None:
        match answer:
            case None:
                text = f"the script has run out: there is no answer for {request_id}"
                return _error(request_id, 500, "api_error", text, {"x-should-retry": "false"})
            case Dropped():
                return None
            case Fault(status=status, type=kind, message=text, retry_after=seconds):
                wait = {} if seconds is None else {"retry-after": f"{seconds:g}"}
                return _error(request_id, status, kind, text, wait)
            case Verbatim(status=status, headers=headers, body=content):
                return Answered(status, {"content-type": _JSON, **headers}, _raw(content))
            case Mapping():
                message = self._message(answer, body, context)
                return Answered(200, {"content-type": _JSON, "request-id": request_id}, sse.dumps(message))
            case Streamed():
                return self._delivered(answer, body, context, request_id)
        raise TypeError(
            f"{answer!r} is no answer: give what reply, fault, dropped, delayed, html, verbatim or streamed makes"
        )

    def _delivered(self, how: Streamed, body: dict[str, Any], context: Context, request_id: str) -> Answered:
        if not body.get("stream"):
            raise ValueError("the answer is streamed(...), and the request asks for no stream")
        if isinstance(how.answer, Verbatim):
            headers = {"content-type": _EVENTS, **how.answer.headers}
            return Answered(how.answer.status, headers, Delivery(laid_out_verbatim(_raw(how.answer.body), how), how))
        frames = laid_out(self._message(how.answer, body, context), how)
        return Answered(200, {"content-type": _EVENTS, "request-id": request_id}, Delivery(frames, how))

    def _message(self, answer: Mapping[str, Any], body: dict[str, Any], context: Context) -> dict[str, Any]:
        message = self._complete(answer, body.get("model"))
        if body.get("compaction"):
            self._answer_with_summary(message)
        if body.get("context_management"):
            message.setdefault("context_management", {"applied_edits": []})
        if context.has_beta(THINKING_CONTROLS):
            lost = self._signer.dropped(body, model(body["model"])) if self._signer else []
            message.setdefault("input_transformations", lost)
        if any(block["type"] in {"thinking", "redacted_thinking"} for block in message["content"]):
            if self._signer:
                prefix = Prefix(body, runs_of(body["messages"]))
                message["content"] = self._signer.sign(message["content"], prefix)
            for block in message["content"]:
                if block["type"] == "thinking":
                    block.setdefault("signature", "unsigned")
                elif block["type"] == "redacted_thinking":
                    block.setdefault("data", "unsigned")
        self._memory.add(message["content"], message["stop_reason"])
        return message

    def _answer_with_summary(self, message: dict[str, Any]) -> None:
        if [block["type"] for block in message["content"]] != ["compaction"] or message["stop_reason"] != "compaction":
            raise ValueError("a request with `compaction` is answered with a summary alone: give what compacted makes")
        if self._signer:
            message["content"] = [self._signer.sign_summary(message["content"][0])]


def counts(body: dict[str, Any], request_id: str) -> Answered:
    """The answer to a request to count tokens."""
    return Answered(200, {"content-type": _JSON, "request-id": request_id}, sse.dumps(counted(body)))


def refused(refusal: Refusal, request_id: str) -> Answered:
    """The API's answer to a broken rule."""
    details = {"details": {"error_code": refusal.error_code}} if refusal.error_code else {}
    headers = {"x-should-retry": "false"}
    return _error(request_id, refusal.status, refusal.type, refusal.message, headers, details)


def _error(  # noqa: PLR0913, PLR0917 - the parts of an error answer
    request_id: str,
    status: int,
    kind: str,
    message: str,
    headers: Mapping[str, str],
    more: Mapping[str, Any] = {},
) -> Answered:
    error = {"type": kind, "message": message, **more}
    raw = sse.dumps({"type": "error", "error": error, "request_id": request_id})
    return Answered(status, {"content-type": _JSON, "request-id": request_id, **headers}, raw)


def _raw(content: Mapping[str, Any] | str | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    return content.encode() if isinstance(content, str) else sse.dumps(dict(content))
