"""A chat service: people talk with an agent in their browsers, and decide what its tools may do.

    pip install 'toolloop[inbox]' 'fastapi>=0.135' uvicorn
    uvicorn --app-dir docs/examples --workers 2 --timeout-graceful-shutdown 5 chat_service:app

It needs ANTHROPIC_API_KEY, BANK (the address of a service that pays), and a proxy that logs people in: see `person`.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import httpx2
from anthropic import AsyncAnthropic
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field

from toolloop import Answer, Approve, AsyncInbox, AsyncToolLoopHandle, AsyncWorker, Deny, Rerun, SqliteStore, tool
from toolloop.errors import CallerError, Conflict, LoopNotFound, UnknownCall


@tool(needs_approval=True)
def refund(order: int, euros: int) -> str:
    """Pay money back."""
    return httpx2.post(os.environ["BANK"], json={"order": order, "euros": euros}, timeout=60).raise_for_status().text


STORE = SqliteStore(os.environ.get("LOOPS", "loops.db"))
INBOX = AsyncInbox(STORE)
CLIENT = AsyncAnthropic()
WORKER = AsyncWorker(STORE, CLIENT, [refund], live=0.25)  # pages show words as the model writes them
PARAMS = {"model": "claude-opus-5-5", "max_tokens": 2048, "system": "You help the clerks of a shop."}


@asynccontextmanager
async def working(_: FastAPI) -> AsyncGenerator[None]:
    """Drive chats, of all processes, while this process serves."""
    stopped = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(WORKER.run(stopped))
        yield
        stopped.set()


async def refuse(_: Request, error: Exception) -> JSONResponse:
    """Say what is not possible, such as a late decision."""
    return JSONResponse({"detail": str(error)}, 404 if isinstance(error, (UnknownCall, LoopNotFound)) else 409)


app = FastAPI(lifespan=working, exception_handlers=dict.fromkeys((CallerError, Conflict, LoopNotFound), refuse))


class Words(BaseModel, extra="forbid", strict=True):
    """What a person says."""

    text: str = Field(min_length=1, max_length=10_000)


class Click(BaseModel, extra="forbid", strict=True):
    """A decision on a call, with the digest of the call that the page showed."""

    do: Literal["approve", "deny", "answer", "rerun"]
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    input: dict[str, Any] | None = None  # approve: another input than the model's
    text: str = Field("no reason given", min_length=1, max_length=10_000)  # deny: why; answer: the result

    def decision(self, by: str) -> Approve | Deny | Answer | Rerun:
        """Return the decision of this person on exactly that call."""
        match self.do:
            case "approve":
                return Approve(self.input, by=by, digest=self.digest)
            case "deny":
                return Deny(self.text, by=by, digest=self.digest)
            case "answer":
                return Answer(self.text, by=by, digest=self.digest)
            case "rerun":
                return Rerun(by=by, digest=self.digest)


def person(request: Request) -> str:
    """Return who is logged in: `x-user`, which only the proxy may set. A page of another site cannot act for them."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is not None:  # an old browser, or no HTTPS
        site = "same-origin" if origin.partition("://")[2] == request.headers.get("host") else "cross-site"
    if site not in ("same-origin", "none", None):  # "none": an address that was typed; None: no browser
        raise HTTPException(403, "this request comes from a page of another site")
    if not (name := request.headers.get("x-user")):
        raise HTTPException(403, "nobody is logged in")
    return name


def own_chat(chat: uuid.UUID, by: Annotated[str, Depends(person)]) -> str:
    """Return the id of a chat of this person. One of somebody else is not found."""
    if STORE.head(str(chat)).metadata.get("owner") != by:
        raise LoopNotFound(str(chat))
    return str(chat)


Person = Annotated[str, Depends(person)]
Chat = Annotated[str, Depends(own_chat)]


@app.post("/chats", status_code=201)
async def begin(said: Words, by: Person) -> str:
    """Begin a chat. A worker drives it."""
    chat, metadata = str(uuid.uuid4()), {"owner": by, "title": said.text[:60]}
    params = {**PARAMS, "messages": [{"role": "user", "content": said.text}]}
    async with AsyncToolLoopHandle.open(STORE, chat, CLIENT, tools=[refund], params=params, metadata=metadata):
        return chat


@app.get("/chats")
def chats(by: Person) -> list[dict[str, str]]:
    """List the chats of this person, the last one first."""
    rows = STORE.list(metadata={"owner": by}, limit=1000)
    return [{"chat": row.loop_id, "title": row.metadata["title"], "status": row.status} for row in rows]


@app.post("/chats/{chat}/words", status_code=202)
async def say(chat: Chat, said: Words, by: Person) -> None:
    """Say something: while the agent works, while a call waits, or as the next turn."""
    await INBOX.say(chat, said.text, by=by)


@app.post("/chats/{chat}/calls/{call}", status_code=202)
async def decide(chat: Chat, call: str, click: Click, by: Person) -> None:
    """Decide a call; also an `uncertain` one, which ran when a process died."""
    await INBOX.decide(chat, {call: click.decision(by)})


@app.post("/chats/{chat}/{what}", status_code=202)
async def command(chat: Chat, what: Literal["stop", "retry"], by: Person) -> None:
    """End the agent's turn, or try a request again that the worker gave up."""
    await (INBOX.stop(chat, "stopped in the chat", by=by) if what == "stop" else INBOX.retry(chat, by=by))


@app.get("/chats/{chat}/events", response_class=EventSourceResponse)
async def events(chat: Chat, last_event_id: Annotated[str, Header()] = "") -> AsyncGenerator[ServerSentEvent]:
    """Show the chat now and after each change. A page that comes back gets what it has not seen."""
    async for change in INBOX.watch(chat):
        if (now := f"{change.rev}-{change.changed}") != last_event_id:
            last_event_id, row = now, await asyncio.to_thread(STORE.head, chat)
            yield ServerSentEvent(id=now, data={**await INBOX.show(chat), "retry_at": row.head.retry_at})
        if change.text is not None:  # the model writes
            yield ServerSentEvent(id=now, event="words", data=change.text)
