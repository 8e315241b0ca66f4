"""A web service whose users approve refunds: any worker process answers any request, and none of them holds a loop.

    uvicorn --app-dir docs/examples --workers 2 web_app:app

It needs `starlette` and `uvicorn`, and ANTHROPIC_API_KEY. LOOPS names the file that keeps the loops, BANK the address
of the service that pays. A proxy in front logs people in and sets `x-user`; it removes an `x-user` that a client sends.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import httpx2
from anthropic import AsyncAnthropic
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from web_guard import REFUSALS, Click, own_loop, person

from toolloop import AsyncToolLoopHandle, SqliteStore, tool


@tool(needs_approval=True)
def refund(order: int, euros: int) -> str:
    """Pay money back."""
    return httpx2.post(os.environ["BANK"], json={"order": order, "euros": euros}, timeout=60).raise_for_status().text


STORE = SqliteStore(Path(os.environ.get("LOOPS", "loops.db")))
CLIENT = AsyncAnthropic()
TOOLS = [refund]


class Question(BaseModel, extra="forbid", strict=True):
    """What a person asks."""

    question: str = Field(min_length=1, max_length=10_000)


async def decide(request: Request) -> JSONResponse:
    """Take a person's decision on a call, and go on to the next point where a person is needed."""
    loop, by = own_loop(request), person(request)
    click = Click.model_validate_json(await request.body())
    async with AsyncToolLoopHandle.open(STORE, loop, CLIENT, tools=TOOLS) as handle:
        handle.decide({request.path_params["call"]: click.decision(by)})
        await handle.run()
        return JSONResponse(handle.view())


async def ask(request: Request) -> JSONResponse:
    """Start a loop with a question."""
    by, said = person(request), Question.model_validate_json(await request.body())
    messages = [{"role": "user", "content": said.question}]
    params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": messages}
    loop = uuid.uuid4()
    async with AsyncToolLoopHandle.open(STORE, f"{by}/{loop}", CLIENT, tools=TOOLS, params=params) as handle:
        await handle.run()
        return JSONResponse(handle.view(), 201, {"location": f"/loops/{loop}"})


async def show(request: Request) -> JSONResponse:
    """Return what a page shows of a loop."""
    async with AsyncToolLoopHandle.open(STORE, own_loop(request), CLIENT, tools=TOOLS) as handle:
        return JSONResponse(handle.view())


async def go_on(request: Request) -> JSONResponse:
    """Go on with a loop that a worker left behind when it died."""
    async with AsyncToolLoopHandle.open(STORE, own_loop(request), CLIENT, tools=TOOLS) as handle:
        await handle.run()
        return JSONResponse(handle.view())


def waiting(request: Request) -> JSONResponse:
    """Return the addresses of this person's loops that wait for them: of the last thousand that wait."""
    by, ids = person(request), [loop.loop_id.rpartition("/") for loop in STORE.list("needs_decision", limit=1000)]
    return JSONResponse([f"/loops/{name}" for owner, _, name in ids if owner == by])


app = Starlette(
    routes=[
        Route("/loops", waiting, methods=["GET"]),
        Route("/loops", ask, methods=["POST"]),
        Route("/loops/{loop:uuid}", show, methods=["GET"]),
        Route("/loops/{loop:uuid}", go_on, methods=["POST"]),
        Route("/loops/{loop:uuid}/calls/{call}", decide, methods=["POST"]),
    ],
    exception_handlers=REFUSALS,
)
