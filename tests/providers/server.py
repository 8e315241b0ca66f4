"""A scripted HTTP server that answers with any bytes."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-5-5",
    "content": [{"type": "text", "text": "Hi."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 2},
}


@frozen
class Answer:
    """An answer: `drop` closes the connection first, `cut` in the middle of the body.

    `hang` says nothing, `stall` nothing after the body, until the test is over.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)
    fault: Literal["drop", "cut", "hang", "stall"] | None = None


@frozen
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@frozen
class Server:
    url: str
    received: list[Received]
    arrived: threading.Event  # set by the first request


def message(**changes: Any) -> Answer:
    return Answer(json.dumps(MESSAGE | changes).encode(), headers={"request-id": "req_1"})


def refusal(status: int, kind: str = "api_error", **headers: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": "No."}, "request_id": "req_1"}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(json.dumps(body).encode(), status, {"request-id": "req_1", **names})


def stream(*events: Mapping[str, Any], fault: Literal["cut", "stall"] | None = None) -> Answer:
    frames = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Answer(frames.encode(), headers={"content-type": "text/event-stream", "request-id": "req_1"}, fault=fault)


@contextmanager
def serving(*answers: Answer) -> Iterator[Server]:
    """Answer in order; the last answer repeats."""
    received: list[Received] = []
    arrived, over = threading.Event(), threading.Event()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answers, received, arrived, over))
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{httpd.server_address[1]}", received, arrived)
    finally:
        over.set()
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def _handler(
    answers: Sequence[Answer], received: list[Received], arrived: threading.Event, over: threading.Event
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            received.append(Received(self.path, headers, body))
            arrived.set()
            answer = answers[min(len(received), len(answers)) - 1]
            if answer.fault == "hang":
                over.wait()
            if answer.fault in {"hang", "drop"}:
                return
            self.send_response(answer.status)
            length = len(answer.body) + (100 if answer.fault in {"cut", "stall"} else 0)
            for name, value in {"content-type": "application/json", **answer.headers, "content-length": length}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(answer.body)
            if answer.fault == "stall":
                over.wait()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    return Handler
