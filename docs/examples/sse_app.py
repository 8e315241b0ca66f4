"""Server-sent events: a page sees what the model writes while it writes. Leaving ends the request, not the loop."""
# Run it with `uvicorn --app-dir docs/examples sse_app:app`. It needs starlette, uvicorn and ANTHROPIC_API_KEY.

from __future__ import annotations

import json

import anyio
from anthropic import AsyncAnthropic
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send
from web_guard import REFUSALS, Click, own_loop, person

from toolloop import AsyncToolLoopHandle, SqliteStore, tool
from toolloop.events import CallStarted, TextDelta


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Pay an order back."""
    return f"order {order} is paid back"


STORE, CLIENT, TOOLS = SqliteStore("loops.db"), AsyncAnthropic(), [refund]
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}


class Said(BaseModel, extra="forbid", strict=True):
    """What a page sends: a question begins a loop; decisions on calls, or nothing, let it go on."""

    question: str | None = None
    calls: dict[str, Click] = {}


async def live(scope: Scope, receive: Receive, send: Send) -> None:
    """Begin a loop, decide its calls, or just go on; show what happens until a person is needed."""
    request = Request(scope, receive)
    loop_id, by, said = own_loop(request), person(request), Said.model_validate_json(await request.body())
    messages = [{"role": "user", "content": said.question}]
    params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": messages} if said.question else None

    async def tell(kind: str, value: object) -> None:  # it waits where the page reads slowly, and so does the model
        body = f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()
        await send({"type": "http.response.body", "body": body, "more_body": kind != "view"})

    async def leave() -> None:
        await receive()  # the request was read, so this is that the page has gone, or has got all
        tasks.cancel_scope.cancel()

    async with AsyncToolLoopHandle.open(STORE, loop_id, CLIENT, tools=TOOLS, params=params) as handle:
        handle.decide({call: click.decision(by) for call, click in said.calls.items()})
        await handle.flush()  # a decision that is refused is answered with its status, before the stream begins
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)
            await send(START)
            while not handle.is_finished and not handle.pending:
                if (turn := handle.pending_turn) is not None:
                    turn.continue_loop()
                async with handle.stream_turn() as stream:
                    async for event in stream:
                        if isinstance(event, TextDelta | CallStarted):
                            await tell(type(event).__name__, event.text if isinstance(event, TextDelta) else event.name)
            await tell("view", handle.view())


app = Starlette(routes=[Mount("/loops/{loop:uuid}", live)], exception_handlers=REFUSALS)
