"""A server in a thread of this process, and what is sent to it without the protocol's library."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
from attrs import define
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.agui.site import model
from tests.inbox.page.browser import serving
from toolloop import MemoryStore, SqliteStore, tool
from toolloop.agui import agui_app
from toolloop.testing import FakeMessagesAPI, verbatim

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 1024}
HELLO = {"id": "u1", "role": "user", "content": "hello"}
REST: dict[str, Any] = {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
SENT = {"x-user": "ana", "content-type": "application/json"}
PIECES = 60  # of a long reply, which together are more than a server keeps for a client
PIECE = "x" * 30_000


@tool(needs_approval=True)
def write_file(path: str, text: str) -> str:
    """Replace a text file."""
    return f"wrote {len(text)} characters to {path}"


@define
class Door:
    """A server in a thread, and requests to it."""

    url: str
    http: httpx2.Client
    store: MemoryStore | SqliteStore
    api: FakeMessagesAPI

    def post(self, *messages: Any, headers: Any = SENT, path: str = "/", **more: Any) -> httpx2.Response:
        """Send the input of a run."""
        given = {"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": [], "state": {}} | more
        return self.http.post(self.url + path, headers=headers, content=json.dumps(given | {"forwardedProps": {}}))

    def run(self, *messages: Any, **more: Any) -> list[Any]:
        """Run, and return the events."""
        answer = self.post(*messages, **more)
        assert answer.status_code == 200, answer.text
        frames = answer.text.split("\n\n")
        events = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame.startswith("data: ")]
        assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
        return events

    def notes(self, *messages: Any, **more: Any) -> list[Any]:
        """Run, and return what was not applied."""
        return [note for event in self.run(*messages, **more) if event["type"] == "CUSTOM" for note in event["value"]]


def long_reply() -> str:
    """Return a stream with a text in large pieces."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": []}
    pieces = [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": PIECE}}] * PIECES
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *pieces,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def answer(request: Any) -> Any:
    """Answer as the model of the other tests, or at great length."""
    if "long" in str(request["messages"][-1]["content"]):
        return verbatim(200, {"content-type": "text/event-stream"}, long_reply())
    return model(request, set())


def mounted(app: Starlette, client: Any) -> Starlette:
    """Mount the application in another one, whose lifespan includes its own, and closes the client of the model."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client, app.router.lifespan_context(app):
            yield

    return Starlette(routes=[Mount("/", app)], lifespan=lifespan)


def who(request: Any) -> Any:
    """Return the person of a request."""
    if request.headers.get("x-user") == "broken":
        raise RuntimeError
    return request.headers.get("x-user")


@contextmanager
def opened(store: MemoryStore | SqliteStore, **given: Any) -> Iterator[Door]:
    """Serve an application over a store."""
    with FakeMessagesAPI(answer) as api:
        client = api.async_client()
        given = {"params": PARAMS, "who": who, "front_end_tools": ["get_*"], **given}
        app = agui_app(store, client, **{"tools": [write_file], **given})
        with (
            serving(mounted(app, client), send_buffer=16_384) as url,
            httpx2.Client(trust_env=False, timeout=60) as http,
        ):
            yield Door(url, http, store, api)
