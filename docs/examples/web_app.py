"""A web service whose users approve refunds: any worker process answers any request, and none of them holds a loop.

    uvicorn --app-dir docs/examples --workers 2 web_app:app

It needs `starlette` and `uvicorn`, and ANTHROPIC_API_KEY. LOOPS names the file that keeps the loops, BANK the address
of the service that pays. A proxy in front logs people in, and says in `x-user` who it is; a page must not say that.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import httpx2
from anthropic import AsyncAnthropic
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from toolloop import Approve, AsyncToolLoopHandle, Deny, SqliteStore, tool
from toolloop.errors import CallerError, Conflict, LoopNotFound, UnknownCall


@tool(needs_approval=True)
def refund(order: int, euros: int) -> str:
    """Pay money back."""
    return httpx2.post(os.environ["BANK"], json={"order": order, "euros": euros}, timeout=60).raise_for_status().text


STORE = SqliteStore(Path(os.environ.get("LOOPS", "loops.db")))
CLIENT = AsyncAnthropic()
TOOLS = [refund]


async def decide(request: Request) -> JSONResponse:
    """A person's word on a call, and on to the next point where a person is needed."""
    said, by = await request.json(), request.headers["x-user"]
    word = Approve(by=by, digest=said["digest"]) if said["ok"] else Deny(said["why"], by=by, digest=said["digest"])
    async with AsyncToolLoopHandle.open(STORE, request.path_params["loop"], CLIENT, tools=TOOLS) as handle:
        handle.decide({request.path_params["call"]: word})
        await handle.run()
        return JSONResponse(handle.view())


async def refuse(_: Request, error: Exception) -> JSONResponse:
    """What the loop does not allow: it is not there, or it is somebody else's turn, or the page was stale."""
    return JSONResponse({"error": str(error)}, 404 if isinstance(error, UnknownCall | LoopNotFound) else 409)


async def ask(request: Request) -> JSONResponse:
    """Start a loop with a question."""
    messages = [{"role": "user", "content": (await request.json())["question"]}]
    params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": messages}
    async with AsyncToolLoopHandle.open(STORE, uuid.uuid4().hex, CLIENT, tools=TOOLS, params=params) as handle:
        await handle.run()
        return JSONResponse(handle.view(), 201)


async def show(request: Request) -> JSONResponse:
    """What a page shows of a loop."""
    async with AsyncToolLoopHandle.open(STORE, request.path_params["loop"], CLIENT, tools=TOOLS) as handle:
        return JSONResponse(handle.view())


async def go_on(request: Request) -> JSONResponse:
    """Go on with a loop that a worker left behind when it died."""
    async with AsyncToolLoopHandle.open(STORE, request.path_params["loop"], CLIENT, tools=TOOLS) as handle:
        await handle.run()
        return JSONResponse(handle.view())


def waiting(_: Request) -> JSONResponse:
    """The loops that wait for a person, the newest first."""
    return JSONResponse([loop.loop_id for loop in STORE.list("needs_decision")])


app = Starlette(
    routes=[
        Route("/loops", waiting, methods=["GET"]),
        Route("/loops", ask, methods=["POST"]),
        Route("/loops/{loop}", show, methods=["GET"]),
        Route("/loops/{loop}", go_on, methods=["POST"]),
        Route("/loops/{loop}/calls/{call}", decide, methods=["POST"]),
    ],
    exception_handlers=dict.fromkeys((CallerError, Conflict, LoopNotFound), refuse),
)
